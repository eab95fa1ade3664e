"""fill: the step of `cache`: the first full pass over the input is kept, and later passes replay it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from ...classes import dataclass
from ...errors import MissingFileError, StateError, shown_name
from ...graph.op import Array
from ...options import Settings
from ...plan.index import ENDLESS
from ..access import RandomAccess, access
from ..bad.passes import ByIndex, Given
from ..element import Element, Hole, Raised, Stream, is_element
from ..rekey import Rekey
from ..run import Context, Flow
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running, close
from .files import FileCacheStore, SavedPass
from .memory import CacheStore, Filled
from .same import refuse

__all__ = ["CacheFlow"]


@dataclass(frozen=True, slots=True)
class CacheFlow:
    """A cache: its elements come from the input until one pass was complete, then from memory or a file.

    The input is opened neutrally (epoch 0, root key), so the contents depend on seed and identity only; elements are
    re-keyed with the context in which the cache itself is opened (see `stream_in`), both when filling and replaying.
    Users cannot change what is kept: they get read-only views of arrays, and copies of batches.

    Attributes:
        source: the input; None if the cache is full and the input was not lowered.
        store: where the elements are kept.
        element: type of the elements.
        mixed: whether the elements of the input come in any order.
    """

    source: Flow | None
    store: CacheStore | FileCacheStore
    element: Any
    mixed: bool = False
    base: ClassVar[int] = 1  # to `depth_of`: once it is full, there is no input

    def open(self, at: Context, state: State = None) -> Running:
        kept = self.kept(at.run.settings)
        return _CacheFill(self, at, state) if kept is None else kept.open(at, state)

    def access(self, at: Context) -> RandomAccess:
        kept = self.kept(at.run.settings)
        if isinstance(kept, Filled):
            return kept.access(at)
        assert isinstance(self.store, CacheStore)  # a cache in files has no access by index
        return _FilledByIndex(self, self.store, at)

    def kept(self, settings: Settings) -> Filled | SavedPass | None:
        """Return a full pass with these settings, or None if this pass has to fill the cache."""
        store, found = self.store, self.store.find(settings)
        if isinstance(store, CacheStore) or isinstance(found, Filled):
            return found
        if found is None and self.source is None:
            path = store.file(settings)
            if not os.path.exists(path):
                raise MissingFileError("the file was removed meanwhile; start again", file=path, stage=store.method)
            # A later pass over a file that an earlier one found damaged: most of its elements can be read.
            found = store.damaged(path, self.element, settings)
        return found


class _CacheFill(Running):
    """A pass that keeps its elements; it fills the cache if it runs from the start to the end, not if it resumes."""

    def __init__(self, flow: CacheFlow, at: Context, state: State) -> None:
        assert flow.source is not None
        self._flow = flow
        self._run, self._stopped = at.run, at.run.stopped
        self._rekey, self._scope = Rekey(at), at.inner_scope
        self._outside = Rekey(replace(at.neutral(), scope=at.scope)).stream
        self._stream: Stream | None = None  # of the last element, and the same outside of the cache
        self._shown: Any = None
        at.run.bad.found.enters(self._scope, at)
        position = part(state)
        self._kept = flow.store.start(at.run, flow.element) if position is None else None
        self._keep = flow.store.keeper(at.run, self._kept is not None)
        self._unkept = flow.store.unkept
        self._cache = at.drawing.key, flow.store.pass_name(at.run.settings)
        expected = at.run.bad.found.before(self._cache)
        if position is None:
            self._hold(state is not None or (expected is not None and expected.full), at)
        else:
            at.run.bad.found.goes_on(self._scope)
        # Whether it gives all elements, but keeps none.
        self._lacks = state is not None and "lacks" in state
        self._resumed = state is not None and position is not None and not self._lacks
        self.source = self._inner = flow.source.open(at.neutral(), position)
        bad = partial(at.run.bad.found.inside, self._scope)
        self._given, self._known = Given(bad), position is None or (state is not None and "mark" in state)
        if position is not None:
            self._given = Given(bad, int_part(state, "n"), int_part(state, "mark") if self._known else 0)
            self._given.nested = self._known and int_part(state, "bad") > 0
        if self._known:
            at.run.bad.found.fills(self._cache, self._given)
        if position is None and expected is not None and expected.full and not expected.mark:
            refuse(flow.store.label, at, "some of its elements were damaged, and are computed again")
        if state is not None and position is None:  # it was taken over a full cache, and this one is empty
            self._refill(int_part(state, "n"), at)

    def _hold(self, full: bool, at: Context) -> None:
        """Hold the pass to what was bad in a full cache that is lost, or in one that was resumed and kept nothing."""
        found, key = at.run.bad.found, self._flow.store.key(at.run.settings)
        found.refills(self._scope, self._unkept.get(key, ()))
        if full and key not in self._unkept and (bad := found.inside(self._scope)) is not None:
            self._unkept[key] = bad

    def _refill(self, given: int, at: Context) -> None:
        """Skip what a full cache has given, filling this one. A file that is missing here may have another order."""
        flow = self._flow
        if flow.mixed and isinstance(flow.store, FileCacheStore):
            raise StateError(
                f"load_state_dict needs {shown_name(flow.store.file(at.run.settings))}, which {flow.store.method} "
                "filled as elements were ready, got none: reading the input again gives another order; copy the file "
                "here, or start the epoch again"
            )
        fast_forward(self, given, at)

    def __next__(self) -> Element:
        element = next(self._inner, None)
        kept = self._kept
        if element is None:
            if self._stopped.on:  # inputs end early then
                self._forget()
            elif kept is not None or self._resumed:
                found, key = self._run.bad.found, self._flow.store.key(self._run.settings)
                bad = found.inside(self._scope)
                if kept is not None:
                    kept.finish(bad)
                    self._kept = None
                    self._unkept.pop(key, None)
                    found.reads(self._cache, bad, self._scope)
                elif bad is not None:
                    self._unkept[key] = bad
            raise StopIteration
        value, stream, place = self._keep(element)
        if stream is not self._stream:
            self._stream, self._shown = stream, self._outside(stream)
        element = value, self._shown, place
        if type(value) is Raised or (type(value) is Hole and self._run.lacks(element)):
            self._forget()  # elements are missing: the next pass tries again
        elif kept is not None:
            kept.add(element)
        self._given.add(element)
        return self._rekey(element)

    def _forget(self) -> None:
        """Discard what was kept, because the pass is not complete."""
        kept, self._kept, self._resumed, self._lacks = self._kept, None, False, True
        if kept is not None:
            kept.discard()
            self._keep = self._flow.store.keeper(self._run, False)

    def own(self) -> dict[str, State]:
        """Count the elements given, and identify them; the elements kept are not part of a state."""
        given = self._given.now()
        known = {"mark": given.mark, "bad": given.more} if self._known else {}
        return {"n": given.count, **known, **({"lacks": 1} if self._lacks else {})}

    def close(self) -> None:
        """Discard a partial pass."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
        close(self._inner)


