"""fill: the elements of the first full pass, which are kept, from then on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import MissingFileError, StateError, shown_name
from ...graph.op import Array
from ...options import Settings
from ..access import RandomAccess, access
from ..element import Element, Raised, keep
from ..rekey import Rekey
from ..run import Context, Flow
from ..state.snapshot import State, fast_forward, int_part, part
from ..step import Running, close
from .files import FileCacheStore, SavedPass
from .memory import CacheStore, Filled

__all__ = ["CacheFlow"]


@dataclass(frozen=True, slots=True)
class CacheFlow:
    """The elements of the first full pass, from memory or a file from then on.

    The input is opened neutrally (epoch 0, root key), so the contents depend on seed and identity only; elements are
    re-keyed with the context the cache itself is opened in (see `stream_in`), when filling and when replaying alike.
    What is handed out cannot change what is kept: arrays are read-only views, those of batches copies.

    Attributes:
        source: the input; None where the cache is full and the input was not lowered.
        store: where the elements are kept.
        element: the type of the elements.
        mixed: the elements of the input come in any order.
    """

    source: Flow | None
    store: CacheStore | FileCacheStore
    element: Any
    mixed: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        kept = self.kept(at.run.settings)
        return (
            _CacheFill(self, at, state) if kept is None else kept.open(at, 0 if state is None else int_part(state, "n"))
        )

    def access(self, at: Context) -> RandomAccess:
        kept = self.kept(at.run.settings)
        return kept.access(at) if isinstance(kept, Filled) else _Rekeyed(self, at)

    def kept(self, settings: Settings) -> Filled | SavedPass | None:
        """A full pass with these settings; None where this one has to be it."""
        store, found = self.store, self.store.find(settings)
        if isinstance(store, CacheStore) or isinstance(found, Filled):
            return found
        if found is None and self.source is None:
            path = store.file(settings)
            if not os.path.exists(path):
                raise MissingFileError("the file was there a moment ago; start again", file=path, stage=store.method)
            # A later pass over a file that the first has found damaged: most of it is there.
            found = SavedPass(store, path, self.element)
        return found


class _CacheFill(Running):
    """A pass that keeps what it gives; only one that reaches the end counts. One that goes on in the middle is none."""

    def __init__(self, flow: CacheFlow, at: Context, state: State) -> None:
        assert flow.source is not None
        self._flow = flow
        self._stopped = at.run.stopped
        self._rekey = Rekey(at)
        self._given = 0
        place = part(state)
        self._kept = flow.store.start(at.run, flow.element) if place is None else None
        self.source = self._inner = flow.source.open(at.neutral(), place)
        if state is not None:
            given = int_part(state, "n")
            if place is None:  # over a cache that was full, and is not now
                self._refill(given, at)
            self._given = given

    def _refill(self, given: int, at: Context) -> None:
        """Come back to a place in a full cache, and fill it on the way. A file that is not here had its own order."""
        flow = self._flow
        if flow.mixed and isinstance(flow.store, FileCacheStore):
            raise StateError(
                f"load_state_dict needs {shown_name(flow.store.file(at.run.settings))}, which {flow.store.method} "
                "filled as elements were ready, got none: reading the input anew gives another order; copy the file "
                "here, or begin anew"
            )
        fast_forward(self, given, at)

    def __next__(self) -> Element:
        element = next(self._inner, None)
        kept = self._kept
        if element is None:
            if self._stopped.is_set():  # which ends inputs early
                self._forget()
            elif kept is not None:
                kept.finish()
                self._kept = None
            raise StopIteration
        element = keep(element)
        if type(element[0]) is Raised:
            self._forget()  # a batch was lost on the way: the next pass tries again
        elif kept is not None:
            kept.add(element)
        self._given += 1
        return self._rekey(element)

    def _forget(self) -> None:
        """Forget what was kept: this is no full pass."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.discard()

    def own(self) -> dict[str, State]:
        """How many elements were given: what is kept is not part of a state."""
        return {"n": self._given}

    def close(self) -> None:
        """Forget a partial pass."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
        close(self._inner)


class _Rekeyed(RandomAccess):
    """The elements that a cache would hold. It is not filled: only a full pass does that."""

    def __init__(self, flow: CacheFlow, at: Context) -> None:
        assert flow.source is not None
        self._source = access(flow.source, at.neutral())
        self._stream = Rekey(at).stream
        self.size = self._source.size

    def pick(self, blocks: Iterator[Array]) -> Iterator[Element]:
        for value, stream, position in self._source.pick(blocks):
            yield value, self._stream(stream), position
