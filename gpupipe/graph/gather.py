"""gather: rows of an array by index, where the indices are traced: `x[i]` and `ops.gather`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from ..classes import dataclass
from ..errors import DataError, SpecError
from ..spec import TensorSpec
from .op import Case, Op

__all__ = ["Gather"]


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """Take the parts of `params` that `indices` name, along an axis, on the host.

    Attributes:
        axis: along which the parts lie.
        wraps: whether a negative index counts from the end.

    Shapes: ``T[a...,n,b...], integer[i...] -> T[a...,i...,b...]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    axis: int = 0
    wraps: bool = False

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        params, indices = xs
        if indices.dtype is None or indices.dtype is bytes or np.dtype(indices.dtype).kind not in "iu":
            raise SpecError(f"gather needs indices that are integers, got {indices}")
        if params.shape is None or indices.shape is None:
            return TensorSpec(None, params.dtype)
        rank = len(params.shape)
        if not -rank <= self.axis < rank:
            raise SpecError(f"gather needs an axis of {params}, got {self.axis}")
        axis = self.axis % rank
        return TensorSpec((*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]), params.dtype)

    def reference(self, params: Any, indices: Any) -> Any:
        indices = np.asarray(indices)
        count = params.shape[self.axis]
        least = -count if self.wraps else 0
        bad = (indices < least) | (indices >= count)
        if bad.any():
            needs = f"indices from {least} to {count - 1}" if count else "at least one part to choose from"
            raise DataError(f"gather needs {needs}, got {indices[bad][0]}")
        return np.take(params, indices, axis=self.axis)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        table = np.array([5, 3, 8], np.int64)
        grid = np.arange(12, dtype=np.float32).reshape(3, 4)
        yield Case(cls(), (table, np.int64(2)), note="table")
        yield Case(cls(), (table, np.array([[0, 2], [1, 1]], np.uint8)), note="map")
        yield Case(cls(1), (grid, np.array([3, 0], np.int32)), note="columns")
        yield Case(cls(-1), (grid, np.int32(1)), note="column")
        yield Case(cls(wraps=True), (table, np.int64(-1)), note="from the end")
