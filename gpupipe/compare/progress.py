"""progress: one line about the current task, rewritten in place on a terminal, written once elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

__all__ = ["Progress"]

INTERVAL = 0.1  # seconds between two rewrites of the line


class Progress:
    """Shows the current task and its progress on stderr, so that stdout holds only the result.

    On a terminal the line is rewritten; in a log each task is one line, when it ends.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._task = ""
        self._started = self._shown = 0.0

    def start(self, task: str) -> None:
        """Start a task; the one before it is finished."""
        self.finish()
        self._task, self._started, self._shown = task, time.monotonic(), 0.0
        self._show("...")

    def update(self, done: int, total: int, unit: str = "") -> None:
        """Show that `done` of `total` are done."""
        now = time.monotonic()
        if now - self._shown >= INTERVAL:
            self._shown = now
            self._show(f"{done}/{total} {unit}".rstrip())

    def finish(self, note: str = "") -> None:
        """Finish the task, if there is one, with its time and a note."""
        if self._task:
            seconds = f"{time.monotonic() - self._started:.1f} s"
            line = f"{self._task}: {seconds}{', ' if note else ''}{note}"
            self._stream.write(f"\r\x1b[K{line}\n" if self._live else f"{line}\n")
            self._stream.flush()
            self._task = ""

    def _show(self, text: str) -> None:
        if self._live:
            self._stream.write(f"\r\x1b[K{self._task}: {text}")
            self._stream.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        elif self._task and self._live:  # what is printed next starts on a line of its own
            self._stream.write("\n")
            self._stream.flush()
