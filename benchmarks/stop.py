"""stop: Ctrl-C, SIGTERM and SIGHUP end a benchmark cleanly: its processes end, and its scratch folder is removed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["Stopped", "stoppable", "undisturbed"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """A signal has asked this process to end.

    Attributes:
        signal: its name.
        status: the exit status for it.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number).name
        self.status = 128 + number
        super().__init__(f"stopped by {self.signal}")


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in the main thread at the first of these signals; later ones are ignored during the clean-up.

    SIGCHLD, which the parent process may have set to be ignored, is not ignored meanwhile: a process that ignores it
    cannot learn how a child ended.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
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
    """Delay these signals until the block is over. Masking them would not: other threads get them."""
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
