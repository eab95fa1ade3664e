"""decode_jpeg: decode JPEG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.extract.images.decode import Dct
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.decoding import Decoding
from gpupipe.ops._shared.samples import encoded, picture

__all__ = ["DecodeJpeg", "DecodeSmallerJpeg", "decode_jpeg"]

_SMALLER = Dct(2)


@dataclass(frozen=True, slots=True)
class DecodeJpeg(Decoding):
    """Decode a JPEG, or any other format of `Decoding`: photographs with the wrong extension are common.

    On the CPU all executors give libjpeg's pixels. On the GPU the decoder may differ by a few levels of 255.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """

    legal: ClassVar[tuple[int, ...]] = (0, 1, 3)


@dataclass(frozen=True, slots=True)
class DecodeSmallerJpeg(Decoding):
    """Decode a JPEG with another inverse DCT, on the host under every executor.

    Attributes:
        dct: the size of its result, and whether it is the fast one.

    Shapes: ``bytes -> uint8[ceil(H/ratio),ceil(W/ratio),C]{HWC}``
    """

    decodes: ClassVar[bool] = False
    decodes_on_host: ClassVar[bool] = True
    domain: ClassVar[Any] = "host"
    legal: ClassVar[tuple[int, ...]] = (0, 1, 3)

    dct: Dct = _SMALLER

    @property
    def name(self) -> str:
        return "decode_jpeg"

    def reference(self, data: Any) -> Array:
        return self.on_host(data, dct=self.dct)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        files = {
            "4:4:4": encoded(picture(29, 37), quality=90, subsampling=0),
            "4:2:0": encoded(picture(31, 18), quality=85, subsampling=2),
            "gray": encoded(picture(29, 37, 1), quality=90),
            "cmyk": encoded(picture(29, 37), mode="CMYK", quality=90),
        }
        for name, file in files.items():
            for dct in (Dct(1, True), Dct(2), Dct(4), Dct(8, True)):
                yield Case(cls(0, dct=dct), (file,), (None,), note=f"{name}-{dct.ratio}" + "-fast" * dct.fast)
        upright = encoded(picture(17, 29), quality=90, orientation=6)
        yield Case(cls(1, True, Dct(2)), (upright,), (None,), note="upright-2")


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    *,
    dct_method: Literal["", "INTEGER_ACCURATE", "INTEGER_FAST"] = "",
    exif_orientation: bool = False,
) -> Any:
    """Decode a JPEG, as `tf.io.decode_jpeg` does.

    Args:
        contents: the bytes of the file. PNG, WebP, BMP and TIFF are decoded too.
        channels: 3 RGB; 1 gray (the Y plane); 0 gives 1 for a gray image and 3 for any other, even with transparency.
        ratio: 1, 2, 4 or 8: decode an image of 1/ratio of the size, in a fraction of the time. Done on the host under
            every executor, as is the fast DCT; an image of another format is then a bad one.
        dct_method: "INTEGER_FAST" is libjpeg's faster inverse DCT, with an error of a few levels. The others are the
            accurate one; TensorFlow takes the fast one for "".
        exif_orientation: rotate the image upright by its EXIF orientation. TensorFlow and plain Pillow do not.

    Shapes: ``bytes -> uint8[ceil(H/ratio),ceil(W/ratio),C]{HWC}``

    Raises:
        SpecError: `contents` is not bytes, `channels` is not 0, 1 or 3, or another argument is not one of its values.
        DecodeError: at run time: the bytes are not an image, or are a damaged one; a JPEG without its end marker is
            damaged, even if zeros fill the marker's bytes.

    Example:
        >>> decode_jpeg(open("photograph.jpg", "rb").read(), channels=3)  # doctest: +SKIP
    """
    if isinstance(ratio, bool) or ratio not in (1, 2, 4, 8):
        raise SpecError(f"decode_jpeg needs ratio from 1, 2, 4, 8, got {ratio!r}")
    if dct_method not in ("", "INTEGER_ACCURATE", "INTEGER_FAST"):
        raise SpecError(f"decode_jpeg needs dct_method INTEGER_ACCURATE or INTEGER_FAST, got {dct_method!r}")
    dct = Dct(int(ratio), dct_method == "INTEGER_FAST")
    if dct == Dct():
        return apply(DecodeJpeg(channels, exif_orientation), contents)
    return apply(DecodeSmallerJpeg(channels, exif_orientation, dct), contents)
