"""peek: look at the first element of a flow and keep it, so that its type is known to what is built on it."""

from __future__ import annotations

import time
from itertools import chain
from operator import length_hint

from ...errors import DataError, GpupipeError
from ...spec import TensorSpec, spec_of
from ..access import RandomAccess, access
from ..element import Element
from ..run import PEEKING, Context, Flow, PeekedErrors
from ..state.snapshot import State, Unsupported, fast_forward, int_part
from ..step import Running, close

__all__ = ["PeekedFlow"]

FAILED = 100
"""Elements that may fail before the first good one, where errors are raised."""


LEFT_OUT = 10_000
"""The same where they are left out or replaced: each is kept until then, about 1 KB."""


SECONDS = 5.0
"""For so long a good element is looked for, once one has failed, where errors are raised."""


class PeekedFlow:
    """A flow whose first pass was opened early. The pass that was looked at is handed out once, then it opens anew."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._at: Context | None = None
        self._head: list[Element] = []
        self._opened: list[Running] = []  # the pass that was looked at, until somebody takes it out, who owns it then
        self._inside = False  # whoever looks at it closes it
        self._looking: PeekedErrors | None = None

    def look(self, at: Context) -> tuple[TensorSpec, ...] | None:
        """The specs of the first good element, dimensions left open; None if there is none.

        Raises:
            DataError: so many elements failed that there may never be a good one. It is the first of their errors.
        """
        self._at = at
        looking = self._looking = PeekedErrors(at.run, LEFT_OUT)
        before = PEEKING.get()
        try:
            try:
                PEEKING.set(looking)
                self._inside = True
                return self._first_good(at)
            finally:
                PEEKING.set(before)
        except GpupipeError:
            looking.tell()
            raise
        finally:
            self._inside = False
            if at.run.stopped.is_set():
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
                return tuple(loose(spec_of(column)) for column in value)
            if at.run.stopped.is_set():
                return None
            self._head.append(element)
            now = time.monotonic()
            since = now if since is None else since  # workers that take long to start are no failure
            if len(self._head) >= most or (raises and len(self._head) > 1 and now - since >= SECONDS):
                raise self._nothing_good()
        return None

    def _nothing_good(self) -> DataError:
        error: DataError = self._head[0][0].error.again()
        count = len(self._head)
        if self._at is not None:
            for element in self._head:
                self._at.run.note(element, "raised")
        error.reason += (
            f" (and so did the next {count - 1} elements; none says what the elements are, so this epoch ends here)"
        )
        error.args = (error.reason,)
        self._close()
        return error

    def open(self, at: Context, state: State = None) -> Running:
        """The pass that was looked at if it is the one asked for, else a new one."""
        rest, head = self._taken(), self._head
        same = self._at is not None and (self._at.key, self._at.epoch) == (at.key, at.epoch)
        if state is None and rest is not None and same:
            self._head = []
            if self._looking is not None:
                self._looking.tell()
            return _Primed(head, rest, at)
        self._head = []
        close(rest)
        if isinstance(state, dict) and "looked_at" in state:
            items = self.flow.open(at)
            fast_forward(items, int_part(state, "looked_at"), at)
            return items
        return self.flow.open(at, state)

    def _taken(self) -> Running | None:
        """The pass that was looked at; of several threads one gets it."""
        try:
            return self._opened.pop()
        except IndexError:
            return None

    def _close(self) -> None:
        self._head = []
        close(self._taken())

    def access(self, at: Context) -> RandomAccess:
        return access(self.flow, at)


class _Primed(Running):
    """The elements that were looked at, and the rest of their pass."""

    def __init__(self, head: list[Element], rest: Running, at: Context) -> None:
        self._mixed = at.run.any_order
        self._head = iter(head)
        self._looked_at = len(head)
        super().__init__(chain(self._head, rest))
        self._rest = rest

    def snapshot(self) -> State:
        """Where the rest stands; while there are elements in front of it, how many of them were given."""
        left = length_hint(self._head)
        if not left:
            return self._rest.snapshot()
        if left == self._looked_at:
            return None
        if self._mixed:
            return Unsupported(
                "state_dict cannot say which bad elements came first in any order; ask behind the next one"
            )
        return {"looked_at": self._looked_at - left}

    def close(self) -> None:
        """Close the pass."""
        close(self._rest)


def loose(spec: TensorSpec) -> TensorSpec:
    """The spec with every dimension unknown: the next element may have another size."""
    return spec.loose()
