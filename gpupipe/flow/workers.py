"""workers: the processes of `map(workers="process")`, what they hold, and how they end.

Workers are spawned, never forked. Each has a pipe for small messages and two slots of shared memory, in which elements
and results lie; the parent makes and unlinks every segment, so none is left behind however a worker ends. A worker that
dies makes a hole of the element it was working on, and another one takes its place. Workers are kept by the run: the
next pass of a `repeat` finds them ready.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import current_process, get_context
from multiprocessing import process as started
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from ..errors import FunctionError, GpupipeError
from ..spec import Structure
from .base import Element, Hole, Run
from .packing import error_of, pack, packed_size, structure_of, unpack, write
from .process_worker import DONE, FAILED, GROW, GROWN, MASK, MESSAGE, RAISED, READY, RUN, Job, part, serve
from .python_map import PythonFunction

__all__ = ["SLOTS", "Task", "Workers"]

SLOTS = 2
"""Elements that a worker may hold: one in work, one that waits, so that it never waits for the parent."""

SMALLEST = 1 << 16
"""Bytes of a segment at least, so that small elements of many sizes need one."""

GRACE = 0.5
"""Seconds in which a worker may end by itself before it is terminated, and again before it is killed."""

LOOK = 1.0
"""Seconds after which workers are looked at although no message came: a grandchild may hold a dead one's pipe open."""

GUARD = (
    'the main module is imported by every worker, so a script needs `if __name__ == "__main__":` around what it does; '
    "the function must be in a module that can be imported, not in a notebook or an interactive session"
)


@dataclass(eq=False, slots=True)
class Task:
    """An element on its way: what came in, and what became of it."""

    element: Element
    epoch: int
    result: Any = None
    structure: Structure | None = None
    done: bool = False
    abandoned: bool = False
    raised: BaseException | None = None


@dataclass(eq=False, slots=True)
class _Worker:
    """One process, what it holds in order, and its segments."""

    process: Any
    pipe: Connection
    ready: bool = False
    tasks: deque[tuple[Task, int]] = field(default_factory=deque)
    segments: dict[int, SharedMemory] = field(default_factory=dict)
    free: list[int] = field(default_factory=lambda: list(range(SLOTS)))


