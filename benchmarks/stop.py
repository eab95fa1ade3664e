"""stop: Ctrl-C, SIGTERM and SIGHUP end a benchmark in order: what it started ends with it, and its scratch goes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stopped", "stoppable", "undisturbed"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal asks this process to end.

    Attributes:
        signal: its name.
        status: the exit status that says so.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number).name
        self.status = 128 + number
        super().__init__(f"stopped by {self.signal}")


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in the main thread at the first of these signals; the next ones disturb nobody who tidies up.

    Who ignores SIGCHLD, as a parent may have it, is not told how a child ended: it is not ignored meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():  # only that one may set handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = [number for number in _SIGNALS if before[number] != signal.SIG_IGN]  # `nohup` stays in force

    def stop(number: int, _: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    children = signal.getsignal(signal.SIGCHLD)
    try:
        for number in heard:
            signal.signal(number, stop)
        if children == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
        if children == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let these signals wait until the block is over. A mask of the main thread would not: others take them."""
    late: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    main = threading.current_thread() is threading.main_thread()
    held = [number for number in _SIGNALS if main and callable(before[number])]
    try:
        for number in held:
            signal.signal(number, lambda number, _: late.append(number))
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        if late:
            signal.raise_signal(late[0])
