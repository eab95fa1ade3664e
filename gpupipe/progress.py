"""progress: one line on stderr about the current task, for people at a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

__all__ = ["Progress"]

PATIENCE = 2.0
"""Seconds after which a task is shown: what takes less needs no line."""
INTERVAL = 0.1
"""Seconds between two rewrites of the line."""


class Progress:
    """Shows the current task, how much of it is done and how long the rest will take.

    A line that is rewritten in place, on a terminal only; elsewhere nothing is written. stdout holds the result alone.

    Args:
        stream: where the line is written; None means stderr.
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

    def update(self, done: int, total: int = 0, unit: str = "", note: str | Callable[[], str] = "") -> None:
        """Show that `done` of `total` are done; 0 means that the total is not known.

        A `note` stands between the amount and the time left; a function is called only if the line is shown.
        """
        now = time.monotonic()
        spent = now - self._started
        if not self._live or spent < PATIENCE or now - self._shown < INTERVAL:
            return
        self._shown = now
        amount = f"{done:,}/{total:,}" if total else f"{done:,}"
        left = f", {_duration(spent / done * (total - done))} left" if 0 < done < total else ""
        text = note if isinstance(note, str) else note()
        self._show(f"{amount} {unit}".rstrip() + (f", {text}" if text else "") + left)

    def finish(self, note: str = "") -> None:
        """Finish the task, if there is one, with its time and a note; one that was never shown leaves no line."""
        if self._task:
            spent = time.monotonic() - self._started
            if self._live and spent >= PATIENCE:
                self._show(f"{_duration(spent)}{', ' if note else ''}{note}\n")
            self._task = ""

    def _show(self, text: str) -> None:
        line = f"{self._task}: {text}"
        if not line.endswith("\n"):  # only what is on one row can be rewritten in place
            line = line[: self._columns() - 1]
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, AttributeError):  # a stream that is no file
            return 80

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        elif self._task and self._shown:  # what is printed next starts on a line of its own
            self._stream.write("\n")
            self._stream.flush()


def _duration(seconds: float) -> str:
    """A time in words: ``9 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
