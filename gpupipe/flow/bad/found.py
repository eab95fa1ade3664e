"""found: the elements of an epoch that were found bad, so that a resume finds the same ones bad.

A step that makes elements again after a resume counts what comes out. So what failed before must fail again, even if it
could be read now, and what fails only now must keep its place: see `../state/README.md`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from itertools import chain, count
from typing import Any

from ...errors import DataError, DecodeError
from ...extract.storage.forking import renew_lock
from ...extract.storage.waiting import LIMITS
from ...random import ROOT, mix64
from ...serial.errors import error_class
from ..element import BatchStream, Element, Failure, Found, Stream, hole_of, locate
from ..step import Running, State, Unseen
from .passes import ByIndex, Given, Pass, Passes, full_pass, passes_of

__all__ = [
    "ASKED",
    "BATCHES",
    "DATASETS",
    "LISTED",
    "LONGEST",
    "PEEKING",
    "READ_AGAIN",
    "FoundBad",
    "Places",
    "as_before",
    "as_it_was",
    "bad_before",
    "bad_element",
    "depth_of",
    "found",
    "hole_again",
    "inner_scope",
    "is_written",
    "met",
    "place_of",
]

LONGEST = 300
"""Characters of an error's reason that a state keeps."""

MOST = 1 << 15
"""Bad elements that are kept, about 300 bytes each: those since the last checkpoint are far fewer."""

MARGIN = 1024
"""Bad elements of which nobody was told yet that a state keeps, besides those since its checkpoints."""

DATASETS, BATCHES, ASKED, LISTED = 1 << 30, 2 << 30, 3 << 30, 4 << 30
"""In the place of a step: the datasets that are made of elements, batches of rows that do not fit together, a function
whose step keeps the errors itself, and a manifest of bad records."""

PEEKING: ContextVar[Any] = ContextVar("gpupipe_peeking", default=None)
"""The object that keeps bad elements while they are only peeked at (`run.PeekedErrors`); None otherwise."""

READ_AGAIN: ContextVar[bool] = ContextVar("gpupipe_read_again", default=False)
"""Whether elements are read a second time in a pass, not after a position: what was bad is the same bad element."""

MOST_SCOPES = 100
"""Caches in one place that are looked for among those that were opened there before."""

Place = tuple[int, int, int, int]
"""Where an element was found bad: the depth of the step (`depth_of`), then as `place_of`."""

Places = dict[tuple[int, int, int], list[Found]]
"""Bad elements by `place_of`: one for each time that the element came and was bad, as it may come more than once."""

All = dict[Place, list[Found]]
"""Bad elements of all steps."""


Caches = dict[int, list[Any]]
"""What `FoundBad.inside` returned for full caches, by the scope of their input."""


