"""worker: the code that a worker process of `map(workers="process")` runs.

A worker takes requests from a pipe and elements from shared memory, one after the other, and answers in the same order.
It exits when the pipe is closed, and when its parent dies.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from collections import deque
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.shared_memory import SharedMemory
from time import perf_counter_ns, process_time_ns

from ...classes import dataclass
from ...errors import DataError, FunctionError
from ...options import Settings
from ...serial.errors import remote_to_json
from ...spec import Structure
from ..bad.found import ASKED
from ..element import Element, Hole, Stream
from ..maps.python_function import PythonFunction
from ..run import Context, Run
from .messages import HEAD, Kind, message, pack, read, structure_text, write

__all__ = ["Job", "serve"]


@dataclass(frozen=True, slots=True)
class Job:
    """The arguments of a worker. The function is pickled by its name, as multiprocessing does.

    Attributes:
        function: the function, in the form that threads run, so that the results are the same.
        settings: settings of the run.
    """

    function: PythonFunction
    settings: Settings


def serve(pipe: Connection, job: Job) -> None:
    """Answer requests until the pipe is closed."""
    # Ctrl-C reaches every process of a terminal; only the parent handles it. It was blocked until here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, name="gpupipe-parent", daemon=True).start()
    worker = _Worker(pipe, job)
    try:
        worker.run()
    except (EOFError, OSError):  # the parent has closed the pipe
        pass
    finally:
        worker.close()


def _end_with_parent() -> None:
    """Exit at once when the parent dies, whatever the function is doing."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def error_text(error: DataError) -> bytes:
    """Write an error and its cause as JSON."""
    return json.dumps(remote_to_json(error)).encode()


class _Worker:
    def __init__(self, pipe: Connection, job: Job) -> None:
        self._pipe = pipe
        self._function = job.function
        self._run = Run(job.settings)
        self._segments: dict[int, SharedMemory] = {}
        self._waiting: deque[bytes] = deque()
        self._structure: tuple[Structure, str] | None = None
        self._took = 0, 0  # nanoseconds of the last call, by the clock and of CPU time

    def run(self) -> None:
        self._pipe.send_bytes(message(Kind.READY))
        while True:
            request = self._waiting.popleft() if self._waiting else self._pipe.recv_bytes()
            kind, slot, size, epoch, key, position = HEAD.unpack_from(request)
            if kind == Kind.SETTINGS:
                self._run = Run(pickle.loads(request[HEAD.size :]))
                continue
            self._attach(slot, request)
            columns = read(self._segments[slot], size)
            started, cpu = perf_counter_ns(), process_time_ns()
            try:
                # The stream has no name here, so errors name no file and offset: the parent, which knows it, adds them.
                element = self._function((columns, Stream(key, ""), position), Context(self._run, epoch), ASKED)
            except BaseException as error:  # that ends the run: all others are errors of the element
                ended = FunctionError("ends the run")
                ended.__cause__ = error
                self._pipe.send_bytes(message(Kind.RAISED, slot, text=error_text(ended)))
                continue
            finally:
                del columns
            self._took = perf_counter_ns() - started, process_time_ns() - cpu
            self._answer(slot, element)
            del element  # nothing is kept alive while waiting

    def _answer(self, slot: int, element: Element) -> None:
        value = element[0]
        seen, text = self._function.seen, b""
        if type(value) is not Hole:
            try:
                pieces, size = pack(value)
                text = self._structure_text(seen[0]) if seen else b""
            except FunctionError as error:
                value = Hole(error)
        seen.clear()  # the parent compares the structures of results, in the order in which it delivers them
        if type(value) is Hole:
            self._pipe.send_bytes(message(Kind.FAILED, slot, 0, error_text(value.error), 0, *self._took))
            return
        if size > self._segments[slot].size:
            self._grow(slot, size)
        write(pieces, self._segments[slot])
        self._pipe.send_bytes(message(Kind.DONE, slot, size, text, 0, *self._took))

    def _structure_text(self, structure: Structure) -> bytes:
        """Write a result's structure; the text of the last one is kept."""
        if self._structure is None or self._structure[0] != structure:
            self._structure = structure, structure_text(structure)
        return self._structure[1].encode()

    def _grow(self, slot: int, size: int) -> None:
        """Ask for a larger segment; requests that arrive meanwhile wait."""
        self._pipe.send_bytes(message(Kind.GROW, slot, size))
        while True:
            request = self._pipe.recv_bytes()
            if request[0] == Kind.GROWN:
                self._attach(slot, request)
                return
            self._waiting.append(request)

    def _attach(self, slot: int, request: bytes) -> None:
        """Map the segment that a message names, unless it is mapped already."""
        name = request[HEAD.size :].decode()
        old = self._segments.get(slot)
        if old is not None and old.name == name:
            return
        if old is not None:
            old.close()
        self._segments[slot] = SharedMemory(name)

    def close(self) -> None:
        for segment in self._segments.values():
            segment.close()
        self._pipe.close()
