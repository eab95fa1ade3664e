"""memory: elements kept in memory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import length_hint
from typing import Any

from ...extract.storage.forking import renew_lock
from ...options import Settings
from ...plan.arrival import Arrival
from ...random import mix64
from ..access import Access, Made
from ..element import Element
from ..memory import bytes_of_all
from ..rekey import Rekey
from ..run import Context, Run
from ..state.arrivals import Full
from ..state.snapshot import Refused, State
from ..step import Running

__all__ = ["CacheStore", "Filled", "cache_key"]

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

    def open(self, at: Context, done: int) -> Running:
        """The elements from a number on, with the keys of a context."""
        return _Replaying(self, Rekey(at), done)

    def access(self, at: Context) -> Access:
        """The elements by index."""
        rekey = Rekey(at)
        return Made(len(self.elements), lambda place: rekey(self.elements[place]))


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

    def find(self, settings: Settings) -> Filled | None:
        """The full pass with these settings."""
        return self.filled.get(cache_key(settings))

    def start(self, run: Run, element: Any, arrival: Arrival) -> _Memory:
        """Start a pass that fills the cache."""
        return _Memory(self, run, element, arrival)


class _Replaying(Running):
    """The elements of a full cache, from a place on."""

    def __init__(self, filled: Filled, rekey: Rekey, done: int) -> None:
        self._fixed = filled.fixed
        self._size = len(filled.elements)
        self._kept = iter(filled.elements)
        next(islice(self._kept, done, done), None)
        super().__init__(map(rekey, self._kept))

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


class _Memory:
    """The elements of a pass that fills the cache in memory."""

    def __init__(self, store: CacheStore, run: Run, element: Any, arrival: Arrival) -> None:
        self._store = store
        self._run = run
        self._element = element
        self._arrival = arrival
        self._kept: list[Element] = []
        self.add = self._kept.append
        run.holds(self, "cache()")

    def held(self) -> tuple[int, int]:
        """Elements of the pass so far, and their bytes."""
        return bytes_of_all(self._kept)

    def finish(self) -> None:
        """Fill the cache."""
        fixed = self._arrival is Arrival.FIXED and self._run.surprise is None
        if self._arrival is Arrival.MIXED:
            self._kept.sort(key=_drawn)
            drawn = list(map(_drawn, self._kept))
            fixed = all(a != b for a, b in pairwise(drawn))  # two of one identity, as overlapping windows have them
        filled = Filled(self._kept, self._element, fixed)
        with self._store.lock:
            self._store.filled.setdefault(cache_key(self._run.settings), filled)

    def discard(self) -> None:
        """Forget a partial pass."""

    close = discard
