"""epochs: which epoch a loop over a dataset is. EPOCHS.md beside this file has the rules, with examples."""

from __future__ import annotations

import os
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ..extract.storage.forking import renew_lock
from ..graph.values import digest_of
from ..log import logger
from ..options import Settings
from ..plan.index import Select
from ..plan.node import DERIVED, Node, draws, epoch_key, walk
from ..plan.order import Shard, Skip, Take, WithOptions
from ..plan.ranks import ranks_of

if TYPE_CHECKING:
    from ..load.progress import Progress

__all__ = ["Counted", "EpochCounter", "Visits"]

Key = tuple[bytes, int]
"""A chain and its seed; loops are counted for each."""


class ChainCount:
    """How often one chain was iterated over.

    Attributes:
        following: the number of the next epoch.
        request: the number of the `set_epoch` call that it followed last, 0 for none.
        progress: of the last iterator.
        process: the id of that iterator's process: a forked child does not see how it continues.
        plans: weak references to the chain as it was written each time; dead once no dataset or iterator has it.
        kept: whether one of them was iterated over twice, instead of being written again for each epoch.
    """

    __slots__ = ("following", "kept", "plans", "process", "progress", "request")

    def __init__(self, following: int = 0, request: int = 0) -> None:
        self.following, self.request = following, request
        self.process = 0
        self.progress: Progress | None = None
        self.plans: list[weakref.ref[Node]] = []
        self.kept = False

    def start(self, plan: Node, progress: Progress | None) -> int:
        """Count an iterator, and return its epoch."""
        epoch = self.following
        alive = [ref for ref in self.plans if ref() is not None]
        known = any(ref() is plan for ref in alive)
        self.kept |= known
        self.plans = alive if known else [*alive, weakref.ref(plan)]
        self.following, self.progress, self.process = epoch + 1, progress, os.getpid()
        return epoch

    @property
    def gone(self) -> bool:
        """Whether the chain was iterated over and no longer exists, so it cannot be compared with another."""
        return bool(self.plans) and all(ref() is None for ref in self.plans)


