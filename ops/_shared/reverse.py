"""reverse: mirror every image left-right, up-down or both; the primitive of the fixed flips."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.flip import flipped, mirrored
from gpupipe.ops._shared.geometry import image_of, mirrored_positions
from gpupipe.spec import TensorSpec

__all__ = ["Reverse"]


@dataclass(frozen=True, slots=True)
class Reverse(Op):
    """Reverse the order of columns, rows, or both. Exact on every executor.

    Attributes:
        columns: mirror left-right.
        lines: mirror up-down.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "sequence"

    columns: bool = False
    lines: bool = False

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return image_of(self.name, xs[0])

    def motion(self, hw: Array, *params: Array) -> Array:
        return mirrored_positions(hw, self.columns, self.lines)

    def reference(self, x: Array) -> Array:
        return x[:: -1 if self.lines else 1, :: -1 if self.columns else 1]

    def stacked(self, x: Array) -> Array:
        lines = x[:, ::-1] if self.lines else x
        return mirrored(lines) if self.columns else lines

    def dali(self, d: Any, x: Any) -> Any:
        return flipped(d, x, self.columns, self.lines)

    def is_identity(self, x: TensorSpec) -> bool:
        return not (self.columns or self.lines)

    def merge(self, later: Op) -> Op | None:
        if isinstance(later, Reverse):
            return Reverse(self.columns != later.columns, self.lines != later.lines)
        return None
