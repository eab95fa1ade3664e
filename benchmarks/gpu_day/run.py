"""run: one part from its first question to its last, in as many processes as needed."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from benchmarks import tied
from benchmarks.gpu_day.child import FAILED
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.ledger import Ledger
from benchmarks.gpu_day.plan import Part
from benchmarks.process import ending, ends
from benchmarks.stop import undisturbed

__all__ = ["CHILD", "run_part"]

CHILD = "benchmarks.gpu_day.child"
"""The module run in the process of a part."""
_TAIL = 2000
"""Characters of stdout and of stderr that are kept."""
_ENDING = 20.0
"""Seconds that a process may take to end after its last question."""
_STACKS = 5.0
"""Seconds that a process has to print the stacks of its threads."""


def run_part(part: Part, day: Day, ledger: Ledger, until: float) -> None:
    """Ask the questions of a part that have not been asked yet; every answer goes to the ledger.

    Args:
        part: the part.
        day: its circumstances.
        ledger: the results so far, to which answers are added.
        until: `time.monotonic()` at which this call has to end. A question that is interrupted then is asked again by
            the next call; one that exceeds its own limit, or that of its part, is not.
    """
    found = ledger.of(part.name)
    limit, each = part.limits(day)
    own = time.monotonic() + limit - found.seconds
    while not found.state:
        end = min(own, until)
        with _Process(part, replace(day, until=end), found.asked) as process:
            _listen(process, part.name, ledger, end, each)
            if process.left is not None and not process.left - set(found.asked):
                state = "done"
            elif time.monotonic() >= until:
                return
            elif time.monotonic() >= own:
                state = "out of time"
            elif process.open or (part.alone and process.answered):
                continue
            else:
                state = "crashed"
            ledger.write("end", part=part.name, state=state, ending=process.ending, **process.printed())


def _listen(process: _Process, part: str, ledger: Ledger, until: float, each: float) -> None:
    """Take the answers of one process until it ends or a limit is reached."""
    for message in process.messages(until, each):
        if "questions" in message:
            process.left = set(message["questions"])
        elif "begin" in message:
            process.open = message["begin"]
        elif "answer" in message:
            ledger.write("answer", part=part, question=process.open, value=message["answer"],
                         seconds=message["seconds"])  # fmt: skip
            process.open, process.answered = "", True
        else:
            process.failure = message["failure"]
    taken = round(time.monotonic() - process.since, 2)
    if not process.open:
        return
    if process.killed and time.monotonic() >= until:
        return  # the call or the part is out of time, not the question
    late = f"no answer within {each:.0f} s" if process.killed else ""
    how = process.failure or late or process.ending or "ended without an answer"
    ledger.write("failure", part=part, question=process.open, how=how, seconds=taken, **process.printed())


@dataclass
class _Log:
    """The output of a process, in a file, which needs no reader while the process runs."""

    file: IO[bytes]

    def tail(self) -> str:
        size = self.file.seek(0, os.SEEK_END)
        self.file.seek(max(0, size - 4 * _TAIL))
        return self.file.read().decode(errors="replace")[-_TAIL:]


class _Process:
    """A process of `child.py` and its messages.

    Attributes:
        open: the current question, "" for none.
        answered: whether it has answered any.
        left: all questions of the part, None before it has named them.
        failure: the exception of the current question.
        killed: whether it took too long.
        since: `time.monotonic()` at which the current question, or the process, started.
        ending: how it ended, in words.
    """

    def __init__(self, part: Part, day: Day, asked: list[str]) -> None:
        self.open, self.failure, self.ending = "", "", ""
        self.left: set[str] | None = None
        self.answered = self.killed = False
        self.since = time.monotonic()
        folder = Path(day.folder)
        self._out, self._err = (_Log((folder / f"{part.name}.{name}").open("w+b")) for name in ("out", "err"))
        self._pipe, write = os.pipe()
        try:
            self._process = subprocess.Popen(
                tied.command(CHILD, str(write)),
                stdin=subprocess.PIPE,
                stdout=self._out.file,
                stderr=self._err.file,
                cwd=ROOT,
                env=day.environment(),
                pass_fds=(write,),
                start_new_session=True,
            )
        finally:
            os.close(write)
        order = {"part": part.name, "day": day.to_json(), "asked": asked}
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
                stdin.write(json.dumps(order).encode() + b"\n")
        except BaseException:
            self.__exit__()
            raise

    def messages(self, until: float, each: float) -> Iterator[dict[str, Any]]:
        """Yield its messages until it ends; kill it at `until`, or when a question takes more than `each` seconds."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                wait = (min(until, self.since + each) if self.open else until) - time.monotonic()
                over = ends(self._process.pid, 0)  # checked before reading, so that its last message is not missed
                if not selector.select(0 if over else max(0.0, min(wait, 1.0))):
                    if over:  # its children may hold the pipe open
                        break
                    if wait <= 0:
                        self.killed = True
                        self._kill()
                        break
                    continue
                data = os.read(self._pipe, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self.since = time.monotonic() if b'"begin"' in line[:9] else self.since
                    yield json.loads(line)
        if ends(self._process.pid, _ENDING):
            self.ending = "" if (status := self._reap()) == FAILED else ending(status)
        else:
            self._kill()
            self.ending = "it did not end on its own"

    def printed(self) -> dict[str, str]:
        """Return the end of its stdout and of its stderr."""
        return {"stdout": self._out.tail(), "stderr": self._err.tail()}

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and close its files."""
        with undisturbed(), contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the driver, it cannot be killed
            self._reap()
        os.close(self._pipe)
        self._out.file.close()
        self._err.file.close()

    def _kill(self) -> None:
        """Let it print where it hangs, then kill it and its children."""
        os.kill(self._process.pid, signal.SIGABRT)
        ends(self._process.pid, _STACKS)
        os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> int:
        """Kill what is left of its process group; return its own exit status."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait(_STACKS)
