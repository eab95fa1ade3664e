"""log: what gpupipe says in the log `gpupipe` of Python's `logging`.

What a user's handler or filter raises goes through `logging` to whoever speaks: in a thread of a pipeline it would end
the stream there, and elements would be lost. So it is shown on stderr, as `logging` shows what goes wrong while a
record is written, and the pipeline goes on. Ctrl-C and `sys.exit` in a handler still end it.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["logger"]

_CALLER = 3
"""Frames from `logging` up to whoever speaks, so that a record names that line."""


class Log:
    """Speaks, and raises nothing of what the handlers and filters of the user do.

    Args:
        target: Python's logger.
    """

    def __init__(self, target: logging.Logger) -> None:
        self._target = target
        self._shown = logging.NullHandler()  # only for how `logging` shows an error

    def info(self, text: str, *args: Any) -> None:
        """Something to know."""
        self._say(logging.INFO, text, args)

    def warning(self, text: str, *args: Any) -> None:
        """Something that is probably not meant."""
        self._say(logging.WARNING, text, args)

    def error(self, text: str, *args: Any) -> None:
        """Something is lost."""
        self._say(logging.ERROR, text, args)

    def _say(self, level: int, text: str, args: tuple[Any, ...]) -> None:
        try:
            self._target.log(level, text, *args, stacklevel=_CALLER)
        except Exception:
            record = logging.makeLogRecord({"name": self._target.name, "levelno": level, "msg": text, "args": args})
            self._shown.handleError(record)


logger = Log(logging.getLogger("gpupipe"))
