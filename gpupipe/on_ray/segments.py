"""segments: the order of the segments that workers make: which are asked for, and which element is next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..errors import BadRecord, PlanError
from ..flow.element import Element, is_element
from ..flow.idle_workers import IdleWorkers
from ..flow.run import SILENT_REPLAY, Context
from ..flow.state.snapshot import State, int_part
from ..flow.step import Running
from ..plan.node import ElementType
from ..plan.ranks import FromWorkers
from ..random import ROOT
from ..spec import Structure
from .team import Job, Team, ray_session
from .worker import Answer, Chain, part_of, received

__all__ = ["Engine", "SegmentsFlow"]


class Engine:
    """What an `on_ray` keeps: workers that wait for the next loop. They end with the dataset."""

    __slots__ = ("home",)

    def __init__(self) -> None:
        self.home = IdleWorkers()

    def flow(self, node: FromWorkers) -> SegmentsFlow:
        """The flow that asks the workers."""
        return SegmentsFlow(node, self.home)


@dataclass(frozen=True, slots=True)
class SegmentsFlow:
    """The elements of a chain, in their order, which workers make in segments.

    Attributes:
        node: the chain, and how many workers.
        home: where workers wait for the next loop.
        seen: the type of the elements, once there was one.
    """

    node: FromWorkers
    home: IdleWorkers
    seen: list[ElementType] = field(default_factory=list, compare=False)

    def structure(self) -> Structure | None:
        """The structure of the elements; None before there was one."""
        return self.seen[0].structure if self.seen else None

    def batched(self) -> bool:
        """Whether the elements are batches; False before there was one."""
        return bool(self.seen) and self.seen[0].batched

    def expect(self, element: ElementType) -> None:
        """Take over the type that an earlier run has learned."""
        self.seen.append(element)

    def open(self, at: Context, state: State = None) -> Running:
        if at.key != ROOT or at.params:
            raise PlanError(f"on_ray needs the chain of the loop, got a pass of a part of it, at {self.node.line}")
        return _Segments(self, at, 0 if state is None else int_part(state, "n"))


class _Segments(Running):
    """The elements of all segments, one after the other. The state is how many were given.

    Args:
        flow: the chain.
        at: where it is opened.
        given: elements that were given before.
    """

    def __init__(self, flow: SegmentsFlow, at: Context, given: int) -> None:
        self._flow, self._at, self._given = flow, at, given
        self._step = flow.node.step
        self._place = self._step.first + given  # of the next element
        self._asked = self._place  # the first one that no segment has
        self._jobs: deque[Job] = deque()
        self._team: Team | None = None
        self.items = self._elements()

    def snapshot(self) -> State:
        return {"n": self._given}

    def _key(self) -> Any:
        node = self._flow.node
        return ray_session(), node.fingerprint, repr(node.options)

    def _taken_team(self) -> Team:
        """Workers that wait, or new ones."""
        node, run = self._flow.node, self._at.run
        self._home = self._flow.home if run.settings.persistent_workers else run.idle
        team: Team | None = self._home.take(self._key())
        if team is None:
            part = part_of(node.chain, node.options.resolve())
            team = Team(Chain(node.chain, node.options, part), self._step)
        run.on_close(self._end)
        return team

    def _elements(self) -> Iterator[Element]:
        stopped = self._at.run.stopped
        team = self._team = self._taken_team()
        if not team.ready(stopped.is_set):
            return
        assert team.size is not None
        while self._place < team.size and not stopped.on:
            self._ask(team, team.size)
            job = self._jobs[0]
            answer = team.answer(job, stopped.is_set)
            if answer is not None:
                yield self._given_one(job, answer)
            elif not stopped.on:
                self._jobs.popleft()
                self._given += job.stop - self._place
                self._place = job.stop
        self._keep(team)

    def _ask(self, team: Team, size: int) -> None:
        """Ask for as many segments as may wait."""
        while len(self._jobs) < self._step.ahead and self._asked < size:
            length = self._step.segment
            job = Job(self._at.epoch, self._asked, min(size, (self._asked // length + 1) * length))
            if not team.give(job) and self._jobs:
                return
            self._jobs.append(job)
            self._asked = job.stop

    def _given_one(self, job: Job, answer: Answer) -> Element:
        element = received(answer)
        if not self._flow.seen:
            self._flow.seen.append(answer.type)
        if is_element(element):
            self._place += 1
            self._given += 1
            job.next = self._place
        self._take_over(job, answer.bad)
        return element

    def _take_over(self, job: Job, bad: tuple[BadRecord, ...]) -> None:
        """Note the bad elements of a segment that are new; a segment that is made again has them once more."""
        if sum(job.bad.values()) >= len(bad):
            return
        for record, count in Counter(bad).items():
            for _ in range(count - job.bad.get(record, 0)):
                self._note(record)
            job.bad[record] = max(count, job.bad.get(record, 0))

    def _note(self, record: BadRecord) -> None:
        if not SILENT_REPLAY.get():
            where = f"{record.file} at {record.unit} {record.offset}: {record.stage}: {record.reason}"
            bad, always = self._at.run.bad, record.unit == "file"
            bad.log(record.action, where, bad.add(record), record.file, record.unit, always)

    def _keep(self, team: Team) -> None:
        """Leave the workers to the next loop."""
        for job in self._jobs:  # of the last ones, all elements were read
            team.end(job)
        if team.idle and not self._at.run.stopped.on:
            self._team = None
            self._home.put(self._key(), team)
            self._at.run.forget(self._end)

    def _end(self, wait: bool = True) -> None:
        team, self._team = self._team, None
        if team is not None:
            team.close()
        self._at.run.forget(self._end)

    def close(self) -> None:
        super().close()
        self._end()
