"""replace_errors: what `on_error="replace"` delivers in the place of bad elements.

The last good element stands in for a bad one; the first good one for those in front of it. A state holds no payloads,
so behind one that element is made again: it names the place of the input in front of it, and how many elements were
given since.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ..errors import DataError, GpupipeError, StateError
from ..flow.element import BatchStream, Element, own_bytes
from ..flow.run import SILENT_REPLAY, Context, Flow
from ..flow.state.checkpoints import CheckpointedInput
from ..flow.state.snapshot import State, int_part, part
from ..flow.step import Running
from ..ragged import Ragged
from ..serial.structures import Malformed
from ..spec import Compound
from ..transform.array import copied
from .mark import pass_over

__all__ = ["opened", "rows_of"]


def opened(flow: Flow, at: Context, state: State, behind: int, batched: bool) -> Running:
    """The elements of a chain after a state, and after so many more that were delivered since.

    Args:
        flow: the whole chain.
        at: where it is opened.
        state: what `snapshot` gave, as JSON has it; it may come from a file that is not what it was.
        behind: how many elements to make again and forget.
        batched: its elements are batches.

    Raises:
        StateError: it is not a state of this chain, or the input ends before it.
    """
    try:
        replaces = at.run.settings.on_error == "replace"
        items = StandIns(flow, at, batched, state) if replaces else flow.open(at, state)
        pass_over(items, behind, at.run)
    except (Malformed, TypeError, KeyError, IndexError, AttributeError, OverflowError, ValueError) as error:
        if state is None or isinstance(error, GpupipeError):
            raise
        raise StateError(f"load_state_dict needs a state as state_dict made it, got one with {error}") from error
    return items


class StandIns(Running):
    """The elements of a flow, with a good one in the place of each bad one. Those that raise are passed on.

    Args:
        flow: the whole chain.
        at: where it is opened.
        batched: its elements are batches.
        state: what `snapshot` gave; elements are made again up to it.
    """

    def __init__(self, flow: Flow, at: Context, batched: bool, state: State = None) -> None:
        self._run = at.run
        self._share = at.run.bad.counts_good  # of bad elements: what is delivered is counted
        self._batched = batched
        self._input = CheckpointedInput(flow, at, part(state))
        self._items = self._input.items
        self.source = self._input.inner
        self._place = self._input.count  # number of the item from which the elements given since can be made again
        self._since = 0  # elements given since
        self._policy = at.run.policy()
        self._ready: list[Element] = []  # what follows the first good element's first copy, the next one last
        if state is not None:
            self._again(int_part(state, "since"))

    def __next__(self) -> Element:
        if self._ready:
            self._since += 1
            return self._ready.pop()
        try:
            for element in self._items:
                if type(element[0]) is tuple:
                    given = self._good(element)
                    self._since += 1
                    return given
                if self._run.stopped.is_set():
                    break
                bad = self._bad(element)
                if bad is not None:
                    self._since += 1
                    return bad
        except DataError:
            self._since += 1
            raise
        raise StopIteration

    def snapshot(self) -> State:
        """Where it stands."""
        return {"source": self._input.state(self._place), "since": self._since}

    def _again(self, count: int) -> None:
        """Make the last elements once more, so that what stands in for a bad one is there."""
        before = SILENT_REPLAY.get()
        try:
            SILENT_REPLAY.set(True)
            for _ in range(count):
                with contextlib.suppress(DataError):  # it was raised before
                    next(self, None)
        except BaseException:
            self.close()
            raise
        finally:
            SILENT_REPLAY.set(before)

    def _good(self, element: Element) -> Element:
        """A good element, or the first that it replaces."""
        columns, stream, _ = element
        if self._share:
            rows = rows_of(columns[0]) if self._batched or isinstance(stream, BatchStream) else 1
            self._run.bad.good += max(1, rows)
        given = element
        if self._policy.early:
            given, *others = self._policy.good(element)
            self._ready = [(own_copy(one[0]), *one[1:]) for one in reversed(others)]
        else:
            source = self._input
            self._place, self._since = source.count - 1, 0  # from here on is what a state needs
            if source.due():
                source.checkpoint(self._place)
        # a copy, as the user may change what was delivered
        self._policy.last = columns if self._batched else own_copy(columns)
        return given

    def _bad(self, element: Element) -> Element | None:
        """What replaces a bad element, its error if it is to be raised; None if it waits for a good one."""
        for columns, stream, position in self._policy.bad(element):
            return (own_copy(columns) if type(columns) is tuple else columns), stream, position
        return None


def own_copy(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leaves that share no memory with those delivered before, nor with a block of a file."""
    return tuple([leaf if isinstance(leaf, (bytes, Compound)) else copied(leaf) for leaf in own_bytes(columns)])


def rows_of(leaf: Any) -> int:
    """How many rows a leaf of a batch has; -1 for what has none, as a Python function may make it."""
    shape = getattr(leaf, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else -1
    return len(leaf) if isinstance(leaf, Ragged) else -1
