"""The line about the current task: on a terminal, after two seconds, and nowhere else."""

from __future__ import annotations

import io
import os

import pytest

from gpupipe import progress
from gpupipe.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def work(stream: io.StringIO, clock: Clock, seconds: float) -> str:
    with Progress(stream) as shown:
        shown.start("packing")
        for done in range(1, 11):
            clock.now += seconds / 10
            shown.update(done, 10, "images")
        shown.finish("42 MB")
    return stream.getvalue()


def test_a_long_task_is_shown_on_a_terminal_with_the_time_that_is_left(clock: Clock) -> None:
    lines = work(Terminal(), clock, 400).replace("\r\x1b[K", "\n").splitlines()

    assert lines[1] == "packing: 1/10 images, 6 min 0 s left"
    assert lines[-2:] == ["packing: 10/10 images", "packing: 6 min 40 s, 42 MB"]


def test_a_narrow_terminal_shows_what_fits_on_one_line(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(terminal, "fileno", lambda: 7)
    monkeypatch.setattr(os, "get_terminal_size", {7: os.terminal_size((20, 24))}.__getitem__)

    lines = work(terminal, clock, 400).replace("\r\x1b[K", "\n").splitlines()

    assert lines[1] == "packing: 1/10 image"  # the last column stays free: there some terminals begin a new line
    assert lines[-1] == "packing: 6 min 40 s, 42 MB"


def test_a_short_task_leaves_no_line(clock: Clock) -> None:
    assert work(Terminal(), clock, 1.5) == ""


def test_nothing_is_written_where_nobody_looks(clock: Clock) -> None:
    assert work(io.StringIO(), clock, 400) == ""


def test_what_is_printed_after_an_error_starts_on_a_line_of_its_own(clock: Clock) -> None:
    terminal = Terminal()
    with pytest.raises(KeyboardInterrupt), Progress(terminal) as shown:
        shown.start("packing")
        clock.now += 3
        shown.update(5, total=0)
        raise KeyboardInterrupt

    assert terminal.getvalue().endswith("packing: 5\n")
