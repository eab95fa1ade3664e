"""padding: put pixels around each image; the primitive of pad."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.fill import Fill, check_fill, filling
from gpupipe.ops._shared.flip import flipped
from gpupipe.ops._shared.geometry import MOVABLE, image_of, shifted
from gpupipe.ops._shared.sometimes import where_dali
from gpupipe.ops._shared.turn import WARPED, WIDENED
from gpupipe.spec import TensorSpec

__all__ = ["MODES", "Padding"]

MODES = ("constant", "edge", "reflect", "symmetric")
"""Those of torchvision."""


@dataclass(frozen=True, slots=True)
class Padding(Op):
    """Put pixels around the image, as many as another op says. Exact on every executor.

    Attributes:
        mode: what they are: "constant", `fill`; "edge", the pixel at the edge; "reflect", a mirror image about the
            pixel at the edge; "symmetric", one about the edge itself; "wrap", what lies at the opposite edge.
        fill: one number, or one per channel.
        around: top, left, bottom and right, where all images have the same, else None.
        widened: of mode "edge": whether the image has one of the dtypes `WIDENED`; a DALI node does not know its own.
        stage: the op that users call, for errors.

    Shapes: ``T[H,W,C]{HWC}, int32[2], int32[2], int32[2] -> T[h,w,C]{HWC}``; the parameters are where the image starts,
    below 0, the size of the result, and the pixels below and on the right.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "sequence"
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape", "after")

    mode: str = "constant"
    fill: Fill = (0.0,)
    around: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    widened: bool = False
    stage: str = "pad"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of(self.stage, xs[0], (*WARPED, *WIDENED) if self.mode == "edge" else MOVABLE)
        check_fill(self.stage, self.fill, x)
        if self.mode == "edge" and self.widened != (x.dtype in WIDENED):
            raise SpecError(f"{self.stage} was made for an image of another dtype than {x}")
        assert x.shape is not None  # an image {HWC} has a rank
        sides = []
        for size, before, after in zip(x.shape[:2], self.around[:2], self.around[2:], strict=True):
            most = None if size is None else size - (self.mode == "reflect")
            for number in (before, after):
                if self.mode in ("reflect", "symmetric") and None not in (most, number) and number > most:  # type: ignore[operator]
                    raise SpecError(f"{self.stage} reflects at most {most} pixels of {size}, got {number} for {x}")
            sides.append(None if None in (size, before, after) else size + before + after)  # type: ignore[operator]
        return TensorSpec((*sides, x.shape[2]), x.dtype, "HWC")

    def size(self, hw: Array, *params: Array) -> Array:
        return params[1]

    def motion(self, hw: Array, *params: Array) -> Array:
        return shifted(-params[0])

    def reference(self, x: Array, start: Array, shape: Array, after: Array) -> Array:
        (top, left), (bottom, right) = (-start).tolist(), after.tolist()
        around = ((top, bottom), (left, right), (0, 0))
        if self.mode != "constant":
            padded: Array = np.pad(x, around, mode=self.mode)  # type: ignore[call-overload]
            return padded
        out = np.empty((*shape.tolist(), x.shape[2]), x.dtype)
        out[:] = filling(self.fill, x.dtype)
        out[top : top + x.shape[0], left : left + x.shape[1]] = x
        return out

    def dali(self, d: Any, x: Any, start: Any, shape: Any, after: Any) -> Any:
        if self.mode == "constant":
            return self._filled(d, x, start, shape)
        if self.mode == "edge":
            return self._clamped(d, x, start, shape)
        if not d.unknown_channels:
            return self._continued(d, x, start, shape, after)
        # DALI's cat of nothing but images without channels has the size of one
        full = replace(d, unknown_channels=False)
        return where_dali(
            d,
            x.shape()[2] > 0,
            x,
            (start, shape, after),
            lambda x, start, shape, after: self._continued(full, x, start, shape, after),
            lambda x, start, shape, after: self._filled(d, x, start, shape),
        )

    def _filled(self, d: Any, x: Any, start: Any, shape: Any) -> Any:
        fill = list(self.fill)
        return d.fn.slice(x, start, shape, axis_names="HW", out_of_bounds_policy="pad", fill_values=fill)

    def _continued(self, d: Any, x: Any, start: Any, shape: Any, after: Any) -> Any:
        skipped, wraps = int(self.mode == "reflect"), self.mode == "wrap"
        for axis, name in ((0, "H"), (1, "W")):
            before, behind = 0 - start[axis : axis + 1], after[axis : axis + 1]
            length = shape[axis : axis + 1] - before - behind
            parts = [x]
            if self.around[axis] != 0:
                first = length - before if wraps else before * 0 + skipped
                parts.insert(0, self._part(d, x, first, before, name))
            if self.around[axis + 2] != 0:
                last = behind * 0 if wraps else length - behind - skipped
                parts.append(self._part(d, x, last, behind, name))
            x = d.fn.cat(*parts, axis_name=name) if len(parts) > 1 else x
        return x

    def _part(self, d: Any, x: Any, start: Any, shape: Any, axis: str) -> Any:
        part = d.fn.slice(x, start, shape, axis_names=axis)
        return part if self.mode == "wrap" else flipped(d, part, columns=axis == "W", lines=axis == "H")

    def _clamped(self, d: Any, x: Any, start: Any, shape: Any) -> Any:
        """A shift by whole pixels, of which DALI takes the nearest one inside."""
        offset = d.fn.cast(start, dtype=d.dtype(np.float32))
        one = offset[0] * 0.0 + 1.0
        matrix = d.fn.stack(d.fn.stack(one, one - 1.0, offset[1]), d.fn.stack(one - 1.0, one, offset[0]))
        wide = d.fn.cast(x, dtype=d.dtype(np.int32)) if self.widened else x
        size = d.fn.cast(shape, dtype=d.dtype(np.float32))
        moved = d.fn.warp_affine(wide, matrix=matrix, size=size, interp_type=d.types.INTERP_NN, inverse_map=True)
        return d.fn.cast_like(moved, x) if self.widened else moved
