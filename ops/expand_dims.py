"""expand_dims: add a dimension of size 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Case
from gpupipe.graph.shapes import Dims, Reshaping
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.operands import axis_of, spec_of_operand
from gpupipe.spec import TensorSpec

__all__ = ["ExpandDims", "expand_dims"]


@dataclass(frozen=True, slots=True)
class ExpandDims(Reshaping):
    """Add a dimension of size 1. Exact on every executor.

    Attributes:
        axis: of the result, where it is.

    Shapes: ``T[a...,b...] -> T[a...,1,b...]``
    """

    axis: int = 0

    def dims(self, shape: Dims) -> Dims:
        at = self._at(len(shape))
        return (*shape[:at], 1, *shape[at:])

    def _at(self, rank: int) -> int:
        if not -rank - 1 <= self.axis <= rank:
            raise SpecError(f"expand_dims needs an axis from {-rank - 1} to {rank} for rank {rank}, got {self.axis}")
        return self.axis % (rank + 1)

    def reference(self, x: Any) -> Any:
        return np.expand_dims(x, self.axis)

    def dali(self, d: Any, x: Any) -> Any:
        assert self.given is not None and self.given.shape is not None
        return self.named(d, d.fn.expand_dims(x, axes=[self._at(len(self.given.shape))]))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
        for axis in (0, 1, 3, -1):
            yield Case(cls(axis, given=TensorSpec(x.shape, x.dtype, "HWC")), (x,), ("HWC",), note=f"axis={axis}")
        yield Case(cls(-1), (np.int64(3),), note="number")


def expand_dims(x: Any, axis: int) -> Any:
    """Add a dimension of size 1, as `tf.expand_dims`: a mask [H,W] becomes an image [H,W,1].

    Args:
        x: a number, an array or an image.
        axis: of the result, where the new dimension is; negative counts from the end. After `batch`, axis 0 is that of
            the rows.

    Shapes: ``T[a...,b...] -> T[a...,1,b...]``; of rank 3 it may be passed to ops on images {HWC}.

    Raises:
        SpecError: there is no such axis.

    Example:
        >>> expand_dims(np.zeros((2, 3)), -1).shape
        (2, 3, 1)
    """
    return apply(ExpandDims(axis_of("expand_dims", axis, x), given=spec_of_operand(x)), x)
