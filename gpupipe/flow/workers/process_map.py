"""process_map: ordinary Python for each element, in worker processes, for functions that hold the GIL."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import DataError
from ..access import Access, Through
from ..check import same_structure
from ..element import Element, Hole
from ..kept import Home
from ..maps.python_function import PythonFunction, SameSpecs
from ..run import Context, Flow
from ..state.checkpoints import Ahead
from ..state.in_flight import InWork
from ..state.snapshot import State
from ..step import Running, close

if TYPE_CHECKING:
    from .pool import Lease
    from .task import Task

__all__ = ["ProcessMapFlow"]


@dataclass(frozen=True, slots=True)
class ProcessMapFlow:
    """A Python function of each element, in processes.

    Attributes:
        function: the function; only its name travels.
        calls: how many processes.
        deterministic: whether results keep the order of their inputs.
        line: where the user wrote it.
        home: where the processes wait for the next iterator; None ends them with this one.
    """

    source: Flow
    function: PythonFunction
    calls: int
    deterministic: bool = True
    line: str = ""
    home: Home | None = None

    def open(self, at: Context, state: State = None) -> Running:
        return _Mapped(self, at, state)

    def access(self, at: Context) -> Access:
        return Through(self, at)


class _Mapped(Running):
    """One pass. At most twice as many elements as there are workers are in work."""

    def __init__(self, flow: ProcessMapFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._ahead = Ahead(flow.source, at, state)
        self._again = deque(self._ahead.again)
        self._at = at
        self._check = SameSpecs(flow.function, state)
        self._work: InWork[Task] = InWork(flow.deterministic, state)
        self._workers: Lease | None = None
        self._more = True

    def __next__(self) -> Element:
        while True:
            self._fill()
            if not self._work.tasks:
                self._give_back()
                raise StopIteration
            candidates = self._work.candidates(self._take, self._at.run.stopped.is_set)
            first = next((one for one in candidates if one[0].done), None)
            if first is not None:
                self._work.leave(first)
                self._fill()
                return self._finished(first[0])
            assert self._workers is not None
            if not self._workers.wait():
                raise StopIteration  # closed by another thread, perhaps while a function never comes back

    def _ready(self) -> Lease:
        """The workers of this pass."""
        if self._workers is None:
            from .pool import Workers

            flow = self._flow
            self._workers = Workers.of(flow.function, flow.calls, self._at.run, flow.line, flow.home)
        return self._workers

    def _fill(self) -> None:
        calls, stopped = self._flow.calls, self._at.run.stopped
        while len(self._work.tasks) < 2 * calls and not stopped.is_set() and self._take():
            continue

    def _take(self) -> bool:
        """One more element into work; False if there is none."""
        if not self._more:
            return False
        from .task import Task  # multiprocessing is imported by the chain that needs it

        pair = self._again.popleft() if self._again else self._ahead.next(self._work.places)
        if pair is None:
            self._more = False
            return False
        element, place = pair
        task = Task(element, self._at.epoch)
        if type(element[0]) is not tuple:
            task.result, task.done = element[0], True
        else:
            self._ready().submit(task)
        self._work.tasks.append((task, place))
        return True

    def _finished(self, task: Task) -> Element:
        """The result as an element, checked against the first one."""
        if task.raised is not None:
            raise task.raised
        _, stream, position = task.element
        value, who = task.result, self._flow.function.who
        if type(value) is not tuple:
            if value is not task.element[0]:
                value.error.at(stream.name, position, who, stream.unit)
            return value, stream, position
        if task.structure is not None:
            try:
                same_structure(who, task.structure, self._flow.function.seen)
            except DataError as error:
                return Hole(error.at(stream.name, position, who, stream.unit)), stream, position
        return self._check((value, stream, position))

    def snapshot(self) -> State:
        """Where the input stands, which elements are in work, and what the first result was."""
        places = self._work.places + [place for _, place in self._again]
        return {**self._ahead.state(places), "first": self._check.snapshot(), **self._work.snapshot()}

    def _give_back(self) -> None:
        """Leave the workers to the next pass; what they still compute is forgotten."""
        workers, self._workers = self._workers, None
        for task, _ in self._work.tasks:
            task.abandoned = True
        self._work.tasks.clear()
        self._more = False
        if workers is not None:
            workers.end()

    def close(self) -> None:
        """End the pass."""
        self._give_back()
        close(self._ahead.tape.inner)
