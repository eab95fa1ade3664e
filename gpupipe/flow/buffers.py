"""buffers: cache, prefetch, unbatch and padded batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import length_hint
from time import perf_counter
from typing import Any

import numpy as np

from ..errors import DataError
from ..extract.decode import MOST_PIXELS
from ..extract.forking import renew_lock
from ..extract.waiting import LIMITS
from ..options import Settings
from ..random import ROOT, mix64
from ..spec import read_only
from ..threads import join
from .base import RUNNING, BatchStream, Context, Element, Flow, Hole, Stream
from .channel import Channel, Closed
from .elements import close
from .formed import INLINE, Forming
from .forming import BatchFormer, Group, unstack
from .memory import bytes_of_all
from .shuffle import keep
from .stack import pad_rows
from .state import Refused, State, below, drop, first_state, number, snapshot
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
    """

    elements: list[Element]
    element: Any


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
    """

    source: Flow
    store: CacheStore
    element: Any

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        if cache_key(at.run.settings) in self.store.filled:
            return FilledFlow(self.store).open(at, state)
        return _Filling(self, at, Rekey(at.key), state)


@dataclass(frozen=True, slots=True)
class FilledFlow:
    """The elements of a cache that is full."""

    store: CacheStore

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        elements = self.store.filled[cache_key(at.run.settings)].elements
        done = 0 if state is None else number(state, "n")
        return _Replaying(elements, Rekey(at.key), done, at.run.any_order)


class _Replaying(Iterator[Element]):
    """The elements of a full cache, from a place on."""

    def __init__(self, elements: list[Element], rekey: Rekey, done: int, any_order: bool) -> None:
        self._any_order = any_order
        self._size = len(elements)
        self._kept = iter(elements)
        next(islice(self._kept, done, done), None)
        self._items = map(rekey, self._kept)

    def __iter__(self) -> Iterator[Element]:
        return self._items

    def __next__(self) -> Element:
        return next(self._items)

    def snapshot(self) -> State:
        """How many elements were given."""
        if self._any_order:
            return Refused(
                "state_dict needs elements that come in a fixed order behind a memory cache: what it holds is no part "
                "of a state, and reading its input anew gives another order; use deterministic=True, or cache in a file"
            )
        return {"n": self._size - length_hint(self._kept), "source": None}


def key_in(context: int, key: int) -> int:
    """The key of a kept stream in a context.

    What is kept has the keys of the root context. There it keeps them: random ops behind a cache draw what they draw
    without it. In any other (a later pass of `repeat`, a later input of `zip`) elements are others, as without a cache.
    """
    return key if context == ROOT else mix64(context, key)


class Rekey:
    """Gives cached elements the keys of the pass they are replayed in."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._streams: dict[int, tuple[Stream, Stream]] = {}  # by id, and what has it: an id is used again

    def __call__(self, element: Element) -> Element:
        value, stream, position = element
        if type(value) is not Hole:
            own = _copied if isinstance(stream, BatchStream) else read_only
            value = tuple([own(column) for column in value])
        elif not value.raised:
            value = Hole(value.error, value.known)  # of this pass: it is counted in each of them
        return value, self._stream(stream), position

    def _stream(self, stream: Stream) -> Stream:
        if self._key == ROOT:
            return stream
        if isinstance(stream, BatchStream):
            return BatchStream([(self._stream(row), position) for row, position in stream.rows])
        found = self._streams.get(id(stream))
        if found is None:
            found = stream, type(stream)(key_in(self._key, stream.key), stream.name, stream.unit)
            self._streams[id(stream)] = found
        return found[1]


def _copied(column: Any) -> Any:
    return column.copy() if type(column) is np.ndarray else column


class _Filling:
    """A pass that fills the cache; only one that reaches the end counts."""

    def __init__(self, flow: CacheFlow, at: Context, rekey: Rekey, state: State) -> None:
        self._store = flow.store
        self._key = cache_key(at.run.settings)
        self._element = flow.element
        place = below(state)
        self._inner = flow.source.open(at.neutral()) if place is None else flow.source.open(at.neutral(), place)
        self._stopped = at.run.stopped
        self._rekey = rekey
        # A pass that goes on in the middle is no full pass. One over a full cache, which is empty now, begins anew.
        self._kept: list[Element] | None = None if place is not None else []
        self._given = 0
        at.run.holds(self, "cache()")
        if state is not None:
            if place is None:
                drop(self, number(state, "n"), at)
            self._given = number(state, "n")

    def snapshot(self) -> State:
        """How many elements were given, and where the input stands: what is kept is not part of a state."""
        return {"n": self._given, "source": snapshot(self._inner)}

    def held(self) -> tuple[int, int]:
        """Elements of the pass so far, and their bytes."""
        return bytes_of_all(self._kept or ())

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        element = next(self._inner, None)
        if element is None:
            # A run that is being stopped ends its inputs early: that is no full pass.
            if self._kept is not None and not self._stopped.is_set():
                with self._store.lock:
                    self._store.filled.setdefault(self._key, Filled(self._kept, self._element))
                self._kept = None
            raise StopIteration
        element = keep(element)
        if type(element[0]) is Hole and element[0].raised:
            self._kept = None  # a batch was lost on the way: the next pass tries again
        if self._kept is not None:
            self._kept.append(element)
        self._given += 1
        return self._rekey(element)

    def close(self) -> None:
        """Forget a partial pass."""
        self._kept = None
        close(self._inner)


@dataclass(frozen=True, slots=True)
class PrefetchFlow:
    """Elements made ahead by a thread; it starts with the first element asked for."""

    source: Flow
    size: int

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _Prefetching(self, at, state)


class _Prefetching:
    ahead = True
    """Elements come without being asked for, once the thread has started."""

    def __init__(self, flow: PrefetchFlow, at: Context, state: State) -> None:
        self._channel: Channel[Element] = Channel(flow.size, at.run.settings.host_memory)
        at.run.holds(self._channel, f"prefetch({flow.size})")
        self._marks = Marks(state, at.run.any_order)
        self._run = at.run
        self._thread = threading.Thread(
            target=_pump,
            args=(flow.source, at, self._channel, self._marks, state),
            name="gpupipe-prefetch",
            daemon=True,
        )
        self._started = False
        self._forget = at.run.on_close(self.close)

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
            while not self._marks.opened.wait(0.05) and self._thread.is_alive():
                continue
        return self._marks.state()

    def close(self, wait: bool = True) -> None:
        """Stop the thread and wait for it."""
        self._forget()
        self._channel.drop()
        if wait:
            join([self._thread])


class Marks:
    """States of an input that a thread reads ahead, by how many elements it had given. Two threads work with it."""

    def __init__(self, state: State, each: bool = False) -> None:
        self.opened = threading.Event()
        self._each = each  # a mark behind every element
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
        self.opened.set()

    def due(self) -> bool:
        """Whether the reading thread takes another state."""
        return self._each or perf_counter() - self._time > SHARE * self._cost

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
    RUNNING.set(at.run)
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