class FoundBad:
    """The bad elements of an epoch. Any thread may add one.

    Attributes:
        count: how many were found so far.
        exact: whether every element that was bad before a loaded state is known.
    """

    def __init__(self) -> None:
        self._found: All = {}
        self._in_caches: All = {}  # bad when the caches were filled that the epoch reads
        self._scopes: dict[int, list[int]] = {}  # of the inputs of caches in each scope
        self._within: dict[int, dict[Place, None]] = {}  # what was found in each scope, and may have been dropped
        self._refilled: set[int] = set()  # scopes in which all that was bad is bad again, wherever the position is
        self._full: dict[str, tuple[int, list[Any]]] = {}  # the same of each cache that is full in all epochs, by name
        self._lost: Caches = {}  # those of a loaded state that were not full since
        self._lasting: set[int] = set()  # scopes of such caches
        self._passes = Passes()
        self._before: dict[int, Places] = {}
        self._lock = threading.RLock()
        self._dropped = 0  # number of the last one that was dropped, plus 1
        self.count = 0
        self.exact = True
        renew_lock(self)

    def load(self, caches: Iterable[tuple[int, list[Any]]]) -> None:
        """Take what `in_full_caches` returned. A cache that is lost by now is filled again with the same ones bad."""
        self._lost = dict(caches)

    def start(self, state: State = None, exact: bool = True, passes: State = ()) -> None:
        """Start an epoch; after a state with the bad elements that `since` returned."""
        found = read_places(state or ())
        numbers = count()
        for one in chain.from_iterable(found.values()):
            one.number = next(numbers)
        with self._lock:
            self._found, self.count, self.exact, self._dropped = found, next(numbers), exact, 0
            self._before, self._in_caches, self._passes = by_depth(found), {}, Passes(passes_of(passes))
            self._scopes, self._within, self._refilled = {}, {}, set()
            self._sort(found)
            for scope, bad in self._lost.items():
                self.refills(scope, bad)

    def in_full_caches(self) -> list[Any]:
        """The bad elements in the inputs of caches that are full in all epochs, by scope, as JSON."""
        with self._lock:
            return [[scope, bad] for scope, bad in {**self._lost, **dict(self._full.values())}.items() if bad]

    def _nested(self, scopes: Iterable[int]) -> list[int]:
        """Scopes, and those of the caches that are opened in them."""
        every = list(scopes)
        for one in every:  # which grows
            every += self._scopes.get(one, ())
        return every

    def again(self, number: int) -> None:
        """Prepare to make elements of the epoch again, as after a state with what `since` returned."""
        with self._lock:
            self.exact = self.exact and self._dropped <= number
            self._before = by_depth(self._needed(number))
            self._passes = Passes(self._passes.all())

    def unmet(self) -> int:
        """The number of the first bad element that has not come again since a position; `count` if all have."""
        with self._lock:
            waiting = (times for places in self._before.values() for times in places.values())
            return min((one.number for one in chain.from_iterable(waiting)), default=self.count)

    def add(self, depth: int, stream: Stream, position: int, failure: Failure) -> None:
        """Keep an element that a step found bad."""
        at = place_of(stream, position)
        place, error = (depth, *at), failure.error
        with self._lock:
            failure.found = met(self._before.get(depth, {}), at, True, PEEKING.get() is None)
            if failure.found is None and READ_AGAIN.get() and place in self._found:
                failure.found = self._found[place][0]
                failure.found.again = True
            if failure.found is not None:
                return
            told = type(error).__name__, sys.intern(error.stage), sys.intern(error.reason[:LONGEST]), bool(error.lost)
            failure.found = found = Found(self.count, told)
            found.cause = error  # before it is kept: an interrupt may come behind each line
            self._found.setdefault(place, []).append(found)
            if (peeking := PEEKING.get()) is not None:
                peeking.found.append((place, found))
            self._sort((place,))
            self.count += 1
            while len(self._found) > MOST:
                first = next(iter(self._found))
                self._dropped = self._found.pop(first)[-1].number + 1

    def forget(self, found: Iterable[tuple[Place, Found]]) -> None:
        """Forget that elements were bad."""
        with self._lock:
            for place, one in found:
                times = self._found.get(place, [])
                if one in times:
                    times.remove(one)
                if not times:
                    self._found.pop(place, None)

    def _sort(self, places: Iterable[Place]) -> None:
        for place in places:
            if place[1]:
                self._within.setdefault(place[1], {})[place] = None

    def of(self, step: Any) -> Places | None:
        """The errors that a step found before the state was taken; None where there are none."""
        return self._before.get(depth_of(step)) if self._before else None

    def since(self, number: int) -> tuple[list[Any], bool, list[Any]]:
        """The bad elements from a number on, and the last ones before it of which nobody was told, as JSON.

        Those of the caches that the epoch reads are among them: a cache that is lost is filled again. Also returns
        whether these are all, and the passes over caches.
        """
        with self._lock:
            kept, exact = self._needed(number), self.exact and self._dropped <= number
            passes = self._passes.written()
        return written(kept.items()), exact, passes

    def _needed(self, number: int) -> All:
        early = [one.number for found in self._found.values() for one in found if one.number < number and one.error]
        first = set(early[-MARGIN:])
        kept = dict(self._in_caches)
        for place, found in self._found.items():
            # What is in a cache is needed until it is full: one that is resumed keeps nothing, and the next pass fills.
            needed = [one for one in found if one.number >= number or one.number in first or place[1]]
            if needed:
                kept[place] = needed
        return kept

    def inside(self, scope: int) -> list[Any] | None:
        """The bad elements in the input of a cache, as JSON; None if not all of the epoch are known.

        Args:
            scope: of the input. In what is returned it is 0, as another pass or chain may open the same cache.
        """
        with self._lock:
            if self._dropped or not self.exact:
                return None
            found = All()
            for one in self._nested([scope]):
                for place in self._within.get(one, ()):
                    kept = self._found.get(place) or self._in_caches.get(place)
                    if kept is not None:
                        found[place] = kept
        return written(
            ((place[0], place[1] if place[1] != scope else 0, *place[2:]), one) for place, one in found.items()
        )

    def before(self, cache: tuple[int, str]) -> Pass | None:
        """What a loaded state says of a pass over a cache; None if it says nothing."""
        with self._lock:
            return self._passes.before(cache)

    def enters(self, scope: int, at: Any) -> None:
        """Note that a cache is opened, the scope of its input and the context in which it is opened."""
        outer = at.scope
        with self._lock:
            if at.drawing.outer == ROOT and (not outer or outer in self._lasting):  # not in a function's dataset
                self._lasting.add(scope)
            inner = self._scopes.setdefault(outer, [])
            if scope not in inner[-MOST_SCOPES:]:
                inner.append(scope)

    def damaged(self, cache: tuple[int, str], fill: int) -> None:
        """Note that elements of a cache cannot be read, which is in no state of the cache; `fill` as in `Pass`."""
        with self._lock:
            self._passes.note(cache, Pass(True, 0, 0, fill))

    def fills(self, cache: tuple[int, str], given: Given | ByIndex) -> None:
        """Note a pass that fills a cache."""
        with self._lock:
            self._passes.note(cache, given)

    def reads(self, cache: tuple[int, str], bad: list[Any] | None, scope: int) -> None:
        """Note a pass over a full cache.

        Args:
            cache: where and which.
            bad: the elements that were bad when it was filled, as `inside` returned them.
            scope: of its input.
        """
        with self._lock:
            self._keep(bad or (), scope)
            self._lost.pop(scope, None)
            if scope in self._lasting and bad is not None:  # where an epoch opens it first: it is full elsewhere
                self._full.setdefault(cache[1], (scope, bad))
            self.exact = self.exact and bad is not None
            if bad is not None:
                self._passes.note(cache, full_pass(bad))

    def refills(self, scope: int, bad: Iterable[list[Any]]) -> None:
        """Note a pass that fills a cache from the start: bad are those that were, and these.

        Args:
            scope: of its input.
            bad: as `inside` returned them for another pass over it.
        """
        with self._lock:
            self._refilled.add(scope)
            for depth, places in by_depth(self._keep(bad, scope)).items():
                self._before.setdefault(depth, {}).update(places)

    def goes_on(self, scope: int) -> None:
        """Note that a pass which fills a cache is resumed: what is behind its position is as it is now."""
        with self._lock:
            self._refilled.discard(scope)

    def makes_again(self, scope: int) -> bool:
        """Whether elements of a scope are made as they were, wherever the position is."""
        return scope in self._refilled

    def _keep(self, bad: Iterable[list[Any]], scope: int) -> All:
        kept = {(place[0], place[1] or scope, *place[2:]): one for place, one in read_places(bad).items()}
        self._in_caches.update(kept)
        self._sort(kept)
        return kept


