"""worker: what a worker process of `map(workers="process")` runs.

A worker takes requests from a pipe and elements from shared memory, one after the other, and answers in the same order.
It ends when the pipe does, and when its parent dies.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from ...errors import ENDING, FunctionError
from ...options import Settings
from ...spec import Structure, TensorSpec
from ..element import Element, Hole, Stream
from ..maps.python_function import PythonFunction
from ..run import Context, Run
from .packing import error_text, pack, packed_size, structure_text, unpack, write

__all__ = [
    "DONE",
    "FAILED",
    "GROW",
    "GROWN",
    "MASK",
    "MESSAGE",
    "RAISED",
    "READY",
    "RUN",
    "SETTINGS",
    "Job",
    "part",
    "serve",
]

MESSAGE = struct.Struct("<BIQqQQ")
"""What it is, slot, bytes, epoch, key of the stream, position. A text may follow: a segment's name, JSON."""


RUN, GROWN, SETTINGS = 1, 2, 3
"""To a worker: an element lies in this slot; here is a larger segment for this slot; the settings of the next run."""


READY, DONE, FAILED, GROW, RAISED = 11, 12, 13, 14, 15
"""From a worker: it has started; a result lies in this slot; an error follows; a result needs a segment so large; the
function ends the run, see `ENDING`, and what it raised follows."""


MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is started with; the function travels as multiprocessing carries functions: by its name.

    Attributes:
        fn: the user's function.
        structure: of its argument.
        who: the method, for messages.
        result: structure and specs that a result must have; None takes what comes.
        rng: hand in a generator.
        site: tells this function's numbers from those of another step.
        settings: of the run.
    """

    fn: Callable[..., Any]
    structure: Structure
    who: str
    result: tuple[Structure, tuple[TensorSpec, ...]] | None
    rng: bool
    site: str
    settings: Settings

    def function(self) -> PythonFunction:
        """The function as every executor runs it, so that all give the same results."""
        return PythonFunction(self.fn, self.structure, self.who, self.result, self.rng, self.site)


def part(segment: SharedMemory, size: int) -> memoryview:
    """The first bytes of a segment; to be released before the segment is closed."""
    assert segment.buf is not None
    return segment.buf[:size]


def serve(pipe: Connection, job: Job) -> None:
    """Answer requests until the pipe ends."""
    # Ctrl-C reaches every process of a terminal; only the parent decides what it means. It was blocked until here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, name="gpupipe-parent", daemon=True).start()
    worker = _Worker(pipe, job)
    try:
        worker.run()
    except (EOFError, OSError):  # the other end is gone
        pass
    finally:
        worker.close()


def _end_with_parent() -> None:
    """End at once when the parent has died, whatever the function is doing."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class _Worker:
    def __init__(self, pipe: Connection, job: Job) -> None:
        self._pipe = pipe
        self._function = job.function()
        self._context_run = Run(job.settings)
        self._segments: dict[int, SharedMemory] = {}
        self._waiting: deque[bytes] = deque()
        self._structure: tuple[Structure, str] | None = None

    def run(self) -> None:
        self._pipe.send_bytes(MESSAGE.pack(READY, 0, 0, 0, 0, 0))
        while True:
            message = self._waiting.popleft() if self._waiting else self._pipe.recv_bytes()
            what, slot, size, epoch, key, position = MESSAGE.unpack_from(message)
            if what == SETTINGS:
                self._context_run = Run(pickle.loads(message[MESSAGE.size :]))
                continue
            self._attach(slot, message)
            with part(self._segments[slot], size) as data:
                columns = unpack(data)
            try:
                element = self._call(columns, epoch, Stream(key, ""), position)
            except ENDING as error:
                ended = FunctionError("ends the run")
                ended.__cause__ = error
                self._pipe.send_bytes(MESSAGE.pack(RAISED, slot, 0, 0, 0, 0) + error_text(ended).encode())
                continue
            finally:
                del columns
            self._answer(slot, element)
            del element  # nothing is kept alive while waiting

    def _call(self, columns: tuple[Any, ...], epoch: int, stream: Stream, position: int) -> Element:
        # The place in an error is the parent's to say: it knows the file's name. Of a stream without one it stays open.
        return self._function((columns, stream, position), Context(self._context_run, epoch))

    def _answer(self, slot: int, element: Element) -> None:
        value = element[0]
        seen, text = self._function.seen, b""
        if type(value) is not Hole:
            try:
                pieces = pack(value)
                text = self._told(seen[0]) if seen else b""
            except FunctionError as error:
                value = Hole(error)
        seen.clear()  # whether results are alike is the parent's to say, in the order in which it delivers them
        if type(value) is Hole:
            text = error_text(value.error).encode()
            self._pipe.send_bytes(MESSAGE.pack(FAILED, slot, 0, 0, 0, 0) + text)
            return
        size = packed_size(pieces)
        if size > self._segments[slot].size:
            self._grow(slot, size)
        with part(self._segments[slot], size) as room:
            write(pieces, room)
        self._pipe.send_bytes(MESSAGE.pack(DONE, slot, size, 0, 0, 0) + text)

    def _told(self, structure: Structure) -> bytes:
        """The text of a result's structure, made again only if it is another one."""
        if self._structure is None or self._structure[0] != structure:
            self._structure = structure, structure_text(structure)
        return self._structure[1].encode()

    def _grow(self, slot: int, size: int) -> None:
        """Ask for a larger segment; requests that arrive meanwhile wait."""
        self._pipe.send_bytes(MESSAGE.pack(GROW, slot, size, 0, 0, 0))
        while True:
            message = self._pipe.recv_bytes()
            if message[0] == GROWN:
                self._attach(slot, message)
                return
            self._waiting.append(message)

    def _attach(self, slot: int, message: bytes) -> None:
        """Map the segment that a message names, unless it is mapped already."""
        name = message[MESSAGE.size :].decode()
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
