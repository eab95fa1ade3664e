"""team: the Ray workers of one chain: they are started, given segments, and replaced where Ray gives them up.

Placement, transport, restarts and replays are Ray's: an actor is restarted up to `max_restarts` times, wherever there
is room, and does again what it had not finished, or what was lost with a node.
`_generator_backpressure_num_objects` is not used: with it, a retried worker hangs (Ray 2.60); what waits is bounded by
the number of segments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from ..classes import dataclass
from ..errors import GpupipeError, MissingDependencyError, PlanError, WorkersDisagreeError, WorkersLostError
from ..log import logger
from ..missing import LIBRARIES
from ..plan.index import ENDLESS
from ..plan.ranks import OnRay
from .worker import Answer, Chain, Introduction, Maker

__all__ = ["Job", "Team", "ray_session"]

POLL = 0.2
"""Seconds after which a wait looks whether the run was stopped."""

SAY_AFTER = 15.0
"""Seconds without a worker, or an element, after which the log says so; then after twice as many, and so on."""

HEDGE = 30.0
"""Seconds without an element after which what is left of a segment goes to an idle worker: the node of the other may be
gone, and the cluster may have no room for it elsewhere."""

SMALL = 80 << 10
"""Bytes of a pickled chain that travel with each actor: up to 100 KB, Ray does not store arguments."""

WAIT = 600.0
"""Seconds without a worker, or an element, after which an error says so."""


def ray_session() -> str:
    """The job of this program in the Ray cluster that it is connected to.

    Raises:
        PlanError: there is none.
        MissingDependencyError: Ray is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(
            f"on_ray needs Ray, which is not installed: pip install {LIBRARIES['ray']}"
        ) from error
    if not ray.is_initialized():
        raise PlanError(
            "on_ray needs a Ray cluster that this process is connected to, got none: ray.is_initialized() is False; "
            "call ray.init() before the loop, for a cluster ray.init(address='auto')"
        )
    return str(ray.get_runtime_context().get_job_id())


@dataclass(eq=False)
class Job:
    """A segment that is being made.

    Attributes:
        epoch: of its elements.
        next: the number of the next element.
        stop: the number behind its last one.
        worker: who makes it; None if nobody does.
        refs: gives references to its answers.
        since: when something was last heard of it.
        bad: how many of its bad elements were taken over, by record.
    """

    epoch: int
    next: int
    stop: int
    worker: _Worker | None = None
    refs: Any = None
    since: float = 0.0
    bad: dict[Any, int] = field(default_factory=dict)


@dataclass(eq=False)
class _Worker:
    """An actor.

    Attributes:
        actor: its handle.
        hello: the reference to its introduction; None once that was read.
        jobs: segments that it was given and that were not read to their end.
        answers: elements that were read from it.
    """

    actor: Any
    hello: Any
    jobs: list[Job] = field(default_factory=list)
    answers: int = 0


