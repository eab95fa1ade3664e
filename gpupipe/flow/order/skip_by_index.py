"""skip_by_index: `skip` and `shard` that start at an index, at no cost, instead of taking and dropping elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from ...classes import dataclass
from ...plan.index import ENDLESS
from ..access import RandomAccess, access, blocks_of, strided
from ..bad.found import as_before
from ..combine.flat_map import FlatMapFlow
from ..combine.inner import inside, open_inner
from ..element import Element, is_element
from ..maps.peek import PeekedFlow
from ..maps.python_map import PythonMapFlow
from ..measured import Measured
from ..run import Context, Flow
from ..sources.arrays import ItemsFlow, RangeFlow, SlicesFlow
from ..sources.records import RecordsFlow
from ..sources.rows import RowsFlow
from ..sources.samples import SamplesFlow
from ..stall import Where
from ..state.snapshot import Counted, State
from ..step import Running, close
from .even import EvenFlow
from .select import ShardFlow, SkipFlow, TakeFlow
from .select_by_index import ByIndex, SelectFlow, selected

__all__ = ["EvenByIndexFlow", "StridedFlow", "shards_of", "skipping"]


@dataclass(frozen=True, slots=True)
class StridedFlow:
    """Every `step`-th element, from index `start`, of a flow that can start anywhere."""

    source: Flow
    start: int
    step: int

    def open(self, at: Context, state: State = None) -> Running:
        return ByIndex(lambda given: _strided(self.source, at, self.start + given * self.step, self.step), at, state)

    def access(self, at: Context) -> RandomAccess:
        return strided(access(self.source, at), self.start, self.step)


def skipping(flow: Flow, count: int, where: Where) -> Flow:
    """A flow without its first `count` elements; it starts after them if it can."""
    return StridedFlow(flow, count, 1) if _can_start(flow) else SkipFlow(flow, count, where)


def shards_of(flow: Flow, shards: int, index: int, even: str | None = None, indexed: bool = False) -> Flow:
    """Every `shards`-th element; the others are skipped by index if the flow can start anywhere.

    Args:
        flow: the input.
        shards: how many there are.
        index: of this shard.
        even: "drop" or "wrap" gives every shard equally many, see `even`.
        indexed: whether the input has access by index, and so its number of elements can be asked for.
    """
    if even is None:
        return StridedFlow(flow, index, shards) if _can_start(flow) else ShardFlow(flow, shards, index)
    kind = EvenByIndexFlow if indexed and _can_start(flow) else EvenFlow
    return kind(flow, shards, index, even == "wrap")


@dataclass(frozen=True, slots=True)
class EvenByIndexFlow(EvenFlow):
    """An `EvenFlow` of a flow that can start anywhere and be counted: it skips by index.

    Files are counted after their last record, when all of them have an index; other flows know their size.
    """

    def open(self, at: Context, state: State = None) -> Running:
        elements = self._wrapped if self.wrap else self._dropped
        return ByIndex(lambda given: elements(at, given), at, state)

    def _from(self, at: Context, given: int) -> Iterator[Element]:
        return _strided(self.source, at, self.index + given * self.shards, self.shards)

    def _dropped(self, at: Context, given: int) -> Iterator[Element]:
        of_files = isinstance(_base(self.source), FlatMapFlow)  # which may have no index yet
        whole = ENDLESS if of_files else self._size(at)
        items, held = self._from(at, given), None
        try:
            for element in items:
                if not is_element(element):
                    yield element
                elif not of_files:
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
        if held is not None and not at.run.stopped.on and given < self._size(at):
            yield held

    def _wrapped(self, at: Context, given: int) -> Iterator[Element]:
        items = self._from(at, given)
        try:
            for element in items:
                given += is_element(element)
                yield element
        finally:
            close(items)
        if at.run.stopped.on:
            return
        found = access(self, at)
        if given < found.size:
            yield found.one(given)

    def _size(self, at: Context) -> int:
        return access(self, at).size


def _base(flow: Flow | None) -> Flow | None:
    """The flow below steps that only choose."""
    while isinstance(flow, TakeFlow | StridedFlow | PeekedFlow | Measured):
        flow = flow.flow if isinstance(flow, PeekedFlow) else flow.source
    return flow


def _can_start(flow: Flow) -> bool:
    """Whether `_strided` can start a flow at any index."""
    base = _base(flow)
    if isinstance(base, PythonMapFlow):
        return isinstance(base.source, ItemsFlow)
    if isinstance(base, FlatMapFlow):
        return isinstance(_base(base.inner.flow), RecordsFlow | RowsFlow | SamplesFlow)
    return isinstance(base, RangeFlow | SlicesFlow | ItemsFlow | SelectFlow) or getattr(base, "starts_anywhere", False)


def _strided(flow: Flow, at: Context, start: int, step: int) -> Iterator[Element]:
    """Every `step`-th element of a flow, from index `start`."""
    match flow:
        case StridedFlow(source=source, start=first, step=inner):
            return _strided(source, at, first + start * inner, step * inner)
        case TakeFlow(source=source, count=count) if count >= 0:
            left = max(0, -(-(count - start) // step))
            return TakeFlow(StridedFlow(source, start, step), left).open(at)
        case TakeFlow(source=source):
            return _strided(source, at, start, step)
        case PeekedFlow():
            return _strided(flow.flow, at, start, step)
        case Measured():
            return _strided(flow.source, at, start, step)
        case SelectFlow():
            return selected(flow, at, start, step)
        case PythonMapFlow(source=ItemsFlow() as items):
            return replace(flow, source=StridedFlow(items, start, step)).open(at)
        case FlatMapFlow():
            return _strided_files(flow, at, start, step)
        case _:
            found = access(flow, at)
            return chain(found.pick(blocks_of(start, found.size, step)), found.changed())


def _strided_files(flow: FlatMapFlow, at: Context, left: int, step: int) -> Iterator[Element]:
    """Every `step`-th record of some files, after the first `left`: by the index of a file, else one by one."""
    records, outer = _base(flow.inner.flow), flow.source.open(at)
    stopped = at.run.stopped
    try:
        for element in outer:
            known = None
            if type(element[0]) is tuple and isinstance(records, RecordsFlow | RowsFlow | SamplesFlow):
                known = records.indexed(inside(at, element), build=False)
            if known is not None:
                if left < known.size:
                    for item in as_before(at, None, Counted(known.strided(left, step))):
                        yield item
                left += max(0, -(-(known.size - left) // step)) * step - known.size
                continue
            items = open_inner(flow.inner, at, element)
            try:
                for item in items:
                    if stopped.on:
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
