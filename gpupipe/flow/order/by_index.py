"""by_index: choices of elements by their indices, and steps that start anywhere in their input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from ...errors import PlanError
from ...graph.op import Array
from ...plan.index import ENDLESS, Everything, Order, Part, Rows, Sliced
from ...random import hash64, mix64
from ..access import RandomAccess, Remapped, access, blocks_of, strided
from ..combine.flat_map import FlatMapFlow
from ..combine.inner import inside, open_inner
from ..element import Element, Raised, is_element
from ..maps.peek import PeekedFlow
from ..maps.python_map import PythonMapFlow
from ..run import Context, Flow
from ..sources.arrays import ItemsFlow, RangeFlow, SlicesFlow
from ..sources.records import RecordsFlow, records_of
from ..stall import Where
from ..state.snapshot import State, fast_forward
from ..state.snapshot import int_part as number_of
from ..step import Running, close
from .even import EvenFlow
from .permutation import Permutation
from .select import ShardFlow, SkipFlow, TakeFlow

__all__ = ["EvenByIndexFlow", "SelectFlow", "StridedFlow", "shards_of", "skipping"]


@dataclass(frozen=True, slots=True)
class SelectFlow:
    """The elements at the places that an order names."""

    source: Flow
    order: Order

    def open(self, at: Context, state: State = None) -> Running:
        return _ByIndex(lambda given: _selected(self, at, given, 1), at, state)

    def access(self, at: Context) -> RandomAccess:
        source = access(self.source, at)
        n = source.size
        if n == ENDLESS and not isinstance(self.order, Sliced):
            raise PlanError(f"{self.order.describe()} needs a dataset that ends, got an infinite one")
        return Remapped(source, self.order.size(n), _places(self.order, n, at))


class _ByIndex(Running):
    """Elements from a place on. Its state is how many were given, and how many errors behind the last of them.

    Args:
        begin: gives the elements without the first so many.
        at: where they are opened.
        state: where to go on.
    """

    def __init__(self, begin: Callable[[int], Iterator[Element]], at: Context, state: State) -> None:
        self._given = 0 if state is None else number_of(state, "n")
        self._errors = 0
        self._begun = begin(self._given)
        self.items = self._counted()
        if state is not None:
            fast_forward(self.items, number_of(state, "errors"), at)

    def _counted(self) -> Iterator[Element]:
        for element in self._begun:
            if type(element[0]) is not Raised:
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
        close(self._begun)


def _selected(flow: SelectFlow, at: Context, start: int, step: int) -> Iterator[Element]:
    """Every `step`-th element of the order from `start` on. Nothing happens before the first is asked for."""
    chosen = access(flow, at)
    found = chosen.pick(blocks_of(start, chosen.size, step))
    stopped = at.run.stopped
    try:
        for element in found:
            yield element
            if stopped.is_set():
                return
    finally:
        close(found)


def _places(order: Order, n: int, at: Context) -> Callable[[Array], Array]:
    """What an order makes of places, for an input of `n` elements opened in a context."""
    match order:
        case Sliced(start=start, step=step):
            return lambda places: start + places * step
        case Everything(seed=seed, reshuffle=reshuffle):
            own, epoch, key = at.draws(seed, reshuffle)
            return Permutation(n, mix64(mix64(mix64(own, epoch), key), hash64("shuffle all")))
        case Part(seed=seed, part=part):
            before = sum(order.sizes(n)[:part])
            whole = Permutation(n, mix64(seed & (1 << 64) - 1, hash64("split")))
            return lambda places: whole(before + places)
        case Rows(order=batches, rows=rows, drop=drop):
            of_batches = _places(batches, n // rows if drop else -(-n // rows), at)
            return lambda places: of_batches(places // rows) * rows + places % rows


@dataclass(frozen=True, slots=True)
class StridedFlow:
    """Every `step`-th element from `start` on, of a flow that can begin anywhere."""

    source: Flow
    start: int
    step: int

    def open(self, at: Context, state: State = None) -> Running:
        def begin(given: int) -> Iterator[Element]:
            return _begun(self.source, at, self.start + given * self.step, self.step)

        return _ByIndex(begin, at, state)

    def access(self, at: Context) -> RandomAccess:
        return strided(access(self.source, at), self.start, self.step)


def skipping(flow: Flow, count: int, where: Where) -> Flow:
    """A flow without its first `count` elements; where it can, it begins behind them."""
    return StridedFlow(flow, count, 1) if _can_begin(flow) else SkipFlow(flow, count, where)


def shards_of(flow: Flow, shards: int, index: int, even: str | None = None, places: bool = False) -> Flow:
    """Every `shards`-th element; where the flow can, the others are passed over at once.

    Args:
        flow: the input.
        shards: how many there are.
        index: which one.
        even: "drop" or "wrap" gives each shard equally many; see `even`.
        places: the input has an index: how many elements it has can be asked.
    """
    if even is None:
        return StridedFlow(flow, index, shards) if _can_begin(flow) else ShardFlow(flow, shards, index)
    kind = EvenByIndexFlow if places and _can_begin(flow) else EvenFlow
    return kind(flow, shards, index, even == "wrap")


@dataclass(frozen=True, slots=True)
class EvenByIndexFlow(EvenFlow):
    """What `EvenFlow` gives, of a flow that can begin anywhere and can be counted: nothing is passed over one by one.

    Files are counted behind their last record, when all of them have an index; other flows tell their size.
    """

    def open(self, at: Context, state: State = None) -> Running:
        return _ByIndex(self._wrapped(at) if self.wrap else self._dropped(at), at, state)

    def _from(self, at: Context, given: int) -> Iterator[Element]:
        return _begun(self.source, at, self.index + given * self.shards, self.shards)

    def _dropped(self, at: Context) -> Callable[[int], Iterator[Element]]:
        walked = isinstance(_below(self.source), FlatMapFlow)  # over files, which may have no index yet

        def begin(given: int) -> Iterator[Element]:
            whole = ENDLESS if walked else self._size(at)
            items, held = self._from(at, given), None
            try:
                for element in items:
                    if not is_element(element):
                        yield element
                    elif not walked:
                        if given >= whole:
                            return
                        given += 1
                        yield element
                    else:
                        if held is not None:
                            given += 1
                            yield held
                        held = element
            finally:
                close(items)
            if held is not None and not at.run.stopped.is_set() and given < self._size(at):
                yield held

        return begin

    def _wrapped(self, at: Context) -> Callable[[int], Iterator[Element]]:
        def begin(given: int) -> Iterator[Element]:
            items = self._from(at, given)
            try:
                for element in items:
                    given += is_element(element)
                    yield element
            finally:
                close(items)
            if at.run.stopped.is_set():
                return
            found = access(self, at)
            if given < found.size:
                yield found.one(given)

        return begin

    def _size(self, at: Context) -> int:
        return access(self, at).size


def _below(flow: Flow) -> Flow:
    """What steps that only choose are put on."""
    while isinstance(flow, TakeFlow | StridedFlow | PeekedFlow):
        flow = flow.flow if isinstance(flow, PeekedFlow) else flow.source
    return flow


def _can_begin(flow: Flow) -> bool:
    flow = _below(flow)
    if isinstance(flow, PythonMapFlow):
        return isinstance(flow.source, ItemsFlow)
    if isinstance(flow, FlatMapFlow):
        return isinstance(flow.inner.flow, RecordsFlow)
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
        case PeekedFlow():
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
            return found.pick(blocks_of(start, found.size, step))
        case _:
            return islice(flow.open(at), start, None, step)


def _begun_in_files(flow: FlatMapFlow, at: Context, left: int, step: int) -> Iterator[Element]:
    """The same over files of records: of a file with an index nothing is read, another one is walked by its headers."""
    records, outer = flow.inner.flow, flow.source.open(at)
    stopped = at.run.stopped
    try:
        for element in outer:
            known = None
            if type(element[0]) is tuple and isinstance(records, RecordsFlow):
                known = records_of(records, inside(at, element), build=False)
            if known is not None:
                if left < known.size:
                    for item in known.strided(left, step):
                        yield item
                left += max(0, -(-(known.size - left) // step)) * step - known.size
                continue
            items = open_inner(flow.inner, at, element)
            try:
                for item in items:
                    if stopped.is_set():
                        return
                    if not is_element(item):
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
