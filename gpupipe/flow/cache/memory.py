"""memory: the memory form of `cache`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from itertools import islice
from operator import length_hint
from typing import Any

from ...classes import dataclass
from ...options import Settings
from ..access import FromFunction, RandomAccess
from ..bad.found import as_before
from ..buffer_sizes import bytes_of_all
from ..element import Element
from ..own_bytes import keep
from ..rekey import Rekey
from ..run import Context, Run
from ..state.snapshot import State, int_part
from ..step import Running
from .same import read_after

__all__ = ["CacheStore", "Filled", "cache_key"]

CacheKey = tuple[Any, ...]


def cache_key(settings: Settings) -> CacheKey:
    """List the settings that contents depend on: the seed, how bad elements are handled, and what decodes images."""
    s = settings
    known = () if s.bad_records is None else (s.bad_records,)
    decoding = s.backend, s.decoding.approximate_decode, s.decoding.strict_images
    return s.seed, s.on_error, s.max_pixels, s.device, *decoding, s.disabled_rules, *known


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A full pass.

    Attributes:
        elements: all elements with their identities.
        element: type of the elements, for a chain that is lowered on them.
        name: of the store.
        bad: the elements that were bad when it was filled; None if not all are known.
        fill: identifies the pass that filled it.
    """

    elements: list[Element]
    element: Any
    name: str
    bad: list[Any] | None
    fill: int = 0

    @property
    def label(self) -> str:
        """The cache, for messages."""
        return CacheStore.label

    def kept(self, at: Context) -> Iterator[Element]:
        """Iterate over the elements with the keys that they have in the cache."""
        yield from self.elements

    def open(self, at: Context, state: State) -> Running:
        """Iterate over the elements, or over those after a state, with the keys of the context `at`."""
        read_after(self, at, state)
        return as_before(at, None, _Replaying(self, at, state))

    def access(self, at: Context) -> RandomAccess:
        """Return the elements by index."""
        read_after(self, at, None)
        rekey = Rekey(at)
        return FromFunction(len(self.elements), lambda index: rekey(self.elements[index]))


@dataclass(eq=False)
class CacheStore:
    """The elements of full passes, by `cache_key`.

    Attributes:
        filled: the passes.
        unkept: of passes that were resumed and so kept nothing: the elements that were bad, as in `Filled`.
        name: tells stores apart, in states that this process or one that it started loads.
    """

    filled: dict[CacheKey, Filled] = field(default_factory=dict)
    unkept: dict[Any, list[Any]] = field(default_factory=dict)
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    label = "cache()"

    def key(self, settings: Settings) -> CacheKey:
        """The settings that the elements depend on."""
        return cache_key(settings)

    def pass_name(self, settings: Settings) -> str:
        """The name of passes in states."""
        return self.name

    def find(self, settings: Settings) -> Filled | None:
        """Return the full pass with these settings, if there was one."""
        return self.filled.get(self.key(settings))

    def keeper(self, run: Run, fills: bool) -> Callable[[Element], Element]:
        """What is done to each element of a pass before it is kept, if the pass fills the cache, and passed on."""
        return keep

    def usage(self, elements: Iterable[Element]) -> tuple[int, int]:
        """The number of elements and their bytes."""
        return bytes_of_all(elements)

    def start(self, run: Run, element: Any) -> _Memory:
        """Start a pass that fills the cache."""
        return _Memory(self, run, element)

    def start_by_index(self, run: Run, element: Any, size: int) -> _ByIndex:
        """Start a pass that gives `size` elements in any order."""
        return _ByIndex(self, run, element, size)


class _Replaying(Running):
    """The elements of a full cache."""

    def __init__(self, filled: Filled, at: Context, state: State) -> None:
        self._count = len(filled.elements)
        self._kept = iter(filled.elements)
        super().__init__(map(Rekey(at), self._kept))
        if state is not None:
            done = int_part(state, "n")
            next(islice(self._kept, done, done), None)

    def snapshot(self) -> State:
        """Count the elements given."""
        return {"n": self._count - length_hint(self._kept), "source": None}


class _Memory:
    """The elements of a pass that is filling the cache."""

    def __init__(self, store: CacheStore, run: Run, element: Any) -> None:
        self._store = store
        self._run = run
        self._element = element
        self._kept: list[Element] = []
        self.add = self._kept.append
        run.track_buffer(self, store.label)

    def buffer_usage(self) -> tuple[int, int]:
        """Return the number of elements so far, and their bytes."""
        return self._store.usage(self._kept)

    def finish(self, bad: list[Any] | None) -> None:
        """Fill the cache; `bad` as in `Filled`."""
        filled = Filled(self._kept, self._element, self._store.name, bad)
        self._store.filled.setdefault(self._store.key(self._run.settings), filled)

    def discard(self) -> None:
        """Discard a partial pass: the elements go with this object."""

    close = discard


class _ByIndex:
    """The elements of a pass that is filling the cache in any order, by index.

    Attributes:
        fill: identifies the pass.
    """

    def __init__(self, store: CacheStore, run: Run, element: Any, size: int) -> None:
        self._store = store
        self._run = run
        self._element = element
        self._size = size
        self.fill = secrets.randbits(62) | 1
        self._kept: dict[int, Element] = {}
        run.track_buffer(self, store.label)

    def buffer_usage(self) -> tuple[int, int]:
        """Return the number of elements so far, and their bytes."""
        return self._store.usage(list(self._kept.values()))

    def add(self, index: int, element: Element) -> bool:
        """Keep an element. Return whether it was the last one."""
        self._kept[index] = element
        return len(self._kept) >= self._size

    def finish(self, bad: list[Any] | None) -> None:
        """Fill the cache; `bad` as in `Filled`."""
        elements = [self._kept[i] for i in range(self._size)]
        filled = Filled(elements, self._element, self._store.name, bad, self.fill)
        self._store.filled.setdefault(self._store.key(self._run.settings), filled)
        self._kept = {}
