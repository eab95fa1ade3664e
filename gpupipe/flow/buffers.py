"""buffers: cache, prefetch, unbatch and padded batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import DataError
from ..extract.decode import MOST_PIXELS
from ..options import Settings
from ..random import ROOT, mix64
from ..spec import read_only
from .base import RUNNING, BatchStream, Context, Element, Flow, Hole, Stream
from .channel import Channel, Closed
from .elements import close
from .forming import BatchFormer, Group, unstack
from .memory import bytes_of_all
from .shuffle import keep
from .stack import pad_rows
from .threads import join

__all__ = ["CacheFlow", "CacheStore", "PaddedBatchFlow", "PrefetchFlow", "UnbatchFlow"]


CacheKey = tuple[Any, ...]


def cache_key(settings: Settings) -> CacheKey:
    """What the contents of a cache depend on: the seed, what bad elements do, and whose pixels they are."""
    s = settings
    return s.seed, s.on_error, s.max_pixels, s.device, s.backend, s.disabled_rules


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

    def open(self, at: Context) -> Iterator[Element]:
        if cache_key(at.run.settings) in self.store.filled:
            return FilledFlow(self.store).open(at)
        return _Filling(self, at, Rekey(at.key))


@dataclass(frozen=True, slots=True)
class FilledFlow:
    """The elements of a cache that is full."""

    store: CacheStore

    def open(self, at: Context) -> Iterator[Element]:
        return map(Rekey(at.key), self.store.filled[cache_key(at.run.settings)].elements)


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
        return value, self._stream(stream), position

    def _stream(self, stream: Stream) -> Stream:
        if self._key == ROOT:
            return stream
        if isinstance(stream, BatchStream):
            return BatchStream([(self._stream(row), position) for row, position in stream.rows])
        found = self._streams.get(id(stream))
        if found is None:
            found = stream, Stream(key_in(self._key, stream.key), stream.name, stream.unit)
            self._streams[id(stream)] = found
        return found[1]


def _copied(column: Any) -> Any:
    return column.copy() if type(column) is np.ndarray else column


class _Filling:
    """A pass that fills the cache; only one that reaches the end counts."""

    def __init__(self, flow: CacheFlow, at: Context, rekey: Rekey) -> None:
        self._store = flow.store
        self._key = cache_key(at.run.settings)
        self._element = flow.element
        self._inner = flow.source.open(at.neutral())
        self._stopped = at.run.stopped
        self._rekey = rekey
        self._kept: list[Element] | None = []
        at.run.holds(self, "cache()")

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

    def open(self, at: Context) -> Iterator[Element]:
        return _Prefetching(self, at)


class _Prefetching:
    ahead = True
    """Elements come without being asked for, once the thread has started."""

    def __init__(self, flow: PrefetchFlow, at: Context) -> None:
        self._channel: Channel[Element] = Channel(flow.size, at.run.settings.host_memory)
        at.run.holds(self._channel, f"prefetch({flow.size})")
        self._thread = threading.Thread(
            target=_pump, args=(flow.source, at, self._channel), name="gpupipe-prefetch", daemon=True
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
            return self._channel.get()
        except Closed:
            self.close()
            raise StopIteration from None

    def close(self, wait: bool = True) -> None:
        """Stop the thread and wait for it."""
        self._forget()
        self._channel.drop()
        if wait:
            join([self._thread])


def _pump(source: Flow, at: Context, channel: Channel[Element]) -> None:
    """What the prefetch thread runs. It knows the channel, never the iterator."""
    inner: Any = None
    MOST_PIXELS.set(at.run.settings.max_pixels)
    RUNNING.set(at.run)
    try:
        inner = source.open(at)
        for element in inner:
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

    def open(self, at: Context) -> Iterator[Element]:
        return _Unbatched(self, self.source.open(at))


class _Unbatched:
    def __init__(self, flow: UnbatchFlow, inner: Iterator[Element]) -> None:
        self._names = flow.names
        self._inner = inner
        self._rows: deque[Element] = deque()

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        while not self._rows:
            element = next(self._inner)
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
        return self._rows.popleft()

    def close(self) -> None:
        """Close the input."""
        close(self._inner)


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

    def open(self, at: Context) -> Iterator[Element]:
        inner = self.source.open(at)
        former = BatchFormer(inner, self.size, self.drop, at.run, self.aligned)
        return _Padded(self, former, inner)


class _Padded:
    def __init__(self, flow: PaddedBatchFlow, former: BatchFormer, inner: Iterator[Element]) -> None:
        self._flow = flow
        self._former = former
        self._inner = inner

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        group = self._former.next()
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

    def close(self) -> None:
        """Close the input."""
        close(self._inner)
