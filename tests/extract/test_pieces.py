"""Ranges of files that are requested before they are needed: each once, bounded in bytes."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from gpupipe.errors import RecordError
from gpupipe.extract.storage.pieces import Piece, Pieces


class Threads:
    """A pool that does nothing until it is told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any]] = []
        self.over = False

    def submit(self, fn: Any, /) -> Future[Any]:
        if self.over:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self.jobs.append((future, fn))
        return future

    def work(self) -> None:
        """Do all that was asked for."""
        for future, fn in self.jobs:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn())
                except Exception as error:
                    future.set_exception(error)
        self.jobs.clear()


def wanted(pieces: Pieces, start: int, read: Any = None) -> Piece:
    """Ask for 10 bytes, each the number of the range."""
    return pieces.want((0, start, start + 10), read or partial(bytes, [start % 256] * 10), start, start + 10)


def test_a_range_is_requested_once_however_many_wait_for_it() -> None:
    threads = Threads()
    pieces = Pieces(threads, 100)

    one, same, other = wanted(pieces, 0), wanted(pieces, 0), wanted(pieces, 10)
    threads.work()

    assert one is same
    assert (pieces.requests, pieces.held, one.users) == (2, 20, 2)
    assert pieces.data(one) == bytes([0] * 10)
    assert pieces.data(other) == bytes([10] * 10)
    assert pieces.has((0, 0, 10))
    assert not pieces.has((0, 20, 30))
    assert pieces.buffer_usage() == (2, 20)


def test_those_used_longest_ago_make_room_and_those_waited_for_stay() -> None:
    threads = Threads()
    pieces = Pieces(threads, 30)
    first, second, third, fourth = (wanted(pieces, i) for i in range(0, 40, 10))
    threads.work()

    pieces.release([first])
    assert [pieces.has((0, i, i + 10)) for i in range(0, 40, 10)] == [False, True, True, True]
    pieces.release([third])
    assert pieces.held == 30
    fifth = wanted(pieces, 40)
    pieces.release([fourth])

    assert [pieces.has((0, i, i + 10)) for i in range(10, 50, 10)] == [True, False, True, True]
    assert (second.users, fifth.users) == (1, 1)


def test_what_no_thread_has_started_is_read_where_it_is_needed() -> None:
    pieces = Pieces(Threads(), 100)

    assert pieces.data(wanted(pieces, 7)) == bytes([7] * 10)


def test_a_range_that_cannot_be_read_is_none() -> None:
    def fails() -> bytes:
        raise RecordError("the server is gone", file="x")

    threads = Threads()
    pieces = Pieces(threads, 100)
    failing, unread = wanted(pieces, 0, fails), wanted(pieces, 10, fails)
    threads.jobs.pop()
    threads.work()

    assert pieces.data(failing) is None
    assert pieces.data(unread) is None
    threads.over = True
    assert pieces.data(wanted(pieces, 20)) is None


@pytest.mark.parametrize("started", [False, True])
def test_another_error_is_not_hidden(started: bool) -> None:
    def fails() -> bytes:
        raise ZeroDivisionError("a mistake")

    threads = Threads()
    pieces = Pieces(threads, 100)
    one = wanted(pieces, 0, fails)
    if started:
        threads.work()

    with pytest.raises(ZeroDivisionError, match="a mistake"):
        pieces.data(one)


def test_closing_forgets_everything_and_cancels_what_is_not_begun() -> None:
    threads = Threads()
    pieces = Pieces(threads, 100)
    waiting = wanted(pieces, 0)
    pieces.close()
    pieces.close()

    assert pieces.buffer_usage() == (0, 0)
    assert isinstance(waiting.data, Future)
    assert waiting.data.cancelled()
