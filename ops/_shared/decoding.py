"""decoding: the base of all decoders, and the decoders that DALI cannot run.

A decoder takes JPEG, PNG, WebP, BMP and TIFF, whatever its name says. GIF is refused. So is a PNG with a broken
structure or missing rows, and a decompression bomb: a JPEG of more than 20 scans that cover more than 2**32 pixels in
total, or a side of more than a million pixels. A JPEG must have its end marker, as for TensorFlow: bytes after it are
allowed, but zeros in its place are not, although Pillow and DALI would accept them.

Which images are bad, and the pixels of the good ones, do not depend on the executor. DALI decodes what all decoders
agree on: JPEGs as cameras and the web make them (baseline and progressive, gray and colour, any subsampling, with all
of their scans), PNGs of up to 8 bits and uncompressed BMPs. Everything else is decoded on the host by every executor.
An image that DALI refuses is decoded on the host too: if that succeeds, the image is good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.headers import read_header
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.spec import TensorSpec

__all__ = ["Decoding", "FusedDecoding", "NativeDecoding", "check_decoding", "decode_call", "decoder"]

GRAY_REASON = "DALI and Pillow round the gray of colours differently"


@dataclass(frozen=True, slots=True)
class Decoding(Op):
    """Decode an image. On the CPU all executors give the same pixels, or within 1 for gray not from a JPEG.

    Attributes:
        legal: the values that `channels` may have.
        channels: 1 gray; 3 RGB; 0 gives 1 for a gray image (also a BMP with a gray palette) and 3 for any other.
        exif_orientation: rotate the image upright by its EXIF orientation.

    Shapes: ``bytes -> uint8[H,W,C]{HWC}``
    """

    decodes: ClassVar[bool] = True
    legal: ClassVar[tuple[int, ...]] = (1, 3)

    channels: int = 3
    exif_orientation: bool = False

    def __post_init__(self) -> None:
        check_decoding(self.name, self.channels, self.legal)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return decoded(self.name, xs[0], self.channels)

    def reference(self, data: Any) -> Array:
        return self.on_host(data)

    def on_host(self, data: Any, **how: Any) -> Array:
        """Decode on the host, `how` as for `decode`: one channel of a gray image where `channels` is 0."""
        image = decode(data, self.channels or 3, self.exif_orientation, **how)
        return image[:, :, :1] if self.channels == 0 and read_header(data).channels == 1 else image

    def dali(self, d: Any, data: Any) -> Any:
        image = d.note_decoded(d.fn.decoders.image(data, **decoder(d, self.channels, self.exif_orientation)))
        return native_channels(d, data, image) if self.channels == 0 else image

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for channels in cls.legal:
            for name, file in files():
                exact = channels != 1 or name in ("jpeg", "gray", "progressive", "4:2:0")
                bounds: dict[str, Any] = {} if exact else {"atol": 1, "reason": GRAY_REASON}
                yield Case(cls(channels), (file,), (None,), note=f"{name}-{channels}", **bounds)
        for orientation in range(1, 9):
            file = encoded(picture(17, 29), quality=90, orientation=orientation)
            for wanted in (False, True):
                yield Case(cls(3, wanted), (file,), (None,), note=f"exif{orientation}" + "-upright" * wanted)


@dataclass(frozen=True, slots=True)
class FusedDecoding(Op):
    """Base of the ops that the optimizer makes of a decoder and what follows it.

    Attributes:
        decoder: the decoder.
    """

    decodes: ClassVar[bool] = True

    decoder: Decoding

    @property
    def stage(self) -> str:
        """The name of the decoder that the user wrote."""
        return self.decoder.name

    @property
    def exif_orientation(self) -> bool:
        """Whether windows refer to the upright image."""
        return self.decoder.exif_orientation


@dataclass(frozen=True, slots=True)
class NativeDecoding(Op):
    """Decode what DALI does not. Runs on the host under every executor.

    That is the image's own channels (DALI 2.4 crashes on a gray JPEG when their number is left open), transparency,
    more than 8 bits, and the indices of a palette.

    Attributes:
        channels: 0 for as many as the image has, 4 for RGBA, also 1 and 3.
        exif_orientation: rotate the image upright by its EXIF orientation.
        called: the function that the user called.
        dtype: "uint8", "uint16" or "float32".
        palette: "colors" or "indices".

    Shapes: ``bytes -> dtype[H,W,C]{HWC}``
    """

    decodes_on_host: ClassVar[bool] = True
    domain: ClassVar[Any] = "host"

    channels: int = 0
    exif_orientation: bool = False
    called: str = "decode_image"
    dtype: str = "uint8"
    palette: str = "colors"

    @property
    def name(self) -> str:
        return self.called

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        channels = 1 if self.palette == "indices" else self.channels
        return decoded(self.name, xs[0], channels, self.dtype)

    def reference(self, data: Any) -> Array:
        indices = self.palette == "indices"
        return decode(data, self.channels, self.exif_orientation, dtype=self.dtype, indices=indices)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for name, file in files():
            for channels in (0, 4):
                yield Case(cls(channels), (file,), (None,), note=f"native-{name}-{channels}")
            for channels, dtype in ((0, "uint16"), (1, "uint16"), (3, "float32")):
                op = cls(channels, dtype=dtype)
                yield Case(op, (file,), (None,), note=f"native-{name}-{channels}-{dtype}")
            if name in ("gray", "png-gray", "png-palette", "bmp-gray"):
                yield Case(cls(1, palette="indices"), (file,), (None,), note=f"native-{name}-indices")


def decode_call(
    image: type[Decoding], contents: Any, channels: Any, dtype: Any, palette: Any, exif_orientation: bool
) -> Any:
    """Decode by the op `image` if executors can, else on the host.

    Raises:
        SpecError: an argument is not one of the legal values.
    """
    who = image().name
    check_decoding(who, channels, (0, 1, 3, 4))
    kinds = ("uint8", "uint16") if who == "decode_png" else ("uint8", "uint16", "float32")
    try:
        wanted = np.dtype(dtype).name
    except TypeError:
        wanted = ""
    if dtype is None or wanted not in kinds:
        raise SpecError(f"{who} needs dtype from {', '.join(kinds)}, got {dtype!r}")
    if palette not in ("colors", "indices"):
        raise SpecError(f"{who} needs palette from colors, indices, got {palette!r}")
    if palette == "indices" and (channels not in (0, 1) or wanted == "float32"):
        raise SpecError(f"{who} needs channels 0 or 1 and integers for palette='indices', got {channels} and {wanted}")
    if channels in (1, 3) and wanted == "uint8" and palette == "colors":
        return apply(image(channels, exif_orientation), contents)
    return apply(NativeDecoding(channels, exif_orientation, who, wanted, palette), contents)


def files() -> Iterator[tuple[str, bytes]]:
    """One small file of every kind that the cases decode, and its name."""
    colours, gray = picture(29, 37), picture(29, 37, 1)
    yield "jpeg", encoded(colours, quality=90, subsampling=0)
    yield "4:2:0", encoded(picture(31, 18), quality=85, subsampling=2)
    yield "gray", encoded(gray, quality=90)
    yield "progressive", encoded(colours, quality=80, progressive=True)
    yield "cmyk", encoded(colours, mode="CMYK", quality=90)
    yield "1x1", encoded(picture(1, 1), "PNG")
    yield "png", encoded(colours, "PNG")
    yield "png-gray", encoded(gray, "PNG")
    yield "png-rgba", encoded(picture(13, 11, 4), "PNG")
    yield "png-palette", encoded(colours, "PNG", mode="P")
    yield "png-16bit", encoded(gray.astype(np.uint16) * np.uint16(251), "PNG")
    yield "webp", encoded(colours, "WEBP", lossless=True)
    yield "bmp", encoded(colours, "BMP")
    yield "bmp-gray", encoded(gray, "BMP")


def decoded(who: str, x: TensorSpec, channels: int, dtype: str = "uint8") -> TensorSpec:
    """The spec of a decoded image.

    Raises:
        SpecError: `x` is not a scalar of bytes.
    """
    if x.dtype is not bytes or x.shape != ():
        raise SpecError(f"{who} needs the bytes of an encoded image, got {x}")
    return TensorSpec((None, None, channels or None), dtype, "HWC")


def check_decoding(who: str, channels: Any, legal: tuple[int, ...]) -> None:
    """Check a decoder's `channels`.

    Raises:
        SpecError: `channels` is not one of `legal`.
    """
    if isinstance(channels, bool) or channels not in legal:
        raise SpecError(f"{who} needs channels from {', '.join(map(str, legal))}, got {channels!r}")


def decoder(d: Any, channels: int, exif_orientation: bool) -> dict[str, Any]:
    """The arguments of every DALI decoder. On the CPU, chroma is always upsampled as libjpeg does it.

    By default DALI gives the first 65 % of a batch's JPEGs on a GPU to the hardware decoder and the rest to CUDA, which
    do not give the same bits. With a load of 1, unless `Options` say otherwise, the file alone decides which of them
    decodes an image, not its index in the batch.
    """
    out = {
        "device": d.decoder_device,
        "output_type": d.types.GRAY if channels == 1 else d.types.RGB,
        "adjust_orientation": exif_orientation,
        "jpeg_fancy_upsampling": True,
    }
    if d.decoder_device == "mixed":
        wanted = d.decoding
        out |= {"hw_decoder_load": wanted.hw_decoder_load, "jpeg_fancy_upsampling": wanted.jpeg_fancy_upsampling}
        if wanted.preallocate is not None:
            height, width = wanted.preallocate
            out |= {"preallocate_height_hint": height, "preallocate_width_hint": width}
    return out


def native_channels(d: Any, data: Any, image: Any) -> Any:
    """Keep one channel of an RGB image whose file is gray, all three of any other."""
    shape = d.fn.peek_image_shape(data, image_type=d.types.ANY_DATA, dtype=d.dtype(np.int32))
    colours = d.fn.cast(shape[2] > 1, dtype=d.dtype(np.int32))
    return d.fn.slice(image, 0, 1 + 2 * colours, axes=[2])
