"""A remote file whose next ranges are requested ahead: the same bytes and errors as one request for each read."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from gpupipe.errors import RecordError
from gpupipe.extract.storage.files import short
from gpupipe.extract.storage.ranges_ahead import AHEAD, RangeBudget, RangesAhead
from tests.fuzz.files import Memory

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
