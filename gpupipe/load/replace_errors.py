"""replace_errors: how a flow is opened after a state, and the replacement of bad elements by `on_error="replace"`.

The last good element replaces a bad one; the first good one replaces those before it. A state holds no payloads, so
the replacing element is made again after a resume: the state names the position of the input before it, and how many
elements were given since.
"""

from __future__ import annotations

from typing import Any

from ..errors import DataError, GpupipeError, StateError
from ..flow.element import BatchStream, Element
from ..flow.own_bytes import own_bytes
from ..flow.run import Context, Flow
from ..flow.state.checkpoints import CheckpointedInput
from ..flow.state.snapshot import State, int_part, part
from ..flow.step import Running
from ..ragged import Ragged
from ..serial.structures import Malformed
from ..spec import Compound
from ..transform.array import copied
from .mark import skip_delivered

__all__ = ["ODD", "not_a_state", "opened", "rows_of"]


def opened(flow: Flow, at: Context, state: State, skip: int, batched: bool) -> Running:
    """Open a chain after a state, and skip the elements that were delivered since.

    Args:
        flow: the whole chain.
        at: the context.
        state: a snapshot as JSON; it may come from a damaged file.
        skip: how many elements to make again and discard.
        batched: whether the elements are batches.

    Raises:
        StateError: it is not a state of this chain, or the input ends before it.
    """
    try:
        replaces = at.run.settings.on_error == "replace"
        if replaces and state is not None:
            skip += int_part(state, "since")
        items = Replacing(flow, at, batched, state) if replaces else flow.open(at, state)
        skip_delivered(items, skip, at.run)
    except ODD as error:
        if state is None or isinstance(error, GpupipeError):
            raise
        raise not_a_state(error) from error
    return items


ODD = (Malformed, TypeError, KeyError, IndexError, AttributeError, OverflowError, ValueError)
"""What a state that nothing has made raises where it is used."""


def not_a_state(error: BaseException) -> StateError:
    """The error of such a state."""
    return StateError(f"load_state_dict needs a state as state_dict made it, got one with {error}")


class Replacing(Running):
    """The elements of a flow, with each bad one replaced by a good one. Errors to be raised pass through.

    Args:
        flow: the whole chain.
        at: the context.
        batched: whether the elements are batches.
        state: the result of `snapshot`. The caller has to make its "since" elements again, so that the element which
            replaces bad ones is there.
    """

    def __init__(self, flow: Flow, at: Context, batched: bool, state: State = None) -> None:
        self._run = at.run
        self._count_good = at.run.bad.counts_good  # for a share of bad elements in `Options.max_bad`
        self._batched = batched
        self._input = CheckpointedInput(flow, at, part(state))
        self._items = self._input.items
        self.source = self._input.inner
        self._start = self._input.count  # the input's element from which those given since can be made again
        self._since = 0  # elements given since
        self._policy = at.run.policy()
        self._ready: list[Element] = []  # elements to give after the first replacement, in reverse order

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
                if self._run.stopped.on:
                    break
                if self._policy.lacks(element):
                    self._policy.lack(element)
                    self._since += 1
                    return element
                bad = self._bad(element)
                if bad is not None:
                    self._since += 1
                    return bad
        except DataError:
            self._since += 1
            raise
        error = self._policy.unreplaced()
        if error is not None:
            return error
        raise StopIteration

    def snapshot(self) -> State:
        """Return the state of the input at the last good element, and the number of elements given since."""
        return {"source": self._input.state(self._start), "since": self._since}

    def _good(self, element: Element) -> Element:
        """Return a good element, or the first bad one that it replaces."""
        columns, stream, _ = element
        if self._count_good:
            rows = rows_of(columns[0]) if self._batched or isinstance(stream, BatchStream) else 1
            self._run.bad.good += max(1, rows)
        given = element
        if self._policy.early:
            given, *others = self._policy.good(element)
            self._ready = [(own_copy(one[0]), *one[1:]) for one in reversed(others)]
        else:
            source = self._input
            self._start, self._since = source.count - 1, 0  # a state needs no element before this one
            if source.due():
                source.checkpoint(self._start)
        # A copy, as the user may change the delivered element.
        self._policy.follow((columns if self._batched else own_copy(columns), *element[1:]))
        return given

    def _bad(self, element: Element) -> Element | None:
        """Return the replacement of a bad element, or its error to raise; None if it waits for a good one."""
        for columns, stream, position in self._policy.bad(element):
            return (own_copy(columns) if type(columns) is tuple else columns), stream, position
        return None


def own_copy(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copy leaves, so that they share no memory with delivered ones or with a block of a file."""
    return tuple([leaf if isinstance(leaf, (bytes, Compound)) else copied(leaf) for leaf in own_bytes(columns)])


def rows_of(leaf: Any) -> int:
    """Count the rows of a leaf of a batch; -1 if it has no rows, as a Python function may make it."""
    shape = getattr(leaf, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else -1
    return len(leaf) if isinstance(leaf, Ragged) else -1
