"""decode_resize_crop: a window of a decoded and resized image; the optimizer fuses those three steps into it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.extract.images.decode import Window
from gpupipe.extract.images.headers import read_header
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decoding import FusedDecoding
from gpupipe.ops._shared.libraries import averaged, reach_of, turned
from gpupipe.ops.resize import Resize
from gpupipe.spec import TensorSpec

__all__ = ["DecodeResizeCrop"]


@dataclass(frozen=True, slots=True)
class DecodeResizeCrop(FusedDecoding):
    """A decoder fused with a resize and a crop, as in an evaluation: `center_crop(resize_shorter(decode(data)))`.

    "fast" decodes and resizes only what the window is made of. It differs from its parts by what "fast" differs from
    the reference: the resizer computes with as many digits as the weights of the window allow.

    Attributes:
        resize: the resize, with antialias, by a kernel.
        crop: the crop, which does not pad.

    Shapes: ``bytes, int32[2], int32[2], int32[2] -> U[h,w,C]{HWC}``, U as for `resize`: the size of the resized image,
    then offset and shape of the window in it.
    """

    parameters: ClassVar[tuple[str, ...]] = ("size", "start", "shape")

    resize: Resize
    crop: Crop

    def __post_init__(self) -> None:
        if self.crop.pad or not self.resize.antialias or self.resize.method == "nearest":
            raise SpecError(
                "decode_resize_crop needs a resize with antialias, by a kernel, and a crop that does not pad"
            )

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return self.crop.infer(self.resize.infer(self.decoder.infer(*xs)))

    def size(self, hw: Array, *params: Array) -> Array:
        return params[2]

    def reference(self, data: Any, size: Array, start: Array, shape: Array) -> Array:
        return self.crop.reference(self.resize.reference(self.decoder.reference(data), size), start, shape)

    def fast(self, data: Any, size: Array, start: Array, shape: Array, out: Array | None = None) -> Array:
        sides = read_header(data, orientation=self.exif_orientation).size
        source, box = [], []
        for whole, side, begin, length in zip(sides, size.tolist(), start.tolist(), shape.tolist(), strict=True):
            scale = whole / side
            low, high = reach_of(begin * scale, scale, length, whole, self.resize.method)
            source.append((low, high - low))
            box.append((begin * scale - low, (begin + length) * scale - low))
        window = Window(source[0][0], source[1][0], source[0][1], source[1][1])
        image = self.decoder.on_host(data, window=window, turned=turned)
        dtype = image.dtype if self.resize.keep_dtype else np.dtype(np.float32)
        height, width = shape.tolist()
        return averaged(image, height, width, self.resize.method, dtype, out, (box[0], box[1]))

    def dali(self, d: Any, data: Any, size: Any, start: Any, shape: Any) -> Any:
        return self.crop.dali(d, self.resize.dali(d, self.decoder.dali(d, data), size), start, shape)

    def decompose(self) -> tuple[tuple[Op, tuple[int, ...]], ...]:
        return (self.decoder, ()), (self.resize, (0,)), (self.crop, (1, 2))
