"""pool: the processes of `map(workers="process")`: who has them, what they are given, and how they end.

Workers are spawned, never forked. Each has a pipe for small messages and two slots of shared memory, in which elements
and results lie; the parent makes and unlinks every segment, so none is left behind however a worker ends. A worker that
dies makes a hole of the element it was working on, and another one takes its place. One pass at a time has them; then
they wait in a home (see `kept`), that of their step or that of the run: the next epoch, or pass of a `repeat`, finds
them ready.
"""

from __future__ import annotations

import atexit
import json
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
from typing import Any
from weakref import ref

from ...errors import FunctionError, GpupipeError
from ...serial.errors import remote_from_json
from ...spec import Structure
from ..element import Element, Hole
from ..kept import HOMES, Home
from ..maps.python_function import PythonFunction
from ..run import Context, Run
from .messages import HEAD, Kind, message, pack, read, structure_of, write
from .processes import PROCESSES, Worker, join, no_interrupts, release, reserve, signal_name, unlink
from .task import Task
from .worker import Job, serve

__all__ = ["Lease", "Workers"]

SMALLEST = 1 << 16
"""Bytes of a segment at least, so that small elements of many sizes need one."""


GRACE = 0.5
"""Seconds in which a worker may end by itself before it is terminated, and again before it is killed."""


LOOK = 1.0
"""Seconds after which workers are looked at although no message came: a grandchild may hold a dead one's pipe open."""


STUCK = 10.0
"""Seconds after which a worker is ended that still computes what a pass has left behind, while another one waits."""


GUARD = (
    'the main module is imported by every worker, so a script needs `if __name__ == "__main__":` around what it does; '
    "the function must be in a module that can be imported, not in a notebook or an interactive session"
)


class Lease:
    """Workers as one pass has them: until it closes them, at the latest until its run ends.

    Attributes:
        over: it has ended.
    """

    __slots__ = ("_at", "_function", "_workers", "over")

    def __init__(self, workers: Workers, function: PythonFunction, at: Context) -> None:
        self._workers = workers
        self._function = function
        self._at = at
        self.over = False

    def submit(self, element: Element) -> Task:
        """Give an element to the worker with the least to do; it waits if all are full."""
        task = Task(element, self._function, self._at.epoch)
        self._workers.submit(self, task)
        return task

    def wait(self, tasks: Sequence[Any]) -> bool:
        """Wait until something was answered; False once there is nothing to wait for.

        Raises:
            GpupipeError: workers end before they are ready.
        """
        return self._workers.wait(self)

    def close(self, wait: bool = True) -> None:
        """Leave the workers to the next pass; what they still compute is forgotten, and whoever waits lets go.

        Args:
            wait: whether workers that cannot be kept may end by themselves.
        """
        self.over = True
        self._workers.end(self, wait)
        self._at.run.forget(self.close)