def inner_scope(scope: int, key: int) -> int:
    """The scope of the input of a cache that is opened with this key in a scope."""
    return mix64(scope, key) or 1


def by_depth(found: All) -> dict[int, Places]:
    """What was found bad, by the depth of the step."""
    before: dict[int, Places] = {}
    for (depth, *place), times in found.items():
        for one in times:
            one.again = True
        before.setdefault(depth, {})[place[0], place[1], place[2]] = list(times)
    return before


def met(places: Places, place: tuple[int, int, int], again: bool, take: bool = True) -> Found | None:
    """Take the first time that an element was bad and has not come again since; None if there is none.

    Args:
        places: what was found bad.
        place: of the element.
        again: whether it is made again. Behind the position only what was found ahead, and not told yet, is as it was,
            outside of caches: of what is bad in those their copies tell.
        take: False leaves it for the pass: it is only looked at.
    """
    times = places.get(place, ())
    found = next((one for one in times if again or (one.error and not place[0])), None)
    if found is not None and take:
        places[place].remove(found)
    return found


def written(found: Iterable[tuple[Place, list[Found]]]) -> list[Any]:
    """Bad elements as JSON."""
    return [[*place, *one.written()] for place, times in found for one in times]


def bad_element(error: DataError, stream: Any, position: int, step: Any = None) -> Element:
    """The element in whose place a step found an error, which is kept for states.

    Args:
        error: located.
        stream: of the element.
        position: of the element.
        step: a flow; None for a source, whose streams are its own, `DATASETS` or `BATCHES`.
    """
    failure = hole_of(error)
    found(failure, stream, position, step)
    return failure, stream, position


def found(failure: Failure, stream: Stream, position: int, step: Any = None) -> None:
    """Keep a bad element for states; not one whose read was broken off by the end of the run."""
    limits = LIMITS.get()
    if step != ASKED and limits is not None and limits.found is not None and not limits.stopped():
        limits.found.add(depth_of(step), stream, position, failure)


