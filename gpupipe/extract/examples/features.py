"""features: descriptions of the features of a tf.train.Example.

There are four, with tf.io's names and meaning. They compare by value and are hashable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from gpupipe.brief import fields_in_brief
from gpupipe.errors import PlanError, PlanTypeError
from gpupipe.integers import is_integer, plain

from ...classes import dataclass

__all__ = ["DType", "Feature", "FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "VarLenFeature"]

DType = Literal["bytes", "int64", "float32"]


Scalar = bytes | int | float


_INT64 = range(-(2**63), 2**63)


_BYTES: tuple[Any, ...] = (bytes, str, np.bytes_, np.str_)


@dataclass(frozen=True, slots=True)
class FixedLenFeature:
    """Exactly `prod(shape)` values.

    Args:
        shape: () for one value; every dimension known.
        dtype: bytes, "int64" or "float32" (also as NumPy types; "string" and str mean bytes).
        default_value: used if the feature is missing, not if it is empty; `prod(shape)` values. None: the feature is
            required.

    Shapes: ``dtype[shape]``; bytes of shape () are a view of the record or `bytes`.
    """

    shape: tuple[int, ...]
    dtype: DType
    default_value: Any = None

    __repr__ = fields_in_brief

    def __init__(self, shape: Sequence[int] | int, dtype: Any, default_value: Any = None) -> None:
        _set(self, "shape", _checked_shape("FixedLenFeature", shape))
        _set(self, "dtype", _checked_dtype("FixedLenFeature", dtype))
        default = None
        if default_value is not None:
            values = _values("FixedLenFeature", default_value, self.dtype)
            if len(values) != math.prod(self.shape):
                raise PlanError(
                    f"FixedLenFeature of shape {self.shape} needs a default_value of {math.prod(self.shape)} values, "
                    f"got {len(values)}"
                )
            default = values[0] if self.shape == () else values
        _set(self, "default_value", default)


@dataclass(frozen=True, slots=True)
class _AnyNumber:
    dtype: DType

    __repr__ = fields_in_brief

    def __init__(self, dtype: Any) -> None:
        _set(self, "dtype", _checked_dtype(type(self).__name__, dtype))


class VarLenFeature(_AnyNumber):
    """Any number of values; none if the feature is missing.

    Args:
        dtype: bytes, "int64" or "float32".

    Shapes: ``dtype[n]``. tf.io gives a sparse tensor, this a plain one.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FixedLenSequenceFeature:
    """Any number of items of a fixed shape; none if the feature is missing.

    Args:
        shape: of one item; every dimension known and above 0.
        dtype: bytes, "int64" or "float32".
        allow_missing: must be True.
        default_value: one value, the padding of batches of unequal lengths; None means 0 or b"".

    Shapes: ``dtype[n, *shape]``
    """

    shape: tuple[int, ...]
    dtype: DType
    allow_missing: bool = False
    default_value: Any = None

    __repr__ = fields_in_brief

    def __init__(
        self, shape: Sequence[int] | int, dtype: Any, allow_missing: bool = False, default_value: Any = None
    ) -> None:
        name = "FixedLenSequenceFeature"
        _set(self, "shape", _checked_shape(name, shape))
        _set(self, "dtype", _checked_dtype(name, dtype))
        if math.prod(self.shape) == 0:
            raise PlanError(f"{name} needs a shape of dimensions above 0, got {self.shape}")
        if allow_missing is not True:
            raise PlanError(f"{name} needs allow_missing=True, as a record may lack the feature, got {allow_missing!r}")
        _set(self, "allow_missing", True)
        default = None
        if default_value is not None:
            values = _values(name, default_value, self.dtype)
            if len(values) != 1:
                raise PlanError(f"{name} needs one default_value, got {len(values)}")
            default = values[0]
        _set(self, "default_value", default)


class RaggedFeature(_AnyNumber):
    """Any number of values; none if the feature is missing. Batches of it are ragged.

    Args:
        dtype: bytes, "int64" or "float32".

    Shapes: ``dtype[n]``
    """

    __slots__ = ()


Feature = FixedLenFeature | VarLenFeature | FixedLenSequenceFeature | RaggedFeature


def _set(feature: Any, name: str, value: Any) -> None:
    object.__setattr__(feature, name, value)


def _checked_shape(name: str, shape: Any) -> tuple[int, ...]:
    given = plain(shape)
    if is_integer(given):
        given = (given,)
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise PlanTypeError(f"{name} needs a shape of whole numbers, got {shape!r}")
    dims = tuple(map(plain, given))
    for dim in dims:
        if dim is None or (is_integer(dim) and dim < 0):
            raise PlanError(
                f"{name} needs known dimensions, got shape {shape!r}; VarLenFeature takes any number of values"
            )
        if not is_integer(dim):
            raise PlanTypeError(f"{name} needs a shape of whole numbers, got {shape!r}")
    return dims


def _checked_dtype(name: str, dtype: Any) -> DType:
    if isinstance(dtype, str):
        for known in ("bytes", "int64", "float32"):
            if dtype == known:
                return known
        if dtype in ("string", "str"):
            return "bytes"
    elif dtype in _BYTES:
        return "bytes"
    elif dtype is not None and dtype is not int and dtype is not float:
        # A framework's own dtype, such as tf.int64, has a name.
        text = getattr(dtype, "name", None)
        if isinstance(text, str) and type(dtype) is not np.dtype:
            return _checked_dtype(name, text)
        try:
            kind = np.dtype(dtype)
        except TypeError:
            kind = np.dtype(np.void)
        if kind == np.int64:
            return "int64"
        if kind == np.float32:
            return "float32"
    shown = dtype.__name__ if isinstance(dtype, type) else repr(dtype)
    kind = "int64" if "int" in shown else "float32"
    raise PlanError(
        f'{name} needs dtype bytes, "int64" or "float32", got {shown}; an Example stores nothing else: write "{kind}", '
        "ops.cast makes other types of it"
    )


def _values(name: str, value: Any, dtype: DType) -> tuple[Scalar, ...]:
    """Flatten a default to Python values of `dtype`; raise for values that are not exactly of it."""
    if isinstance(value, list | tuple):
        return tuple(one for item in value for one in _values(name, item, dtype))
    if isinstance(value, np.ndarray):
        return tuple(one for item in value.ravel().tolist() for one in _values(name, item, dtype))
    value = plain(value.item() if isinstance(value, np.generic) else value)
    if dtype == "bytes" and isinstance(value, bytes):
        return (value,)
    if dtype == "bytes" and isinstance(value, str):
        return (value.encode(),)
    if dtype == "int64" and isinstance(value, int) and not isinstance(value, bool) and value in _INT64:
        return (value,)
    if dtype == "float32" and isinstance(value, int | float) and not isinstance(value, bool):
        return (float(value),)
    raise PlanTypeError(f"{name} of dtype {dtype} needs a default_value of that type, got {value!r}")
