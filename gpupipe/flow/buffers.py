"""buffers: cache, prefetch, unbatch and padded batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import length_hint
from time import perf_counter, sleep
from typing import Any

from ..errors import DataError, StateError
from ..extract.decode import MOST_PIXELS
from ..extract.forking import renew_lock
from ..extract.waiting import LIMITS
from ..op import Array
from ..options import Settings
from ..plan.order import Arrival
from ..random import mix64
from ..threads import Thread, join
from .base import BatchStream, Context, Element, Flow, Hole, Stream
from .batch_places import Batches
from .channel import Channel, Closed
from .choices import Full
from .elements import close
from .filling import Filling, Rekey, stream_in
from .formed import INLINE, Forming
from .forming import BatchFormer, Group, unstack
from .memory import bytes_of_all
from .places import Access, Made, access
from .stack import pad_rows
from .state import REPLAYING, Refused, State, below, drop, first_state, number, snapshot
from .tape import SHARE, Tape

__all__ = ["CacheFlow", "CacheStore", "PaddedBatchFlow", "PrefetchFlow", "UnbatchFlow"]


CacheKey = tuple[Any, ...]


def cache_key(settings: Settings) -> CacheKey:
    """What the contents of a cache depend on: the seed, what bad elements do, and whose pixels they are."""
    s = settings
    known = () if s.bad_records is None else (s.bad_records,)
    return s.seed, s.on_error, s.max_pixels, s.device, s.backend, s.disabled_rules, *known


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A full pass.

    Attributes:
        elements: with their identities.
        element: their type, for a chain that is built on them.
        fixed: reading the input anew gives them in this order.
    """

    elements: list[Element]
    element: Any
    fixed: bool = True


@dataclass(eq=False)
class CacheStore:
    """The elements of full passes, by what they depend on."""

    filled: dict[CacheKey, Filled] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        renew_lock(self, "lock")

    def full(self, settings: Settings) -> bool:
        """Whether there was a full pass with these settings."""
        return cache_key(settings) in self.filled


@dataclass(frozen=True, slots=True)
class CacheFlow:
    """The elements of the first full pass, from memory from then on.

    The input is opened neutrally (epoch 0, root key), so the contents depend on seed and identity only; elements are
    re-keyed with the context the cache itself is opened in (see `key_in`), when filling and when replaying alike. What
    is handed out cannot change what is kept: arrays are read-only views, those of batches copies.

    Attributes:
        arrival: how the elements of the input come. Mixed ones are kept in an order that their identities draw, so
            that a cache that is filled anew, by a chain that goes on, gives what this one gave. It is a random order:
            what was shuffled stays so.
    """

    source: Flow
    store: CacheStore
    element: Any
    arrival: Arrival = Arrival.FIXED

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        if cache_key(at.run.settings) in self.store.filled:
            return FilledFlow(self.store).open(at, state)
        return _Filling(self, at, state)

    def access(self, at: Context) -> Access:
        if cache_key(at.run.settings) in self.store.filled:
            return FilledFlow(self.store).access(at)
        return _Rekeyed(self, at)


@dataclass(frozen=True, slots=True)
class FilledFlow:
    """The elements of a cache that is full."""

    store: CacheStore

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        done = 0 if state is None else number(state, "n")
        return _Replaying(self.store.filled[cache_key(at.run.settings)], Rekey(at), done)

    def access(self, at: Context) -> Access:
        elements, rekey = self.store.filled[cache_key(at.run.settings)].elements, Rekey(at)
        return Made(len(elements), lambda place: rekey(elements[place]))


class _Replaying(Iterator[Element]):
    """The elements of a full cache, from a place on."""

    def __init__(self, filled: Filled, rekey: Rekey, done: int) -> None:
        self._fixed = filled.fixed
        self._size = len(filled.elements)
        self._kept = iter(filled.elements)
        next(islice(self._kept, done, done), None)
        self._items = map(rekey, self._kept)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """How many elements were given."""
        if not self._fixed:
            return Refused(
                "state_dict needs what a memory cache holds, which is no part of a state, and reading its input anew "
                "gives something else: rows of batches or numbers that depend on what was ready first; use "
                "deterministic=True below it, or cache in a file"
            )
        return {"n": self._size - length_hint(self._kept), "source": Full()}


def _drawn(element: Element) -> tuple[int, int, int]:
    _, stream, position = element
    return mix64(stream.key, position), stream.key, position


