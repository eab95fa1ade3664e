"""turn: rotate each image by quarter turns; the primitive of rot90."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.flip import flipped
from gpupipe.ops._shared.geometry import MOVABLE, image_of
from gpupipe.spec import TensorSpec

__all__ = ["Turn"]

WARPED = tuple(map(np.dtype, ("uint8", "int16", "int32", "float32")))
"""The dtypes that DALI's warp_affine takes."""

WIDENED = tuple(map(np.dtype, ("int8", "uint16")))
"""Those that it takes as int32."""


@dataclass(frozen=True, slots=True)
class Turn(Op):
    """Rotate the image counter-clockwise by `turns` quarter turns (0..3). Exact on every executor.

    Attributes:
        turns: the number if all images have the same, else None, and the parameter gives it.
        widened: whether the image has one of the dtypes `WIDENED`; a DALI node does not know its own.

    Shapes: ``T[H,W,C]{HWC}, int32[] -> T[H,W,C]{HWC}``, or ``T[W,H,C]`` for an odd number.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "planes"
    parameters: ClassVar[tuple[str, ...]] = ("turns",)

    turns: int | None = None
    widened: bool = False

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of("rot90", xs[0], MOVABLE if self.turns is not None else (*WARPED, *WIDENED))
        if self.turns is None and self.widened != (x.dtype in WIDENED):
            raise SpecError(f"rot90 was made for an image of another dtype than {x}")
        height, width, channels = x.shape or (None, None, None)
        if self.turns is None and height != width:
            height, width = None, None
        elif self.turns is not None and self.turns % 2:
            height, width = width, height
        return TensorSpec((height, width, channels), x.dtype, "HWC")

    def size(self, hw: Array, *params: Array) -> Array:
        odd = np.asarray(params[0]).reshape(-1, 1) % 2 == 1
        return np.where(odd, hw[:, ::-1], hw)

    def motion(self, hw: Array, *params: Array) -> Array:
        (height, width), turns = hw, int(params[0])
        made = np.eye(3)
        for _ in range(turns):
            made = np.array([(0, 1, 0), (-1, 0, width), (0, 0, 1.0)]) @ made
            height, width = width, height
        return made

    def reference(self, x: Array, turns: Array) -> Array:
        return np.rot90(x, int(turns))

    def dali(self, d: Any, x: Any, turns: Any) -> Any:
        if self.turns is None:
            wide = d.fn.cast(x, dtype=d.dtype(np.int32)) if self.widened else x
            turned = self._warped(d, wide, turns)
            return d.fn.cast_like(turned, x) if self.widened else turned
        if self.turns == 0:
            return x
        if self.turns == 2:
            return flipped(d, x, columns=True, lines=True)
        turned = d.fn.transpose(x, perm=[1, 0, 2], transpose_layout=False)
        return flipped(d, d.fn.reshape(turned, layout="HWC"), columns=self.turns == 3, lines=self.turns == 1)

    def _warped(self, d: Any, x: Any, turns: Any) -> Any:
        """Rotate images by different turns, as affine maps: nearest neighbours of exact half-integers."""
        shape = d.fn.cast(x.shape(), dtype=d.dtype(np.float32))
        height, width = shape[0], shape[1]
        one, two, three = (d.fn.cast(turns == k, dtype=d.dtype(np.float32)) for k in (1, 2, 3))
        none = 1.0 - one - two - three
        # (x, y) of the source, in pixels from the corner, for (x, y) of the result: (x, y), (W - y, x), (W - x, H - y),
        # (y, H - x) after 0, 1, 2, 3 turns.
        to_x = d.fn.stack(none - two, three - one, width * (one + two))
        to_y = d.fn.stack(one - three, none - two, height * (two + three))
        odd = one + three
        size = d.fn.stack(height + odd * (width - height), width + odd * (height - width))
        return d.fn.warp_affine(
            x,
            matrix=d.fn.stack(to_x, to_y),
            size=size,
            interp_type=d.types.INTERP_NN,
            inverse_map=True,
            fill_value=0,
        )
