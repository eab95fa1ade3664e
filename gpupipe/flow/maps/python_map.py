"""python_map: ordinary Python for each element, inline or in an ordered pool of threads."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from ...errors import DataError
from ...threads import DaemonPool, Job
from ..access import Access, Through
from ..check import truth
from ..element import Element, Hole
from ..run import Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.checkpoints import Ahead
from ..state.in_flight import InWork
from ..state.snapshot import State, below
from ..step import Running, close
from .python_function import Calls, PythonFunction, SameSpecs

__all__ = ["PythonFilterFlow", "PythonMapFlow"]


@dataclass(frozen=True, slots=True)
class PythonMapFlow:
    """A Python function of each element.

    Attributes:
        calls: threads that run it; 0 runs it on the thread that asks.
        deterministic: whether results keep the order of their inputs.
    """

    source: Flow
    function: PythonFunction
    calls: int = 0
    deterministic: bool = True

    def open(self, at: Context, state: State = None) -> Running:
        if self.calls:
            return _Pool(self, at, state)
        return _Inline(self, self.source.open(at, below(state)), at, state)

    def access(self, at: Context) -> Access:
        return Through(self, at)


class _Inline(Running):
    """Runs the function on the thread that asks, and checks that every result is like the first."""

    def __init__(self, flow: PythonMapFlow, inner: Running, at: Context, state: State) -> None:
        self._call = Calls(flow.function, at).run
        self.source = inner
        self._items = iter(inner)
        self._same = SameSpecs(flow.function, state)
        self._check = self._same.__call__  # a bound method: 80 ns less than calling the object

    def __next__(self) -> Element:
        element = next(self._items)
        return element if type(element[0]) is not tuple else self._check(self._call(element))

    def own(self) -> dict[str, State]:
        """What the first result was."""
        return {"first": self._same.snapshot()}


class _Pool(Running):
    """Runs the function in threads. At most twice as many elements as threads are in work."""

    def __init__(self, flow: PythonMapFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._check = SameSpecs(flow.function, state)
        self._pool = DaemonPool(flow.calls, "gpupipe-map")
        self._work: InWork[Future[Element]] = InWork(flow.deterministic, state)
        self._more = True
        self._ended = False
        self._ahead = Ahead(flow.source, at, state)
        at.run.on_close(self.close)
        for element, place in self._ahead.again:
            self._put(element, place)

    def __next__(self) -> Element:
        self._fill()
        if not self._work.tasks:
            self.close()
            raise StopIteration
        candidates = self._work.candidates(self._take, lambda: self._ended)
        self._pool.wait(lambda: any(future.done() for future, _ in candidates))
        first = next((one for one in candidates if one[0].done()), None)
        if first is None or self._ended:  # closed by another thread, perhaps while a function never comes back
            raise StopIteration
        self._work.leave(first)
        result = first[0].result()
        self._fill()
        return self._check(result)

    def _fill(self) -> None:
        while len(self._work.tasks) < 2 * self._flow.calls and self._take():
            continue

    def _take(self) -> bool:
        """One more element into work; False if there is none."""
        pair = self._ahead.next(self._work.places) if self._more else None
        if pair is None:
            self._more = False
            return False
        self._put(*pair)
        return True

    def _put(self, element: Element, place: int) -> None:
        if type(element[0]) is not tuple:
            passed: Future[Element] = Job()
            passed.set_result(element)
            self._work.tasks.append((passed, place))
        else:
            self._work.tasks.append((self._pool.submit(self._flow.function, element, self._at), place))

    def snapshot(self) -> State:
        """Where the input stands, which elements are in work, and what the first result was."""
        return {
            **self._ahead.state(self._work.places),
            "first": self._check.snapshot(),
            **self._work.snapshot(),
        }

    def close(self, wait: bool = True) -> None:
        """Stop the threads; functions that are running end first, unless they take too long."""
        self._ended = True
        self._more = False
        self._work.tasks.clear()
        self._pool.close(wait)
        if wait:
            close(self._ahead.tape.inner)
        self._at.run.forget(self.close)


@dataclass(frozen=True, slots=True)
class PythonFilterFlow:
    """The elements for which a Python predicate holds; holes are passed on."""

    source: Flow
    function: PythonFunction
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        inner = self.source.open(at, below(state))
        return _Filtered(self, inner, at)


class _Filtered(Running):
    def __init__(self, flow: PythonFilterFlow, inner: Running, at: Context) -> None:
        self._call = Calls(flow.function, at).run
        self.source = inner
        self._items = iter(inner)
        self._stopped = at.run.stopped.is_set
        self._watch = Watch(flow.where)

    def __next__(self) -> Element:
        dropped = 0
        for element in self._items:
            if type(element[0]) is not tuple:
                return element
            if self._stopped():
                break
            answer = self._call(element)
            columns, stream, position = answer
            if type(columns) is Hole:
                return answer
            try:
                if truth(columns[0]) and len(columns) == 1:
                    return element
            except DataError as error:
                return Hole(error.at(stream.name, position, "filter", stream.unit)), stream, position
            dropped += 1  # noqa: SIM113 : holes are not counted, they leave
            if dropped < 64 or not dropped & 1023:
                self._watch.nothing(dropped)
        raise StopIteration
