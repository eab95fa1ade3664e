"""clip: limit numbers to a range."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.symbols import Symbol, clipped
from gpupipe.ops._shared.operands import is_number, spec_of_operand
from gpupipe.ops.cast import cast
from gpupipe.ops.sample import Sample
from gpupipe.spec import same_dtype

__all__ = ["clip"]

T = TypeVar("T")


def clip(x: T, low: Any, high: Any) -> T:
    """Limit the numbers of `x` to `low`..`high`, as `tf.clip_by_value`: the dtype stays.

    Args:
        x: an image, a number or an array of numbers.
        low: a number, plain or traced, or an array that broadcasts; None for no limit.
        high: the same, not below `low`; as in NumPy, it decides where it is.

    Shapes: ``T[...] -> T[...]``

    Raises:
        SpecError: a plain limit does not fit the dtype of `x`, `low` is above `high`, or `x` is bytes.

    Example:
        >>> clip(np.array([-3, 100, 300], np.int16), 0, 255)
        array([  0, 100, 255], dtype=int16)
    """
    if isinstance(x, Sample):
        return x.through(lambda image: clip(image, low, high))  # type: ignore[return-value]
    spec = spec_of_operand(x)
    if spec.dtype is bytes:
        raise SpecError(f"clip needs numbers, got {spec}; decode or parse the bytes first")
    low, high = (_limit(name, value, spec.dtype) for name, value in (("low", low), ("high", high)))
    if is_number(low) and is_number(high) and low > high:
        raise SpecError(f"clip needs low up to high, got {low} and {high}")
    if any(isinstance(value, Symbol) for value in (x, low, high)):
        return clipped(x, low, high)  # type: ignore[no-any-return]
    made: Any = np.asarray(x)
    made = made if low is None else np.maximum(made, low)
    made = made if high is None else np.minimum(made, high)
    return made[()]  # type: ignore[no-any-return]


def _limit(name: str, value: Any, dtype: Any) -> Any:
    """A limit in the dtype of the numbers; one that is plain has to fit."""
    if value is None or dtype is None:
        return value
    if isinstance(value, Symbol):
        return value if same_dtype(value._value.spec.dtype, dtype) else cast(value, dtype)
    limit = np.asarray(value)
    if limit.dtype.kind not in "biuf":
        raise PlanTypeError(f"clip needs a number for {name}, got {value!r}")
    with np.errstate(invalid="ignore", over="ignore"):
        made = limit.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(made, limit):
        raise SpecError(f"clip needs {name} that fits {dtype}, got {value!r}")
    return made[()]
