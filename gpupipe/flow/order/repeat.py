"""repeat: passes over an input, and the end of an endless repeat whose passes are empty."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ...classes import dataclass
from ...log import logger
from ..access import RandomAccess, access, passes
from ..element import Element
from ..run import Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.snapshot import State, int_part, part
from ..step import Running, close

__all__ = ["ENOUGH", "EmptyPasses", "RepeatFlow"]


@dataclass(frozen=True, slots=True)
class RepeatFlow:
    """The input `count` times; without end if the count is negative."""

    source: Flow
    count: int
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        return Repeated(Passes(self, at, state))

    def access(self, at: Context) -> RandomAccess:
        return passes(lambda index: access(self.source, at.in_pass(index, self.count)), self.count)


class Repeated(Running):
    """The running repeat."""

    def __init__(self, passes: Passes) -> None:
        super().__init__(chain.from_iterable(passes))
        self._passes = passes

    def snapshot(self) -> State:
        return self._passes.snapshot()

    def close(self) -> None:
        self._passes.close()


class Passes(Iterator[Iterator[Element]]):
    """The passes of a repeat, one iterator each.

    Not part of `Repeated`, which would then refer to itself: workers of a pass end as soon as its iterator is dropped.
    """

    def __init__(self, flow: RepeatFlow, at: Context, state: State = None) -> None:
        self._flow = flow
        self._at = at
        self._done = 0 if state is None else int_part(state, "pass", flow.count)
        self._empty = EmptyPasses(flow.where, flow.count < 0, at, 0 if state is None else int_part(state, "empty"))
        self._inner: Running | None = None
        if self._done:
            self._inner = flow.source.open(at.in_pass(self._done - 1, flow.count), part(state))
        self._resumed = self._inner

    def __next__(self) -> Iterator[Element]:
        if self._resumed is not None:
            resumed, self._resumed = self._resumed, None
            return self._noted(resumed)
        close(self._inner)
        if self._done == self._flow.count or not self._empty.another():
            raise StopIteration
        self._empty.count += 1
        self._inner = self._flow.source.open(self._at.in_pass(self._done, self._flow.count))
        self._done += 1
        return self._noted(self._inner)

    def _noted(self, inner: Iterator[Element]) -> Iterator[Element]:
        for element in inner:
            self._empty.count = 0
            yield element
            break
        for element in inner:
            yield element

    def snapshot(self) -> State:
        """The number of passes opened, how many in a row had no element, and the snapshot of the present one."""
        inner = None if self._inner is None else self._inner.snapshot()
        return {"pass": self._done, "empty": self._empty.count, "source": inner}

    def close(self) -> None:
        """Close the present pass."""
        close(self._inner)


ENOUGH = 10
"""Passes in a row without an element after which an endless repeat ends."""


class EmptyPasses:
    """Counts passes in a row without an element.

    Args:
        where: the step.
        endless: whether to end after `ENOUGH` of them.
        at: no pass starts once the run of this context is stopped.
        count: the count in a state.

    Attributes:
        count: empty passes in a row; includes the present one until it gives an element.
    """

    __slots__ = ("_endless", "_stopped", "_watch", "_where", "count")

    def __init__(self, where: Where, endless: bool, at: Context, count: int = 0) -> None:
        self._where = where
        self._endless = endless
        self._stopped = at.run.stopped
        self._watch = Watch(where, what="passes")
        self.count = count

    def another(self) -> bool:
        if self.count:
            if self._endless and self.count >= ENOUGH:
                logger.warning("%s ends after %d passes in a row without an element", self._where, self.count)
                return False
            self._watch.nothing(self.count)
        return not self._stopped.on
