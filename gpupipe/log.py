"""log: the logger `gpupipe` of Python's `logging`.

Exceptions of a user's handler or filter pass through `logging` to the caller; in a pipeline thread they would end the
stream there and lose elements. So they are printed to stderr, as `logging` prints errors while it writes a record, and
the pipeline continues. Ctrl-C and `sys.exit` in a handler still end it.
"""

from __future__ import annotations

import logging
from numbers import Number
from typing import Any

from .errors import shown_line

__all__ = ["logger"]

_CALLER = 3
"""Frames from `logging` up to the caller, so that a record names the caller's line."""

_KEPT = 256
"""Warnings that `warning_once` remembers, the newest."""


class Log:
    """A logger that raises no exceptions of the user's handlers and filters, and shows arguments by `shown_line`.

    Args:
        target: Python's logger.
    """

    def __init__(self, target: logging.Logger) -> None:
        self._target = target
        self._shown = logging.NullHandler()  # used only for its `handleError`
        self._warned: dict[object, object] = {}

    def info(self, text: str, *args: Any) -> None:
        self._say(logging.INFO, text, args)

    def warning(self, text: str, *args: Any) -> None:
        self._say(logging.WARNING, text, args)

    def warning_once(self, text: str, *args: Any, about: object = None) -> None:
        """Warn, once in a process.

        Args:
            text: with places for `args`, as in Python's `logging`.
            args: what they hold, hashable.
            about: what the warning is of, hashable: a second one of the same is not logged; if None, one of the same
                text and args.
        """
        key = (text, *args) if about is None else about
        mine = object()
        if self._warned.setdefault(key, mine) is not mine:
            return
        for oldest in list(self._warned)[:-_KEPT]:
            self._warned.pop(oldest, None)
        self._say(logging.WARNING, text, args)

    def error(self, text: str, *args: Any) -> None:
        self._say(logging.ERROR, text, args)

    def _say(self, level: int, text: str, args: tuple[Any, ...]) -> None:
        args = tuple(arg if isinstance(arg, Number) else shown_line(str(arg)) for arg in args)
        try:
            self._target.log(level, text, *args, stacklevel=_CALLER)
        except Exception:
            record = logging.makeLogRecord({"name": self._target.name, "levelno": level, "msg": text, "args": args})
            self._shown.handleError(record)


logger = Log(logging.getLogger("gpupipe"))
