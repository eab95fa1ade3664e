"""passes: the passes over the caches of an epoch, by which a resume tells whether a cache has the same elements.

A state over a cache counts elements. The cache may be another one by the time it is loaded: filled by another run while
other elements could be read, or lost and filled again. Where rows were left out of it, others follow the same count. So
a state says of each pass either which elements were bad while the cache was filled, in short, or, as long as it is
being filled, which elements it has given, in short.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ...classes import dataclass
from ..element import BatchStream, Element, element_keys

__all__ = ["MOST_PASSES", "ByIndex", "Given", "Pass", "Passes", "full_pass", "passes_of"]

MOST_PASSES = 64
"""Passes of an epoch that are known each: a cache inside a function is opened for each of its elements. Of more than
these, the oldest full ones in which nothing was bad are known as a whole, and at most 64 times as many others."""

_OTHERS = 0, ""
"""In the place of the full passes in which nothing was bad."""

_MASK = (1 << 62) - 1  # as numbers of states
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that no earlier element is forgotten: 2**64 divided by the golden ratio


Bad = Callable[[], "list[Any] | None"]


class Given:
    """The elements that a pass which fills a cache has given.

    Args:
        bad: returns the elements that are bad so far.

    Attributes:
        count: how many.
        mark: a number for their identities, in order, and which of them are bad; 62 bits.
        nested: whether some are batches of batches, whose identities do not tell all of their rows.
    """

    __slots__ = ("_bad", "count", "mark", "nested")

    def __init__(self, bad: Bad = list, count: int = 0, mark: int = 0) -> None:
        self._bad, self.count, self.mark, self.nested = bad, count, mark, False

    def now(self) -> Pass:
        """What a state knows of the pass."""
        return Pass(False, self.count, self.mark, self.bad if self.nested else 0)

    @property
    def bad(self) -> int:
        """A number for the elements that are bad so far; not 0."""
        return 1 + full_pass(self._bad() or []).mark

    def add(self, element: Element) -> None:
        """Count an element, with the key that it has in the cache."""
        value, stream, position = element
        mark = self.mark * _FACTOR + (type(value) is tuple)
        if isinstance(stream, BatchStream):
            self.nested = self.nested or isinstance(stream.streams[0], BatchStream)
            mark = mark * _FACTOR ^ zlib.crc32(element_keys(stream.streams, stream.positions).tobytes())
        self.mark = (mark * _FACTOR ^ stream.key ^ position) & _MASK
        self.count += 1


@dataclass(frozen=True, slots=True)
class Pass:
    """What a state knows of a pass over a cache.

    Attributes:
        full: whether the cache was full when the pass began, or is by now.
        count: elements given; of a full cache, how many were bad when it was filled.
        mark: a number for these; 0 for a full cache with damaged elements, which no other is like.
        more: identifies the pass that fills or filled the cache in this process, where it is filled in any order; of
            batches of batches while they fill it, a number for those that are bad; else 0.
    """

    full: bool
    count: int
    mark: int
    more: int = 0

    def now(self) -> Pass:
        """What a state knows of the pass."""
        return self


class ByIndex:
    """A pass that fills a cache in any order. What it has given is what it will be, unless others are bad.

    Args:
        bad: returns those that are bad so far.
        fill: identifies the pass.
    """

    def __init__(self, bad: Bad, fill: int) -> None:
        self._bad, self._fill = bad, fill

    def now(self) -> Pass:
        """What a state knows of the pass."""
        return replace(full_pass(self._bad() or []), more=self._fill)


Place = tuple[int, str]
"""The key of the context in which a cache is opened, and the name of its contents."""


def full_pass(bad: list[Any]) -> Pass:
    """What a state knows of a pass over a full cache, of the places that were bad when it was filled."""
    places = sorted(tuple(one[:4]) for one in bad)
    return Pass(True, len(places), zlib.crc32(repr(places).encode()))


class Passes:
    """The passes of an epoch. The lock of `FoundBad`, which is reentrant, is held around each call."""

    def __init__(self, before: dict[Place, Pass] | None = None) -> None:
        self._before = before or {}
        self._now: dict[Place, Given | ByIndex | Pass] = {}

    def before(self, place: Place) -> Pass | None:
        """The pass in a loaded state; None if it says nothing of it."""
        return self._before.get(place) or self._before.get(_OTHERS)

    def note(self, place: Place, made: Given | ByIndex | Pass) -> None:
        """Note a pass that begins, or that has filled its cache."""
        self._now.pop(place, None)
        self._now[place] = made
        if len(self._now) > MOST_PASSES:
            _shorten(self._now)

    def all(self) -> dict[Place, Pass]:
        """The passes so far, and those before a state that were not opened again."""
        both: dict[Place, Given | ByIndex | Pass] = {**self._before, **self._now}
        while len(both) > MOST_PASSES + (_OTHERS in both) and _shorten(both):
            pass
        return {place: one.now() for place, one in both.items()}

    def written(self) -> list[Any]:
        """The passes as JSON."""
        return [[*place, one.full, one.count, one.mark, one.more] for place, one in self.all().items()]


def _shorten(passes: dict[Place, Given | ByIndex | Pass]) -> bool:
    """Drop one pass, if there is one to drop."""
    clean = full_pass([])
    place = next((place for place, one in passes.items() if one == clean and place != _OTHERS), None)
    if place is not None:
        del passes[place]
        passes.setdefault(_OTHERS, clean)
    elif len(passes) > 64 * MOST_PASSES:
        del passes[next(place for place in passes if place != _OTHERS)]
    else:
        return False
    return True


def passes_of(given: Iterable[Any]) -> dict[Place, Pass]:
    """Read what `Passes.written` wrote.

    Raises:
        ValueError: it is something else.
    """
    found: dict[Place, Pass] = {}
    for one in given:
        match one:
            case [int(key), str(name), bool(full), int(count), int(mark), int(more)] if type(count) is int:
                found[key, name] = Pass(full, count, mark, more)
            case _:
                raise ValueError("no pass")
    return found
