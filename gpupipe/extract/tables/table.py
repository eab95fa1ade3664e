"""table: what every tabular format gives: the number of its rows, the types of its columns, and its blocks.

A format is frozen data, a table is one open file. A block is what the file keeps together (a row group, a record batch,
some chunks): the least that can be read.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gpupipe.errors import DataError, RecordError, shown_cause
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.remote import storage_of
from gpupipe.extract.tables.columns import NULL, Column, Filled, Lists, Nulls, Same, converted
from gpupipe.spec import Array, TensorSpec

from ...classes import dataclass

__all__ = ["MOST_BYTES", "MOST_ROWS", "Block", "Format", "Handed", "Table", "is_mistake", "misfit"]

MOST_BYTES = 2 << 30
"""Bytes that the chosen columns of one block may have in memory: a file that claims more is not believed."""


MOST_ROWS = 1 << 27
"""Rows that one block may have."""


class BadRows:
    """Why rows of a block are bad, by their numbers: a file of some bytes may have many millions of them."""

    def __init__(self) -> None:
        self._rules: list[tuple[Array, Callable[[int], str]]] = []

    def add(self, rows: Array, reason: Callable[[int], str]) -> None:
        """Note which rows are bad, bool[N], and what tells why one is, unless that was told before."""
        if rows.any():
            self._rules.append((rows, reason))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def get(self, row: int) -> str | None:
        """Why a row is bad; None if it is not."""
        return next((reason(row) for rows, reason in self._rules if rows[row]), None)


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one block.

    Attributes:
        columns: one per chosen column, all of one length.
        bad: its bad rows.
    """

    columns: tuple[Column, ...]
    bad: BadRows = field(default_factory=BadRows)

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(column.nbytes for column in self.columns)

    def rows(self, start: int = 0) -> Iterator[tuple[Any, ...]]:
        """The rows from number `start` on, bad ones included."""
        return zip(*(column.some(start) for column in self.columns), strict=True)

    def row(self, i: int) -> tuple[Any, ...]:
        """One row."""
        return tuple([column.one(i) for column in self.columns])


@dataclass(frozen=True)
class Format(ABC):
    """How files of one format are read.

    Attributes:
        defaults: the value that replaces a null or a missing column, for some columns: leaves of the columns' types.

    Class attributes:
        name: the dataset class, for messages.
        indexed: whether the number of rows, and where each starts, is known without reading all of a file.
    """

    name: ClassVar[str] = ""
    indexed: ClassVar[bool] = True

    defaults: tuple[tuple[str, Any], ...] = ()

    @abstractmethod
    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        """Open a file to read some of its columns, or all.

        Raises:
            DataError: it is missing, or damaged so that its rows are not known.
            MissingDependencyError: the library of the format is not installed.
        """

    def opened(self, path: str) -> OpenFile:
        """Open a file as bytes.

        Raises:
            DataError: it is missing or empty.
        """
        file = OpenFile(storage_of(path), path)
        if not file.size:
            raise self.damaged(file, "an empty file")
        return file

    @contextmanager
    def opening(self, file: OpenFile, found: str) -> Iterator[None]:
        """Make the error for a file whose rows are not known, `found`, of whatever a library raises."""
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            if is_mistake(error):
                raise
            raise self.damaged(file, f"{found} ({error})") from shown_cause(error)

    def damaged(self, file: OpenFile, found: object) -> RecordError:
        """Make the error for a file whose rows are not known."""
        return RecordError(f"{self.name} needs a sound file of its format, got {found}", file=file.path, stage="read")


class Handed(NamedTuple):
    """Stands for the file of a table that was handed in.

    Attributes:
        path: what it is called in messages.
        tag: differs between two that are called the same.
    """

    path: str
    tag: str


