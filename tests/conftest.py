"""Ctrl-C as a terminal gives it: a shell starts background jobs with SIGINT ignored, and children inherit that."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take Python's own handler back, so that the processes which tests interrupt can be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
