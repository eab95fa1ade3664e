"""crop: cut a window out of each image; the primitive of all croppers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.geometry import image_of, shifted
from gpupipe.spec import TensorSpec

__all__ = ["Crop"]


@dataclass(frozen=True, slots=True)
class Crop(Op):
    """Cut a window whose offset and shape another op has drawn. Exact on every executor.

    Attributes:
        height: of the window where all images have the same, else None.
        width: as `height`.
        pad: whether a window may reach beyond the image; what lies outside is 0.

    Shapes: ``T[H,W,C]{HWC}, int32[2], int32[2] -> T[h,w,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "sequence"
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")

    height: int | None = None
    width: int | None = None
    pad: bool = False

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of(self.name, xs[0])
        assert x.shape is not None  # an image {HWC} has a rank
        return TensorSpec((self.height, self.width, x.shape[2]), x.dtype, "HWC")

    def size(self, hw: Array, *params: Array) -> Array:
        return params[1]

    def motion(self, hw: Array, *params: Array) -> Array:
        return shifted(-params[0])

    def reference(self, x: Array, start: Array, shape: Array) -> Array:
        (y, left), (h, w) = start.tolist(), shape.tolist()
        if not self.pad or (y >= 0 <= left and y + h <= x.shape[0] and left + w <= x.shape[1]):
            return x[y : y + h, left : left + w]
        out = np.zeros((h, w, x.shape[2]), x.dtype)
        inside = x[max(y, 0) : max(y + h, 0), max(left, 0) : max(left + w, 0)]
        top, side = max(-y, 0), max(-left, 0)
        out[top : top + inside.shape[0], side : side + inside.shape[1]] = inside
        return out

    def stacked(self, x: Array, start: Array, shape: Array) -> Array:
        count, height, width, channels = x.shape
        h, w = shape[0].tolist()
        if (shape != (h, w)).any():
            raise ValueError("needs windows of one size")
        if self.pad:
            start = start.clip((-h, -w), (height, width))  # a window farther off has nothing but zeros, too
            low, high = np.minimum(start.min(0), 0), np.maximum(start.max(0) + np.array((h, w)), (height, width))
            around = np.zeros((count, *(high - low), channels), x.dtype)
            around[:, -low[0] : height - low[0], -low[1] : width - low[1]] = x
            x, start = around, start - low
        if (start == start[0]).all():
            top, left = start[0].tolist()
            return x[:, top : top + h, left : left + w]
        if start.min() < 0:
            raise IndexError("needs windows inside the images")
        # All windows there are, as views of lines of w * channels values; NumPy refuses to choose one beyond the image.
        x = np.ascontiguousarray(x)
        room = (x.shape[1] - h + 1, x.shape[2] - w + 1)
        whole, line, pixel, value = x.strides
        windows = np.ndarray((count, *room, h, w * channels), x.dtype, x, strides=(whole, line, pixel, line, value))
        return windows[np.arange(count), start[:, 0], start[:, 1]].reshape(count, h, w, channels)

    def dali(self, d: Any, x: Any, start: Any, shape: Any) -> Any:
        policy = "pad" if self.pad else "error"
        return d.fn.slice(x, start, shape, axis_names="HW", out_of_bounds_policy=policy, fill_values=0)
