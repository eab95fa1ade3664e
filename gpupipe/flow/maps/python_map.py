"""python_map: a Python function of each element, inline or by workers, in order or not; and Python predicates."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from ...classes import dataclass
from ...errors import DataError
from ...random import ROOT
from ...threads import DaemonPool, Job
from ..access import RandomAccess, Through, waits
from ..bad.found import as_before, bad_element
from ..buffer_sizes import bytes_of
from ..check import truth
from ..element import Element, Hole, is_element
from ..run import PEEKING, Context, Flow
from ..stall import SOMEWHERE, Watch, Where
from ..state.checkpoints import CheckpointedInput
from ..state.snapshot import State, part
from ..step import Running
from ..tuning import MOST_THREADS, Tuned
from .python_function import Calls, PythonFunction, SameSpecs

__all__ = ["PythonFilterFlow", "PythonMapFlow", "Task", "WorkerPool"]


class Task(Protocol):
    """An element that was submitted to workers."""

    def done(self) -> bool:
        """Whether there is a result."""
        ...

    def result(self) -> Element:
        """Return the element or hole. If the function ended the run, its exception is raised."""
        ...


class WorkerPool(Protocol):
    """Threads or processes that run the function of one pass."""

    def submit(self, element: Element) -> Task:
        """Submit an element."""
        ...

    def wait(self, tasks: Sequence[Task]) -> bool:
        """Wait until one of the tasks may be done; False once the workers are closed."""
        ...

    def close(self, wait: bool = True) -> None:
        """Release the workers and drop what they still compute. Safe to call twice, and from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class PythonMapFlow:
    """Maps a Python function over the elements.

    Attributes:
        calls: number of workers; 0 runs the function on the thread that asks.
        deterministic: whether results keep the order of the input.
        where: the step, for reports.
        tuned: whether the number of threads may change while it runs, from `calls` on.
    """

    source: Flow
    function: PythonFunction
    calls: int = 0
    deterministic: bool = True
    where: Where = SOMEWHERE
    tuned: bool = False

    def open(self, at: Context, state: State = None) -> Running:
        if self.calls:
            return _Pool(self, at, state)
        return _Inline(self, as_before(at, self, self.source.open(at, part(state))), at, state)

    def hire(self, at: Context, calls: int) -> WorkerPool:
        """Return the workers of one pass."""
        return _Threads(self, at, calls)

    def access(self, at: Context) -> RandomAccess:
        return Through(self, at)


class _Inline(Running):
    """Runs the function on the thread that asks, and checks that every result is like the first."""

    def __init__(self, flow: PythonMapFlow, inner: Running, at: Context, state: State) -> None:
        self._call = Calls(flow.function, at, flow).run
        self.source = inner
        self._items = iter(inner)
        self._same = SameSpecs(flow.function, flow, state)
        self._check = self._same.__call__  # a bound method: 80 ns less than calling the object

    def __next__(self) -> Element:
        element = next(self._items)
        return element if type(element[0]) is not tuple else self._check(self._call(element))

    def own(self) -> dict[str, State]:
        """The specs of the first result."""
        return {"first": self._same.snapshot()}


