"""peek: read the first element of a flow before its pass starts, so that the steps after it know its type."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import chain

from ...errors import DataError, GpupipeError
from ...spec import TensorSpec, spec_of
from ..access import RandomAccess, access
from ..element import Element
from ..run import PEEKING, Context, Flow, PeekedErrors
from ..state.snapshot import Since, State, Unsupported, fast_forward, int_part
from ..step import Running, close

__all__ = ["PeekedFlow"]

FAILED = 100
"""Elements that may fail before the first good one, under on_error="raise"."""


LEFT_OUT = 10_000
"""Elements that may fail before the first good one under "skip" and "replace"; each is kept, about 1 KB."""


SECONDS = 5.0
"""Time after the first failure in which a good element must come, under on_error="raise"."""


class PeekedFlow:
    """A flow whose first pass may be opened early. `open` returns that pass once, later calls a new one."""

    unseen = True  # to `depth_of`: states are those of the flow

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._at: Context | None = None
        self._head: list[Element] = []
        self._opened: list[Running] = []  # the peeked pass, until `_take` transfers it to a new owner
        self._inside = False  # `peek` is reading and closes the pass itself
        self._errors: PeekedErrors | None = None

    def peek(self, at: Context) -> tuple[TensorSpec, ...] | None:
        """Return the specs of the first good element, with unknown dimensions; None if there is none.

        Raises:
            DataError: the first of so many errors that there may never be a good element.
        """
        self._at = at
        errors = self._errors = PeekedErrors(at.run, LEFT_OUT)
        before = PEEKING.get()
        try:
            try:
                PEEKING.set(errors)
                self._inside = True
                return self._first_good(at)
            finally:
                PEEKING.set(before)
        except GpupipeError:
            errors.tell()
            raise
        finally:
            self._inside = False
            if at.run.stopped.on:
                self._close()

    def _first_good(self, at: Context) -> tuple[TensorSpec, ...] | None:
        rest = self.flow.open(at)
        self._opened.append(rest)
        at.run.on_close(lambda wait: self._close() if wait and not self._inside else None)
        raises = at.run.settings.on_error == "raise"
        most, since = FAILED if raises else LEFT_OUT, None
        for element in rest:
            value = element[0]
            if type(value) is tuple:
                self._head.append(element)
                return tuple(spec_of(column).loose() for column in value)
            if at.run.stopped.on:
                return None
            self._head.append(element)
            now = time.monotonic()
            since = now if since is None else since  # from the first failure on: workers may take long to start
            if len(self._head) >= most or (raises and len(self._head) > 1 and now - since >= SECONDS):
                raise self._nothing_good(at)
        return None

    def _nothing_good(self, at: Context) -> DataError:
        error: DataError = self._head[0][0].error.again()
        count = len(self._head)
        for element in self._head:
            at.run.note(element, "raised")
        error.reason += (
            f" (and so did the next {count - 1} elements; the type of the elements is unknown, so this epoch ends here)"
        )
        error.args = (error.reason,)
        self._close()
        return error

    def open(self, at: Context, state: State = None) -> Running:
        """Return the peeked pass if it is the one asked for, else a new one."""
        rest, head = self._take(), self._head
        same = self._at is not None and _place(self._at) == _place(at)
        if state is None and rest is not None and same:
            self._head = []
            if self._errors is not None:
                self._errors.tell()
            return _Peeked(head, rest, at, self._errors)
        self._discard(rest)
        if isinstance(state, dict) and "looked_at" in state:
            items = self.flow.open(at)
            fast_forward(items, int_part(state, "looked_at"), at)
            return items
        return self.flow.open(at, state)

    def _take(self) -> Running | None:
        """Take the peeked pass; only one of several threads gets it."""
        try:
            return self._opened.pop()
        except IndexError:
            return None

    def _close(self) -> None:
        self._head = []
        close(self._take())

    def _discard(self, rest: Running | None) -> None:
        """Close the peeked pass, another one is asked for."""
        self._head, errors, self._errors = [], self._errors, None
        close(rest)
        if errors is not None and rest is not None:
            errors.forget()

    def access(self, at: Context) -> RandomAccess:
        self._discard(self._take())
        return access(self.flow, at)


def _place(at: Context) -> tuple[int, int, int]:
    """What elements depend on, and what states know them by."""
    return at.drawing.key, at.epoch, at.scope


class _Peeked(Running):
    """The elements that were peeked at, then the rest of their pass."""

    def __init__(self, head: list[Element], rest: Running, at: Context, errors: PeekedErrors | None) -> None:
        self._mixed = at.run.any_order
        self._head = deque(head)  # what was given is not kept: the traceback of an error leads to the iterator
        self._count = len(head)
        self._bad = errors is not None and bool(errors.found)
        super().__init__(chain(_given(self._head, errors), rest))
        self._rest = rest

    def snapshot(self) -> State:
        """The state of the rest; before it starts, how many of the peeked elements were given."""
        left = len(self._head)
        if not left:
            return self._rest.snapshot()
        if left == self._count:  # before the first element; what was bad by then was found before the pass was opened
            return {"looked_at": 0, "bad": Since(0)} if self._bad else None
        if self._mixed:
            return Unsupported(
                "state_dict needs elements in a fixed order until the first good one, got some in any order; call it "
                "after the next element"
            )
        return {"looked_at": self._count - left, "bad": Since(0)}

    def close(self) -> None:
        """Close the pass."""
        close(self._rest)


def _given(head: deque[Element], errors: PeekedErrors | None) -> Iterator[Element]:
    """The elements that were peeked at. Not a method, whose frame would hold the pass until the collector runs."""
    while head:
        if errors is not None and len(head) == 1:
            errors.passed()
        yield head.popleft()
