"""step_places: what steps make of their input, by place.

A step that goes element by element runs over the chosen ones as it runs over all, threads and reading ahead included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import GpupipeError
from ..op import Array
from ..plan.indexed import ENDLESS
from .base import BatchStream, Context, Element, Flow, Hole, Stream
from .buffers import CacheFlow, FilledFlow, PrefetchFlow, cache_key
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
from .filling import Rekey, stream_in
from .host import HostFlow
from .interleave import FlatMapFlow, Inner, InterleaveFlow, inside
from .known_bad import KnownBadFlow
from .places import Access, Chosen, Made, Parts, Picked, access, in_turn, kept, opens, passes, strided
from .prime import PrimedFlow
from .process_map import ProcessMapFlow
from .python_map import PythonMapFlow
from .turns import Turns

__all__ = ["Through"]


class Through(Access):
    """A step that makes one element of each."""

    def __init__(self, flow: Any, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._source = access(flow.source, at)
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        made: Iterator[Element] = replace(self._flow, source=Picked(self._source, blocks)).open(self._at)
        return made


@opens(FetchFlow, HostFlow, KnownBadFlow, PythonMapFlow, ProcessMapFlow)
def _through(flow: Flow, at: Context) -> Access:
    return Through(flow, at)


@opens(PrefetchFlow)
def _prefetched(flow: PrefetchFlow, at: Context) -> Access:
    return access(flow.source, at)


@opens(PrimedFlow)
def _primed(flow: PrimedFlow, at: Context) -> Access:
    return access(flow.flow, at)


@opens(EnumerateFlow)
def _enumerated(flow: EnumerateFlow, at: Context) -> Access:
    return _Enumerated(flow, at)


class _Enumerated(Through):
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


@opens(CacheFlow)
def _cached(flow: CacheFlow, at: Context) -> Access:
    if cache_key(at.run.settings) in flow.store.filled:
        return _filled(FilledFlow(flow.store), at)
    return _Rekeyed(flow, at)


@opens(FilledFlow)
def _filled(flow: FilledFlow, at: Context) -> Access:
    elements, rekey = flow.store.filled[cache_key(at.run.settings)].elements, Rekey(at)
    return Made(len(elements), lambda place: rekey(elements[place]))


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


# ---- steps that choose


@opens(TakeFlow)
def _taken(flow: TakeFlow, at: Context) -> Access:
    source = access(flow.source, at)
    size = source.size if flow.count < 0 else min(flow.count, source.size)
    return Chosen(source, size, lambda places: places)


@opens(SkipFlow)
def _skipped(flow: SkipFlow, at: Context) -> Access:
    return strided(access(flow.source, at), flow.count, 1)


@opens(ShardFlow)
def _shard(flow: ShardFlow, at: Context) -> Access:
    return strided(access(flow.source, at), flow.index, flow.shards)


# ---- several inputs


@opens(RepeatFlow)
def _repeated(flow: RepeatFlow, at: Context) -> Access:
    def in_pass(index: int) -> Access:
        return access(flow.source, at.in_pass(index, flow.count))

    return passes(in_pass, flow.count)


@opens(ConcatenateFlow)
def _concatenated(flow: ConcatenateFlow, at: Context) -> Access:
    parts = zip(flow.inputs, flow.branches, strict=True)
    return in_turn([access(source, at.in_branch(first)) for source, first in parts])


@opens(ZipFlow)
def _zipped(flow: ZipFlow, at: Context) -> Access:
    return _Zipped(flow, at)


class _Zipped(Access):
    """Elements side by side."""

    def __init__(self, flow: ZipFlow, at: Context) -> None:
        self._flow = flow
        self._at = at
        self._parts = [access(source, at.in_zip(flow.number, i)) for i, source in enumerate(flow.inputs)]
        self.size = min(part.size for part in self._parts)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for block in blocks:
            picked = [Picked(part, iter([block])) for part in self._parts]
            found = replace(self._flow, inputs=picked).open(self._at)
            try:
                for element in found:
                    yield element
            finally:
                close(found)


# ---- datasets made of elements


@opens(FlatMapFlow)
def _flat_mapped(flow: FlatMapFlow, at: Context) -> Access:
    return in_turn(_inner(flow, at))


@opens(InterleaveFlow)
def _interleaved(flow: InterleaveFlow, at: Context) -> Access:
    parts = _inner(flow, at)
    sizes = [min(part.size, ENDLESS >> 20) for part in parts]
    turns = Turns(sizes, flow.cycle, flow.block)
    return Parts(ENDLESS if any(part.size == ENDLESS for part in parts) else turns.size, turns, parts.__getitem__)


def _inner(flow: FlatMapFlow | InterleaveFlow, at: Context) -> list[Access]:
    """The inner datasets, in the order of the outer elements."""
    outer = flow.source.open(at)
    try:
        return [_inner_access(flow.inner, at, element) for element in outer if counts(element)]
    finally:
        close(outer)


def _inner_access(inner: Inner, at: Context, outer: Element) -> Access:
    if type(outer[0]) is Hole:
        return kept([outer])
    if inner.flow is None:
        raise GpupipeError("a dataset that a function makes of each element has no places; please report it")
    return access(inner.flow, inside(at, outer))
