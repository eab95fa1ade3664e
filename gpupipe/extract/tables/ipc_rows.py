"""ipc_rows: how many rows a record batch has, from its metadata and the types of its columns.

A batch says how many rows it has, and each of its columns says so again: one that no column agrees with is damaged.

Arrow's layout says how many bytes each row needs in each buffer, and a reader refuses a batch with shorter buffers. So
a batch that says it has more rows than every one of its columns can hold is wrong about its rows, and no valid file is
refused: columns that need no bytes for a row (nulls alone, run-end encoding, structs without fields) tell nothing.

One column that can hold the rows is enough: where another one is too short, that one is damaged, and the rows are bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat
from math import inf
from typing import Any

from gpupipe.extract.tables.arrow import arrow

__all__ = ["LZ4", "lengths", "most_of_compressed", "room"]

LZ4 = 0  # of CompressionType; 1 is ZSTD

_Buffers = Iterator[int]


def most_of_compressed(codec: int, size: int) -> int:
    """The most bytes that some compressed bytes can stand for.

    A byte of LZ4 makes a match at most 255 bytes longer. A block of ZSTD has at least 3 bytes, and stands for at most
    128 KB.
    """
    return 255 * size if codec == LZ4 else (size // 3 + 1) << 17


def lengths(schema: Any, nodes: Iterator[int]) -> Iterator[int]:
    """The number of rows that each column of a batch says it has.

    Args:
        schema: of all its columns.
        nodes: the number of values of each column and of what is inside of it, one after the other.
    """
    for field in schema:
        yield from islice(nodes, 1)
        for _ in islice(nodes, _inside(field.type)):
            pass


def _inside(kind: Any) -> int:
    """How many arrays are inside of one of a type; those of a dictionary are in messages of their own."""
    if isinstance(kind, arrow("").BaseExtensionType):
        return _inside(kind.storage_type)
    return sum(1 + _inside(kind.field(i).type) for i in range(kind.num_fields))


def room(schema: Any, rows: int, buffers: _Buffers, variadic: Iterator[int], *, old: bool) -> float:
    """The number of rows that some column of a batch has room for.

    Args:
        schema: of all its columns.
        rows: the number that the batch says. No column is looked at after one that has room for so many.
        buffers: the bytes in each buffer, one after the other.
        variadic: the number of buffers with data of each column of views.
        old: whether the metadata are of version 4, in which unions have a bitmap of nulls.

    Returns:
        At least `rows` if a column has room for them, or if no column tells; else the most that one has room for.
    """
    most = -1.0
    walk = _Walk(buffers, variadic, old)
    for field in schema:
        try:
            found = walk.most(field.type)
        except _UnknownTypeError:
            break
        except StopIteration:  # no buffers are left: the batch lacks columns
            found = 0
        if found != inf:
            most = max(most, found)
        if rows <= most:
            break
    return inf if most < 0 else most


class _UnknownTypeError(Exception):
    """A type of Arrow of which it is not known how many buffers it has, nor so where those of the next one are."""


class _Walk:
    """Takes the buffers of one column after the other.

    Args:
        buffers: the bytes in each.
        variadic: the number of buffers with data of each column of views.
        old: whether unions have a bitmap of nulls.
    """

    def __init__(self, buffers: _Buffers, variadic: Iterator[int], old: bool) -> None:
        self._buffers, self._variadic, self._old = buffers, variadic, old
        is_ = arrow("").types
        tests: list[tuple[str, Callable[[Any], float]]] = [
            ("is_null", lambda _: inf),
            ("is_run_end_encoded", self._of_runs),
            ("is_union", self._of_union),
            ("is_struct", self._of_struct),
            ("is_map", self._of_map),
            ("is_fixed_size_list", self._of_arrays),
            ("is_list", lambda kind: self._of_lists(kind, 4)),
            ("is_large_list", lambda kind: self._of_lists(kind, 8)),
            ("is_list_view", lambda kind: self._of_views_of_lists(kind, 4)),
            ("is_large_list_view", lambda kind: self._of_views_of_lists(kind, 8)),
            ("is_binary_view", self._of_views),
            ("is_string_view", self._of_views),
            ("is_binary", lambda _: self._of_bytes(4)),
            ("is_string", lambda _: self._of_bytes(4)),
            ("is_large_binary", lambda _: self._of_bytes(8)),
            ("is_large_string", lambda _: self._of_bytes(8)),
        ]
        self._tests = [(getattr(is_, name), rule) for name, rule in tests if hasattr(is_, name)]

    def most(self, kind: Any) -> float:
        """The number of values that the next buffers, which are those of a type, have room for.

        Raises:
            StopIteration: there are not so many buffers.
            _UnknownTypeError: nobody knows how many there are.
        """
        pa = arrow("")
        if isinstance(kind, pa.BaseExtensionType):
            return self.most(kind.storage_type)
        if pa.types.is_dictionary(kind):
            return self.most(kind.index_type)
        for test, rule in self._tests:
            if test(kind):
                return rule(kind)
        try:
            bits = kind.bit_width
        except ValueError:
            raise _UnknownTypeError from None
        self._bitmap()
        size = next(self._buffers)
        return 8 * size // bits if bits else inf

    def _bitmap(self) -> None:
        """The bitmap of nulls: it may be left out, so it tells nothing."""
        next(self._buffers)

    def _of_runs(self, kind: Any) -> float:
        self.most(kind.run_end_type)
        self.most(kind.value_type)
        return inf

    def _of_union(self, kind: Any) -> float:
        if self._old:
            self._bitmap()
        found: float = next(self._buffers)
        if kind.mode == "dense":
            found = min(found, next(self._buffers) // 4)
        for i in range(kind.num_fields):
            self.most(kind.field(i).type)
        return found

    def _of_struct(self, kind: Any) -> float:
        self._bitmap()
        return min([self.most(kind.field(i).type) for i in range(kind.num_fields)], default=inf)

    def _of_map(self, kind: Any) -> float:
        self._bitmap()
        found = max(next(self._buffers) // 4 - 1, 0)
        self._bitmap()  # of the struct of a key and an item
        self.most(kind.key_type)
        self.most(kind.item_type)
        return found

    def _of_arrays(self, kind: Any) -> float:
        self._bitmap()
        found = self.most(kind.value_type)
        return found // kind.list_size if kind.list_size and found != inf else inf

    def _of_lists(self, kind: Any, width: int) -> float:
        self._bitmap()
        found = max(next(self._buffers) // width - 1, 0)
        self.most(kind.value_type)
        return found

    def _of_views_of_lists(self, kind: Any, width: int) -> float:
        self._bitmap()
        found = min(next(self._buffers), next(self._buffers)) // width
        self.most(kind.value_type)
        return found

    def _of_views(self, kind: Any) -> float:
        self._bitmap()
        found = next(self._buffers) // 16
        for _ in repeat(None, next(self._variadic)):
            next(self._buffers)
        return found

    def _of_bytes(self, width: int) -> float:
        self._bitmap()
        found = max(next(self._buffers) // width - 1, 0)
        next(self._buffers)
        return found