class _Pool(Running):
    """Runs the function in workers. At most twice as many elements as workers are in flight."""

    def __init__(self, flow: PythonMapFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._at = at
        self._calls = flow.calls
        self._tuned: Tuned | None = None
        if flow.tuned and at.outer == ROOT:  # a dataset that is opened for each element runs many times at once
            counters = at.run.counters.step(flow.where.step, flow.where.line)
            self._tuned = at.run.tuner.threads(self, flow.where, flow.calls, MOST_THREADS, 2, counters)
        self._input = CheckpointedInput(flow.source, at, part(state), step=flow)
        self._again = deque(self._input.recovered)
        self._workers: WorkerPool | None = None
        self._stopped = at.run.stopped
        self._check = SameSpecs(flow.function, flow, state)
        self._work: deque[tuple[Task, int]] = deque()  # with the numbers of their elements
        self._more = True
        self._closed = False
        self._taken = 0

    def __next__(self) -> Element:
        while True:
            self._fill()
            if not self._work:
                self.close()
                raise StopIteration
            candidates = [self._work[0]] if self._flow.deterministic else list(self._work)
            first = next((one for one in candidates if one[0].done()), None)
            if self._closed or self._stopped.on:
                raise StopIteration  # stopped by another thread, perhaps while a function never returns
            if first is not None:
                self._work.remove(first)
                element = first[0].result()
                if self._tuned is not None and self._tuned.weigh:
                    self._at.run.tuner.weighed(self._tuned, bytes_of(element))
                self._fill(1)
                return self._check(element)
            if self._workers is None or not self._workers.wait([task for task, _ in candidates]):
                raise StopIteration

    def _fill(self, finished: int = 0) -> None:
        """Submit as many elements as may be in flight, besides `finished` ones that wait to be given."""
        if self._tuned is not None:
            calls = 1 if PEEKING.get() is not None else self._tuned.value  # steps above are not known before
            if calls != self._calls:
                self._calls = calls
                if isinstance(self._workers, _Threads):
                    self._workers.resize(calls)
        asked = self._at.run.asked
        while len(self._work) < 2 * self._calls and not self._stopped.on:
            if asked and (self._work or finished) and waits(self._at, self._taken):
                return
            if not self._take():
                return

    def _take(self) -> bool:
        """Submit one more element; False if there is none."""
        if not self._more:
            return False
        source = self._input
        if source.due() and not self._again:
            source.checkpoint(min((number for _, number in self._work), default=source.count))
        pair = self._again.popleft() if self._again else next(source.pairs, None)
        if pair is None:
            self._more = False
            return False
        element, number = pair
        self._taken += is_element(element)
        if type(element[0]) is not tuple:
            task: Any = Job()
            task.set_result(element)
        else:
            if self._workers is None:
                self._workers = self._flow.hire(self._at, self._calls)
            task = self._workers.submit(element)
        self._work.append((task, number))
        return True

    def snapshot(self) -> State:
        """The input's state, the numbers of the elements in flight, and the specs of the first result."""
        numbers = [number for _, number in (*self._work, *self._again)]
        return {"source": self._input.holding(numbers), "first": self._check.snapshot()}

    def close(self) -> None:
        """Release the workers and close the input."""
        self._closed = True
        self._more = False
        workers, self._workers = self._workers, None
        self._work.clear()
        if self._tuned is not None:
            self._tuned.users.discard(self)
        if workers is not None:
            workers.close()
        self._input.inner.close()


class _Threads:
    """The worker threads of one pass."""

    def __init__(self, flow: PythonMapFlow, at: Context, calls: int) -> None:
        self._flow = flow
        self._at = at
        self._counters = at.run.counters.step(flow.where.step, flow.where.line)
        self._pool = DaemonPool(calls, "gpupipe-map", self._counters.pool(calls))
        at.run.on_close(self.close)

    def submit(self, element: Element) -> Task:
        return self._pool.submit(self._flow.function, element, self._at, self._flow)

    def resize(self, count: int) -> None:
        """Change the number of threads."""
        self._counters.workers = count
        self._pool.resize(count)

    def wait(self, tasks: Sequence[Task]) -> bool:
        return self._pool.wait(lambda: any(task.done() for task in tasks))

    def close(self, wait: bool = True) -> None:
        """Stop the threads, after the calls that are running unless these take too long."""
        self._pool.close(wait)
        self._at.run.forget(self.close)


@dataclass(frozen=True, slots=True)
class PythonFilterFlow:
    """The elements for which a Python predicate is True; holes are passed on."""

    source: Flow
    function: PythonFunction
    where: Where = SOMEWHERE

    def open(self, at: Context, state: State = None) -> Running:
        inner = as_before(at, self, self.source.open(at, part(state)))
        return _Filtered(self, inner, at)


class _Filtered(Running):
    def __init__(self, flow: PythonFilterFlow, inner: Running, at: Context) -> None:
        self._call = Calls(flow.function, at, flow).run
        self.source = inner
        self._items = iter(inner)
        self._flow, self._run = flow, at.run
        self._stopped = at.run.stopped
        self._watch = Watch(flow.where)

    def __next__(self) -> Element:
        dropped = 0
        for element in self._items:
            if type(element[0]) is not tuple:
                self._run.need(element, "filter")
                return element
            if self._stopped.on:
                break
            answer = self._call(element)
            columns, stream, position = answer
            if type(columns) is Hole:
                self._run.need(answer, "filter")
                return answer
            try:
                if truth(columns[0]) and len(columns) == 1:
                    return element
            except DataError as error:
                where = error.at(stream.name, position, "filter", stream.unit), stream, position
                self._run.need(bad := bad_element(*where, self._flow), "filter")
                return bad
            dropped += 1  # noqa: SIM113 : holes return from the loop, so it counts the others only
            if dropped < 64 or not dropped & 1023:
                self._watch.nothing(dropped)
        raise StopIteration
