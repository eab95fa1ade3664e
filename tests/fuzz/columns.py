"""Fuzz target: one leaf of an element, as caches and saved data sets hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupipe.ragged import Ragged
from gpupipe.serial.columns import Cursor, add_column, read_column
from gpupipe.serial.structures import Malformed


def one(data: bytes, thorough: bool = True) -> None:
    """Read a leaf; if `thorough`, write it again and read that."""
    cursor = Cursor(memoryview(data))
    try:
        column = read_column(cursor)
    except Malformed as error:
        assert len(str(error)) < 2000
        return
    used = len(data) - cursor.left
    assert 0 < used <= len(data)
    assert held(column) <= 8 * used
    if not thorough:
        return
    parts: list[Any] = []
    add_column(column, parts)
    written = b"".join(parts)
    if not isinstance(column, Ragged):  # its splits are int32 or int64, whatever was read
        assert written == data[:used]
    again = Cursor(memoryview(written))
    assert same(column, read_column(again))
    assert again.left == 0


def held(column: Any) -> int:
    """Bytes of the values; a byte string counts as what it holds."""
    if isinstance(column, Ragged):
        return held(column.values) + held(column.row_splits)
    if isinstance(column, np.ndarray) and column.dtype == object:
        return sum(map(len, column.flat))
    return len(column) if isinstance(column, bytes) else int(column.nbytes)


def same(a: Any, b: Any) -> bool:
    """Whether two leaves are of one type, shape and dtype, bit for bit."""
    if isinstance(a, Ragged):
        return isinstance(b, Ragged) and same(a.values, b.values) and same(a.row_splits, b.row_splits)
    if isinstance(a, (bytes, memoryview)):
        return bool(a == b)
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return list(a.flat) == list(b.flat) if a.dtype == object else bool(a.tobytes() == b.tobytes())
