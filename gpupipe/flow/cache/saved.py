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
from ...plan.node import ElementType
from ...serial.elements_file import ElementsReader
from ...serial.elements_index import ElementsByIndex
from ...spec import LEAF, Compound, spec_of
from ..access import Joined, RandomAccess, blocks_of, from_list
from ..bad.found import as_before, bad_element
from ..check import fits
from ..combine.inner import Inner
from ..combine.interleave import InterleaveFlow
from ..element import BatchStream, Element
from ..rekey import stream_in
from ..run import Context
from ..sources.records import uncounted
from ..state.snapshot import Counted, State, fast_forward, int_part, replayed
from ..step import Running

__all__ = ["SavedFilesFlow", "SavedFlow", "read_elements"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file should hold, as a manifest or the file's head says.

    Attributes:
        element: the type of the elements.
        run: the `save` that wrote the file; None for a cache.
    """

    element: ElementType
    run: str | None = None


class _Elements:
    """Makes elements of what a file holds. One of another type than is wanted is an error in its place.

    Args:
        wanted: what the file should hold.
        path: the file.
        who: the method, for messages.
        spoil: see `read_elements`.
    """

    def __init__(self, wanted: Wanted, path: str, who: str, spoil: Callable[[], None] | None = None) -> None:
        self._element = wanted.element
        self._path, self._who, self._spoil = path, who, spoil
        self._known: list[Any] | None = None  # kinds of the leaves of the last element, which was right

    def make(self, value: Any, where: Any, position: int) -> Element:
        if isinstance(where, list):
            where = BatchStream([row for row, _ in where], [index for _, index in where])
        if isinstance(value, DataError):
            return bad_element(value, where, position)
        kinds = [(leaf.dtype, leaf.shape) if type(leaf) is np.ndarray else type(leaf) for leaf in value]
        if kinds != self._known:
            problem = self._problem(value)
            if problem:
                if self._spoil is not None:
                    self._spoil()
                return bad_element(self.error(problem), where, position)
            self._known = None if any(isinstance(leaf, Compound) for leaf in value) else kinds
        return value, where, position

    def error(self, reason: str, offset: int | None = None) -> RecordError:
        """The error of what the file holds."""
        load = "saved.json and this file do not belong together: save the elements again"
        then = load if self._spoil is None else "the next iterator computes the file again"
        return RecordError(f"{self._who} needs {reason}; {then}", file=self._path, offset=offset, stage=self._who)

    def _problem(self, value: tuple[Any, ...]) -> str:
        """What is needed and what the leaves are; "" if they are right."""
        specs = self._element.specs
        if len(value) != len(specs):
            return f"elements with {len(specs)} leaves, got one with {len(value)}"
        for i, (leaf, spec) in enumerate(zip(value, specs, strict=True)):
            if not fits(leaf, spec) and not spec.accepts(found := spec_of(leaf)):
                name = (self._element.structure or LEAF).leaf_names()[i]
                return f"{spec} for {name or 'all elements'}, got {found}"
        return ""


def read_elements(
    path: str,
    compression: str,
    at: Context,
    wanted: Wanted,
    spoil: Callable[[], None] | None,
    who: str,
    count: int | None = None,
) -> Iterator[Element]:
    """Iterate over the elements of a file, with the keys of a context (see `stream_in`).

    A damaged element is a hole, and so is one of another type; of a file of another `save` there is none. Where
    elements cannot be counted, or are not as many as is said, they end with an error that hides the rest of the file.

    Args:
        path: the file.
        compression: "" or "GZIP".
        at: the context in which the file is opened.
        wanted: what the file should hold.
        spoil: called on damage, so that the next iterator computes the file again; None if it cannot.
        who: the method, for messages.
        count: the number of elements, if it is known.
    """
    file = at.keyed(int, path, "offset")
    elements = _Elements(wanted, path, who, spoil)
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
        if wanted.run is not None and reader.head.get("run", wanted.run) != wanted.run:  # a damaged head has none
            yield bad_element(elements.error(_OF_ANOTHER_RUN, 0).hiding(), file, 0)
            return
        given = 0
        for value, where, position in reader.elements(partial(stream_in, at), on_damage):
            if given == count:
                yield bad_element(elements.error(_another_count(given, "more")).hiding(), file, 0)
                return
            given += 1
            if where is None:
                assert isinstance(value, DataError)
                yield lost(value, position)
                continue
            yield elements.make(value, where, position)
        if count is not None and given < count:
            yield bad_element(elements.error(_another_count(count, given)).hiding(), file, 0)
    except DataError as error:
        on_damage()
        yield lost(error, error.offset or 0)
    finally:
        reader.close()


_OF_ANOTHER_RUN = "the file that saved.json was written with, got one of another save"


def _another_count(count: int, found: int | str) -> str:
    return f"the {count} elements that were saved, got a file of {found}"


class SavedElements(RandomAccess):
    """The elements of one file that has an index.

    Args:
        path: the file.
        size: the number of elements.
        at: the context in which the file is opened.
        wanted: what the file should hold.

    Raises:
        RecordError: it is of another `save`, has another number of elements, or no index that can be used.
    """

    def __init__(self, path: str, size: int, at: Context, wanted: Wanted) -> None:
        self._file = at.keyed(int, path, "offset")
        self._elements = ElementsByIndex(path, partial(stream_in, at))
        self._found = _Elements(wanted, path, "load")
        self.size = size
        if self._elements.head.get("run") != wanted.run:
            raise self._found.error(_OF_ANOTHER_RUN)
        if len(self._elements) != size:
            raise self._found.error(_another_count(size, len(self._elements)))

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            for value, where, position in self._elements.read(block.tolist()):
                if where is None:
                    assert isinstance(value, DataError)
                    error = value.at(self._file.name, None, "load", "offset")
                    yield bad_element(error, self._file, position)
                else:
                    yield self._found.make(value, where, position)


@dataclass(frozen=True, slots=True)
class SavedFlow:
    """The elements of the files that `save` wrote; those of several files are interleaved, one of each.

    Attributes:
        paths: the files.
        counts: how many elements each has.
        wanted: what they should hold.
        compression: "" or "GZIP".
        indexed: whether they have an index.
        cycle: how many files are open at a time.
    """

    paths: tuple[str, ...]
    counts: tuple[int, ...]
    wanted: Wanted
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
            files = [SavedElements(*one, at, self.wanted) for one in zip(self.paths, self.counts, strict=True)]
        except DataError as error:
            uncounted(at.run, error.kept().hiding(), at.keyed(int, self.paths[0], "offset"))
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
                items = Counted(SavedElements(path, count, at, flow.wanted).pick(blocks_of(given, count)), given)
            except DataError as error:
                logger.warning("%s; it is read from its start", error)
        if items is None:
            items = Counted(read_elements(path, flow.compression, at, flow.wanted, None, "load", count))
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