def place_of(stream: Stream, position: int) -> tuple[int, int, int]:
    """The scope, key and position of an element; a batch, which has those of its first row, is another element."""
    key = mix64(stream.key, 1) if isinstance(stream, BatchStream) else stream.key
    return stream.scope, key, position


def as_before(at: Any, flow: Any, items: Running, reported: bool = False) -> Running:
    """The input of a step, or the output of a source (None), in which what was bad before a loaded state is bad.

    Args:
        at: the context in which it is opened.
        flow: the step.
        items: its input, opened.
        reported: only what was reported by then. A stage finds out late that an image is bad, and raises errors of the
            host before it: what it had found ahead comes in that order again, not in that of the input.
    """
    places = bad_before(at.run, flow, reported)
    return _AsBefore(_again(items, places, at.run), items) if places else items


def bad_before(run: Any, flow: Any, reported: bool = False) -> Places | None:
    """What a step found bad before a loaded state, see `FoundBad.of`; `reported` as in `as_before`."""
    places: Places | None = run.bad.found.of(flow)
    if places and (reported or run.peeks):  # who looks ahead leaves them for the pass
        return {place: [one for one in times if not (reported and one.error)] for place, times in places.items()}
    return places


class _AsBefore(Unseen):
    def ready(self) -> bool:
        return self.source is None or self.source.ready()


def as_it_was(element: Element, places: Places, run: Any) -> Element:
    """An element, bad again if it was before a loaded state."""
    value, stream, position = element
    place = place_of(stream, position)
    found = met(places, place, run.makes_again(stream)) if place in places else None
    if found is None:
        return element
    if type(value) is tuple:
        return hole_again(found, stream, position)
    value.found = found
    return element


def _again(inner: Running, places: Places, run: Any) -> Iterator[Element]:
    lost = {place[:2]: (place[2], one) for place, times in places.items() for one in times if one.lost}
    for element in inner:
        value, stream, position = element
        place = place_of(stream, position)
        if place[:2] in lost and position >= lost[place[:2]][0] and type(value) is tuple:
            inner.lose()  # what an error hid of its file stays hidden
            yield hole_again(lost[place[:2]][1], stream, position)
            return
        yield as_it_was(element, places, run)


def hole_again(found: Found, stream: Stream, position: int) -> Element:
    """An element that was bad before a state was loaded."""
    failure = hole_of(found.cause or locate(error_of(found), stream, position))
    failure.found, failure.noted = found, not found.error
    return failure, stream, position


def error_of(found: Found) -> DataError:
    """The error of an element that was bad before a state was loaded."""
    error = DataError("was bad when the state was taken")
    if found.error:
        kind, stage, reason, _ = found.error
        error = error_class(kind, DecodeError)(reason, stage=stage)
    error.lost = found.lost  # its reason says so already
    return error


def is_written(found: Any) -> bool:
    """Whether JSON is bad elements as `FoundBad` writes them."""
    return isinstance(found, list) and all(
        isinstance(one, list)
        and [*map(type, one[4:])] in ([], [bool], [str, str, str, bool], [str, str, str, bool, bool])
        and len(one) >= 4
        and all(type(number) is int and 0 <= number < 1 << 64 for number in one[:4])
        for one in found
    )


def read_places(found: Iterable[list[Any]]) -> All:
    """Read bad elements as `is_written` accepts them."""
    places: All = {}
    for one in found:
        places.setdefault((one[0], one[1], one[2], one[3]), []).append(Found(0, tuple(one[4:])))
    return places


def depth_of(flow: Any) -> int:
    """How many steps the longest way from a step to a source has, 0 for None. Tells steps apart that see one element.

    Steps that do not appear in states are not counted, so that a state fits a chain with them and without. Elements
    keep their identities in the dataset of a window and in a cache: steps on both sides are told apart by `base`.
    """
    if flow is None or isinstance(flow, int):
        return flow or 0
    depth, inside, level = 0, None, {id(flow): flow}
    while level:
        depth += 1
        inside = next((one.base for one in level.values() if hasattr(one, "base")), inside)
        level = {id(source): source for one in level.values() for source in _sources(one)}
    return depth if inside is None else mix64(inside, depth)


def _sources(flow: Any) -> Iterator[Any]:
    if not is_dataclass(flow) or hasattr(flow, "base"):
        return
    for each in fields(flow):
        value = getattr(flow, each.name)
        for one in value if type(value) in (tuple, list) and len(value) < 100 else (value,):
            while getattr(one, "unseen", False):  # a wrapper that does not appear in states
                one = one.flow if hasattr(one, "flow") else one.source
            if hasattr(one, "open") and hasattr(one.open, "__func__"):
                yield one