class Workers:
    """The processes of one function, as long as a run lives."""

    @classmethod
    def of(cls, function: PythonFunction, count: int, run: Run, line: str) -> Workers:
        """Workers that wait for the next pass of this step, else new ones.

        Args:
            function: what they run.
            count: how many.
            run: whose they are.
            line: where the user wrote the step.
        """
        f = function
        job = Job(f.fn, f.structure, f.who, f.result, f.rng, f.site, run.settings)
        key = id(f.fn), f.structure, f.result, f.rng, f.site, count
        idle = run.idle.setdefault(key, [])
        return idle.pop() if idle else cls(job, key, count, run, line)

    def __init__(self, job: Job, key: Any, count: int, run: Run, line: str) -> None:
        self._job = job
        self._line = line
        self._idle_key = key
        self._run = run
        self._context = get_context("spawn")
        self._workers: list[_Worker] = []
        self._waiting: deque[Task] = deque()
        self._structures: tuple[str, Structure | None] = "", None
        # Reentrant: the garbage collector may close the run in a thread that is just here.
        self._lock = threading.RLock()
        self._closed = False
        self._bell, self._wake = self._context.Pipe(duplex=False)
        run.on_close(self.close)
        run.holds(self, f"{job.who}(workers='process')")
        try:
            for _ in range(count):
                self._workers.append(self._start())
        except BaseException:
            self.close()
            raise

    # ---- starting

    def _start(self) -> _Worker:
        """Start a process.

        Raises:
            GpupipeError: this process is itself one that is just being started, or may have no children.
        """
        who = f"{self._job.who}(workers='process') at {self._line}"
        process = current_process()
        if getattr(process, "_inheriting", False):
            raise GpupipeError(f"{who} was reached while a worker imported the main module; {GUARD}")
        if process.daemon:
            raise GpupipeError(f"{who} cannot start processes in a daemonic process ({process.name}); use threads")
        ours, theirs = self._context.Pipe()
        name = f"gpupipe-{self._job.who}-{len(self._workers)}"
        # Daemonic: where the interpreter ends before the run does, multiprocessing ends them, instead of waiting.
        made = self._context.Process(target=serve, args=(theirs, self._job), name=name, daemon=True)
        try:
            with _no_interrupts():
                made.start()
        except Exception as error:  # the system refuses, or the function hands over what cannot travel
            ours.close()
            raise GpupipeError(f"{who} cannot start a process: {type(error).__name__}: {error}") from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        _PROCESSES.add(made)
        return _Worker(made, ours)

    # ---- handing out

    def submit(self, task: Task) -> None:
        """Give an element to the worker with the least to do; it waits if all are full."""
        with self._lock:
            self._waiting.append(task)
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and not self._closed:
            worker = max(self._workers, key=lambda worker: len(worker.free))
            if not worker.free:
                return
            task = self._waiting.popleft()
            if task.abandoned:
                continue
            try:
                pieces = pack(task.element[0])
            except FunctionError as error:
                task.result, task.done = Hole(error), True
                continue
            slot, size = worker.free.pop(), packed_size(pieces)
            segment = self._room(worker, slot, size)
            with part(segment, size) as room:
                write(pieces, room)
            worker.tasks.append((task, slot))
            _, stream, position = task.element
            message = MESSAGE.pack(RUN, slot, size, task.epoch, stream.key, position & MASK)
            try:
                worker.pipe.send_bytes(message + segment.name.encode())
            except OSError:  # it has died: `wait` finds that out, and gives this element to another one
                return

    def _room(self, worker: _Worker, slot: int, size: int) -> SharedMemory:
        """The segment of a slot, made anew if it is too small."""
        old = worker.segments.get(slot)
        if old is not None and old.size >= size:
            return old
        if old is not None:
            del worker.segments[slot]
            _unlink(old)
        wanted = max(SMALLEST, 1 << (size - 1).bit_length())
        try:
            made = worker.segments[slot] = SharedMemory(create=True, size=wanted)
            _reserve(made, wanted)
        except OSError as error:
            raise GpupipeError(
                f"{self._job.who}(workers='process') at {self._line} needs {wanted:,} bytes of shared memory, and "
                f"there is no room ({error}); use fewer processes, or give the container more (docker run --shm-size)"
            ) from error
        return made

    # ---- answers

    def wait(self) -> bool:
        """Wait until something was answered; False once closed.

        Raises:
            GpupipeError: workers end before they are ready.
        """
        with self._lock:
            if self._closed:
                return False
            try:
                events = wait_for([self._bell, *(worker.pipe for worker in self._workers)], timeout=LOOK)
                for worker in list(self._workers):
                    if worker.pipe in events:
                        self._receive(worker)
                    elif not events and not worker.process.is_alive():
                        self._bury(worker)
            except (OSError, ValueError):
                if self._closed:  # the garbage collector closed the run while this thread was here
                    return False
                raise
            self._hand_out()
            return not self._closed

    def _receive(self, worker: _Worker) -> None:
        """Take every message that is there."""
        try:
            while worker.pipe.poll():
                self._answered(worker, worker.pipe.recv_bytes())
        except (EOFError, ConnectionError, BrokenPipeError):
            self._bury(worker)

    def _answered(self, worker: _Worker, message: bytes) -> None:
        what, slot, size, *_ = MESSAGE.unpack_from(message)
        if what == READY:
            worker.ready = True
            return
        if what == GROW:
            segment = self._room(worker, slot, size)
            worker.pipe.send_bytes(MESSAGE.pack(GROWN, slot, segment.size, 0, 0, 0) + segment.name.encode())
            return
        task, _ = worker.tasks.popleft()
        worker.free.append(slot)
        text = message[MESSAGE.size :].decode()
        if what == FAILED:
            task.result = Hole(error_of(text))
        elif what == RAISED:
            task.raised = error_of(text).__cause__
        elif what == DONE and not task.abandoned:
            with part(worker.segments[slot], size) as data:
                task.result = unpack(data)
            task.structure = self._structure(text)
        task.done = True

    def _structure(self, text: str) -> Structure | None:
        if text != self._structures[0]:
            self._structures = text, structure_of(text) if text else None
        return self._structures[1]

    def _bury(self, worker: _Worker) -> None:
        """A worker has died: its element becomes a hole, what waited behind goes to others, another one is started."""
        worker.process.join(GRACE)
        if worker.process.is_alive():  # it closed its pipe and goes on
            worker.process.kill()
            worker.process.join(GRACE)
        code = worker.process.exitcode
        how = f"was killed by {_signal(-code)}" if code is not None and code < 0 else f"ended with exit code {code}"
        self._workers.remove(worker)
        held = [task for task, _ in worker.tasks]
        _release(worker)
        if not worker.ready:
            self.close()
            raise GpupipeError(
                f"{self._job.who}(workers='process') at {self._line}: a worker process {how} before it was ready "
                f"(what it says stands in the error output); {GUARD}"
            )
        if held:
            memory = "; perhaps the machine ran out of memory" if code == -getattr(signal, "SIGKILL", 9) else ""
            held[0].result = Hole(FunctionError(f"its worker process {how} while it ran on this element{memory}"))
            held[0].done = True
            self._waiting.extendleft(reversed(held[1:]))
        self._workers.append(self._start())

    # ---- ending

    def give_back(self) -> None:
        """Keep the workers for the next pass, if there can be one."""
        with self._lock:
            self._waiting.clear()
            if self._closed:
                return
            if not self._run.stopped.is_set():
                self._run.idle.setdefault(self._idle_key, []).append(self)
                return
        self.close()

    def held(self) -> tuple[int, int]:
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
        with contextlib.suppress(OSError):  # closed before
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
            _join(workers, GRACE)
            for worker in workers:
                if worker.process.is_alive():
                    worker.process.terminate()
            _join(workers, GRACE)
            for worker in workers:
                if worker.process.is_alive():
                    worker.process.kill()
            _join(workers, GRACE)
            while workers:
                _release(workers.pop())
        self._run.forget(self.close)


_PROCESSES: weakref.WeakSet[Any] = weakref.WeakSet()


def _disown() -> None:
    """In a forked child: the workers are not its own, and multiprocessing would end them all when the child ends."""
    children: set[Any] = getattr(started, "_children", set())
    children.difference_update(_PROCESSES)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def _join(workers: list[_Worker], seconds: float) -> None:
    """Wait for all of them together."""
    until = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(0.0, until - time.monotonic()))


def _release(worker: _Worker) -> None:
    """Give back what belongs to a worker that has ended."""
    worker.pipe.close()
    for segment in worker.segments.values():
        _unlink(segment)
    worker.segments.clear()
    if not worker.process.is_alive():
        worker.process.close()


def _unlink(segment: SharedMemory) -> None:
    segment.close()
    segment.unlink()


def _reserve(segment: SharedMemory, size: int) -> None:
    """Make the system find the memory now: without room, writing later would kill the process (SIGBUS)."""
    handle = getattr(segment, "_fd", -1)
    if handle >= 0 and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Start a process that does not hear Ctrl-C until it says what to do about it: the mask is inherited."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started in there, it would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
