"""adjust_jpeg_quality: give an image the artifacts of JPEG compression at some quality."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.extract.images.decode import decode
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within
from gpupipe.ops._shared.samples import picture
from gpupipe.ops.convert_image_dtype import LARGEST, ConvertImageDtype, dtype_of
from gpupipe.random import BatchRng

__all__ = ["AdjustJpegQuality", "JpegQuality", "adjust_jpeg_quality", "jpeg_tolerance", "pictures"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JpegQuality(Colour):
    """Encode as JPEG (chroma at half resolution) and decode again, as uint8. Exact on the CPU.

    The decoder uses the accurate inverse DCT, as `decode_jpeg` and TensorFlow's dct_method="INTEGER_ACCURATE" do.
    On the GPU, DALI does not encode: it simulates the distortion with a transform of its own.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    legal: ClassVar[tuple[int, ...] | None] = (1, 3)
    parameters: ClassVar[tuple[str, ...]] = ("jpeg_quality",)

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        there, back = self._conversions()
        with np.errstate(all="ignore"):  # for floats that are not finite
            return back.reference(distorted(there.reference(x), int(params[0])))

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        there, back = self._conversions()
        x = there.dali(d, self.checked_dali(d, x))
        # The operator takes only RGB. Gray as RGB has no chroma, and its Y is the gray: the result is the same.
        channels = x.shape(dtype=d.dtype(np.int32))[2]
        colours = x + d.types.Constant(np.zeros(3, np.uint8), device=d.device)
        colours = d.fn.jpeg_compression_distortion(colours, quality=params[0])
        return back.dali(d, d.fn.slice(colours, 0, channels, axes=[2]))

    def _conversions(self) -> tuple[ConvertImageDtype, ConvertImageDtype]:
        return ConvertImageDtype(self.dtype, "uint8"), ConvertImageDtype("uint8", self.dtype)


@dataclass(frozen=True, slots=True)
class AdjustJpegQuality(JpegQuality):
    """Encode and decode with `jpeg_quality`, as `tf.image` does.

    Attributes:
        jpeg_quality: an integer from 0 (same as 1) to 100.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C 1 or 3.
    """

    traceable: ClassVar[tuple[str, ...]] = ("jpeg_quality",)

    jpeg_quality: Any = 75

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "jpeg_quality", self.jpeg_quality, 0, 100, integer=True)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        quality = rows_within(self.name, "jpeg_quality", self.jpeg_quality, len(hw), 0, 100, whole=True)
        return (quality.astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for quality in (0, 20, 75, 100):
            for x in pictures():
                op = cls(quality, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **jpeg_tolerance(x), note=f"quality={quality}")


def distorted(x: Array, quality: int) -> Array:
    """Encode uint8[H,W,1 or 3] with this quality, 0 (which libjpeg treats as 1) to 100, and decode it again."""
    from PIL import Image

    gray = x.shape[2] == 1
    file = io.BytesIO()
    Image.fromarray(x[:, :, 0] if gray else x).save(file, "JPEG", quality=quality, subsampling=-1 if gray else "4:2:0")
    return decode(file.getvalue(), x.shape[2])


def pictures() -> Iterator[Array]:
    """Images for the cases, of every type."""
    for shape in ((24, 40, 3), (9, 13, 3), (1, 1, 3), (17, 16, 1)):
        yield picture(*shape)
    yield picture(8, 16).astype(np.uint16) * np.uint16(257)
    yield picture(8, 16).astype(np.float32) / np.float32(200)  # up to 1.275: saturates
    yield picture(8, 16).astype(np.float16) / np.float16(255)


def jpeg_tolerance(x: Array) -> dict[str, Any]:
    """The tolerance of a case with an image of this type."""
    reason = "on the GPU DALI repeats chroma where libjpeg smooths it, and its transform rounds differently; CPU exact"
    # DALI's GPU arithmetic, written in NumPy, is up to 46 levels from libjpeg's on these images at quality 1, 20 at 20.
    return {"atol": 48 * LARGEST[x.dtype.name] / 255, "reason": reason}


def adjust_jpeg_quality(image: T, jpeg_quality: Any) -> T:
    """Give `image` the artifacts of JPEG compression at this quality.

    Args:
        image: gray or RGB, of uint8, uint16, float16 or float32. It goes through 8 bits: floats are clipped to 0..1.
        jpeg_quality: an integer from 0 (worst) to 100 (best, still lossy). May be traced.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C 1 or 3.

    Raises:
        SpecError: `image` is not an image of 1 or 3 channels and such a type, or `jpeg_quality` is outside 0..100.

    Example:
        >>> adjust_jpeg_quality(np.full((1, 1, 1), 128, np.uint8), 50)
        array([[[128]]], dtype=uint8)
    """
    op = AdjustJpegQuality(jpeg_quality, dtype=dtype_of("adjust_jpeg_quality", image))
    return apply(op, image)  # type: ignore[no-any-return]