class EpochCounter:
    """The epochs of all chains over one source; made by the source and passed from dataset to dataset.

    So a chain that is written again over the same source continues its count, and `set_epoch` on a dataset applies to
    the chains that extend it. A dataset of several inputs counts with its first input, and follows `set_epoch` on any.

    Args:
        inputs: the counters of the inputs of such a dataset.
    """

    __slots__ = ("__weakref__", "_chains", "_inputs", "_requests")

    def __init__(self, inputs: tuple[EpochCounter, ...] = ()) -> None:
        first = inputs[0] if inputs else None
        self._chains: dict[Key, ChainCount] = {} if first is None else first._chains
        self._requests: dict[bytes, tuple[int, int]] = {} if first is None else first._requests
        self._inputs = inputs

    @classmethod
    def joined(cls, counters: list[EpochCounter]) -> EpochCounter:
        """The counter of a dataset with several inputs."""
        distinct = tuple(dict.fromkeys(source for counter in counters for source in counter._inputs or (counter,)))
        return distinct[0] if len(distinct) == 1 else cls(distinct)

    def set(self, plan: Node, epoch: int) -> None:
        """Note a `set_epoch` call on the dataset of a plan."""
        key = epoch_key(plan)  # outside the lock: the digest of a long array takes a while
        with _REQUESTS.lock:
            self._requests[key] = (_REQUESTS.another(), epoch)

    def requested(self, plan: Node) -> tuple[int, int] | None:
        """The last `set_epoch` call on a dataset or on one that it extends: the number of the call, and the epoch."""
        requests = [counter._requests for counter in self._inputs or (self,) if counter._requests]
        if not requests:
            return None
        keys = {epoch_key(node) for node in walk(plan)}
        with _REQUESTS.lock:
            return max((call for calls in requests for key, call in calls.items() if key in keys), default=None)

    def take(self, plan: Node, settings: Settings, progress: Progress | None = None, first: int | None = None) -> int:
        """The number of a loop that starts now; loops that start in several threads have different ones.

        Args:
            plan: the chain.
            settings: its options.
            progress: of the iterator.
            first: the number, where a state gives it.
        """
        key = epoch_key(plan), settings.seed
        with _REQUESTS.lock:
            epoch, doubts = self._take(key, plan, settings, progress, first)
        for doubt in doubts:
            what, text, *args = doubt
            logger.warning_once(text, *args, about=what)
        return epoch

    def _take(
        self, key: Key, plan: Node, settings: Settings, progress: Progress | None, first: int | None
    ) -> tuple[int, list[tuple[Any, ...]]]:
        """The number, and what may have been meant otherwise: what each is about, its text and arguments."""
        doubts: list[tuple[Any, ...]] = []
        count, request = self._chains.get(key), self.requested(plan)
        new = count is None
        if count is None:
            count = self._chains[key] = ChainCount()
        if first is not None:
            count.following = first
            if request is not None:
                count.request = request[0]
        elif request is not None and request[0] > count.request:
            count.request, count.following = request
        elif _looked(plan, count):
            count.following -= 1
        elif draws(plan):
            doubts = list(self._doubts(plan, settings, count, new))
        return count.start(plan, progress), doubts

    def _doubts(self, plan: Node, settings: Settings, count: ChainCount, new: bool) -> Iterator[tuple[Any, ...]]:
        """Where counting probably does not give what was meant: what each is about, its text and arguments."""
        if in_torch_worker() and not count.request:
            yield ("worker",), _IN_A_WORKER, count.following
        last = count.progress
        here = count.process == os.getpid()
        if last is not None and last.delivered == 1 and not (last.ended or last.look) and here:
            yield ("peek", plan.line), _PEEKED, plan.line, last.epoch, count.following
        if not new:
            return
        place = _written_at(plan, settings)
        before = _LAST_AT.get(place)
        if before is not None and before.gone and (not before.kept or before in self._chains.values()):
            yield ("again", place), _STARTS_AGAIN, plan.line, before.following
        _remember(_LAST_AT, place, count)

    def __getstate__(self) -> tuple[Any, ...]:
        with _REQUESTS.lock:
            chains = {key: (c.following, c.request) for key, c in self._chains.items()}
            return chains, dict(self._requests), self._inputs

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        chains, requests, self._inputs = state
        first = self._inputs[0] if self._inputs else None
        self._chains = first._chains if first else {key: ChainCount(*numbers) for key, numbers in chains.items()}
        self._requests = first._requests if first else requests
        with _REQUESTS.lock:
            _REQUESTS.last = max(_REQUESTS.last, *(number for number, _ in self._requests.values()), 0)


class Counted:
    """The epochs of an iterator that counts: one, the next of its chain.

    Args:
        counter: of the dataset.
        plan: the chain.
        settings: its options.
    """

    def __init__(self, counter: EpochCounter, plan: Node, settings: Settings) -> None:
        self._counter, self._plan, self._settings = counter, plan, settings

    def __call__(self, progress: Progress, first: int | None = None) -> Iterator[int]:
        """The number, taken when the iterator starts, or `first`; the next iterator counts from there."""
        yield self._counter.take(self._plan, self._settings, progress, first)

    def after(self, progress: Progress, epoch: int) -> Iterator[int]:
        """The epoch after one that is at its end."""
        return self(progress, epoch + 1)


class Visits:
    """Which epoch `ds[i]` is of, and how many elements were read in that epoch."""

    __slots__ = ("_count", "_latest", "_request")

    def __init__(self) -> None:
        self._count, self._latest = 0, -1
        self._request = (0, 0)

    def epoch(self, counter: EpochCounter, plan: Node, elements: int) -> int:
        """The epoch that `set_epoch` gave, else 0; warns once where every epoch of a loop would be the same.

        Args:
            counter: of the dataset.
            plan: the chain.
            elements: how many there are.
        """
        with _REQUESTS.lock:
            if self._latest != _REQUESTS.last:
                request, self._latest = counter.requested(plan) or (0, 0), _REQUESTS.last
                if request != self._request:
                    self._request, self._count = request, 0
            number, epoch = self._request
            self._count += 1
            again = self._count == elements + 1 or (self._count == 1 and not number and in_torch_worker())
        if again and draws(plan):
            logger.warning_once(_VISITED_AGAIN, plan.line, epoch, about=("visits", plan.line))
        return epoch


