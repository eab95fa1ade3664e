"""rows: the rows of one tabular file, in order or by index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, RecordError, Unit
from ...extract.storage.files import OpenFile
from ...extract.storage.forking import renew_lock
from ...extract.tables.reader import Part, TableReader
from ...extract.tables.table import Block, Format, Table, misfit
from ...graph.op import Array
from ...graph.values import digest_of
from ...spec import TensorSpec
from ..access import AsItWas, RandomAccess, blocks_of, from_list
from ..bad.found import as_before, bad_element
from ..element import Element, Stream
from ..run import Context
from ..state.snapshot import Counted, Numbers, State, int_part
from ..step import Running, close
from .readers import at_the_end, element_of, overwritten, path_of, readers_of
from .records import uncounted

__all__ = ["BLOCKS", "RowsFlow"]

UNIT: Unit = "row"


@dataclass(frozen=True, slots=True)
class RowsFlow:
    """The rows of the tabular file that an outer element names. A row is identified by its number.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        format: opens the file.
        names: of the columns that are read, in the order of the leaves.
        specs: of these columns: all files must have them.
        ahead: whether threads read ahead.
    """

    source: Any
    column: int
    format: Format
    names: tuple[str, ...]
    specs: tuple[TensorSpec, ...]
    ahead: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        path = path_of(self, at)
        return Counted(iter(())) if path is None else as_before(at, None, _Rows(self, path, at, state))

    def access(self, at: Context) -> RandomAccess:
        found = self.indexed(at, build=True)
        return from_list([]) if found is None else AsItWas(found, at)

    def indexed(self, at: Context, build: bool) -> RowsByIndex | None:
        """The rows by index; None without a file, or where it cannot be opened and `build` is not set.

        Raises:
            DataError: the file cannot be opened, see `uncounted`.
        """
        path = path_of(self, at)
        if path is None:
            return None
        stream = at.stream("rows", path, UNIT)
        try:
            table = self.opened(path)
        except DataError as error:
            if build:
                uncounted(at.run, _unknown(error), stream)
            return None
        return RowsByIndex(self, table, stream)

    def opened(self, path: str) -> Table:
        """Open the file.

        Raises:
            DataError: its rows are not known.
        """
        return self.format.open(path, self.names)

    def block(self, table: Table, number: int) -> Block | DataError:
        """Read a block, or return why all its rows are bad."""
        wrong = misfit(table, self.names, self.specs)
        if wrong is not None:
            return RecordError(wrong, file=table.path, stage="read")
        try:
            return table.read(number, self.names, self.specs)
        except DataError as error:
            return error.kept()


def _unknown(error: DataError) -> DataError:
    """Mark the error of a file whose rows are not known; return it."""
    error.unit = UNIT
    return error.kept().hiding()


class _Rows(Running):
    """The rows of a file, block by block. The state is the number of the next row."""

    def __init__(self, flow: RowsFlow, path: str, at: Context, state: State) -> None:
        first = 0 if state is None else int_part(state, "row")
        self._stream = at.stream("rows", path, UNIT)
        self._lost = state is not None and bool(state.get("lost"))
        self._reader = TableReader(
            path, readers=readers_of(flow, path, at), start=first, table=lambda: flow.opened(path), block_of=flow.block
        )
        self._blocks = self._reader.blocks()
        if self._lost:
            self._blocks.close()
        self._stop = first  # of the present part
        self._held = 0  # its bytes
        self._numbers = Numbers(chain.from_iterable(map(self._elements, self._blocks)), first)
        self.items = self._numbers.items
        at.run.track_buffer(self, flow.format.name)

    def _elements(self, parts: list[Any]) -> Iterator[Element]:
        (part,) = parts
        if not isinstance(part, Part):  # the file could not be opened
            self._lost = True
            return iter([element_of((part[0], _unknown(part[1])), self._stream)])
        self._stop = part.stop
        self._held = part.block.nbytes if isinstance(part.block, Block) else 0
        return elements(part, self._stream)

    def lose(self) -> None:
        self._lost = True
        self._blocks.close()
        self._numbers = Numbers(iter(()), self._numbers.count)
        self.items = self._numbers.items

    def snapshot(self) -> State:
        """The number of the next row, and whether the file could not be opened."""
        state = {"row": self._numbers.count}
        return {**state, "lost": True} if self._lost else state

    def buffer_usage(self) -> tuple[int, int]:
        """The rows of the present block that are still to come, and its bytes."""
        left = self._stop - self._numbers.count
        return max(left, 0), self._held if left > 0 else 0

    def ready(self) -> bool:
        """Whether the next row can be had without waiting."""
        return self._numbers.count < self._stop or self._reader.ready()

    def close(self) -> None:
        self._reader.close()
        close(self._blocks)


def elements(part: Part, stream: Stream) -> Iterator[Element]:
    """Rows as elements, holes where they are bad."""
    positions, block = range(part.first, part.stop), part.block
    if isinstance(block, DataError):
        return (_hole(block, stream, i) for i in positions)
    skip = block.size - len(positions)
    whole: Iterator[Element] = zip(block.rows(skip), repeat(stream), positions, strict=False)
    if not block.bad:
        return whole
    bad, start = block.bad, part.first - skip
    return (item if (reason := bad.get(item[2] - start)) is None else _bad(reason, stream, item[2]) for item in whole)


def _hole(error: DataError, stream: Stream, row: int) -> Element:
    """A row of a block that cannot be read."""
    mine = error.again()
    mine.file, mine.offset, mine.unit = stream.name, row, UNIT
    return bad_element(mine, stream, row)


def _bad(reason: str, stream: Stream, row: int) -> Element:
    return bad_element(RecordError(reason, file=stream.name, offset=row, stage="read", unit=UNIT), stream, row)


class BlockCache:
    """The blocks that were read last for access by index; shared by all threads.

    Args:
        most_blocks: kept at most.
        most_bytes: of them; one block is kept in any case.
    """

    def __init__(self, most_blocks: int = 8, most_bytes: int = 256 << 20) -> None:
        self.most_blocks, self.most_bytes = most_blocks, most_bytes
        self._blocks: OrderedDict[tuple[Any, ...], Block | DataError] = OrderedDict()
        self._lock = threading.RLock()
        renew_lock(self)

    def block(self, key: tuple[Any, ...], read: Callable[[], Block | DataError]) -> Block | DataError:
        """A block by its key, read if it is not kept; an error is kept unless it may pass."""
        with self._lock:
            found = self._blocks.get(key)
            if found is not None:
                self._blocks.move_to_end(key)
                return found
        made = read()  # outside the lock: it may take long
        if isinstance(made, DataError) and made.passing:
            return made
        with self._lock:
            self._blocks[key] = made
            while len(self._blocks) > 1 and (len(self._blocks) > self.most_blocks or self.nbytes > self.most_bytes):
                self._blocks.popitem(last=False)
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of the kept blocks."""
        with self._lock:
            return sum(block.nbytes for block in self._blocks.values() if isinstance(block, Block))

    def clear(self) -> None:
        """Drop all blocks."""
        with self._lock:
            self._blocks.clear()


