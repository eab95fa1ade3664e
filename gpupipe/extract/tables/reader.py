"""reader: the blocks of one table from some row on, read one block ahead by a thread pool if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpupipe.errors import DataError
from gpupipe.extract.records.reading import BlockReader, Source
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.table import Block, Table

from ...classes import dataclass

__all__ = ["Part", "TableReader"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that follow one another.

    Attributes:
        first: the number of the first in the file.
        stop: the number after the last.
        block: has the rows, the last one at its end; or the error of all of them.
    """

    first: int
    stop: int
    block: Block | DataError


@dataclass(eq=False, repr=False, kw_only=True)
class TableReader(BlockReader):
    """Iterates over the `Part`s of one file; a file whose rows are not known is (row, DataError) instead.

    Args:
        path: a local file, or a URL.
        readers: a pool whose threads read one block ahead.
        start: number of the row to start with.
        table: opens the file.
        block_of: reads a block of it, by its number.
    """

    table: Callable[[], Table]
    block_of: Callable[[Table, int], Block | DataError]

    def source(self) -> Source:
        table = self.table()
        self._opened = table.file if isinstance(table.file, OpenFile) else None
        return _Blocks(self, table)

    def behind(self, items: list[Any]) -> int:
        """The number of the row behind some parts, or behind all parts if there are none."""
        return items[-1].stop if items else self._reached


class _Blocks:
    def __init__(self, reader: TableReader, table: Table) -> None:
        self._reader, self._table = reader, table
        self._at = reader.start

    def block(self) -> list[Any]:
        table = self._table
        if self._at >= table.size:
            return []
        number, first = table.block_of(self._at), self._at
        block = self._reader.block_of(table, number)
        self._at = int(table.starts[number + 1])
        if isinstance(block, DataError) and not block.passing:
            try:
                self._reader.confirm()
            except DataError as error:  # the rows of another version are not told
                self._at, error.offset = table.size, first
                return [(first, error.kept().hiding())]
        return [Part(first, self._at, block)]