class _FilledByIndex(RandomAccess):
    """The elements of the input by index. When each of them was given, in whatever order, the cache is full."""

    def __init__(self, flow: CacheFlow, store: CacheStore, at: Context) -> None:
        assert flow.source is not None
        self._scope, self._found = at.inner_scope, at.run.bad.found
        self._found.enters(self._scope, at)
        self._outside = Rekey(replace(at.neutral(), scope=at.scope)).stream
        key, bad = store.key(at.run.settings), self._found.inside(self._scope)
        if bad and not at.run.from_start:  # a pass that is resumed may give too few elements to fill the cache
            store.unkept[key] = bad
        self._found.refills(self._scope, store.unkept.get(key, ()))
        self._source = access(flow.source, at.neutral())
        self._rekey = Rekey(at)
        self._stopped = at.run.stopped
        self._errors: list[Element] = []
        self.size = self._source.size
        self._kept = store.start_by_index(at.run, flow.element, self.size) if self.size < ENDLESS else None
        self._keep = store.keeper(at.run, self._kept is not None)
        if self._kept is not None:
            given = ByIndex(partial(self._found.inside, self._scope), self._kept.fill)
            self._found.fills((at.drawing.key, store.name), given)

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        asked: deque[int] = deque()

        def noted() -> Iterator[Array]:
            for block in blocks:
                asked.extend(block.tolist())
                yield block

        picked = self._source.pick(noted())
        try:
            for found in picked:
                value, stream, place = self._keep(found)
                element = value, self._outside(stream), place
                if not is_element(element) or self._stopped.on:  # once stopped, inputs give errors or too few
                    self._kept = None  # elements are missing: the next pass tries again
                elif self._kept is not None and self._kept.add(asked.popleft(), element):
                    self._errors = list(self._source.changed())
                    if not self._errors:
                        self._kept.finish(self._found.inside(self._scope))
                    self._kept = None
                yield self._rekey(element)
        finally:
            close(picked)

    def changed(self) -> Iterator[Element]:
        return iter(self._errors or self._source.changed())