def in_torch_worker() -> bool:
    """Whether this process is a worker of PyTorch's DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _looked(plan: Node, count: ChainCount) -> bool:
    """Whether the last iterator of ranks only looked at one element: on one rank, maybe, so it is no epoch."""
    last = count.progress
    return (
        last is not None
        and count.process == os.getpid()
        and last.delivered <= 1
        and not (last.ended or last.look)
        and ranks_of(plan) is not None
    )


class _Requests:
    """Numbers the `set_epoch` calls of this process, so that the last of several is known.

    Attributes:
        last: the number of the last call, 0 for none.
        lock: held while epochs and `set_epoch` calls are counted.
    """

    def __init__(self) -> None:
        self.last = 0
        self.lock = threading.RLock()  # reentrant: `take` calls `requested`, and a destructor may start a loop
        renew_lock(self, "lock")

    def another(self) -> int:
        self.last += 1
        return self.last


_REQUESTS = _Requests()

_KEPT = 256
"""Chains that are remembered."""

_LAST_AT: dict[bytes, ChainCount] = {}
"""The chain that started last at each place in the program."""

_STARTS_AGAIN = (
    "the chain that ends at %s was built again and starts at epoch 0, with the random numbers of epoch 0. If this "
    "is epoch %d of one training, call set_epoch(epoch) before the loop, or iterate over ds.iterator(epoch=epoch); see "
    "gpupipe/dataset/EPOCHS.md"
)
_PEEKED = (
    "the last iterator over the chain that ends at %s stopped after one element: it counts as epoch %d, and this one "
    "is epoch %d. ds.first() returns an element without starting an epoch; see gpupipe/dataset/EPOCHS.md"
)
_IN_A_WORKER = (
    "a DataLoader worker cannot know how often the loader was iterated over: this iterator draws as epoch %d, and so "
    "will that of the next new worker. Call ds.set_epoch(epoch) before each loop over the loader; see "
    "gpupipe/dataset/EPOCHS.md"
)
_VISITED_AGAIN = (
    "ds[i] of the chain that ends at %s draws as epoch %d every time: all epochs have the same crops. Call "
    "ds.set_epoch(epoch) before each epoch (of a DataLoader without persistent_workers), or read ds.epoch(epoch)[i]; "
    "see gpupipe/dataset/EPOCHS.md"
)


def _remember(memory: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value as the newest; the caller holds the lock."""
    memory.pop(key, None)
    memory[key] = value
    for oldest in list(memory)[:-_KEPT]:
        memory.pop(oldest, None)  # a destructor that runs in this thread may have removed it


def _written_at(plan: Node, settings: Settings) -> bytes:
    """Equal for chains over sources of the same names that the same lines of a program write, whatever the sizes."""
    parts: list[Any] = [repr(settings)]
    for node in walk(plan):
        if isinstance(node, WithOptions):
            continue
        parts += [type(node).__name__, node.line, getattr(node, "seed", None)]
        if node.located and not node.sources:  # a list of files
            parts.append(node.fingerprint)
        elif not node.sources or isinstance(node, (Take, Skip, Shard, Select)):  # they select elements
            names = [f.name for f in fields(node) if f.name not in DERIVED and f.name != "source"]
            parts += [_name_of(getattr(node, name)) for name in names]
    return digest_of(parts, loose=True)


def _name_of(value: Any) -> Any:
    """A value that distinguishes sources or selections of elements, without reading contents."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape
    if isinstance(value, tuple):
        return tuple(map(_name_of, value))
    if value is None or isinstance(value, (bool, int, float, str, bytes, types.FunctionType)):
        return value
    return value.describe() if hasattr(value, "describe") else type(value).__qualname__
