"""spread: checking many files in several processes.

A process gets one file after another on its stdin, as JSON, and writes what it finds to its stdout. It has a session of
its own, so that Ctrl-C reaches this process alone, which ends it. If this process is killed, the other ends at its next
message, a fraction of a second later.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpupipe.errors import GpupipeError, shown_name
from gpupipe.threads import Thread, join
from gpupipe.tools.check import Job, Part, check

__all__ = ["check_all"]

# The folder of this gpupipe replaces the working directory that `-c` puts first on the path.
_ROOT = str(Path(__file__).resolve().parents[2])
_CODE = "import sys; sys.path[0] = {root!r}; from gpupipe.tools.spread import serve; serve()"

_Found = queue.SimpleQueue[tuple[int, Part]]
_Todo = queue.SimpleQueue[tuple[int, Job] | None]


def check_all(jobs: Sequence[Job], processes: int) -> Iterator[tuple[int, Part]]:
    """Check files, and iterate over what was found: the index of a job, and a part of its result, as they come.

    Args:
        jobs: the files.
        processes: that check them; with 1 this one does.

    Raises:
        GpupipeError: a process ended before its file was checked.
    """
    if processes == 1:
        for index, job in enumerate(jobs):
            for part in check(job):
                yield index, part
        return
    todo: _Todo = queue.SimpleQueue()
    for item in enumerate(jobs):
        todo.put(item)
    found: _Found = queue.SimpleQueue()
    started: list[subprocess.Popen[bytes]] = []
    threads: list[Thread] = []
    try:
        for _ in range(processes):
            started.append(_start())
            todo.put(None)
            threads.append(Thread(_feed, (started[-1], todo, found), name="gpupipe-verify"))
            threads[-1].start()
        left = len(jobs)
        while left:
            index, part = found.get()
            if part.failure:
                raise GpupipeError(part.failure)
            left -= part.ended
            yield index, part
    finally:
        for process in started:
            process.kill()
        join(threads)
        for process in started:
            _close(process)


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _CODE.format(root=_ROOT)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()
    try:
        process.stdin.close()
    except BrokenPipeError:  # a job that it did not read
        return


def _feed(process: subprocess.Popen[bytes], todo: _Todo, found: _Found) -> None:
    """Give a process one file after another, and pass on what it finds. Runs in a thread, until there is no more."""
    assert process.stdin is not None and process.stdout is not None
    while (item := todo.get()) is not None:
        index, job = item
        part = Part()
        try:
            process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
            process.stdin.flush()
            while not part.ended and not part.failure and (line := process.stdout.readline()):
                part = Part(**json.loads(line))
                found.put((index, part))
        except BrokenPipeError:  # it has ended
            part = Part()
        if not part.ended:
            if not part.failure:
                status = process.wait()
                found.put((index, Part(failure=f"the process that checked {shown_name(job.path)} ended with {status}")))
            return


def serve() -> None:
    """Check the files that stdin names, until it ends."""
    for line in sys.stdin.buffer:
        given: dict[str, Any] = json.loads(line)
        for part in check(Job(**given)):
            try:
                sys.stdout.write(json.dumps(part._asdict()) + "\n")
                sys.stdout.flush()
            except BrokenPipeError:  # nobody waits for the result
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's last flush succeeds
                return