class _Filling(Filling):
    """A pass that fills the cache in memory."""

    def __init__(self, flow: CacheFlow, at: Context, state: State) -> None:
        self._store = flow.store
        self._key = cache_key(at.run.settings)
        self._element = flow.element
        self._kept: list[Element] | None = [] if below(state) is None else None
        self._arrival = flow.arrival
        self._run = at.run
        self._again: _Replaying | None = None  # of a full cache, which is full again
        at.run.holds(self, "cache()")
        super().__init__(flow.source, at, state)

    def refill(self, given: int, at: Context) -> None:
        """The same; where elements come mixed, all of them tell which come first."""
        if self._arrival is Arrival.FIXED:
            super().refill(given, at)
            return
        before = REPLAYING.get()
        try:
            REPLAYING.set(True)
            deque(self, maxlen=0)
        finally:
            REPLAYING.set(before)
        filled = self._store.filled.get(self._key)
        if filled is None:
            if self._stopped.is_set():
                return
            raise StateError("load_state_dict needs the data that a cache was filled with, got an input that fails")
        self._again = _Replaying(filled, self._rekey, given)

    def __next__(self) -> Element:
        return super().__next__() if self._again is None else next(self._again)

    def snapshot(self) -> State:
        """The same; where the cache is full again, the place in it."""
        return super().snapshot() if self._again is None else self._again.snapshot()

    def held(self) -> tuple[int, int]:
        """Elements of the pass so far, and their bytes."""
        return bytes_of_all(self._kept or ())

    def add(self, element: Element) -> None:
        if self._kept is not None:
            self._kept.append(element)

    def discard(self) -> None:
        self._kept = None

    def finish(self) -> None:
        """Fill the cache; not if the pass ended because somebody stops the run."""
        if self._kept is None or self._stopped.is_set():
            return
        fixed = self._arrival is Arrival.FIXED and self._run.surprise is None
        if self._arrival is Arrival.MIXED:
            self._kept.sort(key=_drawn)
            drawn = list(map(_drawn, self._kept))
            fixed = all(a != b for a, b in pairwise(drawn))  # two of one identity, as overlapping windows have them
        filled = Filled(self._kept, self._element, fixed)
        with self._store.lock:
            self._store.filled.setdefault(self._key, filled)
        self._kept = None


@dataclass(frozen=True, slots=True)
class PrefetchFlow:
    """Elements made ahead by a thread; it starts with the first element asked for."""

    source: Flow
    size: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _Prefetching(self, at, state)

    def access(self, at: Context) -> Access:
        return access(self.source, at)


class _Prefetching:
    ahead = True
    """Elements come without being asked for, once the thread has started."""

    def __init__(self, flow: PrefetchFlow, at: Context, state: State) -> None:
        self._channel: Channel[Element] = Channel(flow.size, at.run.settings.host_memory)
        at.run.holds(self._channel, f"prefetch({flow.size})")
        self._marks = Marks(state)
        self._run = at.run
        self._thread = Thread(_pump, (flow.source, at, self._channel, self._marks, state), name="gpupipe-prefetch")
        self._started = False
        at.run.on_close(self.close)

    def __iter__(self) -> Iterator[Element]:
        return self

    def ready(self) -> bool:
        """Whether the next element is there without waiting; asking starts the thread."""
        self._start()
        return self._channel.ready()

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()

    def __next__(self) -> Element:
        self._start()
        try:
            element = self._channel.get()
        except Closed:
            self.close()
            raise StopIteration from None
        self._marks.given += 1
        return element

    def snapshot(self) -> State:
        """Where the input stood at the last mark, and how many elements were given since."""
        if self._run.any_order:  # what was chosen is known from the moment on when the input is open
            self._start()
            while not self._marks.opened and self._thread.is_alive():
                sleep(0.001)
        return self._marks.state()

    def close(self, wait: bool = True) -> None:
        """Stop the thread and wait for it."""
        self._channel.drop()
        if wait:
            join([self._thread])
        self._run.forget(self.close)


class Marks:
    """States of an input that a thread reads ahead, by how many elements it had given. Two threads work with it."""

    def __init__(self, state: State) -> None:
        self.opened = False
        first = (0, below(state, "input"), 0 if state is None else number(state, "drop"))
        self._marks: deque[tuple[int, State, int]] = deque([first])
        self.given = 0  # elements taken from the channel; one thread counts, both read
        self._time = perf_counter()
        self._cost = 0.0
        self._lock = threading.Lock()

    def begin(self, state: State) -> None:
        """The state of the input before its first element, where it says more than the one that was given."""
        if state is not None:
            with self._lock:
                count, _, dropped = self._marks[0]
                self._marks[0] = count, state, dropped
        self.opened = True

    def due(self) -> bool:
        """Whether the reading thread takes another state."""
        return perf_counter() - self._time > SHARE * self._cost

    def mark(self, inner: Any, count: int) -> None:
        """Take the state of the input; it has given `count` elements here."""
        begun = perf_counter()
        state = snapshot(inner)
        self._time = perf_counter()
        self._cost = self._time - begun
        with self._lock:
            self._marks.append((count, state, 0))
            while len(self._marks) > 1 and self._marks[1][0] <= self.given:
                self._marks.popleft()

    def state(self) -> State:
        """The state behind the elements that were taken from the channel."""
        with self._lock:
            while len(self._marks) > 1 and self._marks[1][0] <= self.given:
                self._marks.popleft()
            count, state, dropped = self._marks[0]
        return {"input": state, "drop": dropped + self.given - count}


