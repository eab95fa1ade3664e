"""listing: the features that a record has, whatever their names."""

from __future__ import annotations

from gpupipe.errors import ParseError
from gpupipe.extract.examples.features import DType
from gpupipe.extract.examples.wire import BYTES, WireError, fields

__all__ = ["feature_types"]

_TYPES: dict[int, DType] = {1: "bytes", 2: "float32", 3: "int64"}


def feature_types(record: bytes | bytearray | memoryview) -> dict[str, DType | None]:
    """List the features of a `tf.train.Example`, in the order of the record, with the type of their values.

    The type is None where the record names a feature and stores no list for it, which readers treat as missing. A name
    that is not UTF-8, which no parser can be asked for, has its bytes escaped.

    Raises:
        ParseError: the record is not an Example, or has no features.
    """
    data = memoryview(record)
    found: dict[str, DType | None] = {}
    try:
        for number, wire, start, end in fields(data, 0, len(data)):
            if number == 1 and wire == BYTES:
                for entry, kind, at, stop in fields(data, start, end):
                    if entry == 1 and kind == BYTES:
                        name, dtype = _entry(data, at, stop)
                        found[name] = dtype
    except WireError as error:
        head = bytes(data[:8]).hex(" ")
        raise ParseError(
            f"a tf.train.Example is needed, got {len(data)} bytes that start with {head}: {error}"
        ) from error
    if not found:
        raise ParseError(f"a tf.train.Example is needed, got {len(data)} bytes without features")
    return found


def _entry(data: memoryview, start: int, end: int) -> tuple[str, DType | None]:
    """Read one entry of the map: its name, and the type of the last list in its Feature message."""
    name, feature = b"", (start, start)
    for number, wire, at, stop in fields(data, start, end):
        if number == 1 and wire == BYTES:
            name = bytes(data[at:stop])
        elif number == 2 and wire == BYTES:
            feature = at, stop
    lists = [number for number, wire, _, _ in fields(data, *feature) if number in _TYPES and wire == BYTES]
    return name.decode(errors="backslashreplace"), _TYPES[lists[-1]] if lists else None
