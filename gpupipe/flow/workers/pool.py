"""pool: the processes of `map(workers="process")`: which pass uses them, the elements they get, and how they end.

Workers are spawned, never forked. Each has a pipe for small messages and two slots of shared memory for elements and
results; the parent creates and unlinks every segment, so none is left behind however a worker ends. The element of a
worker that dies becomes a hole, and another worker is started. One pass at a time uses the workers; then they wait in
`IdleWorkers`, that of their step or that of the run, so that the next epoch, or pass of a `repeat`, finds them
ready.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import current_process, get_context
from multiprocessing.connection import wait as wait_for
from multiprocessing.shared_memory import SharedMemory
from operator import methodcaller
from typing import Any, Protocol
from weakref import WeakSet, ref

from ...errors import FunctionError, GpupipeError
from ...serial.errors import remote_from_json
from ...spec import Structure
from ...threads import Busy, Flag
from ..element import Element, Hole
from ..idle_workers import IdleWorkers, all_idle
from ..maps.python_function import PythonFunction
from ..run import Context, Run
from ..stall import Where
from .messages import HEAD, Kind, message, pack, read, structure_of, write
from .processes import (
    PROCESSES,
    Worker,
    join,
    no_interrupts,
    release,
    reserve,
    segment_of,
    signal_name,
    unlink,
)
from .task import Task
from .worker import Job, serve

__all__ = ["Lease", "Workers"]


class Step(Protocol):
    """The step whose function the workers run, see `ProcessMapFlow`."""

    @property
    def function(self) -> PythonFunction: ...

    @property
    def where(self) -> Where: ...

    @property
    def home(self) -> IdleWorkers | None: ...


SMALLEST = 1 << 16
"""Minimum bytes of a segment, so that small elements of different sizes share one."""


GRACE = 0.5
"""Seconds that a worker gets to exit before it is terminated, and then again before it is killed."""


CHECK_EVERY = 1.0
"""Seconds without a message after which workers are checked: a grandchild may hold the pipe of a dead worker open."""


STUCK = 10.0
"""Seconds after which a worker that still computes an element of an earlier pass is killed, as a new pass waits."""


GUARD = (
    'every worker imports the main module, so a script needs `if __name__ == "__main__":` around what it does; '
    "the function must be in a module that can be imported, not in a notebook or an interactive session"
)


class Lease:
    """The use of workers by one pass, until it closes the lease or its run ends.

    Attributes:
        over: whether the lease has ended.
        busy: the work of all workers.
    """

    __slots__ = ("_at", "_step", "_workers", "busy", "over")

    def __init__(self, workers: Workers, step: Step, at: Context, busy: Busy) -> None:
        self._workers = workers
        self._step = step
        self._at = at
        self.over = False
        self.busy = busy

    def submit(self, element: Element) -> Task:
        """Give an element to the least busy worker; it is queued if all are full."""
        task = Task(element, self._step.function, self._at.epoch, self._step)
        self._workers.submit(self, task)
        return task

    def wait(self, tasks: Sequence[Any]) -> bool:
        """Wait until a worker has answered; False once the lease has ended.

        Raises:
            GpupipeError: a worker exits before it is ready.
        """
        return self._workers.wait(self)

    def close(self, wait: bool = True) -> None:
        """Leave the workers to the next pass; results to come are discarded, and `wait` returns.

        Args:
            wait: whether workers that cannot be kept get time to exit.
        """
        self.over = True
        self._workers.end(self, wait)
        self._at.run.forget(self.close)


class Workers:
    """The processes of one function."""

    @classmethod
    def of(cls, step: Step, count: int, at: Context) -> Lease:
        """Lease workers that wait for the next pass of a step, or new ones.

        Args:
            step: has the function that they run, and where they wait afterwards.
            count: how many workers.
            at: the context of the pass.
        """
        f, run, where = step.function, at.run, step.where
        home = run.idle if step.home is None else step.home
        key = id(f.fn), f.structure, f.result, f.rng, f.site, count
        found: Workers | None = home.take(key)
        if found is None:
            found = cls(Job(replace(f, seen=[]), run.settings), key, count, where.line, home)
        counters = run.counters.step(where.step, where.line)
        counters.workers, counters.work, counters.processes = count, counters.work or [Busy()], True
        lease = Lease(found, step, at, counters.work[0])
        found.lend(lease, run)
        return lease

    def __init__(self, job: Job, key: Any, count: int, line: str, home: IdleWorkers) -> None:
        self._job = job
        self._who = f"{job.function.who}(workers='process') at {line}"
        self._key = key
        self._home = ref(home)  # weak: the home ends waiting workers when its step, or run, is collected
        self._context = get_context("spawn")
        self._workers: list[Worker] = []
        self._waiting: deque[Task] = deque()
        self._structures: tuple[str, Structure | None] = "", None
        # Reentrant: the garbage collector may close the run in a thread that holds it.
        self._lock = threading.RLock()
        self._lease: Lease | None = None
        self._since = 0.0  # when the last lease ended
        self._inside = False  # a thread is in `submit` or `wait`
        self._torn = False  # Ctrl-C interrupted it there: it is unknown what was sent and received
        self._closed = False
        self._bell, self._wake = self._context.Pipe(duplex=False)
        _POOLS.add(self)
        try:
            for _ in range(count):
                self._workers.append(self._start())
        except BaseException:
            self.close()
            raise

    # ---- leases

    def lend(self, lease: Lease, run: Run) -> None:
        """Start a lease, under the settings of its run."""
        try:
            with self._lock:
                self._lease = lease
                run.on_close(lease.close)
                run.track_buffer(self, f"{self._job.function.who}(workers='process')")
                if run.settings != self._job.settings:
                    self._job = replace(self._job, settings=run.settings)
                    settings = message(Kind.SETTINGS, text=pickle.dumps(run.settings))
                    for worker in self._workers:
                        with suppress(OSError):  # it has died, and `wait` will start another one
                            worker.pipe.send_bytes(settings)
        except BaseException:
            self.close()
            raise
        if run.stopped.on:  # while the workers were starting
            lease.close()

    def end(self, lease: Lease, wait: bool) -> None:
        """End a lease and keep the workers for the next one. The garbage collector may call this at any point."""
        if self._lease is not lease:
            return
        with suppress(OSError):  # closed already
            self._wake.send_bytes(b"x")  # a thread that waits for an answer releases the lock
        with self._lock:
            if self._lease is not lease:
                return
            self._waiting.clear()
            home = self._home()
            if self._torn or self._inside or home is None:
                self.close(wait)
            if not self._closed and home is not None:
                self._since = time.monotonic()
                for worker in self._workers:
                    worker.tasks = deque((None, slot) for _, slot in worker.tasks)
                home.put(self._key, self)
            self._lease = None  # last: if Ctrl-C interrupts this, the next call does the rest

    # ---- starting

    def _start(self) -> Worker:
        """Start a process.

        Raises:
            GpupipeError: this process is a worker that is still starting, or must not have children.
        """
        who, process = self._who, current_process()
        if getattr(process, "_inheriting", False):
            raise GpupipeError(f"{who} was reached while a worker imported the main module; {GUARD}")
        _end_late_thread()
        if process.daemon:
            raise GpupipeError(f"{who} cannot start processes in a daemonic process ({process.name}); use threads")
        ours, theirs = self._context.Pipe()
        name = f"gpupipe-{self._job.function.who}-{len(self._workers)}"
        # Daemonic: if the interpreter exits before the run ends, multiprocessing terminates workers instead of waiting.
        made = self._context.Process(target=serve, args=(theirs, self._job), name=name, daemon=True)
        try:
            with no_interrupts():
                made.start()
        except Exception as error:  # the system refuses, or the function holds data that cannot be pickled
            ours.close()
            raise GpupipeError(f"{who} cannot start a process: {type(error).__name__}: {error}") from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        PROCESSES.add(made)
        return Worker(made, ours)

    # ---- requests

    def submit(self, lease: Lease, task: Task) -> None:
        """Give an element to the least busy worker; it is queued if all are full."""
        with self._lock:
            if self._lease is not lease:
                return
            self._inside = True
            try:
                self._waiting.append(task)
                self._send_waiting()
            except BaseException:
                self._torn = True
                raise
            finally:
                self._inside = False

    def _send_waiting(self) -> None:
        while self._waiting and not self._closed:
            worker = max(self._workers, key=lambda worker: len(worker.free))
            if not worker.free:
                return
            task = self._waiting.popleft()
            try:
                pieces, size = pack(task.element[0])
            except FunctionError as error:
                task.value = Hole(error)
                continue
            slot = worker.free.pop()
            segment = self._segment(worker, slot, size)
            write(pieces, segment)
            worker.tasks.append((task, slot))
            _, stream, position = task.element
            try:
                name = segment.name.encode()
                worker.pipe.send_bytes(message(Kind.RUN, slot, size, name, task.epoch, stream.key, position))
            except OSError:  # the worker has died: `wait` finds that out, and another one gets this element
                worker.tasks.pop()
                self._waiting.appendleft(task)
                return

    def _segment(self, worker: Worker, slot: int, size: int) -> SharedMemory:
        """Return the segment of a slot, replaced by a larger one if it is too small."""
        old = worker.segments.get(slot)
        if old is not None and old.size >= size:
            return old
        if old is not None:
            del worker.segments[slot]
            unlink(old)
        wanted = max(SMALLEST, 1 << (size - 1).bit_length())
        try:
            made = worker.segments[slot] = segment_of(wanted)
            reserve(made, wanted)
        except OSError as error:
            raise GpupipeError(
                f"{self._who} needs {wanted:,} bytes of shared memory, and "
                f"there is no room ({error}); use fewer processes, or give the container more (docker run --shm-size)"
            ) from error
        return made

    # ---- answers

    def wait(self, lease: Lease) -> bool:
        """Wait until a worker has answered; False once the lease or the workers have ended.

        Raises:
            GpupipeError: a worker exits before it is ready.
        """
        with self._lock:
            if self._closed or lease.over or self._lease is not lease:
                return self._ended()
            self._inside = True
            try:
                self._receive()
            except BaseException as error:
                self._torn = True
                if self._closed and isinstance(error, (OSError, ValueError)):
                    return self._ended()  # the garbage collector closed the run in this thread
                raise
            finally:
                self._inside = False
            return self._ended() if self._closed or lease.over else True

    def _ended(self) -> bool:
        """False; in a thread that is left while the interpreter exits, its end."""
        if self._closed:
            _end_late_thread()
        return False

    def _receive(self) -> None:
        """Take the next answers, replace dead and stuck workers, and send waiting elements."""
        events = wait_for([self._bell, *(worker.pipe for worker in self._workers)], timeout=CHECK_EVERY)
        if self._bell in events:  # perhaps left by an earlier pass, which ended while no thread waited
            self._bell.recv_bytes()
        for worker in list(self._workers):
            if worker.pipe in events:
                self._receive_from(worker)
            elif not events and not worker.process.is_alive():
                self._replace(worker)
            elif not events and self._is_stuck(worker):
                worker.process.kill()
                self._replace(worker)
        self._send_waiting()

    def _is_stuck(self, worker: Worker) -> bool:
        """Whether a worker still runs an element of a pass that ended long ago; one that is starting runs none."""
        left = worker.ready and bool(worker.tasks) and worker.tasks[0][0] is None
        return left and time.monotonic() - self._since > STUCK

    def _receive_from(self, worker: Worker) -> None:
        """Take all messages that are there."""
        try:
            while worker.pipe.poll():
                self._handle(worker, worker.pipe.recv_bytes())
        except (EOFError, ConnectionError, BrokenPipeError):
            self._replace(worker)

    def _handle(self, worker: Worker, answer: bytes) -> None:
        kind, slot, size, _, took, cpu = HEAD.unpack_from(answer)
        if kind == Kind.READY:
            worker.ready = True
            return
        if kind == Kind.GROW:
            segment = self._segment(worker, slot, size)
            worker.pipe.send_bytes(message(Kind.GROWN, slot, segment.size, segment.name.encode()))
            return
        task, _ = worker.tasks.popleft()
        worker.free.append(slot)
        if task is None:  # of an earlier pass
            return
        if self._lease is not None:
            busy = self._lease.busy
            busy.jobs, busy.seconds, busy.cpu = busy.jobs + 1, busy.seconds + took / 1e9, busy.cpu + cpu / 1e9
        text = answer[HEAD.size :].decode()
        if kind == Kind.FAILED:
            task.value = Hole(remote_from_json(json.loads(text)))
        elif kind == Kind.RAISED:
            task.raised = remote_from_json(json.loads(text)).__cause__
        elif kind == Kind.DONE:
            try:
                task.structure = self._structure(text)
                task.value = read(worker.segments[slot], size)
            except FunctionError as error:
                task.value = Hole(error)

    def _structure(self, text: str) -> Structure | None:
        if text != self._structures[0]:
            self._structures = text, structure_of(text) if text else None
        return self._structures[1]

    def _replace(self, worker: Worker) -> None:
        """Start a worker for a dead one, whose element becomes a hole; the element after it goes to another worker."""
        worker.process.join(GRACE)
        if worker.process.is_alive():  # it closed its pipe and still runs
            worker.process.kill()
            worker.process.join(GRACE)
        code = worker.process.exitcode
        how = f"was killed by {signal_name(-code)}" if code is not None and code < 0 else f"ended with exit code {code}"
        self._workers.remove(worker)
        held = [task for task, _ in worker.tasks]
        release(worker)
        if not worker.ready:
            self.close()
            raise GpupipeError(
                f"{self._who}: a worker process {how} before it was ready (see its error output); {GUARD}"
            )
        if held and held[0] is not None:
            memory = "; perhaps the machine ran out of memory" if code == -getattr(signal, "SIGKILL", 9) else ""
            held[0].value = Hole(FunctionError(f"its worker process {how} while it ran on this element{memory}"))
        self._waiting.extendleft(reversed([task for task in held if task is not None and not task.done()]))
        self._workers.append(self._start())

    # ---- ending

    def buffer_usage(self) -> tuple[int, int]:
        """Return the number of elements in work, and the bytes of shared memory."""
        workers = list(self._workers)
        elements = sum(len(worker.tasks) for worker in workers)
        return elements, sum(segment.size for worker in workers for segment in list(worker.segments.values()))

    def close(self, wait: bool = True) -> None:
        """End every worker, within two seconds, and unlink every segment. Safe to call twice, and from any thread.

        If Ctrl-C interrupts it, the next call does the rest.

        Args:
            wait: whether workers get time to exit; False kills them at once.
        """
        self._closed = True
        with suppress(OSError):  # closed already
            self._wake.send_bytes(b"x")  # a thread that waits for an answer releases the lock
        with self._lock:
            workers = self._workers
            self._waiting.clear()
            self._wake.close()
            self._bell.close()
            for worker in workers:
                worker.pipe.close()  # an idle worker exits then
                if not wait:
                    worker.process.kill()
            join(workers, GRACE)
            for end in (methodcaller("terminate"), methodcaller("kill")):
                for worker in workers:
                    if worker.process.is_alive():
                        end(worker.process)
                join(workers, GRACE)
            while workers:
                release(workers.pop())


_POOLS: WeakSet[Workers] = WeakSet()


_EXITING = Flag()


def _end_late_thread() -> None:
    """End this thread if it is left while the interpreter exits."""
    if _EXITING.on and threading.current_thread() is not threading.main_thread():
        raise SystemExit


def _end_all() -> None:
    """At exit, let workers exit by themselves, before multiprocessing terminates them.

    Of other threads only daemons are left. One that waits for a worker, or needs one, ends without a word.
    """
    _EXITING.set()
    for home in all_idle():
        home.close()
    for pool in list(_POOLS):
        pool.close()


def _forget_pools() -> None:
    _POOLS.clear()  # in a forked child: they are its parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


atexit.register(_end_all)  # after the import of multiprocessing, which registers its own: the last one runs first