class Table(ABC):
    """One open file.

    Args:
        file: its bytes, or what stands for them.
        columns: the type of each chosen column, or why it has none, by name in the order of the elements.
        sizes: rows of each block.
        defaults: the value that replaces a null, for some columns, and stands for them where they are missing.

    Class attributes:
        fills: whether the dataset class takes defaults.

    Attributes:
        starts: the first row of each block, and the number of rows, int64[blocks + 1].

    Raises:
        DataError: a number of rows that cannot be right.
    """

    fills: ClassVar[bool] = True

    def __init__(
        self,
        file: OpenFile | Handed,
        columns: Mapping[str, TensorSpec | str],
        sizes: Iterable[int],
        defaults: Iterable[tuple[str, Any]] = (),
    ) -> None:
        self.file, self.path, self.tag = file, file.path, file.tag
        self.columns = dict(columns)
        counts = list(sizes)
        if any(not 0 <= count <= MOST_ROWS for count in counts) or sum(counts) >= 1 << 62:
            raise RecordError(
                f"blocks of 0 to {MOST_ROWS} rows are needed, got one of {max(counts, key=abs)}; "
                "write the file again with smaller blocks",
                file=self.path,
                stage="read",
            )
        self.starts: Array = np.cumsum([0, *counts], dtype=np.int64)
        self.defaults = dict(defaults)
        self._lock = threading.RLock()
        renew_lock(self)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.starts) - 1

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    def block_of(self, row: int) -> int:
        """The block that a row is in."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    @abstractmethod
    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        """Read the chosen columns of a block, each with its nulls.

        Raises:
            Exception: whatever the library of the format raises; `read` makes a DataError of it.
        """

    def read(self, block: int, names: Sequence[str], specs: Sequence[TensorSpec]) -> Block:
        """Read a block. Any thread may call it.

        Args:
            block: its number.
            names: of the columns of the result, which fit, see `misfit`.
            specs: their types.

        Raises:
            DataError: it cannot be read, or is damaged.
        """
        rows = int(self.starts[block + 1] - self.starts[block])
        try:
            with self._lock:
                loaded = self.load(block)
            other = next((len(column) for column, _ in loaded if len(column) != rows), None)
            if other is not None:
                raise RecordError(f"{rows} rows are needed, as its index says, got {other}")
            columns = dict(zip(self.columns, loaded, strict=True))
            missing = Same(np.int8(0), rows), Nulls(np.broadcast_to(True, rows))
            bad = BadRows()
            fitted = [
                self._fitted(name, spec, *columns.get(name, missing), bad)
                for name, spec in zip(names, specs, strict=True)
            ]
        except DataError as error:
            reason, passing = error.reason, error.passing
        except Exception as error:
            if is_mistake(error):
                raise
            reason, passing = f"cannot be decoded: {type(error).__name__}: {error}", False
        else:
            return Block(tuple(fitted), bad)
        failure = RecordError(f"block {block} of {self.blocks}: {reason}"[:500], file=self.path, stage="read")
        failure.passing = passing
        raise failure

    def _fitted(self, name: str, spec: TensorSpec, column: Column, nulls: Nulls, bad: BadRows) -> Column:
        """A column in its type, with the defaults in place of its nulls; what has no such value makes its row bad."""
        found = self.columns.get(name, NULL)
        if nulls.inner is not None:
            bad.add(nulls.inner, lambda _: f"values are needed in column {name!r}, got a null in its list")
        if isinstance(found, TensorSpec) and (found.dtype is None or found.dtype != spec.dtype):
            column, wrong = converted(column, spec.dtype)
            if wrong is not None:
                bad.add(wrong, lambda _: f"column {name!r} of {spec} is needed, got {found} with a value beyond it")
        if isinstance(column, Lists) and spec.shape and spec.shape[0]:
            sizes = np.diff(column.ends)
            wrong = sizes != spec.shape[0] if nulls.whole is None else (sizes != spec.shape[0]) & ~nulls.whole
            bad.add(wrong, lambda row: f"column {name!r} of {spec} is needed, got a list of {sizes[row]}")
        if nulls.whole is not None and name in self.defaults:
            return Filled(column, nulls.whole, self.defaults[name])
        if nulls.whole is not None:
            bad.add(nulls.whole, lambda _: f"a value is needed in column {name!r}, got null; give one with defaults=")
        return column


def is_mistake(error: Exception) -> bool:
    """Whether an exception tells of a mistake in this code: damaged data make libraries raise all kinds, but not it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    own = at is not None and at.tb_frame.f_globals.get("__name__", "").startswith("gpupipe.")
    return own and isinstance(error, (AssertionError, AttributeError, NameError, TypeError))


def misfit(table: Table, names: Sequence[str], specs: Sequence[TensorSpec]) -> str | None:
    """Say how the columns of a table differ from those needed; None if they fit."""
    for name, spec in zip(names, specs, strict=True):
        found = table.columns.get(name)
        column = f"column {name!r}" if name else "a file"
        if isinstance(found, str):
            return f"{column} of {spec} is needed, got one {found}"
        if found is None and name in table.defaults:
            continue
        if found is None or not _takes(spec, found):
            got = "none" if found is None else found
            default = ", or a value in defaults=" if found is None and table.fills else ""
            return f"{column} of {spec} is needed, got {got}; all files need the columns of the first one{default}"
    return None


def _takes(spec: TensorSpec, found: TensorSpec) -> bool:
    """Whether a column fits a type, as it is or, as far as its values do, after `converted`."""
    if spec.accepts(found) or found is NULL:
        return True
    wanted, given = spec.dtype, found.dtype
    if any(not isinstance(dtype, np.dtype) or dtype.kind not in "iuf" for dtype in (wanted, given)):
        return False
    alike = (wanted.kind in "iu" and given.kind in "iu") or np.can_cast(given, wanted)
    return alike and replace(spec, dtype=given).accepts(found)
