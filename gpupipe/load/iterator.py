"""iterator: what a `for` loop over a Dataset holds."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import (
    BadRecord,
    ClosedError,
    DataError,
    GpupipeError,
    PlanError,
    PlanTypeError,
    StateError,
    TooManyBadError,
)
from ..extract.decode import MOST_PIXELS
from ..extract.forking import keep_for_ever
from ..extract.waiting import LIMITS
from ..flow.base import RUNNING, BatchStream, Context, Element, Flow, Hole, Run, Stream, stand_in, stands_in
from ..flow.elements import close
from ..flow.host import own_bytes
from ..flow.state import REPLAYING, State, as_number, below, late_json, number, snapshot
from ..flow.tape import Tape
from ..optimize.lower import lower
from ..options import Settings
from ..plan.node import Element as ElementType
from ..plan.node import Node, walk
from ..plan.order import any_order, stateless
from ..ragged import Ragged
from ..spec import Compound, DatasetSpec, Structure, map_structure
from ..transform.pool import ENDINGS
from .reshard import begun, one_of, resharded, sharding
from .state import NOTED, Chain, keys_from_json, packed, sealed, types_from_json, types_to_json, unpacked

if TYPE_CHECKING:
    from ..optimize.memory import MemoryReport

__all__ = ["DatasetIterator", "HostIterator", "OwnedIterator"]

_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()
_ITERATORS: weakref.WeakSet[DatasetIterator] = weakref.WeakSet()


class DatasetIterator(Iterator[Any]):
    """Iterates over a chain; a context manager. Nothing starts before the first `next`.

    Leaving a loop, an exception, `close()` or garbage collection stop its threads. It survives an error: `next`
    raises once, and the call after it gives the next element.

    Attributes:
        epoch: the number that its random draws depend on; None before the first `next` unless it was given.
    """

    def __init__(
        self, plan: Node, settings: Settings, epochs: Any, resumed: Callable[[int], Any] | None = None
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._epochs = iter(epochs)
        self._resumed = resumed  # the epochs from a number on, where any number will do
        self._chain = Chain(plan, settings)
        self._state: State = None  # where the flow goes on
        self._learned: dict[int, ElementType] = {}  # types that only first elements told
        self._tape: Tape | None = None  # of the flow, where its last good element stands in for bad ones
        self._begin = 0  # number of the item on that tape from which the elements given since can be made again
        self._since = 0  # elements given since
        self._delivered = 0
        self._noted: Counter[int] = Counter()  # keys of bad elements that were noted before that state
        self._in_epoch = 0  # elements delivered in this epoch
        self._uneven = False  # elements of this epoch failed, so shards cannot be shared out anew
        self._loaded = False  # a state was loaded, and its epoch is not open yet
        self._begin_at: int | None = None  # elements of the whole in front of those that shards share anew
        self._left_before = 0  # bad elements that were left out before the state that was loaded
        self._run: Run | None = None
        self._items: Any = None
        self._structure: Structure | None = None
        self._last: Any = None
        self._batched = False
        self._share = False  # of bad elements, which `Options.max_bad` limits: what is delivered is counted
        self._early: list[Stream] = []
        self._given: Stream | None = None
        self._rows = 1
        self._ready: list[tuple[Any, Stream | None]] = []
        self._done = False
        self._ended = False
        self._busy = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self.epoch: int | None = None

    def __iter__(self) -> DatasetIterator:
        return self

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Any:
        if os.getpid() != self._pid:
            raise ClosedError("this iterator was created before a fork; make a new one in this process")
        if self._done:
            raise StopIteration
        token = MOST_PIXELS.set(self._settings.max_pixels)
        limits = LIMITS.set(None if self._run is None else self._run.limits)
        try:
            if self._run is not None and RUNNING.get() is self._run:
                raise _inside()
            with self._lock:  # several threads may take from one iterator; each gets other elements
                if self._busy:
                    raise _inside()
                self._busy = True
                try:
                    element = self._next()
                    self._delivered += 1
                    self._in_epoch += 1
                    self._since += 1
                except DataError:
                    self._since += 1
                    raise
                finally:
                    self._busy = False
            if self._done:  # closed by another thread meanwhile: what was cut short is not delivered
                raise StopIteration
            return element
        except StopIteration:
            self.close()
            raise
        except (KeyboardInterrupt, SystemExit, TooManyBadError):
            self.close()
            raise
        except RecursionError as error:  # each step asks the one below: Python cannot nest so many calls
            self.close()
            raise PlanError(
                f"the chain is too deep to run: {len(walk(self._plan))} steps, and Python nests "
                f"{sys.getrecursionlimit()} calls; let one function do what several do"
            ) from error
        except Exception:
            if self._done:  # ... and what that broke off is no error
                self.close()
                raise StopIteration from None
            raise
        finally:
            MOST_PIXELS.reset(token)
            LIMITS.reset(limits)

    def _next(self) -> Any:
        while True:
            if self._done:
                raise StopIteration
            if self._ready:
                value, self._given = self._ready.pop()
                return value
            items = self._items if self._items is not None else self._open()
            if self._ready:  # behind a state that was taken while stand-ins waited
                continue
            element = next(items, None)
            if element is None:
                close(self._items)
                self._items, self._last, self._early = None, None, []
                continue
            value = element[0]
            if type(value) is not Hole:
                assert self._structure is not None
                value = own_bytes(value)
                self._given = element[1]
                if self._batched or isinstance(element[1], BatchStream):
                    self._rows = _rows(value[0])
                if self._share:
                    assert self._run is not None
                    self._run.bad.good += max(1, self._rows)
                if self._tape is not None and not self._early:
                    self._here(self._tape.count - 1)
                if self._settings.on_error == "replace":  # a copy, as the user may change what was delivered
                    self._last = value if self._batched else own_copy(value)
                if self._early:  # what stands in for them comes first
                    self._ready = [(self._structure.unflatten(own_copy(value)), self._given)]
                    self._ready += [(self._structure.unflatten(own_copy(value)), hole) for hole in self._early[:0:-1]]
                    self._given = self._early[0]
                    self._early = []
                return self._structure.unflatten(value)
            assert self._run is not None
            if value.raised or self._settings.on_error == "raise":
                self._run.note(element, "raised")
                raise value.error.again()
            self._run.leave_out(element)
            if self._settings.on_error == "replace":
                other = stand_in(None, element)[1]
                if self._last is not None and self._structure is not None:
                    self._given = other
                    return self._structure.unflatten(own_copy(self._last))
                self._early.append(other)

    @property
    def left_out(self) -> int:
        """How many bad elements were left out or replaced so far, by `on_error` or `ignore_errors`."""
        return self._left_before if self._run is None else self._run.left_out

    @property
    def errors(self) -> tuple[BadRecord, ...]:
        """The bad elements so far, each once: left out, replaced or raised. The last 10,000, oldest first.

        Those of batches that wait to be taken are among them, so behind a restored state some are listed again. Of a
        batch that is lost as a whole (see `zip` and `ignore_errors`) the first bad row is listed; rows that are dropped
        with a short last batch are never decoded. `Options.error_manifest` keeps all.
        """
        return () if self._run is None else self._run.bad.kept

    @property
    def valid(self) -> Any:
        """Which rows of the last batch are what was read in their place: bool[B]; of a single element, a bool.

        False for those that stand in for a bad one under ``on_error="replace"``. A Python function that changes the
        number of rows takes their places from them: then all are False if one of the batch was. What comes out of a
        cache in a file, or of a saved dataset, is True.

        Raises:
            PlanError: nothing was delivered yet.
        """
        given, rows = self._given, self._rows
        if given is None:
            raise PlanError("iterator.valid speaks of the last element, and there is none yet; call next() first")
        if isinstance(given, BatchStream) and len(given.streams) == rows:
            return np.array([not stands_in(row) for row in given.streams], bool)
        if rows < 0 or not (self._batched or isinstance(given, BatchStream)):
            return not stands_in(given)
        return np.full(rows, not stands_in(given))

    def memory_report(self) -> MemoryReport:
        """What the buffers of the chain hold at this moment, and may hold, by step. Any thread may ask.

        Batches inside an executor, and one that the user holds, are in no buffer.
        """
        from ..optimize.memory import memory_report

        return memory_report(self._plan, self._settings, self._run or Run(self._settings))

    def _here(self, place: int) -> None:
        """The elements from item `place` of the tape on are what a state needs."""
        assert self._tape is not None
        self._begin, self._since = place, 0
        if self._tape.due():
            self._tape.mark()
            self._tape.forget(place)

    def state_dict(self) -> dict[str, Any]:
        """Where this iterator stands, as JSON: behind the last element that `next` returned.

        `load_state_dict` goes on there, in another process too: the same elements follow, the same random numbers
        included. It holds no data, only places: what was read, which pass it is, what a shuffle buffer holds (at most
        16 bytes an element). What cannot be told by a place is made again: a generator from its begin, a memory cache
        by reading its input, `unique` by seeing the elements again; see `explain()`.

        Raises:
            ClosedError: the iterator was closed before its end.
            StateError: a step that has no state.
        """
        if os.getpid() != self._pid:
            raise ClosedError("this iterator was created before a fork; make a new one in this process")
        if self._run is not None and RUNNING.get() is self._run:
            raise _inside("state_dict")
        settings = self._settings
        why = stateless(self._chain.plan, settings.deterministic, settings.on_error == "replace")
        if why is not None:
            raise StateError(f"state_dict needs elements that come in a fixed order, and {why}")
        with self._lock:
            if self._busy:
                raise PlanError(
                    "state_dict() needs to be called from outside, between two elements, got a call while next() runs, "
                    "by a function of the chain or a signal handler; let a handler set a flag to look at after next()"
                )
            if self._done and not self._ended:
                raise ClosedError("state_dict needs an iterator that is open, got one that was closed")
            head = self._chain.head()
            if self.epoch is None and self._run is None:  # of a chain that was run before it is not the first one
                self.epoch = next(self._epochs, None)
                if self.epoch is not None:
                    self._epochs = chain((self.epoch,), self._epochs)
            left_out, noted = self._left_before, list(self._noted.elements())
            if self._run is not None and self.epoch is not None:
                left_out, noted = self._run.bad.so_far(NOTED, self.epoch)
            state = {
                **head,
                "epoch": self.epoch,
                "ended": self._ended,
                "delivered": self._delivered,
                "in_epoch": self._in_epoch,
                "left_out": left_out,
                "noted": noted,
                "types": types_to_json(self._learned),
                "begin_at": self._begin_at,
                "shard": self._sharded(),
                "flow": packed(late_json(self._flow_state())),
            }
            return sealed(state)

    def _sharded(self) -> State:
        """Which shard this is, and how many elements of the whole are given if all shards are as far."""
        found = sharding(self._chain.plan)
        if found is None:
            return None
        shard = found.node
        elements = None
        if not self._uneven and (self._settings.on_error == "replace" or not (self.left_out or self.errors)):
            elements = (self._begin_at or 0) + shard.shards * found.rows * self._in_epoch
        return {"shards": shard.shards, "index": shard.index, "elements": elements}

    def _flow_state(self) -> State:
        if self._ended:
            return None
        if self._items is None:
            return self._state
        if self._tape is not None:
            return {"tape": self._tape.state(self._begin), "since": self._since}
        return snapshot(self._items)

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Go on where `state_dict` was called. Before the first `next`.

        A state of ``shard(N, i)`` is taken by ``shard(M, j)`` too, if nothing but maps, batches and prefetch stands
        behind it and the N shards had all stopped at the same element of the whole (after as many steps, with batches
        of one size). Only a list of the states of all N shards shows that they had; of one it is believed.

        Args:
            state: what `state_dict` returned, also after a round trip through JSON; or a list of those of all shards.

        Raises:
            StateError: it belongs to another chain, to other files, options or another version; says what is another.
            PlanError: this iterator has begun already.
        """
        with self._lock:
            if self._run is not None or self._done or self._state is not None:
                raise PlanError("load_state_dict needs an iterator that has not begun; make a new one: iter(ds)")
            states: list[Any] = list(state) if isinstance(state, (list, tuple)) else [state]
            moves = [
                resharded(self._plan, one) if isinstance(one, dict) and self._moves(one) else None for one in states
            ]
            for one, move in zip(states, moves, strict=True):
                self._chain.check(one, move is not None)
            if len({one.get("epoch") for one in states if isinstance(one, dict)}) > 1:
                raise StateError(
                    "load_state_dict needs states of one epoch, got several; save them after the same step"
                )
            given = one_of(state)
            moved = moves[0] if given is states[0] else None
            epoch, ended = given.get("epoch"), bool(given.get("ended"))
            counts = [as_number(given.get(name), name) for name in ("delivered", "left_out", "in_epoch")]
            if epoch is not None:
                self._epochs = self._epochs_from(as_number(epoch, "epoch"))
            self._delivered, self._left_before, self._in_epoch = counts
            self._state = None if moved is not None else unpacked(given.get("flow"))
            begin = given.get("begin_at") if moved is None else moved
            if begin is not None:
                self._begin_at = as_number(begin, "begin_at")
                self._plan = begun(self._plan, self._begin_at)
            if moved is not None:
                self._in_epoch, ended = 0, False
            self._loaded, self.epoch = epoch is not None, epoch
            shard = given.get("shard")
            self._uneven = isinstance(shard, dict) and shard.get("elements") is None
            self._learned = types_from_json(given.get("types"))
            self._noted = keys_from_json(given.get("noted"))
            if ended:
                self.epoch = next(self._epochs, None)
                following = next(self._epochs, None)
                if following is None:
                    self._done = self._ended = True
                else:  # there were fewer epochs then
                    self._epochs, self._state, self._loaded = chain((following,), self._epochs), None, False

    def _moves(self, given: dict[str, Any]) -> bool:
        """Whether a state is of another number of shards, or of another of them."""
        found, shard = sharding(self._plan), given.get("shard")
        if found is None or not isinstance(shard, dict):
            return False
        return (shard.get("shards"), shard.get("index")) != (found.node.shards, found.node.index)

    def _epochs_from(self, epoch: int) -> Any:
        """The epochs that are left, this one first."""
        if self._resumed is not None:
            return iter(self._resumed(epoch))
        for left in self._epochs:
            if left == epoch:
                return chain((left,), self._epochs)
        raise StateError(f"load_state_dict needs a state of an epoch that this iterator has, got epoch {epoch}")

    def _open(self) -> Any:
        """Start the next epoch and give its elements; StopIteration where there is none."""
        epoch = next(self._epochs, None)
        if epoch is None:
            self._ended = True
            raise StopIteration
        self.epoch = epoch
        noted: Counter[int] = Counter()
        if self._loaded:
            self._loaded, noted = False, self._noted
        else:
            self._in_epoch, self._begin_at, self._plan, self._uneven = 0, None, self._chain.plan, False
        if self._run is None:
            run = Run(self._settings)
            run.bad.begin()
            run.bad.left_out = self._left_before
            self._run = run
            _RUNS.add(run)
            _ITERATORS.add(self)
            LIMITS.set(run.limits)
            weakref.finalize(self, _collected, run)
        self._run.epoch = epoch
        self._run.bad.before = noted
        self._run.any_order = any_order(self._plan, self._settings.deterministic)
        self._share = self._run.bad.counts_good
        at = Context(self._run, epoch)
        lowered = lower(self._plan, self._settings, at, self._learned)
        self._learned = lowered.learned
        self._structure = lowered.element.structure or Structure()
        self._batched = lowered.element.batched
        if self._done:  # closed by another thread, while the first element was looked at
            raise StopIteration
        state, self._state = self._state, None
        self._tape = None
        if state is None:
            return self._begun(lowered.flow, at, None)
        try:
            return self._begun(lowered.flow, at, state)
        except (TypeError, KeyError, IndexError, AttributeError, OverflowError, ValueError) as error:
            if isinstance(error, GpupipeError):
                raise
            raise StateError(f"load_state_dict needs a state as state_dict made it, got one with {error}") from error

    def _begun(self, flow: Flow, at: Context, state: State) -> Any:
        """The items of a flow, from the begin or behind a state."""
        if self._settings.on_error != "replace":
            self._items = flow.open(at, state)
            return self._items
        self._tape = Tape(flow, at, below(state, "tape"))
        self._items = Delivered(self._tape)
        self._begin, self._since = self._tape.count, 0
        if state is not None:
            self._again(number(state, "since"))
        return self._items

    def _again(self, count: int) -> None:
        """Make the last elements once more, so that what stands in for a bad one is there."""
        token = REPLAYING.set(True)
        try:
            for _ in range(count):
                with contextlib.suppress(DataError):  # it was raised before
                    self._next()
                self._since += 1
        finally:
            REPLAYING.reset(token)

    def close(self) -> None:
        """Stop every thread of this iterator and wait for them. Safe to call twice, and from any thread.

        Nothing is delivered behind it. A function of the chain that another thread's `next` is in cannot be broken off:
        that `next` ends as soon as the function comes back. A read that hangs can, under `Options.read_timeout`.
        """
        self._done = True
        if os.getpid() != self._pid:
            return
        if self._run is not None:
            self._run.stop()  # first of all: whoever forms a long batch looks at it
        if self._items is not None:
            close(self._items)
            self._items = None
        if self._run is not None:
            self._run.close()


