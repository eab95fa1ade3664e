"""operands: what ops on any values learn from their arguments: specs, batches, axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.symbols import Symbol
from gpupipe.integers import is_integer, plain
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec, as_leaf, spec_of

__all__ = ["axis_of", "is_batch", "is_number", "spec_of_operand", "values_of"]


def is_number(x: Any) -> bool:
    """Whether `x` is one plain number."""
    return isinstance(x, (bool, int, float, np.generic)) and not isinstance(x, (bytes, str))


def is_batch(*xs: Any) -> bool:
    """Whether one of these values is traced after `batch`."""
    return any(isinstance(x, Symbol) and x._batched for x in xs)


def spec_of_operand(x: Any) -> TensorSpec:
    """The spec of a value, traced or not; of a Sample, that of its image."""
    x = x.image if isinstance(x, Sample) else x
    return x._value.spec if isinstance(x, Symbol) else spec_of(as_leaf(x))


def axis_of(who: str, axis: Any, *xs: Any) -> int:
    """An axis as an integer; of rows of a batch, the axis of each row that is this one of the batch.

    Raises:
        PlanTypeError: it is not an integer.
        SpecError: it is that of the batch.
    """
    axis = plain(axis)
    if not is_integer(axis):
        raise PlanTypeError(f"{who} needs axis as an integer, got {axis!r}")
    if not is_batch(*xs) or axis < 0:
        return int(axis)
    if axis == 0:
        raise SpecError(
            f"{who} works on each row of a batch, got axis 0, which is that of the rows; call it before batch"
        )
    return int(axis) - 1


def values_of(who: str, values: Any) -> tuple[Any, ...]:
    """Several values as a tuple, with plain numbers in the dtype of the others where it holds them.

    Raises:
        PlanTypeError: it is not a list or tuple of at least one.
    """
    if isinstance(values, (list, tuple)) and len(values):
        dtype = next((spec_of_operand(x).dtype for x in values if type(x) not in (bool, int, float)), None)
        return tuple(x if dtype is None or dtype is bytes else _as_dtype(x, dtype) for x in values)
    raise PlanTypeError(f"{who} needs a list or tuple of values, got {_named(values)}")


def _as_dtype(x: Any, dtype: Any) -> Any:
    if type(x) not in (bool, int, float):
        return x
    with np.errstate(invalid="ignore", over="ignore"):
        made = np.asarray(x).astype(dtype)[()]
    return made if made == x else x


def _named(values: Any) -> str:
    return "none" if isinstance(values, Sequence) and not len(values) else type(values).__name__