BLOCKS = BlockCache()
"""The blocks of this process."""

AT_ONCE = 64 << 20
"""Bytes of the rows that are cut at a time from the blocks in which they lie: each block is read once for all of them,
so more of them make a full shuffle cheaper."""


class RowsByIndex(RandomAccess):
    """The rows of one open file by number."""

    def __init__(self, flow: RowsFlow, table: Table, stream: Stream) -> None:
        self.size = table.size
        self._flow = flow
        self._table = table
        self._stream = stream
        self._most: int | None = None  # rows that are cut at a time
        self._key = table.path, table.tag, digest_of(flow.format, flow.names, flow.specs)

    def one(self, index: int) -> Element:
        number = self._table.block_of(index)
        return self._cut(self._block(number), number, index)

    def _block(self, number: int) -> Block | DataError:
        return BLOCKS.block((*self._key, number), lambda: self._flow.block(self._table, number))

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        """The rows at some indices, many at a time: each block is read once for all of its rows among them."""
        for indices in blocks:
            start = 0
            while start < len(indices):
                most = self._at_once(int(indices[start]))
                yield from self._some(indices[start : start + most])
                start += most

    def _at_once(self, index: int) -> int:
        """The number of rows that have `AT_ONCE` bytes, by the block of one of them."""
        if self._most is None:
            block = self._block(self._table.block_of(index))
            if isinstance(block, DataError):
                return 1
            self._most = max(1, AT_ONCE * block.size // max(block.nbytes, 1))
        return self._most

    def _some(self, indices: Array) -> Iterator[Element]:
        numbers = np.searchsorted(self._table.starts, indices, side="right") - 1
        if (numbers[1:] >= numbers[:-1]).all():  # in order: one block at a time
            return map(self.one, indices.tolist())
        found: list[Any] = [None] * len(indices)
        for i in np.argsort(numbers, kind="stable").tolist():
            found[i] = self.one(int(indices[i]))
        return iter(found)

    def _cut(self, block: Block | DataError, number: int, index: int) -> Element:
        if isinstance(block, DataError):
            return _hole(block, self._stream, index)
        row = index - int(self._table.starts[number])
        reason = block.bad.get(row)
        if reason is not None:
            return _bad(reason, self._stream, index)
        return block.row(row), self._stream, index

    def strided(self, start: int, step: int) -> Iterator[Element]:
        """Every `step`-th row, from index `start`."""
        return chain(self.pick(blocks_of(start, self.size, step)), at_the_end(self._file, self._stream, self.size))

    def changed(self) -> Iterator[Element]:
        return overwritten(self._file, self._stream, self.size)

    @property
    def _file(self) -> OpenFile | None:
        return self._table.file if isinstance(self._table.file, OpenFile) else None
