"""drawn: what a random op drew, as a value for the user."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from ..classes import dataclass
from ..spec import TensorSpec
from .op import Op

__all__ = ["Drawn"]


@dataclass(frozen=True, slots=True)
class Drawn(Op):
    """The parameters of a call of an op, for `return_params=True`. Runs on the host.

    Attributes:
        form: "window" for an offset and a shape, "flag" for a number that is 0 or 1.

    Shapes: ``-> int32[4]`` (y, x, height, width), or ``-> bool``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    form: str = "window"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec((4,), np.int32) if self.form == "window" else TensorSpec((), np.bool_)

    def reference(self, *params: Any) -> Any:
        return np.concatenate(params[:2]).astype(np.int32) if self.form == "window" else np.bool_(params[0])
