"""columns: the values of one column of a block, each made a leaf of an element when it is asked for.

A leaf never is a view of its block: a shuffle buffer of a few rows would keep blocks of 100 MB.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np

from gpupipe.errors import PlanError
from gpupipe.spec import Array, TensorSpec, as_leaf, byte_array, spec_of

__all__ = [
    "NULL",
    "Arrays",
    "Column",
    "Filled",
    "Lists",
    "Nulls",
    "Same",
    "Scalars",
    "Slices",
    "Texts",
    "Values",
    "converted",
    "in_lists",
    "value_like",
]


NULL = TensorSpec((), None)
"""The type of a column of nulls alone, where the file gives it no other; of a list of such, the dtype is None too."""


class Nulls(NamedTuple):
    """The nulls of a column: whether a value is null, and whether one is inside of a list, each bool[N] or None."""

    whole: Array | None = None
    inner: Array | None = None


class Column(ABC):
    """The values of one column of a block."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def one(self, i: int) -> Any:
        """The value of a row, as a leaf of its own."""

    def some(self, start: int) -> Iterator[Any]:
        """The values from row `start` on."""
        return map(self.one, range(start, len(self)))

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes in memory."""


class Scalars(Column):
    """Numbers: an array with one axis."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def one(self, i: int) -> Any:
        return self.values[i]

    def some(self, start: int) -> Iterator[Any]:
        return iter(self.values[start:])

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)


class Arrays(Scalars):
    """Arrays of one shape: an array with more axes."""

    def one(self, i: int) -> Any:
        return self.values[i].copy()

    def some(self, start: int) -> Iterator[Any]:
        return map(np.copy, self.values[start:])


class Same(Column):
    """One leaf in place of any number of nulls, of which a file says nothing else."""

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size

    def __len__(self) -> int:
        return self.size

    def one(self, i: int) -> Any:
        return self.value

    def some(self, start: int) -> Iterator[Any]:
        return repeat(self.value, self.size - start)

    @property
    def nbytes(self) -> int:
        return int(self.value.nbytes) if isinstance(self.value, (np.ndarray, np.generic)) else len(self.value)


class Slices(Column):
    """Byte strings that follow one another.

    Args:
        data: all of them, in any buffer. Each call makes a view of its own: without the GIL threads cannot share one.
        ends: where each starts, and the end of the last, int[N + 1].
    """

    def __init__(self, data: Any, ends: Array) -> None:
        self.data = data
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def one(self, i: int) -> bytes:
        return bytes(memoryview(self.data)[self.ends[i] : self.ends[i + 1]])

    def some(self, start: int) -> Iterator[bytes]:
        data, ends = memoryview(self.data), self.ends[start:].tolist()
        return (bytes(data[a:b]) for a, b in pairwise(ends))

    def between(self, start: int, stop: int) -> list[bytes]:
        """Rows start..stop."""
        data, ends = memoryview(self.data), self.ends[start : stop + 1].tolist()
        return [bytes(data[a:b]) for a, b in pairwise(ends)]

    @property
    def nbytes(self) -> int:
        return int(self.ends[-1] - self.ends[0]) + int(self.ends.nbytes)


class Lists(Column):
    """Arrays of different lengths: parts of one column.

    Args:
        inner: the values of all rows.
        ends: where those of each row start, and the end of the last, int[N + 1].
    """

    def __init__(self, inner: Column, ends: Array) -> None:
        self.inner = inner
        self.ends = ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def one(self, i: int) -> Any:
        start, stop = int(self.ends[i]), int(self.ends[i + 1])
        if isinstance(self.inner, Scalars):
            return self.inner.values[start:stop].copy()
        if isinstance(self.inner, Slices):
            return byte_array(self.inner.between(start, stop))
        return byte_array([self.inner.one(k) for k in range(start, stop)])

    @property
    def nbytes(self) -> int:
        return self.inner.nbytes + int(self.ends.nbytes)


