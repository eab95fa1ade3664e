"""columns: the leaves of an element as bytes, written and read. Every length read is bounded before it is used.

A column is a tag, then

    bytes      u64 length, data
    array      u8 dtype, u8 rank, u64 per dimension, data in C order
    scalar     u8 dtype, data
    objects    u8 rank, u64 per dimension, u64 length of each byte string, the byte strings end to end
    ragged     the values, then the row splits, as two columns

all little-endian. The columns of an element are their number (u16), then one after the other. Nothing is pickled, so a
file cannot make its reader run code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import PlanError, PlanTypeError
from ..extract.storage.sharing import handed_over
from ..ragged import Ragged
from ..spec import byte_array
from .structures import Malformed

__all__ = ["Cursor", "add_column", "add_columns", "read_column", "read_columns"]

_BYTES, _ARRAY, _SCALAR, _OBJECTS, _RAGGED = range(5)


_DTYPES = tuple(np.dtype(name) for name in "?,<i1,<u1,<i2,<u2,<i4,<u4,<i8,<u8,<f2,<f4,<f8".split(","))


_WIDE = (*_DTYPES, np.dtype(np.longdouble))  # long double depends on the machine, so it never goes into a file


_CODES = {dtype: code for code, dtype in reversed(tuple(enumerate(_WIDE)))}  # long double may be float64: that wins


_WHO = "elements in files and worker processes"


_MOST_RANK = 32


_DEEPEST = 32  # ragged dimensions


_u16 = struct.Struct("<H")


_u64 = struct.Struct("<Q")


_bytes = struct.Struct("<BQ")


def add_columns(columns: Sequence[Any], out: list[Any], wide: bool = False) -> None:
    """Append the bytes of the columns of an element to `out`; see `add_column`."""
    out.append(_u16.pack(len(columns)))
    for column in columns:
        add_column(column, out, wide)


def add_column(column: Any, out: list[Any], wide: bool = False) -> None:
    """Append the bytes of one leaf to `out`, as bytes and memoryviews; contiguous arrays are not copied.

    Args:
        column: the leaf.
        out: the list of bytes to extend.
        wide: whether numbers of more than 64 bits are allowed, as the reader is a process of this machine.

    Raises:
        PlanTypeError: the leaf has a dtype or type that cannot be written.
    """
    if isinstance(column, (bytes, memoryview)):
        out += (_bytes.pack(_BYTES, len(column)), column)
    elif isinstance(column, Ragged):
        out.append(bytes((_RAGGED,)))
        add_column(column.values, out, wide)
        add_column(column.row_splits, out)
    elif isinstance(column, np.ndarray) and column.dtype == object:
        items = [bytes(item) for item in column.flat]
        sizes = np.array([len(item) for item in items], "<u8").tobytes()
        out += (bytes((_OBJECTS,)) + _dims(column.shape), sizes, b"".join(items))
    elif isinstance(column, (np.ndarray, np.generic)):
        code = _CODES.get(column.dtype)
        if code is None:
            column = column.astype(column.dtype.newbyteorder("<"))
            code = _CODES.get(column.dtype)
        if code is None or (code >= len(_DTYPES) and not wide):
            raise PlanTypeError(f"{_WHO} need booleans and numbers of at most 64 bits, got {column.dtype}")
        if isinstance(column, np.generic):
            out.append(bytes((_SCALAR, code)) + column.tobytes())
        else:
            out.append(bytes((_ARRAY, code)) + _dims(column.shape))
            if column.nbytes:
                out.append(np.ascontiguousarray(column).data.cast("B"))
    else:
        raise PlanTypeError(f"{_WHO} need arrays, numbers and bytes, got {type(column).__name__}")


def _dims(shape: tuple[int, ...]) -> bytes:
    if len(shape) > _MOST_RANK:
        raise PlanTypeError(f"{_WHO} need arrays of at most {_MOST_RANK} dimensions, got {len(shape)}")
    return struct.pack(f"<B{len(shape)}Q", len(shape), *shape)


class Cursor:
    """A reading position in a piece of memory; nothing is read beyond its end.

    Args:
        view: the memory.
        wide: see `add_column`.

    Attributes:
        dtypes: the dtypes that numbers may have, by their codes.
    """

    __slots__ = ("_offset", "_view", "dtypes")

    def __init__(self, view: memoryview, wide: bool = False) -> None:
        self._view = view
        self._offset = 0
        self.dtypes = _WIDE if wide else _DTYPES

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._view) - self._offset

    def take(self, n: int) -> memoryview:
        """Read the next `n` bytes, as a view.

        Raises:
            Malformed: there are fewer.
        """
        start, view = self._offset, self._view  # not `left`: elements are read by many small steps
        end = self._offset = start + n
        if end > len(view):
            self._offset = start
            raise Malformed(f"{n} bytes are needed, {self.left} are left")
        return view[start:end]

    def u8(self) -> int:
        """Read one byte."""
        start = self._offset
        if start == len(self._view):
            raise Malformed("1 byte is needed, none is left")
        self._offset = start + 1
        return self._view[start]

    def u64(self) -> int:
        """Read one number of 8 bytes."""
        number: int = _u64.unpack(self.take(8))[0]
        return number

    def numbers(self, count: int) -> tuple[int, ...]:
        """Read `count` numbers of 8 bytes."""
        return struct.unpack(f"<{count}Q", self.take(8 * count))


def read_columns(cursor: Cursor) -> tuple[Any, ...]:
    """Read the columns of an element; see `read_column`."""
    (count,) = _u16.unpack(cursor.take(2))
    return tuple([read_column(cursor) for _ in range(count)])


def read_column(cursor: Cursor, depth: int = 0) -> Any:
    """Read one leaf. Arrays own their memory; byte strings are views of the cursor's, without the GIL copies.

    Raises:
        Malformed: the bytes are not a leaf, or it is larger than what is left.
    """
    tag = cursor.u8()
    if tag == _BYTES:
        return handed_over(cursor.take(cursor.u64()))
    if tag == _SCALAR:
        dtype = _dtype(cursor)
        return _numbers(cursor.take(dtype.itemsize), dtype)[0]
    if tag == _ARRAY:
        dtype = _dtype(cursor)
        shape, count = _shape(cursor)
        return _reshaped(_numbers(cursor.take(count * dtype.itemsize), dtype), shape).copy()
    if tag == _OBJECTS:
        shape, count = _shape(cursor)
        if count * 8 > cursor.left:
            raise Malformed(f"{count} byte strings do not fit {cursor.left} bytes")
        return _reshaped(byte_array([bytes(cursor.take(n)) for n in cursor.numbers(count)]), shape)
    if tag == _RAGGED and depth < _DEEPEST:
        values, splits = read_column(cursor, depth + 1), read_column(cursor, depth + 1)
        if not isinstance(values, (np.ndarray, Ragged)) or not isinstance(splits, np.ndarray):
            raise Malformed("ragged rows are not values and splits")
        try:
            return Ragged(values, splits)
        except PlanError as error:
            raise Malformed(str(error)) from error
    raise Malformed(f"no column has the tag {tag}")


def _numbers(data: memoryview, dtype: np.dtype[Any]) -> Any:
    numbers = np.frombuffer(data, dtype)
    if dtype is _DTYPES[0] and len(data) and numbers.view(np.uint8).max() > 1:  # NumPy computes with any byte
        raise Malformed("a boolean is neither 0 nor 1")
    return numbers


def _reshaped(values: Any, shape: tuple[int, ...]) -> Any:
    try:
        return values.reshape(shape)
    except (ValueError, OverflowError) as error:  # a dimension of 0 beside one that is too large for NumPy
        raise Malformed(f"no array has the shape {shape}: {error}") from error


def _dtype(cursor: Cursor) -> np.dtype[Any]:
    code = cursor.u8()
    if code >= len(cursor.dtypes):
        raise Malformed(f"no dtype has the number {code}")
    return cursor.dtypes[code]


def _shape(cursor: Cursor) -> tuple[tuple[int, ...], int]:
    """Read the dimensions of an array, and count its values; the caller compares that with the bytes left."""
    rank = cursor.u8()
    if rank > _MOST_RANK:
        raise Malformed(f"an array has {rank} dimensions")
    shape = cursor.numbers(rank)
    return shape, math.prod(shape)
