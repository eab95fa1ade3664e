"""flip: mirror each image where a drawn number says so; what the random flips become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.geometry import image_of
from gpupipe.spec import TensorSpec

__all__ = ["Flip"]


@dataclass(frozen=True, slots=True)
class Flip(Op):
    """Mirror the image where `mirror` is 1. Exact on every executor.

    Attributes:
        direction: "left_right" or "up_down".

    Shapes: ``T[H,W,C]{HWC}, int32[] -> T[H,W,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("mirror",)

    direction: Literal["left_right", "up_down"] = "left_right"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return image_of(self.name, xs[0])

    def reference(self, x: Array, mirror: Array) -> Array:
        if not mirror:
            return x
        return x[:, ::-1] if self.direction == "left_right" else x[::-1]

    def dali(self, d: Any, x: Any, mirror: Any) -> Any:
        if self.direction == "left_right":
            return d.fn.flip(x, horizontal=mirror, vertical=0)
        return d.fn.flip(x, horizontal=0, vertical=mirror)