class Values(Column):
    """Byte strings, each an object of its own."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def one(self, i: int) -> bytes:
        return self.values[i]

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.values)) + 8 * len(self.values)  # and what refers to each


class Texts(Column):
    """Byte strings or texts of NumPy: an array with one axis. Each as an object would take many times its bytes."""

    _PIECE = 1024

    def __init__(self, values: Array) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def one(self, i: int) -> bytes:
        text = self.values[i].item()
        return text.encode(errors="replace") if isinstance(text, str) else text

    def some(self, start: int) -> Iterator[bytes]:
        for at in range(start, len(self), self._PIECE):
            for text in self.values[at : at + self._PIECE].tolist():
                yield text.encode(errors="replace") if isinstance(text, str) else text

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)


class Filled(Column):
    """A column with one value in place of its nulls."""

    def __init__(self, column: Column, nulls: Array, value: Any) -> None:
        self.column = column
        self.nulls = nulls
        self.value = value

    def __len__(self) -> int:
        return len(self.column)

    def one(self, i: int) -> Any:
        if not self.nulls[i]:
            return self.column.one(i)
        return self.value.copy() if isinstance(self.value, np.ndarray) else self.value

    @property
    def nbytes(self) -> int:
        return self.column.nbytes + int(self.nulls.nbytes)


def converted(column: Column, dtype: Any) -> tuple[Column, Array | None]:
    """Numbers of another type, and which rows have one that the type does not hold exactly, bool[N] or None.

    Args:
        column: of numbers, or of nulls alone, which are zeros.
        dtype: integers; floats, where those of the column are not wider; bytes, where it has nulls alone.
    """
    if isinstance(column, Lists):
        inner, beyond = converted(column.inner, dtype)
        return Lists(inner, column.ends), None if beyond is None else in_lists(beyond, column.ends)
    if isinstance(column, Same):
        return Same(b"" if dtype is bytes else column.value.astype(dtype), len(column)), None
    assert isinstance(column, Scalars)
    if dtype is bytes:
        return Values([b""] * len(column)), None
    values, kind = column.values, np.dtype(dtype)
    made = type(column)(values.astype(kind))
    if values.dtype.kind == "f" or kind.kind == "b":
        return made, None
    low, high = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind != "f" else (-(2**53), 2**53)
    beyond = np.asarray(((values < low) | (values > high)).any(axis=tuple(range(1, values.ndim))))
    return made, beyond


def in_lists(found: Array, ends: Array) -> Array:
    """Which lists have a value of which something is true, bool[N].

    Args:
        found: of which values it is.
        ends: as those of `Lists`.
    """
    lists = np.asarray(ends[1:] > ends[:-1])
    if lists.any():
        lists[lists] = np.logical_or.reduceat(found[: ends[-1]], ends[:-1][lists])
    return lists


def value_like(spec: TensorSpec, value: Any) -> Any:
    """A value that stands for nulls, as a leaf of this type. A float is rounded, any other number held exactly.

    Raises:
        PlanError: it is of another type, or does not fit it.
    """
    leaf = as_leaf(value)
    if isinstance(leaf, (np.generic, np.ndarray)) and leaf.dtype != object:
        leaf = _cast(leaf, spec.dtype)
    if not spec.accepts(spec_of(leaf)):
        raise PlanError(f"defaults needs a value of {spec}, got {value!r}")
    return leaf


def _cast(leaf: Any, dtype: Any) -> Any:
    """Numbers as those of another type, or as they are if that does not hold them."""
    given = np.asarray(leaf)
    if dtype is bytes:  # an empty list does not say of what it is
        return byte_array([]) if given.shape == (0,) else leaf
    with np.errstate(all="ignore"):
        cast = given.astype(dtype)
    if given.dtype.kind == cast.dtype.kind == "f":
        held = np.isfinite(given) == np.isfinite(cast)
    else:
        held = given.astype(object) == cast.astype(object)  # as Python compares: an integer is not rounded before
    return cast[()] if np.all(held) else leaf
