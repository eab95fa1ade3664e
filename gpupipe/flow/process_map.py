"""process_map: ordinary Python for each element, in worker processes, for functions that hold the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DataError, StateError
from .base import Context, Element, Flow, Hole
from .choices import Choices
from .elements import close
from .python_map import PythonFunction, SameSpecs
from .sources import same_structure
from .state import State, below
from .tape import Ahead

if TYPE_CHECKING:
    from .workers import Task, Workers

__all__ = ["ProcessMapFlow"]


@dataclass(frozen=True, slots=True)
class ProcessMapFlow:
    """A Python function of each element, in processes.

    Attributes:
        function: the function; only its name travels.
        calls: how many processes.
        deterministic: whether results keep the order of their inputs.
        line: where the user wrote it.
    """

    source: Flow
    function: PythonFunction
    calls: int
    deterministic: bool = True
    line: str = ""

    def open(self, at: Context, state: State = None) -> Iterator[Element]:
        return _Mapped(self, at, state)


class _Mapped:
    """One pass. At most twice as many elements as there are workers are in work."""

    def __init__(self, flow: ProcessMapFlow, at: Context, state: State) -> None:
        self._flow = flow
        self._ahead = Ahead(flow.source, at, state)
        self._again = deque(self._ahead.again)
        self._at = at
        self._check = SameSpecs(flow.function, state)
        self._choices = None if flow.deterministic else Choices(below(state, "choices"))
        self._workers: Workers | None = None
        self._work: deque[Task] = deque()
        self._more = True

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        while True:
            self._fill()
            if not self._work:
                self._give_back()
                raise StopIteration
            task = next((task for task in self._candidates() if task.done), None)
            if task is not None:
                if self._choices is not None:
                    self._choices.note(task.place - self._oldest())
                self._work.remove(task)
                self._fill()
                return self._finished(task)
            assert self._workers is not None
            if not self._workers.wait():
                raise StopIteration  # closed by another thread, perhaps while a function never comes back

    def _oldest(self) -> int:
        return min(task.place for task in self._work)

    def _candidates(self) -> list[Task]:
        """What may come next: the oldest; in any order all, or the one that came when this was done before."""
        if self._choices is None:
            return [self._work[0]]
        choice = self._choices.following()
        if choice is None:
            return list(self._work)
        wanted = self._oldest() + choice
        while self._work[-1].place < wanted and self._more:
            self._take()
        found = [task for task in self._work if task.place == wanted]
        if not found and not self._at.run.stopped.is_set():
            raise StateError("load_state_dict needs the data that the state was taken over, got fewer elements")
        return found

    def _ready(self) -> Workers:
        """The workers of this pass."""
        if self._workers is None:
            from .workers import Workers

            self._workers = Workers.of(self._flow.function, self._flow.calls, self._at.run, self._flow.line)
        return self._workers

    def _fill(self) -> None:
        while self._more and len(self._work) < 2 * self._flow.calls and not self._at.run.stopped.is_set():
            self._take()

    def _take(self) -> None:
        """One more element into work."""
        from .workers import Task  # multiprocessing is imported by the chain that needs it

        pair = self._again.popleft() if self._again else self._ahead.next(task.place for task in self._work)
        if pair is None:
            self._more = False
            return
        element, place = pair
        task = Task(element, self._at.epoch, place)
        if type(element[0]) is Hole:
            task.result, task.done = element[0], True
        else:
            self._ready().submit(task)
        self._work.append(task)

    def _finished(self, task: Task) -> Element:
        """The result as an element, checked against the first one."""
        if task.raised is not None:
            raise task.raised
        _, stream, position = task.element
        value, who = task.result, self._flow.function.who
        if type(value) is Hole:
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
        places = [task.place for task in self._work] + [place for _, place in self._again]
        state = {**self._ahead.state(places), "first": self._check.snapshot()}
        return state if self._choices is None else {**state, "choices": self._choices.snapshot()}

    def _give_back(self) -> None:
        """Leave the workers to the next pass; what they still compute is forgotten."""
        workers, self._workers = self._workers, None
        for task in self._work:
            task.abandoned = True
        self._work.clear()
        self._more = False
        if workers is not None:
            workers.give_back()

    def close(self) -> None:
        """End the pass."""
        self._give_back()
        close(self._ahead.tape.inner)
