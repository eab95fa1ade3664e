"""Ranges of remote files that are requested before they are needed: each once, bounded in bytes, nothing changes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import pytest

from gpupipe.errors import RecordError
from gpupipe.extract.storage.files import short
from gpupipe.extract.storage.pieces import Piece, Pieces
from gpupipe.extract.storage.ranges_ahead import AHEAD, RangeBudget, RangesAhead
from tests.fuzz.files import Memory


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


# ---- of one file


EACH = 100
EQUAL = 95
"""Bytes of each of the 13 ranges that a file of 1,234 bytes has then."""
DATA = bytes(random.Random(5).randrange(256) for _ in range(1234))


class Server(Memory):
    """A storage of one file that counts its requests; bytes in `out_of_order` cannot be read, all may be damaged."""

    random_reads = False
    reads_ahead = True

    def __init__(self) -> None:
        super().__init__(DATA)
        self.requests: list[tuple[int, int]] = []
        self.out_of_order = range(0)
        self.damaged = False
        self._lock = threading.Lock()

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        if offset + n > len(DATA):
            raise short(name, offset, n, max(len(DATA) - offset, 0))
        with self._lock:
            self.requests.append((offset, n))
        if max(offset, self.out_of_order.start) < min(offset + n, self.out_of_order.stop):
            raise RecordError("cannot be read", file=name, offset=offset, stage="read")
        return bytes(n) if self.damaged else super().read(name, offset, n, tag)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as threads:
        yield threads


@pytest.fixture
def server() -> Server:
    return Server()


def taken(file: RangesAhead, offset: int, n: int) -> bytes:
    """The bytes, by `read` or `readinto`."""
    if n % 2:
        return file.read(offset, n)
    out = bytearray(n)
    file.readinto(offset, memoryview(out))
    return bytes(out)


@pytest.mark.parametrize("limit", [0, EACH, 10 * EACH])
@pytest.mark.parametrize("seed", range(4))
def test_any_reads_give_the_bytes_of_the_file(server: Server, pool: ThreadPoolExecutor, seed: int, limit: int) -> None:
    draw, budget = random.Random(seed), RangeBudget(limit)
    file = RangesAhead(server, "x", pool, budget, EACH, start=draw.choice((0, 37)))
    at = 0
    for _ in range(60):
        at = min(max(at + draw.choice((0, 0, 0, 5, 250, -30, -400)), 0), len(DATA))
        n = min(draw.choice((0, 1, 2, 12, 99, 100, 230, 300)), len(DATA) - at)
        assert taken(file, at, n) == DATA[at : at + n]
        at += n
        assert budget.buffer_usage()[1] <= limit
    file.close()
    assert budget.buffer_usage() == (0, 0)


def test_ranges_are_requested_ahead_and_no_more_than_needed(server: Server, pool: ThreadPoolExecutor) -> None:
    file = RangesAhead(server, "x", pool, RangeBudget(1 << 20), EACH)
    file.read(0, 1)
    pool.shutdown()  # waits for what was submitted
    assert sorted(server.requests) == [(at, EQUAL) for at in range(0, (1 + AHEAD) * EQUAL, EQUAL)]
    assert file.read(1, 500) == DATA[1:501]  # without a pool


def test_a_range_that_cannot_be_read_costs_only_the_bytes_in_it(server: Server, pool: ThreadPoolExecutor) -> None:
    server.out_of_order = range(250, 260)
    file = RangesAhead(server, "x", pool, RangeBudget(1 << 20), EACH)
    assert file.read(0, 250) == DATA[:250]
    with pytest.raises(RecordError, match="cannot be read") as caught:
        file.read(250, 5)
    assert caught.value.offset == 250
    assert file.read(260, 500) == DATA[260:760]


@pytest.mark.parametrize(("offset", "n"), [(10, 10), (0, 100), (95, 10)])
def test_bytes_that_are_read_again_are_exchanged(server: Server, pool: ThreadPoolExecutor, offset: int, n: int) -> None:
    server.damaged = True
    file = RangesAhead(server, "x", pool, RangeBudget(1 << 20), EACH)
    assert file.read(0, 350) == bytes(350)
    wait([one.data for one in file._ranges if isinstance(one.data, Future)])  # those ahead, which are no part of this
    server.damaged = False
    server.requests.clear()
    out = bytearray(n)
    file.reread(offset, memoryview(out))
    assert bytes(out) == DATA[offset : offset + n]
    assert server.requests == [(offset, n)]
    assert file.read(offset, n) == DATA[offset : offset + n]


def test_what_lies_beyond_the_end_is_an_error_of_its_length(server: Server, pool: ThreadPoolExecutor) -> None:
    file = RangesAhead(server, "x", pool, RangeBudget(1 << 20), EACH)
    with pytest.raises(RecordError, match="ends 6 bytes too early"):
        file.read(len(DATA) - 4, 10)


def test_threads_that_are_all_busy_are_not_waited_for(server: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        release = threading.Event()
        pool.submit(release.wait, 20)
        try:
            file = RangesAhead(server, "x", pool, RangeBudget(1 << 20), EACH)
            assert file.read(0, 350) == DATA[:350]
        finally:
            release.set()


def test_a_closed_file_requests_nothing_ahead(server: Server, pool: ThreadPoolExecutor) -> None:
    budget = RangeBudget(1 << 20)
    file = RangesAhead(server, "x", pool, budget, EACH)
    file.close()
    file.close()
    server.requests.clear()
    assert file.read(0, 30) == DATA[:30]
    assert server.requests == [(0, 30)]
    assert budget.buffer_usage() == (0, 0)