class Workers:
    """The processes of one function."""

    @classmethod
    def of(cls, function: PythonFunction, count: int, at: Context, line: str, home: Home | None) -> Lease:
        """Workers that wait for the next pass of this step, else new ones.

        Args:
            function: what they run.
            count: how many.
            at: the context of the pass.
            line: where the user wrote the step.
            home: where they wait afterwards; None ends them with the run.
        """
        f, run = function, at.run
        home = run.idle if home is None else home
        key = id(f.fn), f.structure, f.result, f.rng, f.site, count
        found: Workers | None = home.take(key)
        if found is None:
            found = cls(Job(replace(f, seen=[]), run.settings), key, count, line, home)
        lease = Lease(found, function, at)
        found.lend(lease, run)
        return lease

    def __init__(self, job: Job, key: Any, count: int, line: str, home: Home) -> None:
        self._job = job
        self._who = f"{job.function.who}(workers='process') at {line}"
        self._key = key
        self._home = ref(home)  # which ends those that wait there with the step, or the run
        self._context = get_context("spawn")
        self._workers: list[Worker] = []
        self._waiting: deque[Task] = deque()
        self._structures: tuple[str, Structure | None] = "", None
        # Reentrant: the garbage collector may close the run in a thread that is just here.
        self._lock = threading.RLock()
        self._lease: Lease | None = None
        self._since = 0.0  # when the last pass left them
        self._inside = False  # a thread is in the middle of something
        self._torn = False  # one was cut short there, by Ctrl-C: what was sent and answered is not known any more
        self._closed = False
        self._bell, self._wake = self._context.Pipe(duplex=False)
        try:
            for _ in range(count):
                self._workers.append(self._start())
        except BaseException:
            self.close()
            raise

    # ---- whose they are

    def lend(self, lease: Lease, run: Run) -> None:
        """Let a pass have them, under the settings of its run."""
        try:
            with self._lock:
                self._lease = lease
                run.on_close(lease.close)
                run.track_buffer(self, f"{self._job.function.who}(workers='process')")
                if run.settings != self._job.settings:
                    self._job = replace(self._job, settings=run.settings)
                    news = message(Kind.SETTINGS, text=pickle.dumps(run.settings))
                    for worker in self._workers:
                        with suppress(OSError):  # it has died: another one will take its place
                            worker.pipe.send_bytes(news)
        except BaseException:
            self.close()
            raise
        if run.stopped.is_set():  # while they were started
            lease.close()

    def end(self, lease: Lease, wait: bool) -> None:
        """Keep the workers for the next pass. The garbage collector may say so in the middle of anything."""
        if self._lease is not lease:
            return
        with suppress(OSError):  # closed before
            self._wake.send_bytes(b"x")  # whoever waits for an answer lets go of the lock
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
            self._lease = None  # at last: what is cut short here, by Ctrl-C, is done by the next call

    # ---- starting

    def _start(self) -> Worker:
        """Start a process.

        Raises:
            GpupipeError: this process is itself one that is just being started, or may have no children.
        """
        who, process = self._who, current_process()
        if getattr(process, "_inheriting", False):
            raise GpupipeError(f"{who} was reached while a worker imported the main module; {GUARD}")
        if process.daemon:
            raise GpupipeError(f"{who} cannot start processes in a daemonic process ({process.name}); use threads")
        ours, theirs = self._context.Pipe()
        name = f"gpupipe-{self._job.function.who}-{len(self._workers)}"
        # Daemonic: where the interpreter ends before the run does, multiprocessing ends them, instead of waiting.
        made = self._context.Process(target=serve, args=(theirs, self._job), name=name, daemon=True)
        try:
            with no_interrupts():
                made.start()
        except Exception as error:  # the system refuses, or the function hands over what cannot travel
            ours.close()
            raise GpupipeError(f"{who} cannot start a process: {type(error).__name__}: {error}") from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        PROCESSES.add(made)
        return Worker(made, ours)

    # ---- handing out

    def submit(self, lease: Lease, task: Task) -> None:
        """Give an element to the worker with the least to do; it waits if all are full."""
        with self._lock:
            if self._lease is not lease:
                return
            self._inside = True
            try:
                self._waiting.append(task)
                self._hand_out()
            except BaseException:
                self._torn = True
                raise
            finally:
                self._inside = False

    def _hand_out(self) -> None:
        while self._waiting and not self._closed:
            worker = max(self._workers, key=lambda worker: len(worker.free))
            if not worker.free:
                return
            task = self._waiting.popleft()
            try:
                pieces, size = pack(task.element[0])
            except FunctionError as error:
                task.value, task.ready = Hole(error), True
                continue
            slot = worker.free.pop()
            segment = self._room(worker, slot, size)
            write(pieces, segment)
            worker.tasks.append((task, slot))
            _, stream, position = task.element
            try:
                name = segment.name.encode()
                worker.pipe.send_bytes(message(Kind.RUN, slot, size, name, task.epoch, stream.key, position))
            except OSError:  # it has died: `wait` finds that out, and another one gets this element
                worker.tasks.pop()
                self._waiting.appendleft(task)
                return

    def _room(self, worker: Worker, slot: int, size: int) -> SharedMemory:
        """The segment of a slot, made anew if it is too small."""
        old = worker.segments.get(slot)
        if old is not None and old.size >= size:
            return old
        if old is not None:
            del worker.segments[slot]
            unlink(old)
        wanted = max(SMALLEST, 1 << (size - 1).bit_length())
        try:
            made = worker.segments[slot] = SharedMemory(create=True, size=wanted)
            reserve(made, wanted)
        except OSError as error:
            raise GpupipeError(
                f"{self._who} needs {wanted:,} bytes of shared memory, and "
                f"there is no room ({error}); use fewer processes, or give the container more (docker run --shm-size)"
            ) from error
        return made

    # ---- answers

    def wait(self, lease: Lease) -> bool:
        """Wait until something was answered; False once the lease or the workers are no more.

        Raises:
            GpupipeError: workers end before they are ready.
        """
        with self._lock:
            if self._closed or lease.over or self._lease is not lease:
                return False
            self._inside = True
            try:
                self._look()
            except BaseException as error:
                self._torn = True
                if self._closed and isinstance(error, (OSError, ValueError)):
                    return False  # the garbage collector closed the run while this thread was here
                raise
            finally:
                self._inside = False
            return not (self._closed or lease.over)

    def _look(self) -> None:
        """Take the next answers, look after the workers, and hand out what waits."""
        events = wait_for([self._bell, *(worker.pipe for worker in self._workers)], timeout=LOOK)
        if self._bell in events:  # perhaps of the pass before, which ended when nobody waited
            self._bell.recv_bytes()
        for worker in list(self._workers):
            if worker.pipe in events:
                self._receive(worker)
            elif not events and not worker.process.is_alive():
                self._bury(worker)
            elif not events and self._is_stuck(worker):
                worker.process.kill()
                self._bury(worker)
        self._hand_out()

    def _is_stuck(self, worker: Worker) -> bool:
        """Whether it has not come back from an element of a pass that was left long ago; one that starts has none."""
        left = worker.ready and bool(worker.tasks) and worker.tasks[0][0] is None
        return left and time.monotonic() - self._since > STUCK

    def _receive(self, worker: Worker) -> None:
        """Take every message that is there."""
        try:
            while worker.pipe.poll():
                self._answered(worker, worker.pipe.recv_bytes())
        except (EOFError, ConnectionError, BrokenPipeError):
            self._bury(worker)

    def _answered(self, worker: Worker, came: bytes) -> None:
        what, slot, size, *_ = HEAD.unpack_from(came)
        if what == Kind.READY:
            worker.ready = True
            return
        if what == Kind.GROW:
            segment = self._room(worker, slot, size)
            worker.pipe.send_bytes(message(Kind.GROWN, slot, segment.size, segment.name.encode()))
            return
        task, _ = worker.tasks.popleft()
        worker.free.append(slot)
        if task is None:  # of a pass that is over
            return
        text = came[HEAD.size :].decode()
        if what == Kind.FAILED:
            task.value = Hole(remote_from_json(json.loads(text)))
        elif what == Kind.RAISED:
            task.raised = remote_from_json(json.loads(text)).__cause__
        elif what == Kind.DONE:
            task.value = read(worker.segments[slot], size)
            try:
                task.structure = self._structure(text)
            except FunctionError as error:
                task.value = Hole(error)
        task.ready = True

    def _structure(self, text: str) -> Structure | None:
        if text != self._structures[0]:
            self._structures = text, structure_of(text) if text else None
        return self._structures[1]

    def _bury(self, worker: Worker) -> None:
        """A worker has died: its element becomes a hole, what waited behind goes to others, another one is started."""
        worker.process.join(GRACE)
        if worker.process.is_alive():  # it closed its pipe and goes on
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
                f"{self._who}: a worker process {how} before it was ready "
                f"(what it says stands in the error output); {GUARD}"
            )
        if held and held[0] is not None:
            memory = "; perhaps the machine ran out of memory" if code == -getattr(signal, "SIGKILL", 9) else ""
            held[0].value = Hole(FunctionError(f"its worker process {how} while it ran on this element{memory}"))
            held[0].ready = True
        self._waiting.extendleft(reversed([task for task in held if task is not None and not task.ready]))
        self._workers.append(self._start())

    # ---- ending

    def buffer_usage(self) -> tuple[int, int]:
        """Elements in work, and bytes of shared memory."""
        workers = list(self._workers)
        elements = sum(len(worker.tasks) for worker in workers)
        return elements, sum(segment.size for worker in workers for segment in list(worker.segments.values()))

    def close(self, wait: bool = True) -> None:
        """End every worker, within two seconds, and unlink every segment. Safe to call twice, and from any thread.

        One that is cut short, by Ctrl-C, leaves the rest to the next call.

        Args:
            wait: whether workers may end by themselves; False kills them at once.
        """
        self._closed = True
        with suppress(OSError):  # closed before
            self._wake.send_bytes(b"x")  # whoever waits for an answer lets go of the lock
        with self._lock:
            workers = self._workers
            self._waiting.clear()
            self._wake.close()
            self._bell.close()
            for worker in workers:
                worker.pipe.close()  # an idle worker ends by this
                if not wait:
                    worker.process.kill()
            join(workers, GRACE)
            for worker in workers:
                if worker.process.is_alive():
                    worker.process.terminate()
            join(workers, GRACE)
            for worker in workers:
                if worker.process.is_alive():
                    worker.process.kill()
            join(workers, GRACE)
            while workers:
                release(workers.pop())


def _end_all() -> None:
    """At exit, before multiprocessing ends what is left without asking: workers end by themselves."""
    for home in list(HOMES):
        home.close()


atexit.register(_end_all)  # behind the import of multiprocessing, which registers its own: the last one is called first