class Team:
    """The workers of one chain.

    Args:
        chain: what they make.
        step: how many of them, and what Ray gives each.

    Attributes:
        size: the number of elements of an epoch; None before a worker has said it.
    """

    def __init__(self, chain: Chain, step: OnRay) -> None:
        self._session = ray_session()
        import ray

        self._ray: Any = ray  # whose types do not name all of it
        self._step = replace(step, engine=None)  # which keeps this team, and would never be collected
        self._chain = self._shipped(chain)
        given = dict(step.resources)
        self._class = ray.remote(Maker).options(
            num_cpus=given.pop("CPU"), resources=given, max_restarts=step.max_restarts, max_task_retries=-1
        )
        self._workers = [self._started() for _ in range(step.workers)]
        self._losses = 0  # that Ray reported since the last element
        self._executor: Any = None
        self._closed = False
        self.size: int | None = None

    def _shipped(self, chain: Chain) -> Any:
        """The chain as actors take it: what is large, arrays in memory, is put into Ray's memory once.

        A small one goes along with each actor, and outlives any node.

        Raises:
            PlanError: it cannot be pickled.
        """
        try:
            small = len(self._ray.cloudpickle.dumps(chain)) <= SMALL
        except Exception as error:  # of any class: objects decide how they are pickled
            raise PlanError(
                f"on_ray needs a chain that can be pickled, got one that cannot, at {self._step.line}: {_text(error)}"
            ) from error
        return chain if small else self._ray.put(chain)

    def _started(self) -> _Worker:
        actor = self._class.remote(self._chain)
        return _Worker(actor, actor.introduce.remote())

    @property
    def idle(self) -> bool:
        """Whether nobody makes anything, and the workers may be kept for another loop."""
        return not self._closed and not any(worker.jobs for worker in self._workers)

    def ready(self, stopped: Callable[[], bool]) -> bool:
        """Wait until a worker is there; False if the run was stopped meanwhile.

        Raises:
            WorkersLostError: none came, or they died.
        """
        start, said = time.monotonic(), SAY_AFTER
        while not stopped():
            self._meet(0.0)
            if any(worker.hello is None for worker in self._workers):
                return True
            waited = time.monotonic() - start
            if waited > WAIT:
                raise WorkersLostError(f"on_ray got no worker in {WAIT:g} s: {self._asked()}")
            if waited > said:
                said *= 2
                logger.warning("on_ray waits for a worker since %.0f s: %s", waited, self._asked())
            self._meet(POLL)
        return False

    def _asked(self) -> str:
        every, free = self._ray.cluster_resources(), self._ray.available_resources()
        shown = ", ".join(f"{free.get(name, 0):g} of {every.get(name, 0):g} {name}" for name in self._step.resources)
        each = " and ".join(f"{count:g} {name}" for name, count in self._step.resources.items())
        return f"{len(self._workers)} of them ask for {each} each, and the cluster has {shown} left"

    def _meet(self, seconds: float) -> None:
        """Read the introductions that have come, and wait up to some seconds for one."""
        new = {worker.hello: worker for worker in self._workers if worker.hello is not None}
        if not new:
            return
        found, _ = self._ray.wait(list(new), num_returns=1 if seconds else len(new), timeout=seconds)
        for hello in found:
            try:
                said: Introduction = self._ray.get(hello)
            except self._ray.exceptions.RayTaskError as error:
                raise _of_task(error) from None
            except self._ray.exceptions.RayError as error:
                self._lost(new[hello], error)
                continue
            if said.wrong:
                raise WorkersDisagreeError(_differs(said.node, said.wrong))
            new[hello].hello = None
            self._welcome(said)

    def _welcome(self, said: Introduction) -> None:
        if self.size is None:
            self.size, self._executor = ENDLESS if said.size < 0 else said.size, said.executor
        elif said.executor != self._executor:
            logger.warning(
                "on_ray: the worker on %s computes images by the executor %s, another by %s; pixels may differ by "
                "a few levels: set Options(backend=) to have one",
                *(said.node, said.executor, self._executor),
            )

    def give(self, job: Job) -> bool:
        """Give a segment to the worker with the least to do; False if all have enough."""
        self._meet(0.0)
        most = -(-self._step.ahead // len(self._workers))
        there = [worker for worker in self._workers if worker.hello is None]
        work = {id(worker): count for worker, count in zip(there, self._unfinished(there), strict=True)}
        there = [worker for worker in there if work[id(worker)] < most]
        if there:
            self._send(job, min(there, key=lambda worker: work[id(worker)]))
        return bool(there)

    def _send(self, job: Job, worker: _Worker) -> None:
        if job.worker is not None:
            job.worker.jobs.remove(job)
        # Streamed: an element can be had while the worker makes the next one.
        make = worker.actor.segment.options(num_returns="streaming")
        job.worker, job.refs = worker, make.remote(job.epoch, job.next, job.stop)
        job.since = time.monotonic()
        worker.jobs.append(job)

    def _unfinished(self, workers: Iterable[_Worker]) -> list[int]:
        """How many segments each of some workers has not finished; what it has may wait to be read."""
        done = {job.refs.completed(): job for worker in workers for job in worker.jobs}
        found, _ = self._ray.wait(list(done), num_returns=len(done), timeout=0) if done else ([], [])
        finished = {id(done[ref]) for ref in found}
        return [sum(id(job) not in finished for job in worker.jobs) for worker in workers]

    def answer(self, job: Job, stopped: Callable[[], bool]) -> Answer | None:
        """Wait for the next element of a segment; None at its end, or if the run was stopped.

        Raises:
            WorkersLostError: workers die without an element in between.
        """
        said, start = SAY_AFTER, time.monotonic()
        errors = self._ray.exceptions
        while not stopped():
            waited = time.monotonic() - max(start, job.since)
            try:
                if job.worker is None:
                    if not self.give(job):
                        self._meet(POLL)
                elif (found := self._next(job)) is not None:
                    return self._taken(job, found)
                elif job.refs is None:
                    return None
            except errors.RayTaskError as error:
                raise _of_task(error) from None
            except errors.RayError as error:
                assert job.worker is not None
                self._lost(job.worker, error, job)
            if waited > HEDGE:
                self._hedge(job)
            waited = time.monotonic() - start
            if waited > WAIT:
                raise WorkersLostError(f"on_ray got no element in {WAIT:g} s: {self._where(job)}; {self._asked()}")
            if waited > said:
                said *= 2
                logger.warning("on_ray waits for %s since %.0f s", self._where(job), waited)
        return None

    def _next(self, job: Job) -> Any:
        """The next answer of a segment if it comes soon; None otherwise. Its `refs` are None at the end."""
        found, _ = self._ray.wait([job.refs], timeout=POLL)
        if not found:
            return None
        try:
            ref = next(job.refs)
        except StopIteration:
            self.end(job)
            return None
        return self._got(job, ref)

    def _got(self, job: Job, ref: Any) -> Any:
        """The value of a reference, which may come from another machine; a job that is given to another leaves it."""
        refs = job.refs
        while not self._closed and job.refs is refs:
            found, _ = self._ray.wait([ref], timeout=POLL)
            if found:
                return self._ray.get(ref)
            if time.monotonic() - job.since > HEDGE:
                self._hedge(job)
        return None

    def _taken(self, job: Job, found: Any) -> Answer:
        assert job.worker is not None
        if isinstance(found, str):
            raise WorkersDisagreeError(_differs("a restarted worker", found))
        self._losses = 0
        job.worker.answers += 1
        job.since = time.monotonic()
        answer: Answer = found
        return answer

    def end(self, job: Job) -> None:
        """Take a segment from its worker."""
        if job.worker is not None:
            job.worker.jobs.remove(job)
        job.worker = job.refs = None

    def _hedge(self, job: Job) -> None:
        """Give what is left of a segment to a worker that has nothing to do, if there is one."""
        self._meet(0.0)
        others = [worker for worker in self._workers if worker is not job.worker and worker.hello is None]
        idle = [one for one, count in zip(others, self._unfinished(others), strict=True) if not count]
        if idle:
            logger.warning("on_ray: %s do not come; another worker makes them", self._where(job))
            self._send(job, idle[0])

    def _where(self, job: Job) -> str:
        return f"elements {job.next} to {job.stop - 1} of epoch {job.epoch}"

    def _lost(self, worker: _Worker, error: Exception, job: Job | None = None) -> None:
        """Handle what Ray could not repair: a worker that died too often is replaced, its segments are made again.

        Raises:
            WorkersLostError: there was no element in between.
        """
        self._losses += 1
        died = isinstance(error, self._ray.exceptions.ActorDiedError)
        if (died and not worker.answers) or self._losses > max(1, self._step.max_restarts):
            what = f", making {self._where(job)}" if job is not None else ""
            raise WorkersLostError(
                f"on_ray needs workers that live, got one that died{what}, also after {self._step.max_restarts} "
                f"restarts and with no element of it in between: {_text(error)}; see the logs of Ray for the cause, "
                "such as memory that ran out, or give max_restarts="
            ) from error
        logger.warning("on_ray: Ray lost a worker or what it made, which is made again: %s", _text(error))
        for other in [*worker.jobs] if died else [job]:
            if other is not None:
                self.end(other)
        if died:
            self._workers[self._workers.index(worker)] = self._started()

    def close(self, wait: bool = True) -> None:
        """End the workers at once. Safe to call twice, and from any thread; Ray does not wait for them.

        A thread of its own tells Ray: the garbage collector may call this inside of Ray, which holds a lock then.
        """
        closed, self._closed = self._closed, True
        if closed:
            return
        with suppress(RuntimeError):  # at exit no thread can start, and the workers end with this program
            threading.Thread(target=self._end, name="gpupipe-on-ray-end", daemon=True).start()

    def _end(self) -> None:
        if not self._ray.is_initialized() or ray_session() != self._session:
            return
        for worker in self._workers:
            for job in worker.jobs:  # else Ray's log says that they will be made again
                self._ray.cancel(job.refs)
            self._ray.kill(worker.actor)


def _differs(node: str, wrong: str) -> str:
    return f"on_ray needs workers with the trainer's files, functions and gpupipe, got one on {node} that {wrong}"


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:600]


def _of_task(error: Any) -> Exception:
    """What a worker raised: gpupipe's own error, or Ray's with the traceback of the worker."""
    cause = error.cause
    return cause if isinstance(cause, GpupipeError) else error