def _pump(source: Flow, at: Context, channel: Channel[Element], marks: Marks, state: State) -> None:
    """What the prefetch thread runs. It knows the channel, never the iterator."""
    inner: Any = None
    MOST_PIXELS.set(at.run.settings.max_pixels)
    LIMITS.set(at.run.limits)
    count = 0
    try:
        inner = source.open(at) if state is None else source.open(at, below(state, "input"))
        marks.begin(first_state(inner, at))
        items = iter(inner)
        if state is not None:
            drop(items, number(state, "drop"), at)
        for element in items:
            count += 1
            if marks.due():
                marks.mark(inner, count)
            value = element[0]
            size = 0 if type(value) is Hole else sum(getattr(c, "nbytes", None) or len_of(c) for c in value)
            channel.put(element, size)
        channel.finish()
    except Closed:
        pass
    except BaseException as error:
        channel.fail(error)
    finally:
        close(inner)


def len_of(column: Any) -> int:
    """Bytes of a byte string, 8 for anything small."""
    return len(column) if isinstance(column, bytes) else 8


@dataclass(frozen=True, slots=True)
class UnbatchFlow:
    """The rows of each element, with the identities they had."""

    source: Flow
    names: tuple[str, ...]

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _Unbatched(self, at, state)


class _Unbatched:
    def __init__(self, flow: UnbatchFlow, at: Context, state: State) -> None:
        self._names = flow.names
        self._tape = Tape(flow.source, at, below(state))
        self._rows: deque[Element] = deque()
        self._given = 0  # of the rows of the last element
        if state is not None:
            drop(self, number(state, "given"), at)

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        tape = self._tape
        while not self._rows:
            if tape.due():
                tape.mark()
                tape.forget(tape.count)
            self._given = 0
            element = next(tape.items)
            if type(element[0]) is Hole:
                if not isinstance(element[1], BatchStream) or element[0].raised:
                    return element
                self._rows.extend((element[0], *where) for where in element[1].rows)  # a hole for each row
                continue
            sizes = [len(column) if getattr(column, "shape", None) else -1 for column in element[0]]
            if len(set(sizes)) != 1 or sizes[0] < 0:
                error = DataError(
                    f"unbatch needs leaves with one number of rows, got {dict(zip(self._names, sizes, strict=True))}"
                )
                return Hole(error.at(element[1].name, element[2], "unbatch", element[1].unit)), *element[1:]
            if sizes[0]:
                self._rows.extend(unstack(element))
        self._given += 1
        return self._rows.popleft()

    def snapshot(self) -> State:
        """Where the input stood before the element in hand, and how many of its rows were given."""
        if not self._rows:
            return {"source": self._tape.state(), "given": 0}
        return {"source": self._tape.state(self._tape.count - 1), "given": self._given}

    def close(self) -> None:
        """Close the input."""
        close(self._tape.inner)


@dataclass(frozen=True, slots=True)
class PaddedBatchFlow:
    """Consecutive elements, each leaf padded to one shape and stacked."""

    source: Flow
    size: int
    drop: bool
    shapes: tuple[tuple[int, ...] | None, ...]
    values: tuple[Any, ...]
    names: tuple[str, ...]
    aligned: bool = False

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        def former(source: Iterator[Element]) -> BatchFormer:
            return BatchFormer(source, self.size, self.drop, at.run, self.aligned)

        return _Padded(self, Forming(self.source, at, state, former, INLINE))

    def access(self, at: Context) -> Access:
        return Batches(self, at)


class _Padded:
    def __init__(self, flow: PaddedBatchFlow, forming: Forming) -> None:
        self._flow = flow
        self._forming = forming

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        group = self._forming.next()
        if group is None:
            raise StopIteration
        if not isinstance(group, Group):
            return group
        rows, flow = group.rows, self._flow
        columns = zip(*[row[0] for row in rows], strict=True)
        stream = BatchStream.of(rows)
        try:
            leaves = tuple(
                pad_rows(column, rows, name, shape, value)
                for column, name, shape, value in zip(columns, flow.names, flow.shapes, flow.values, strict=True)
            )
        except DataError as error:
            return Hole(error), rows[0][1], rows[0][2]
        return leaves, stream, rows[0][2]

    def snapshot(self) -> State:
        """Where the former stands."""
        return self._forming.exact().state()

    def close(self) -> None:
        """Close the input."""
        close(self._forming.source)


class _Rekeyed(Access):
    """The elements that a cache would hold. It is not filled: only a full pass does that."""

    def __init__(self, flow: CacheFlow, at: Context) -> None:
        self._source = access(flow.source, at.neutral())
        self._at = at
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for value, stream, position in self._source.pick(blocks):
            yield value, self._stream(stream), position

    def _stream(self, stream: Stream) -> Stream:
        if isinstance(stream, BatchStream):
            return BatchStream([(self._stream(row), position) for row, position in stream.rows])
        return stream_in(self._at, stream.key, stream.name, stream.unit)
