"""encode: write a tf.train.Example without protobuf."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupipe.errors import PlanError, PlanTypeError
from gpupipe.extract.examples.wire import encode_varint

__all__ = ["encode_example"]

_LARGEST = float(np.finfo(np.float32).max)


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Serialise one Example, byte for byte as protobuf's deterministic form does (names sorted, numbers packed).

    Args:
        features: name -> bytes, str (as UTF-8), int, float, or a sequence or array of one of them. Integers are int64,
            floats are rounded to float32; arrays are flattened.

    Raises:
        PlanTypeError: a value no Example can hold: bool, None, a mixed list.
        PlanError: an integer beyond int64, a float beyond float32, or an empty list, which has no type.

    Example:
        >>> encode_example({"label": 7}).hex()
        '0a100a0e0a056c6162656c12051a030a0107'
    """
    if not isinstance(features, Mapping):
        raise PlanTypeError(f"encode_example needs a dict of features, got {type(features).__name__}")
    entries = []
    for name, value in features.items():
        if not isinstance(name, str):
            raise PlanTypeError(f"encode_example needs names of features that are strings, got {name!r}")
        entries.append((name.encode(), _feature(name, value)))
    return _field(1, b"".join(_field(1, _field(1, name) + _field(2, value)) for name, value in sorted(entries)))


def _field(number: int, data: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def _feature(name: str, value: Any) -> bytes:
    values = _flat(name, value)
    first = values[0] if values else None
    if isinstance(value, np.ndarray) and not values:
        first = b"" if value.dtype == object else value.dtype.type()
    if first is None:
        raise PlanError(
            f"feature {name!r}: an empty list has no type; give np.array([], 'int64'), an empty array of the right type"
        )
    if isinstance(first, bytes | str | memoryview | bytearray):
        return _field(1, b"".join(_field(1, _blob(name, one)) for one in values))
    if isinstance(first, int | np.integer):
        packed = b"".join(_int(name, one) for one in values)
        return _field(3, _field(1, packed) if values else b"")
    floats = np.array([_float(name, one) for one in values], "<f4").tobytes()
    return _field(2, _field(1, floats) if values else b"")


def _flat(name: str, value: Any) -> list[Any]:
    """Flatten to a list of Python values."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iufOU":
            hint = "; use dtype object, 'S' loses zero bytes at the end" if value.dtype.kind == "S" else ""
            raise PlanTypeError(f"feature {name!r}: an Example holds bytes, int64 and float32, got {value.dtype}{hint}")
        return list(value.ravel().tolist())
    if isinstance(value, bytes | bytearray | memoryview | str | int | float) and not isinstance(value, bool):
        return [value]
    if isinstance(value, Sequence):
        return [one for item in value for one in _flat(name, item)]
    raise PlanTypeError(f"feature {name!r}: an Example holds bytes, str, int and float, got {_shown(value)}")


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, bool) else type(value).__name__


def _blob(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise PlanTypeError(f"feature {name!r}: a list is all bytes or all numbers, got bytes and {type(value).__name__}")


def _int(name: str, value: Any) -> bytes:
    if not isinstance(value, int) or isinstance(value, bool):
        raise PlanTypeError(
            f"feature {name!r}: a list is all of one type, got int and {type(value).__name__}; write 1.0, not 1"
        )
    if not -(2**63) <= value < 2**63:
        raise PlanError(f"feature {name!r}: {value} is beyond int64")
    return encode_varint(value)


def _float(name: str, value: Any) -> float:
    if not isinstance(value, float):
        raise PlanTypeError(
            f"feature {name!r}: a list is all of one type, got float and {type(value).__name__}; write 1.0, not 1"
        )
    if math.isfinite(value) and abs(value) > _LARGEST:
        raise PlanError(f"feature {name!r}: {value} is beyond float32")
    return value