class Delivered:
    """The items of a tape, for whoever closes them."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def __iter__(self) -> Iterator[Element]:
        return self._tape.items

    def __next__(self) -> Element:
        return next(self._tape.items)

    def close(self) -> None:
        """Close the flow."""
        close(self._tape.inner)


def _inside(method: str = "next") -> PlanError:
    return PlanError(
        f"{method}() needs to be called from outside, got a call by a function of the chain that the iterator runs; "
        "use another iterator there, or window, scan or zip"
    )


def _rows(leaf: Any) -> int:
    """How many rows a leaf of a batch has; -1 for what has none, as a Python function may make it."""
    shape = getattr(leaf, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else -1
    return len(leaf) if isinstance(leaf, Ragged) else -1


def own_copy(value: Any) -> tuple[Any, ...]:
    """Leaves that share no memory with those delivered before."""
    return tuple([leaf if isinstance(leaf, (bytes, Compound)) else leaf.copy() for leaf in value])


class HostIterator(DatasetIterator):
    """The same, with every array on the host. Nested datasets stay what they are."""

    def __next__(self) -> Any:
        return map_structure(on_host, super().__next__())


class OwnedIterator(DatasetIterator):
    """The iterator of `as_numpy_iterator`: arrays on the host, and nothing that is no array."""

    def __next__(self) -> Any:
        return map_structure(array_on_host, super().__next__())


def array_on_host(leaf: Any) -> Any:
    """The same, where a nested dataset is an error."""
    if isinstance(leaf, Compound) and isinstance(spec := leaf.leaf_spec(), DatasetSpec):
        raise PlanTypeError(f"as_numpy_iterator needs arrays, numbers or bytes, got a {spec}")
    return on_host(leaf)


def on_host(leaf: Any) -> Any:
    """A delivered leaf in host memory."""
    if isinstance(leaf, Compound):
        return leaf
    get = getattr(leaf, "get", None)  # a CuPy array
    if get is not None:
        return get()
    if hasattr(leaf, "__cuda_array_interface__"):
        from ..transform.array import to_host

        return to_host(leaf)
    return leaf


def _collected(run: Run) -> None:
    """End the run of an iterator that nobody holds any more.

    The collector may run in any thread. In one of a pipeline's it only tells the others to stop: it may hold what
    they wait for.
    """
    run.close(wait=not threading.current_thread().name.startswith("gpupipe-"))


def _close_all() -> None:
    """At exit: stop what is still running, so that the interpreter can end."""
    for run in list(_RUNS):
        run.close()


def _after_fork() -> None:
    """In a forked child the parent's threads do not exist: keep for ever what would wait for them when destroyed."""
    for iterator in list(_ITERATORS):
        keep_for_ever(iterator._items)
    for run in list(_RUNS):
        keep_for_ever(run)
        run.abandon()


atexit.register(_close_all)
ENDINGS.append(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
