"""Threads and pools of threads, whichever thread uses them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from time import sleep
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.threads import DaemonPool, Thread, snapshot
from gpupipe.timing import TRACKER, Tracker
from tests.behaviour.model import fails_where, plain

MARK: ContextVar[str] = ContextVar("mark", default="nothing")


def test_a_thread_has_no_context_of_its_starter() -> None:
    """Free-threaded Python 3.14 runs it in the starter's: here, `run` is called in one."""
    seen: list[Any] = []
    MARK.set("the starter's")
    TRACKER.set(tracker := Tracker())
    thread = Thread(lambda: seen.extend([MARK.get(), TRACKER.get()]), name="test")

    copy_context().run(thread.run)
    TRACKER.set(None)

    assert seen == ["nothing", tracker]


class Hesitating(DaemonPool):
    """Between reading whether the threads run and starting them, every other thread gets its turn."""

    @property
    def _started(self) -> bool:
        started = self.__dict__["started"]
        if not started:
            sleep(0.05)
        return bool(started)

    @_started.setter
    def _started(self, started: bool) -> None:
        self.__dict__["started"] = started


def test_threads_that_submit_first_start_the_pool_once() -> None:
    pool = Hesitating(2, "test")
    with ThreadPoolExecutor(2) as users:
        answers = [*users.map(lambda number: pool.submit(lambda: number).result(10), range(2))]
    pool.close()

    assert answers == [0, 1]


def test_a_function_that_is_submitted_while_the_pool_closes_is_refused_not_forgotten() -> None:
    pool = DaemonPool(1, "test")
    pool.submit(int).result(10)
    put = pool._work.put

    class Late:
        """Puts a function behind the tokens that end the threads: `close` comes first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(work, name)

        def put(self, item: Any) -> None:
            pool._work = work
            pool.close()
            put(item)

    work, pool._work = pool._work, Late()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]

    with pytest.raises(RuntimeError, match="the pool is closed"):
        pool.submit(int)

    found: Future[Any] = work.get_nowait()[0]  # type: ignore[index]  # pyright: ignore[reportOptionalSubscript]
    with pytest.raises(CancelledError):
        found.result(0)


def test_a_pool_whose_start_was_interrupted_starts_with_the_next_function(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = DaemonPool(3, "test")
    start, starts = Thread.start, iter([False, True])

    def interrupted(thread: Thread) -> None:
        if next(starts, False):
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.submit(int)

    assert pool.submit(int, "7").result(10) == 7
    assert all(thread.is_alive() for thread in pool._threads)
    pool.close()


@pytest.mark.parametrize("sizes", [(2, 4, 6), (1, 3, 2, 4), (2, 6), (1, 5, 3, 6)], ids=str)
def test_a_busy_pool_has_as_many_threads_as_it_was_last_given(sizes: tuple[int, ...]) -> None:
    """Threads that are to end and have not seen it yet may stay for the next size, each once."""
    pool, begun, first, second = DaemonPool(4, "test"), threading.Semaphore(0), threading.Event(), threading.Event()

    def work(until: threading.Event) -> None:
        begun.release()
        until.wait(10)

    for _ in range(4):
        pool.submit(work, first)
    assert all(begun.acquire(timeout=10) for _ in range(4))
    for size in sizes:
        pool.resize(size)
    for _ in range(sizes[-1] + 1):
        pool.submit(work, second)
    first.set()
    try:
        assert all(begun.acquire(timeout=2) for _ in range(sizes[-1]))
        assert not begun.acquire(timeout=0.02)
    finally:
        second.set()
        pool.close()


def test_threads_that_wait_for_the_end_of_one_wait_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python before 3.13 fails an assertion where two see the end at the same moment."""
    waiting: list[int] = []
    together: list[int] = []
    real = threading.Thread.join

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if isinstance(thread, Thread):
            waiting.append(1)
            together.append(len(waiting))
        real(thread, timeout)
        if isinstance(thread, Thread):
            waiting.pop()

    monkeypatch.setattr(threading.Thread, "join", join)
    thread = Thread(sleep, (0.5,), name="sleeper")
    thread.start()
    joiners = [threading.Thread(target=thread.join, args=(5.0,)) for _ in range(4)]
    for joiner in joiners:
        joiner.start()
    assert thread.is_alive()
    for joiner in joiners:
        joiner.join()

    assert together == [1, 1, 1, 1]
    assert not thread.is_alive()


def test_a_snapshot_of_a_queue_that_changes_is_taken_again() -> None:
    class Changing(deque[int]):
        """A queue that another thread changes during the first looks at it, as can be without the GIL."""

        looks = 0

        def __iter__(self) -> Iterator[int]:
            self.looks += 1
            if self.looks < 4:
                raise RuntimeError("deque mutated during iteration")
            return super().__iter__()

    items = Changing([1, 2, 3])

    assert snapshot(items) == [1, 2, 3]
    assert items.looks == 4


# ---- several threads take from one iterator: each element goes to exactly one of them

COUNT = 600


def _generator() -> Any:
    yield from range(COUNT)


def _images() -> Dataset:
    images = Dataset.range(COUNT).map(lambda x: np.full((2, 2, 1), x, np.int32), spec=TensorSpec((2, 2, 1), "int32"))
    images = images.map(lambda x: ops.flip_left_right(x)).batch(3).unbatch()
    return images.map(lambda x: np.int64(x[0, 0, 0])).with_options(Options(device="cpu", backend="numpy"))


CHAINS: dict[str, Callable[[], Dataset]] = {
    "plain": lambda: Dataset.range(COUNT),
    "parallel map": lambda: Dataset.range(COUNT).map(lambda x: int(x), traced=False, num_parallel_calls=2),
    "shuffle": lambda: Dataset.range(COUNT).shuffle(10),
    "prefetch": lambda: Dataset.range(COUNT).map(lambda x: int(x)).prefetch(3),
    "generator": lambda: Dataset.from_generator(_generator),
    "interleave": lambda: Dataset.range(COUNT // 10).interleave(lambda i: Dataset.range(i * 10, i * 10 + 10)),
    "images": _images,
}


def _taken(items: Any, count: int = 4) -> list[list[Any]]:
    """What each thread got; an exception of any of them is raised."""
    got: list[list[Any]] = [[] for _ in range(count)]
    start = threading.Barrier(count)

    def take(mine: list[Any]) -> None:
        start.wait()
        mine.extend(plain(x) for x in items)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(take, got))
    return got


@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS.keys())
def test_every_element_is_taken_once(make: Callable[[], Dataset]) -> None:
    got = _taken(iter(make()))

    assert sorted(x for mine in got for x in mine) == list(range(COUNT))


def test_stand_ins_are_shared_out_too() -> None:
    failing = Dataset.range(COUNT).map(fails_where(lambda x: x < 50 or x % 7 == 0), traced=False)
    chain = failing.with_options(Options(on_error="replace"))

    got = _taken(iter(chain))

    assert sorted(x for mine in got for x in mine) == sorted(plain(x) for x in chain)
