"""gather: the parts of an array that indices name: a table of labels, channels, rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.gather import Gather
from gpupipe.graph.host_values import is_image
from gpupipe.graph.op import Case, Op
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.integers import plain
from gpupipe.ops._shared.operands import axis_of, is_batch, spec_of_operand
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.concat import concat
from gpupipe.spec import TensorSpec, as_leaf

__all__ = ["LookUp", "gather"]

MOST_PARTS = 64
"""Most parts of an image that `gather` takes, as each is an operator of the graph."""


@dataclass(frozen=True, slots=True)
class LookUp(Op):
    """Replace the numbers of an image by those of a table. Exact on every executor.

    Attributes:
        table: one number for each value of the image's dtype.
        dtype: of the table.

    Shapes: ``uint8[...] -> dtype[...]``, or ``uint16[...] -> dtype[...]``; the layout stays.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "any"

    table: tuple[Any, ...]
    dtype: str

    @property
    def stage(self) -> str:
        return "gather"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        if x.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16)):
            raise SpecError(f"gather needs images of uint8 or uint16 as indices, got {x}; convert them with ops.cast")
        count = np.iinfo(x.dtype).max + 1
        if len(self.table) != count:
            more = f"; fill it up: np.pad(table, (0, {count - len(self.table)}))" if len(self.table) < count else ""
            raise SpecError(f"gather needs a table of {count} numbers for {x}, got {len(self.table)}{more}")
        return TensorSpec(x.shape, self.dtype, x.layout)

    def reference(self, x: Any) -> Any:
        return np.array(self.table, self.dtype)[x]

    def dali(self, d: Any, x: Any) -> Any:
        keys = list(range(len(self.table)))
        return d.fn.lookup_table(x, keys=keys, values=list(map(float, self.table)), dtype=d.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = noise(6, 5, 1)
        for dtype in ("uint8", "int64", "float32", "bool"):
            table = (np.arange(256)[::-1] // 3).astype(dtype)
            yield Case(cls(tuple(table.tolist()), dtype), (x,), ("HWC",), note=dtype)
        wide = tuple(range(1 << 16))[::-1]
        yield Case(cls(wide, "int32"), (x.astype(np.uint16) * 257,), ("HWC",), note="wide")


def gather(params: Any, indices: Any, axis: int = 0) -> Any:
    """The parts of `params` that `indices` name, as `tf.gather`: `gather(table, label)`.

    Args:
        params: an array or an image, traced or constant.
        indices: integers from 0 on, traced or constant; an image of uint8 or uint16 (a mask) for a constant table with
            one number for each value that the dtype has.
        axis: of `params`; negative counts from the end. After `batch`, axis 0 of traced `params` is that of the rows.

    Shapes: ``T[a...,n,b...], integer[i...] -> T[a...,i...,b...]``

    Raises:
        SpecError: the indices are not integers, there is no such axis, the table of a mask has another length or
            numbers that float32 does not hold, or the parts of an image are not constant.
        DataError: at run time: an index is outside of `params`.

    Example:
        >>> gather(np.array([5, 3, 8]), [2, 0])
        array([8, 5])
    """
    axis, indices = axis_of("gather", axis, params), plain(indices)
    if isinstance(indices, Symbol) and is_image(indices._value):
        return _looked_up(params, indices)
    if isinstance(params, Symbol) and is_image(params._value):
        return _parts(params, indices, axis)
    return apply(Gather(axis), params, indices)


def _looked_up(params: Any, indices: Any) -> Any:
    if isinstance(params, Symbol):
        raise SpecError(f"gather needs a constant table for an image of indices, got {params._value.spec}")
    table = np.asarray(as_leaf(params))
    if table.ndim != 1 or table.dtype.kind not in "biuf":
        raise SpecError(f"gather needs a table of numbers for an image of indices, got {spec_of_operand(params)}")
    dtype = np.dtype(np.float32) if table.dtype == np.float64 else table.dtype
    table = table.astype(dtype)
    if not np.array_equal(table.astype(np.float32).astype(np.float64), table.astype(np.float64)):
        raise SpecError("gather needs a table of numbers that float32 holds for an image of indices, got larger ones")
    return apply(LookUp(tuple(table.tolist()), dtype.name), indices)


def _parts(params: Any, indices: Any, axis: int) -> Any:
    """Constant parts of an image, each cut out of it."""
    spec = params._value.spec
    chosen = None if isinstance(indices, Symbol) else np.asarray(as_leaf(indices))
    if chosen is None or chosen.ndim > 1 or chosen.dtype.kind not in "iu" or not 0 < chosen.size <= MOST_PARTS:
        raise SpecError(
            f"gather needs 1 to {MOST_PARTS} constant integers as indices of an image, got {_text(indices)}"
        )
    if spec.rank is None or not -spec.rank <= axis < spec.rank:
        raise SpecError(f"gather needs an axis of {spec}, got {axis}")
    assert spec.shape is not None
    count = spec.shape[axis]
    if count is None or chosen.min() < 0 or chosen.max() >= count:
        raise SpecError(f"gather needs indices of known parts along axis {axis} of {spec}, got {_text(indices)}")
    before = (slice(None),) * (axis % spec.rank + is_batch(params))
    if not chosen.ndim:
        return params[(*before, int(chosen))]
    return concat(
        [params[(*before, slice(i, i + 1))] for i in chosen.tolist()], axis - spec.rank if axis >= 0 else axis
    )


def _text(indices: Any) -> str:
    return str(spec_of_operand(indices)) if isinstance(indices, Symbol) else repr(indices)[:60]
