"""drawn: what a random op drew, and the size of an image, as values of the host."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from ..classes import dataclass
from ..random import BatchRng
from ..spec import TensorSpec
from .op import Array, Op

__all__ = ["Drawn", "Measured"]


@dataclass(frozen=True, slots=True)
class Drawn(Op):
    """The parameters of a call of an op, for `return_params=True`. Runs on the host.

    Attributes:
        form: "window" for an offset and a shape, "flag" for a number that is 0 or 1, "size" for that of the result.

    Shapes: ``-> int32[4]`` (y, x, height, width), ``-> bool``, or ``-> int32[2]`` (height, width)
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    form: str = "window"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        if self.form == "flag":
            return TensorSpec((), np.bool_)
        return TensorSpec((4 if self.form == "window" else 2,), np.int32)

    def reference(self, *params: Any) -> Any:
        if self.form == "flag":
            return np.bool_(params[0])
        return np.concatenate(params[: 2 if self.form == "window" else 1]).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Measured(Op):
    """The size of an image, (height, width). It is never applied: host ops take what it draws as a parameter."""

    parameters: ClassVar[tuple[str, ...]] = ("hw",)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (hw,)
