"""saved: elements read from files, for `load` and for a full file cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, RecordError
from ...graph.op import Array
from ...log import logger
from ...plan.cache import CYCLE
from ...serial.elements_file import ElementsReader
from ...serial.elements_index import ElementsByIndex
from ..access import Joined, RandomAccess, blocks_of, from_list
from ..bad.found import as_before, bad_element
from ..combine.inner import Inner
from ..combine.interleave import InterleaveFlow
from ..element import BatchStream, Element, Stream
from ..rekey import stream_in
from ..run import Context
from ..sources.records import uncounted
from ..state.snapshot import Counted, State, fast_forward, int_part, replayed
from ..step import Running

__all__ = ["SavedFilesFlow", "SavedFlow", "read_elements"]


def read_elements(
    path: str, compression: str, at: Context, spoil: Callable[[], None] | None, who: str
) -> Iterator[Element]:
    """Iterate over the elements of a file, with the keys of a context (see `stream_in`).

    A damaged element is a hole; so is damage after which elements cannot be counted, and then the elements end.

    Args:
        path: the file.
        compression: "" or "GZIP".
        at: the context in which the file is opened.
        spoil: called on damage, so that the next iterator computes the file again; None if it cannot.
        who: the method, for messages.
    """
    file = Stream(at.key, path, "offset", at.alike)
    on_damage = spoil or (lambda: None)
    try:
        reader = ElementsReader(path, compression, head_needed=spoil is not None)
    except DataError as error:
        yield bad_element(error.at(path, 0, who, "offset"), file, 0)
        return

    def lost(error: DataError, position: int) -> Element:
        if spoil is not None:
            error.reason += "; the next iterator computes the file again"
            error.args = (error.reason,)
        return bad_element(error.at(path, None, who, "offset"), file, position)

    try:
        for value, where, position in reader.elements(partial(stream_in, at), on_damage):
            if where is None:
                assert isinstance(value, DataError)
                yield lost(value, position)
                continue
            yield element_of(value, where, position)
    except DataError as error:
        on_damage()
        yield lost(error, error.offset or 0)
    finally:
        reader.close()


def element_of(value: Any, where: Any, position: int) -> Element:
    """Make an element of what a file holds."""
    if isinstance(where, list):
        where = BatchStream([row for row, _ in where], [index for _, index in where])
    return bad_element(value, where, position) if isinstance(value, DataError) else (value, where, position)


class SavedElements(RandomAccess):
    """The elements of one file that has an index.

    Args:
        path: the file.
        size: the number of elements.
        at: the context in which the file is opened.

    Raises:
        RecordError: it has another number of elements, or no index that can be used.
    """

    def __init__(self, path: str, size: int, at: Context) -> None:
        self._file = Stream(at.key, path, "offset", at.alike)
        self._elements = ElementsByIndex(path, partial(stream_in, at))
        self.size = size
        if len(self._elements) != size:
            reason = f"load needs the {size} elements that were saved, got a file of {len(self._elements)}"
            raise RecordError(reason, file=path, stage="load")

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            for value, where, position in self._elements.read(block.tolist()):
                if where is None:
                    assert isinstance(value, DataError)
                    error = value.at(self._file.name, None, "load", "offset")
                    yield bad_element(error, self._file, position)
                else:
                    yield element_of(value, where, position)


@dataclass(frozen=True, slots=True)
class SavedFlow:
    """The elements of the files that `save` wrote; those of several files are interleaved, one of each.

    Attributes:
        paths: the files.
        counts: how many elements each has.
        compression: "" or "GZIP".
        indexed: whether they have an index.
        cycle: how many files are open at a time.
    """

    paths: tuple[str, ...]
    counts: tuple[int, ...]
    compression: str = ""
    indexed: bool = False
    cycle: int = CYCLE

    @property
    def starts_anywhere(self) -> bool:
        """Whether `skip` and `shard` can take it by index, see `order/skip_by_index.py`."""
        return self.indexed and len(self.paths) <= self.cycle

    def open(self, at: Context, state: State = None) -> Running:
        if len(self.paths) == 1:
            return as_before(at, None, _SavedFile(self, self.paths[0], self.counts[0], at, state))
        counts = dict(zip(self.paths, self.counts, strict=True))

        def inner(_at: Context, outer: Element, state: State = None) -> Running:
            # In the context of the whole dataset, so that no key depends on the file that an element was written to.
            return as_before(at, None, _SavedFile(self, outer[0][0], counts[outer[0][0]], at, state))

        return InterleaveFlow(SavedFilesFlow(self.paths, str), Inner(inner), self.cycle, 1).open(at, state)

    def access(self, at: Context) -> RandomAccess:
        """The elements by index, of at most `cycle` files: one of each in turn."""
        try:
            files = [SavedElements(path, count, at) for path, count in zip(self.paths, self.counts, strict=True)]
        except DataError as error:
            uncounted(at.run, error.kept().hiding(), Stream(at.key, self.paths[0], "offset", at.alike))
            return from_list([])
        return files[0] if len(files) == 1 else Joined(sum(self.counts), in_turn(self.counts), files.__getitem__)


def in_turn(counts: tuple[int, ...]) -> Callable[[Array], tuple[Array, Array]]:
    """Where the elements of files that are read in turn are: maps indices to numbers of files and indices in them."""
    rounds = [0, *sorted(set(counts) - {0})]  # between two of these the same files have elements left
    left = [np.array([i for i, count in enumerate(counts) if count > done]) for done in rounds]
    sizes = [(b - a) * len(files) for a, b, files in zip(rounds, rounds[1:], left, strict=False)]
    starts = np.cumsum([0, *sizes])

    def where(indices: Array) -> tuple[Array, Array]:
        files, inside = np.empty_like(indices), np.empty_like(indices)
        part = np.searchsorted(starts, indices, side="right") - 1
        for i in np.unique(part).tolist():
            here = part == i
            number, which = np.divmod(indices[here] - starts[i], len(left[i]))
            files[here], inside[here] = left[i][which], rounds[i] + number
        return files, inside

    return where


class _SavedFile(Running):
    """The elements of one file in order. With an index it resumes at the next one: lost ones were given as errors."""

    def __init__(self, flow: SavedFlow, path: str, count: int, at: Context, state: State) -> None:
        given = 0 if state is None else int_part(state, "n")
        items = None
        if flow.indexed and 0 < given <= count:
            try:
                items = Counted(SavedElements(path, count, at).pick(blocks_of(given, count)), given)
            except DataError as error:
                logger.warning("%s; it is read from its start", error)
        if items is None:
            items = Counted(read_elements(path, flow.compression, at, None, "load"))
            fast_forward(iter(items), given, at)
        self._counted = items
        self.items = iter(items)

    def snapshot(self) -> State:
        return self._counted.snapshot()

    def close(self) -> None:
        self._counted.close()


@dataclass(frozen=True, slots=True)
class SavedFilesFlow:
    """One element for each file that `save` wrote.

    Attributes:
        files: the files, or the plans that read them.
        make: makes the column of an element, e.g. the dataset for a `reader_func`.
    """

    files: tuple[Any, ...]
    make: Callable[[Any], Any]

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.stream("load", "load")
        return replayed(lambda: (((self.make(file),), stream, i) for i, file in enumerate(self.files)), at, state)
