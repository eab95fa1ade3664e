"""indexed: elements by their places, and flows that choose places.

`access(flow, at)` looks at a flow from the side: how many elements it has in a context, and the elements at any places,
with the identities that iterating gives them. A step that goes element by element runs over the chosen ones as it runs
over all, threads and reading ahead included. Nothing is read before an element is asked for, but for the headers of
record files that have no index yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np

from ..errors import DataError, GpupipeError, PlanError, StateError
from ..extract.index import RecordIndex, find_index, record_index, version_of
from ..extract.patterns import is_url
from ..extract.reference import Reference, indexed_elements
from ..extract.storage import LOCAL
from ..op import Array
from ..plan.indexed import ENDLESS, Everything, Order, Part, Rows, Sliced
from ..random import hash64, mix64
from .base import BatchStream, Context, Element, Flow, Hole, Stream
from .buffers import CacheFlow, FilledFlow, PaddedBatchFlow, PrefetchFlow, cache_key, key_in
from .elements import (
    ConcatenateFlow,
    EnumerateFlow,
    RepeatFlow,
    ShardFlow,
    SkipFlow,
    TakeFlow,
    ZipFlow,
    close,
    counts,
)
from .fetch import FetchFlow
from .host import HostFlow
from .interleave import FlatMapFlow, Inner, InterleaveFlow, open_inner
from .known_bad import KnownBadFlow
from .permutation import Permutation
from .prime import PrimedFlow
from .process_map import ProcessMapFlow
from .python_map import PythonMapFlow
from .shuffle import ShuffleFlow
from .sources import FilesFlow, ParamFlow, RangeFlow, RecordsFlow, SlicesFlow, named_stream
from .stage import StageFlow
from .state import Counted, State, drop
from .state import number as number_of
from .watch import Where

__all__ = ["Access", "ItemsFlow", "SelectFlow", "StridedFlow", "access", "shards_of", "skipping"]

AT_ONCE = 4096
"""Places that are worked out at a time."""


class Access:
    """The elements of a flow, opened in one context, by their places.

    Attributes:
        size: how many there are; `ENDLESS` for ever.
    """

    size: int

    def one(self, place: int) -> Element:
        """The element at a place, 0 <= place < size."""
        found = self.pick(iter([np.array([place])]))
        try:
            for element in found:
                if counts(element):
                    return element
            raise GpupipeError(f"place {place} of {self.size} has no element; please report it")
        finally:
            close(found)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        """The elements at some places, int64[N] at a time, in their order."""
        return (self.one(place) for block in blocks for place in block.tolist())


Opener = Callable[[Any, Context], Access]
_OPENERS: dict[type[Any], Opener] = {}


def _opens(*kinds: type[Any]) -> Callable[[Opener], Opener]:
    def register(opener: Opener) -> Opener:
        _OPENERS.update(dict.fromkeys(kinds, opener))
        return opener

    return register


def access(flow: Flow, at: Context) -> Access:
    """The elements of a flow in a context by their places; headers of files without an index are read.

    Raises:
        GpupipeError: the flow has no places; `plan.indexed.blocker` says so of its plan.
    """
    opener = _OPENERS.get(type(flow))
    if opener is None:
        raise GpupipeError(f"{type(flow).__name__} gives no elements by place; please report it")
    return opener(flow, at)


def _blocks(start: int, stop: int, step: int = 1) -> Iterator[Array]:
    """The places from `start` to `stop`, some thousand at a time."""
    for first in range(start, stop, AT_ONCE * step):
        yield np.arange(first, min(first + AT_ONCE * step, stop), step)


# ---- sources


class _Made(Access):
    """Elements that a function makes of their places."""

    def __init__(self, size: int, make: Callable[[int], Element]) -> None:
        self.size = size
        self._make = make

    def one(self, place: int) -> Element:
        return self._make(place)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return map(self._make, chain.from_iterable(block.tolist() for block in blocks))


def _kept(elements: Sequence[Element]) -> Access:
    return _Made(len(elements), elements.__getitem__)


@dataclass(frozen=True, slots=True)
class ItemsFlow:
    """The numbers of the items of an object: what `from_indexable` asks it for."""

    count: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return self.chosen(at, range(self.count), state)

    def chosen(self, at: Context, places: range, state: State = None) -> Iterator[Element]:
        """The elements at some places."""
        stream = Stream(mix64(at.key, hash64("indexable")), "from_indexable")
        done = 0 if state is None else number_of(state, "n")
        return Counted((((i,), stream, i) for i in places[done:]), done=done)


@_opens(ItemsFlow)
def _items(flow: ItemsFlow, at: Context) -> Access:
    stream = Stream(mix64(at.key, hash64("indexable")), "from_indexable")
    return _Made(flow.count, lambda i: ((i,), stream, i))


@_opens(RangeFlow)
def _range(flow: RangeFlow, at: Context) -> Access:
    stream = Stream(mix64(at.key, hash64("range")), "range")
    numbers, kind = flow.numbers, flow.dtype.type
    return _Made(len(numbers), lambda i: ((kind(numbers[i]),), stream, i))


@_opens(SlicesFlow)
def _slices(flow: SlicesFlow, at: Context) -> Access:
    leaves, names = flow.leaves, flow.names
    if flow.whole:
        return _kept(list(flow.open(at)))
    if names is not None:
        before = _listed_before(names)

        def made(i: int) -> Element:
            row = tuple([leaf[i] for leaf in leaves])
            shown = row[0].decode(errors="surrogateescape")
            return row, named_stream(at, shown, names[i], {names[i]: before.get(i, 0)}), 0

        return _Made(len(names), made)
    stream = Stream(mix64(at.key, hash64("slices")), "from_tensor_slices")
    return _Made(len(leaves[0]), lambda i: (tuple([leaf[i] for leaf in leaves]), stream, i))


@_opens(FilesFlow)
def _listed(flow: FilesFlow, at: Context) -> Access:
    paths, names = flow.paths, flow.names
    before = _listed_before(names)

    def made(i: int) -> Element:
        stream = named_stream(at, paths[i], names[i], {names[i]: before.get(i, 0)})
        return (paths[i].encode(errors="surrogateescape"),), stream, 0

    return _Made(len(paths), made)


@_opens(ParamFlow)
def _param(flow: ParamFlow, at: Context) -> Access:
    return _kept(list(flow.open(at)))


_BEFORE: dict[int, tuple[tuple[str, ...], dict[int, int]]] = {}


def _listed_before(names: tuple[str, ...]) -> dict[int, int]:
    """By place, how often a name was listed before, where it was; kept for the lists that were asked for last."""
    known = _BEFORE.get(id(names))
    if known is not None and known[0] is names:
        return known[1]
    seen: dict[str, int] = {}
    before: dict[int, int] = {}
    for i, name in enumerate(names):
        count = seen[name] = seen.get(name, -1) + 1
        if count:
            before[i] = count
    while len(_BEFORE) >= 8:
        _BEFORE.pop(next(iter(_BEFORE)), None)
    _BEFORE[id(names)] = names, before
    return before


@_opens(ShuffleFlow)
def _shuffled(flow: ShuffleFlow, at: Context) -> Access:
    """A shuffle of file names, which are few: the only buffer that has places."""
    once = replace(flow, repeat=1)
    if flow.repeat == 1:
        return _kept(list(once.open(at)))
    first = _kept(list(once.open(at)))
    return _passes(first, lambda j: _kept(list(once.open(at.under(flow.number, j)))), flow.repeat)


class _Records(Access):
    """The records of one file."""

    def __init__(self, flow: RecordsFlow, path: str, index: RecordIndex, stream: Stream) -> None:
        self.size = len(index)
        self._index = index
        self._path = path
        self._stream = stream
        self._references = flow.references

    def one(self, place: int) -> Element:
        offset, length = self._index.place(place)
        stream = self._stream
        error = self._index.faults.get(place)
        if error is not None:
            return Hole(error.at(stream.name, offset, "read", "offset")), stream, offset
        reference = Reference(self._path, offset, length)
        if self._references:
            return (reference,), stream, offset
        try:
            return (reference.read(),), stream, offset
        except DataError as failed:
            return Hole(failed.at(stream.name, offset, "read", "offset")), stream, offset

    def strided(self, start: int, step: int) -> Iterator[Element]:
        """Every `step`-th record from place `start` on."""
        if self._references and not self._index.faults:
            return indexed_elements(self._index, self._path, self._stream, start, step)
        return self.pick(_blocks(start, self.size, step))


@_opens(RecordsFlow)
def _records(flow: RecordsFlow, at: Context) -> Access:
    found = _records_of(flow, at, build=True)
    return _kept([]) if found is None else found


def _records_of(flow: RecordsFlow, at: Context, build: bool) -> _Records | None:
    """The records of a file whose index is there, or is built now."""
    for value, _, _ in flow.source.open(at):
        path = value[flow.column].decode(errors="surrogateescape")
        if is_url(path):
            if build:
                raise PlanError(f"a choice by place needs local files, got {path}; copy it to a disk")
            return None
        try:
            LOCAL.size(path)  # drops what is open of an earlier version of the file
        except DataError:
            if not build:
                return None
        index = record_index(path, flow.index) if build else find_index(path, version_of(path), flow.index)
        if index is None:
            return None
        return _Records(flow, path, index, Stream(mix64(at.key, hash64("records")), path, "offset"))
    return None


# ---- steps that go element by element


@dataclass(frozen=True, slots=True)
class _Picked:
    """Chosen elements as a flow: what a step runs over in place of its input."""

    source: Access
    blocks: Iterator[Array]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        if state is not None:
            raise StateError("places that were chosen have no state of their own; please report it")
        return Counted(self.source.pick(self.blocks))


class _Through(Access):
    """A step that makes one element of each."""

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._source = access(flow.source, at)
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        made: Iterator[Element] = replace(self._flow, source=_Picked(self._source, blocks)).open(self._at)
        return made


@_opens(FetchFlow, HostFlow, KnownBadFlow, PythonMapFlow, ProcessMapFlow)
def _through(flow: Flow, at: Context) -> Access:
    return _Through(flow, at)


@_opens(PrefetchFlow)
def _prefetched(flow: PrefetchFlow, at: Context) -> Access:
    return access(flow.source, at)


@_opens(PrimedFlow)
def _primed(flow: PrimedFlow, at: Context) -> Access:
    return access(flow.flow, at)


@_opens(EnumerateFlow)
def _enumerated(flow: EnumerateFlow, at: Context) -> Access:
    return _Enumerated(flow, at)


class _Enumerated(_Through):
    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            found = self._source.pick(iter([block]))
            numbers = iter((block + self._flow.start).tolist())
            for element in found:
                if not counts(element):
                    yield element
                    continue
                number = np.int64(next(numbers))
                value, stream, position = element
                yield element if type(value) is Hole else ((number, *value), stream, position)


@_opens(CacheFlow)
def _cached(flow: CacheFlow, at: Context) -> Access:
    if cache_key(at.run.settings) in flow.store.filled:
        return _filled(FilledFlow(flow.store), at)
    return _Rekeyed(flow, at)


@_opens(FilledFlow)
def _filled(flow: FilledFlow, at: Context) -> Access:
    return _kept(list(flow.open(at)))


class _Rekeyed(Access):
    """The elements that a cache would hold. It is not filled: only a full pass does that."""

    def __init__(self, flow: CacheFlow, at: Context) -> None:
        self._source = access(flow.source, at.neutral())
        self._key = at.key
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for value, stream, position in self._source.pick(blocks):
            yield value, self._stream(stream), position

    def _stream(self, stream: Stream) -> Stream:
        if isinstance(stream, BatchStream):
            return BatchStream([(self._stream(row), position) for row, position in stream.rows])
        return Stream(key_in(self._key, stream.key), stream.name, stream.unit)


# ---- batches


class _Batches(Access):
    """Batches, each made for itself. One with a bad row is a hole in its place: nothing fills it up from behind."""

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._rows = access(flow.source, at)
        n, rows = self._rows.size, flow.size
        self.size = n if n == ENDLESS else n // rows if flow.drop else -(-n // rows)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        rows = self._flow.size
        for block in blocks:
            for place in block.tolist():
                chosen = np.arange(place * rows, min((place + 1) * rows, self._rows.size))
                picked = _Picked(self._rows, iter([chosen]))
                made = replace(self._flow, source=picked, aligned=True).open(self._at)
                try:
                    yield from made
                finally:
                    close(made)


@_opens(PaddedBatchFlow)
def _padded(flow: PaddedBatchFlow, at: Context) -> Access:
    return _Batches(flow, at)


@_opens(StageFlow)
def _staged(flow: StageFlow, at: Context) -> Access:
    return _Batches(flow, at) if flow.how == "batch" else _Through(flow, at)


# ---- steps that choose


class _Chosen(Access):
    """Some of the places of another flow."""

    def __init__(self, source: Access, size: int, where: Callable[[Array], Array]) -> None:
        self._source = source
        self._where = where
        self.size = size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        return self._source.pick(map(self._where, blocks))


def _strided(source: Access, start: int, step: int) -> Access:
    n = source.size
    size = n if n == ENDLESS else max(0, -(-(n - start) // step))
    return _Chosen(source, size, lambda places: start + places * step)


@_opens(TakeFlow)
def _taken(flow: TakeFlow, at: Context) -> Access:
    source = access(flow.source, at)
    size = source.size if flow.count < 0 else min(flow.count, source.size)
    return _Chosen(source, size, lambda places: places)


@_opens(SkipFlow)
def _skipped(flow: SkipFlow, at: Context) -> Access:
    return _strided(access(flow.source, at), flow.count, 1)


@_opens(ShardFlow)
def _shard(flow: ShardFlow, at: Context) -> Access:
    return _strided(access(flow.source, at), flow.index, flow.shards)


@dataclass(frozen=True, slots=True)
class SelectFlow:
    """The elements at the places that an order names."""

    source: Flow
    order: Order

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _ByPlace(lambda given: _selected(self, at, given, 1), at, state)


class _ByPlace(Iterator[Element]):
    """Elements from a place on. Its state is how many were given, and how many errors behind the last of them.

    Args:
        begin: gives the elements without the first so many.
        at: where they are opened.
        state: where to go on.
    """

    def __init__(self, begin: Callable[[int], Iterator[Element]], at: Context, state: State) -> None:
        self._given = 0 if state is None else number_of(state, "n")
        self._errors = 0
        self._inner = begin(self._given)
        self._items = self._counted()
        if state is not None:
            drop(self._items, number_of(state, "errors"), at)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def _counted(self) -> Iterator[Element]:
        for element in self._inner:
            if type(element[0]) is not Hole or counts(element):
                self._given += 1
                self._errors = 0
            else:
                self._errors += 1
            yield element

    def snapshot(self) -> State:
        """How many elements were given, and how many errors since."""
        return {"n": self._given, "errors": self._errors}

    def close(self) -> None:
        """Close the input."""
        close(self._inner)


def _selected(flow: SelectFlow, at: Context, start: int, step: int) -> Iterator[Element]:
    """Every `step`-th element of the order from `start` on. Nothing happens before the first is asked for."""
    chosen = access(flow, at)
    found = chosen.pick(_blocks(start, chosen.size, step))
    stopped = at.run.stopped
    try:
        for element in found:
            yield element
            if stopped.is_set():
                return
    finally:
        close(found)


@_opens(SelectFlow)
def _select(flow: SelectFlow, at: Context) -> Access:
    source = access(flow.source, at)
    n = source.size
    if n == ENDLESS and not isinstance(flow.order, Sliced):
        raise PlanError(f"{flow.order.describe()} needs a dataset that ends, got an infinite one")
    return _Chosen(source, flow.order.size(n), _places(flow.order, n, at))


def _places(order: Order, n: int, at: Context) -> Callable[[Array], Array]:
    """What an order makes of places, for an input of `n` elements opened in a context."""
    match order:
        case Sliced(start=start, step=step):
            return lambda places: start + places * step
        case Everything(seed=seed, reshuffle=reshuffle):
            settings = at.run.settings
            own = settings.seed if seed is None else mix64(settings.seed, seed & (1 << 64) - 1)
            epoch, key = (at.epoch, at.key) if reshuffle else (0, at.outer)
            return Permutation(n, mix64(mix64(mix64(own, epoch), key), hash64("shuffle all")))
        case Part(seed=seed, part=part):
            before = sum(order.sizes(n)[:part])
            whole = Permutation(n, mix64(seed & (1 << 64) - 1, hash64("split")))
            return lambda places: whole(before + places)
        case Rows(order=batches, rows=rows, drop=drop):
            of_batches = _places(batches, n // rows if drop else -(-n // rows), at)
            return lambda places: of_batches(places // rows) * rows + places % rows


# ---- several inputs


class _Parts(Access):
    """Elements of several flows.

    Args:
        size: how many there are.
        where: from places to the number of a part and the place in it.
        part: gives a part by its number; asked once.
    """

    def __init__(self, size: int, where: Callable[[Array], tuple[Array, Array]], part: Callable[[int], Access]) -> None:
        self.size = size
        self._where = where
        self._part = part
        self._parts: dict[int, Access] = {}

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            numbers, places = self._where(block)
            found: dict[int, Iterator[Element]] = {}
            try:
                for number in np.unique(numbers).tolist():
                    part = self._parts.get(number)
                    if part is None:
                        part = self._parts[number] = self._part(number)
                    found[number] = part.pick(iter([places[numbers == number]]))
                for number in numbers.tolist():
                    for element in found[number]:
                        yield element
                        if counts(element):
                            break
            finally:
                for one in found.values():
                    close(one)


def _in_turn(parts: Sequence[Access]) -> Access:
    """One part after the other."""
    ends = np.cumsum([0, *(min(part.size, ENDLESS >> 20) for part in parts)])
    size = ENDLESS if any(part.size == ENDLESS for part in parts) else int(ends[-1])

    def where(places: Array) -> tuple[Array, Array]:
        numbers = np.searchsorted(ends, places, side="right") - 1
        return numbers, places - ends[numbers]

    return _Parts(size, where, parts.__getitem__)


def _passes(first: Access, later: Callable[[int], Access], count: int) -> Access:
    """The passes of a repeat; a negative count has no end."""
    n = first.size
    if n == ENDLESS or count == 1:
        return first if count else _kept([])
    size = 0 if n == 0 or count == 0 else ENDLESS if count < 0 else n * count
    return _Parts(size, lambda places: (places // n, places % n), lambda j: later(j) if j else first)


@_opens(RepeatFlow)
def _repeated(flow: RepeatFlow, at: Context) -> Access:
    return _passes(access(flow.source, at), lambda j: access(flow.source, at.under(flow.number, j)), flow.count)


@_opens(ConcatenateFlow)
def _concatenated(flow: ConcatenateFlow, at: Context) -> Access:
    return _in_turn([access(source, at.under(flow.number, i)) for i, source in enumerate(flow.inputs)])


@_opens(ZipFlow)
def _zipped(flow: ZipFlow, at: Context) -> Access:
    return _Zipped(flow, at)


class _Zipped(Access):
    """Elements side by side."""

    def __init__(self, flow: ZipFlow, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._parts = [access(source, at.under(flow.number, i)) for i, source in enumerate(flow.inputs)]
        self.size = min(part.size for part in self._parts)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            picked = [_Picked(part, iter([block])) for part in self._parts]
            found = replace(self._flow, inputs=picked).open(self._at)
            try:
                yield from found
            finally:
                close(found)


# ---- datasets made of elements


@_opens(FlatMapFlow)
def _flat_mapped(flow: FlatMapFlow, at: Context) -> Access:
    return _in_turn(_inner(flow, at))


@_opens(InterleaveFlow)
def _interleaved(flow: InterleaveFlow, at: Context) -> Access:
    parts = _inner(flow, at)
    sizes = [min(part.size, ENDLESS >> 20) for part in parts]
    turns = Turns(sizes, flow.cycle, flow.block)
    return _Parts(ENDLESS if any(part.size == ENDLESS for part in parts) else turns.size, turns, parts.__getitem__)


def _inner(flow: FlatMapFlow | InterleaveFlow, at: Context) -> list[Access]:
    """The inner datasets, in the order of the outer elements."""
    outer = flow.source.open(at)
    try:
        return [_inner_access(flow.inner, at, element) for element in outer if counts(element)]
    finally:
        close(outer)


def _inner_access(inner: Inner, at: Context, outer: Element) -> Access:
    if type(outer[0]) is Hole:
        return _kept([outer])
    flow, inside = _opened(inner, at, outer)
    return access(flow, inside)


def _opened(inner: Inner, at: Context, outer: Element) -> tuple[Flow, Context]:
    """The flow of a traced inner plan, and the context of an outer element."""
    value, stream, position = outer
    flow: Flow = inner.open.flow  # type: ignore[attr-defined]
    return flow, at.inside(mix64(stream.key, position)).with_param(value)


class Turns:
    """The order of `interleave` without running it: which dataset is at a place, and which of its elements.

    The places fall into stretches in which the same datasets take turns: at most a few for each dataset.

    Args:
        sizes: of the datasets.
        cycle: datasets that are open at a time.
        block: elements taken from each in turn.
    """

    def __init__(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        self._starts: list[int] = []
        self._widths: list[int] = []  # elements of one turn
        self._firsts: list[int] = []  # where the datasets of a stretch stand in `_who`
        self._who: list[int] = []
        self._from: list[int] = []
        self._blocks: list[int] = []  # elements that a dataset gives in one turn
        self.size = 0
        self._run(sizes, cycle, block)
        self._tables = [np.array(x, np.int64) for x in (self._starts, self._widths, self._firsts)]
        self._columns = [np.array(x, np.int64) for x in (self._who, self._from, self._blocks)]

    def _run(self, sizes: Sequence[int], cycle: int, block: int) -> None:
        slots: list[list[int] | None] = [None] * cycle  # number and how many of its elements were taken
        left = iter(range(len(sizes)))
        more = True
        while more or any(slots):
            opened = [slot for slot in slots if slot is not None]
            full = 0
            if not (more and len(opened) < cycle) and opened:
                full = min((sizes[number] - taken) // block for number, taken in opened)
            if full:
                self._stretch(opened, block, full)
                for one in opened:
                    one[1] += full * block
                continue
            for at in range(cycle):
                slot = slots[at]
                if slot is None and more:
                    number = next(left, None)
                    more = number is not None
                    slot = None if number is None else [number, 0]
                if slot is None:
                    continue
                some = min(block, sizes[slot[0]] - slot[1])
                if some:
                    self._stretch([slot], some, 1)
                    slot[1] += some
                slots[at] = slot if some == block else None

    def _stretch(self, opened: Sequence[list[int]], block: int, turns: int) -> None:
        self._starts.append(self.size)
        self._widths.append(len(opened) * block)
        self._firsts.append(len(self._who))
        for number, taken in opened:
            self._who.append(number)
            self._from.append(taken)
            self._blocks.append(block)
        self.size += len(opened) * block * turns

    def __call__(self, places: Array) -> tuple[Array, Array]:
        """The numbers of the datasets at some places, and the places in them."""
        starts, widths, firsts = self._tables
        who, taken, blocks = self._columns
        stretch = np.searchsorted(starts, places, side="right") - 1
        turn, within = np.divmod(places - starts[stretch], widths[stretch])
        block = blocks[firsts[stretch]]
        slot, offset = np.divmod(within, block)
        entry = firsts[stretch] + slot
        return who[entry], taken[entry] + turn * block + offset


# ---- skip and shard that pass over nothing one by one


@dataclass(frozen=True, slots=True)
class StridedFlow:
    """Every `step`-th element from `start` on, of a flow that can begin anywhere."""

    source: Flow
    start: int
    step: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        def begin(given: int) -> Iterator[Element]:
            return _begun(self.source, at, self.start + given * self.step, self.step)

        return _ByPlace(begin, at, state)


@_opens(StridedFlow)
def _strided_access(flow: StridedFlow, at: Context) -> Access:
    return _strided(access(flow.source, at), flow.start, flow.step)


def skipping(flow: Flow, count: int, where: Where) -> Flow:
    """A flow without its first `count` elements; where it can, it begins behind them."""
    return StridedFlow(flow, count, 1) if _can_begin(flow) else SkipFlow(flow, count, where)


def shards_of(flow: Flow, shards: int, index: int) -> Flow:
    """Every `shards`-th element; where the flow can, the others are passed over at once."""
    return StridedFlow(flow, index, shards) if _can_begin(flow) else ShardFlow(flow, shards, index)


def _can_begin(flow: Flow) -> bool:
    while isinstance(flow, TakeFlow | StridedFlow | PrimedFlow):
        flow = flow.flow if isinstance(flow, PrimedFlow) else flow.source
    if isinstance(flow, PythonMapFlow):
        return isinstance(flow.source, ItemsFlow)
    if isinstance(flow, FlatMapFlow):
        return isinstance(getattr(flow.inner.open, "flow", None), RecordsFlow)
    return isinstance(flow, RangeFlow | SlicesFlow | ItemsFlow | SelectFlow)


def _begun(flow: Flow, at: Context, start: int, step: int) -> Iterator[Element]:
    """Every `step`-th element of a flow from `start` on."""
    match flow:
        case StridedFlow(source=source, start=first, step=inner):
            return _begun(source, at, first + start * inner, step * inner)
        case TakeFlow(source=source, count=count) if count >= 0:
            left = max(0, -(-(count - start) // step))
            return TakeFlow(StridedFlow(source, start, step), left).open(at)
        case TakeFlow(source=source):
            return _begun(source, at, start, step)
        case PrimedFlow():
            return _begun(flow.flow, at, start, step)
        case SelectFlow():
            return _selected(flow, at, start, step)
        case PythonMapFlow(source=ItemsFlow() as items):
            return replace(flow, source=StridedFlow(items, start, step)).open(at)
        case ItemsFlow():
            return flow.chosen(at, range(start, flow.count, step))
        case FlatMapFlow():
            return _begun_in_files(flow, at, start, step)
        case RangeFlow() | SlicesFlow(names=None, whole=False):
            found = access(flow, at)
            return found.pick(_blocks(start, found.size, step))
        case _:
            return islice(flow.open(at), start, None, step)


def _begun_in_files(flow: FlatMapFlow, at: Context, left: int, step: int) -> Iterator[Element]:
    """The same over files of records: of a file with an index nothing is read, another one is walked by its headers."""
    outer = flow.source.open(at)
    stopped = at.run.stopped
    try:
        for element in outer:
            known = None
            if type(element[0]) is not Hole:
                records, inside = _opened(flow.inner, at, element)
                known = _records_of(records, inside, build=False) if isinstance(records, RecordsFlow) else None
            if known is not None:
                if left < known.size:
                    yield from known.strided(left, step)
                left += max(0, -(-(known.size - left) // step)) * step - known.size
                continue
            items = open_inner(flow.inner, at, element)
            try:
                for item in items:
                    if stopped.is_set():
                        return
                    if not counts(item):
                        yield item
                    elif left:
                        left -= 1
                    else:
                        yield item
                        left = step - 1
            finally:
                close(items)
    finally:
        close(outer)
