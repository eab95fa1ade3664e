"""Programs that start at once: forks of a process that has imported what they need.

Each ends as a program does, by itself or by a signal: its exit handlers run, its threads are waited for, its modules
are emptied. It is spared its imports alone. ``python -m tests.reliability.forked MODULE NAME`` is the process that they
are forks of: programs find NAME of MODULE among their globals.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path


class Program:
    """A fork that runs.

    Attributes:
        pid: of it, and of the group of what it forks.
        returncode: as that of `subprocess.Popen`; None until its end was seen.
    """

    def __init__(self, forks: Forks, out: Path, errors: Path) -> None:
        self._forks, self._out, self._errors = forks, out, errors
        self.pid = forks.answer(60)
        self.returncode: int | None = None

    def wait_for(self, text: str, seconds: float) -> None:
        """Wait until it has printed a text."""
        until = time.monotonic() + seconds
        while text not in self._out.read_text():
            assert time.monotonic() < until, f"it has printed no {text!r}: {self._errors.read_text()}"
            time.sleep(0.005)

    def communicate(self, seconds: float) -> tuple[str, str]:
        """Wait for its end; return what it printed to stdout and to stderr."""
        self.returncode = self._forks.answer(seconds)
        return self._out.read_text(), self._errors.read_text()

    def kill(self) -> None:
        """End it, with what it has forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.returncode is None:
            self.returncode = self._forks.answer(60)


class Forks:
    """The process that programs are forks of, one program at a time.

    Args:
        module: what it imports.
        name: what programs get of it.
        folder: for what they print.
    """

    def __init__(self, module: str, name: str, folder: Path) -> None:
        self._folder, self._count, self._said = folder, 0, b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.forked", module, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )

    @contextlib.contextmanager
    def program(self, body: str, *arguments: str) -> Iterator[Program]:
        """A program with a text; it is gone afterwards, with its children."""
        self._count += 1
        out, errors = (self._folder / f"{self._count}.{kind}" for kind in ("out", "err"))
        for file in (out, errors):
            file.touch()
        asked = {"body": textwrap.dedent(body), "arguments": arguments, "files": [os.devnull, str(out), str(errors)]}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        started = Program(self, out, errors)
        try:
            yield started
        finally:
            started.kill()

    def answer(self, seconds: float) -> int:
        """The next number that the process says: of a program, or how it ended."""
        assert self._process.stdout is not None
        while b"\n" not in self._said:
            if not select.select([self._process.stdout], [], [], seconds)[0]:
                raise TimeoutError(f"the program has not ended within {seconds} s")
            read = os.read(self._process.stdout.fileno(), 1024)
            assert read, "the process that programs are forks of has ended"
            self._said += read
        line, _, self._said = self._said.partition(b"\n")
        return int(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def asked() -> tuple[str, list[str]]:
    """Fork for each line of stdin; return, in the fork, its program and its arguments."""
    for line in sys.stdin:
        one = json.loads(line)
        pid = os.fork()
        if not pid:
            os.setsid()
            for number, name in enumerate(one["files"]):
                os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
            return one["body"], one["arguments"]
        os.write(1, b"%d\n" % pid)
        os.write(1, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return "", []


if __name__ == "__main__":
    globals()[sys.argv[2]] = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
    body, sys.argv[1:] = asked()
    exec(compile(body, "<program>", "exec"))
