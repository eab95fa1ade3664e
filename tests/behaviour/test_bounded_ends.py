"""However an iteration ends, nobody waits without limit for a function of the user, and no thread is left.

The functions here wait for an event that the test sets once the iteration has ended: were it waited for, the test would
never end.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
import gpupipe.threads
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import GpupipeError
from gpupipe.ops._shared.samples import encoded, noise
from tests.behaviour.model import take_until_closed

INT = TensorSpec((), "int64")
NUMPY = Options(device="cpu", backend="numpy")


def _threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("gpupipe"))


def _wait_until_gone() -> None:
    """Until no thread is left; a test that leaves one never ends, and fails by its limit of time."""
    while _threads():
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    gc.collect()  # iterators in cycles that the test before has left
    assert _threads() == []
    yield
    gc.collect()
    _wait_until_gone()


class _Gate:
    """A function and a generator that go quiet after two elements, until the gate is opened."""

    def __init__(self) -> None:
        self.quiet = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.quiet.set()
        self.opened.wait()

    def numbers(self) -> Iterator[int]:
        yield from range(2)
        self.wait()

    def function(self, x: Any) -> Any:
        if x >= 2:
            self.wait()
        return x


def _flipped(dataset: Dataset) -> Dataset:
    images = dataset.map(lambda x: np.full((2, 2, 1), x, np.uint8), spec=TensorSpec((2, 2, 1), "uint8"))
    return images.map(lambda x: ops.flip_left_right(x)).batch(1).with_options(NUMPY)


QUIET: dict[str, Callable[[_Gate], Dataset]] = {
    "generator, prefetch": lambda g: Dataset.from_generator(g.numbers, output_signature=INT).prefetch(2),
    "map, prefetch": lambda g: Dataset.range(8).map(g.function, traced=False).prefetch(2),
    "parallel map": lambda g: Dataset.range(8).map(g.function, traced=False, num_parallel_calls=2),
    "parallel map, any order": lambda g: Dataset.range(8).map(g.function, 2, False, traced=False),
    "interleave": lambda g: Dataset.range(1).interleave(
        lambda i: Dataset.range(8).map(g.function, traced=False, spec=INT), 1, num_parallel_calls=1
    ),
    "filter, prefetch": lambda g: Dataset.range(8).filter(lambda x: g.function(x) >= 0).prefetch(2),
    "images, prefetch": lambda g: _flipped(Dataset.from_generator(g.numbers, output_signature=INT)).prefetch(1),
}


@pytest.mark.parametrize("name", QUIET)
def test_closing_wakes_a_thread_that_waits_for_a_function(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpupipe.threads, "PATIENCE", 0.05)
    gate = _Gate()
    items = iter(QUIET[name](gate))
    taken: list[Any] = []
    taker = threading.Thread(target=take_until_closed, args=(items, taken))
    taker.start()
    gate.quiet.wait()
    while len(taken) < 2:
        time.sleep(0.005)
    time.sleep(0.02)  # now it waits for the third

    items.close()
    taker.join()  # the gate is still closed
    gate.opened.set()

    assert len(taken) == 2


PROGRAM = """
import threading
import gpupipe as gp
import gpupipe.threads
gpupipe.threads.PATIENCE = 0.05
ever, D = threading.Event(), gp.Dataset

def quiet():
    yield 0
    ever.wait()

read = iter(D.from_generator(quiet, output_signature=gp.TensorSpec((), "int64")).prefetch(2))
mapped = iter(D.range(8).map(lambda x: x if x < 1 else ever.wait(), traced=False, num_parallel_calls=2))
print(next(read), next(mapped))
"""


def test_the_interpreter_can_end() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (0, "0 0\n")


# ---- slow work is left after the element at hand


LONG = 100_000
"""Elements that a step wants to see before it gives anything; one takes a millisecond."""


class _Slow:
    def __init__(self) -> None:
        self.calls = 0
        self.running = threading.Event()

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            self.running.set()
        time.sleep(0.001)
        return x


def _numbers(slow: _Slow) -> Dataset:
    return Dataset.range(10**6).map(slow, spec=INT)


def _pictures(slow: _Slow) -> Dataset:
    image = np.zeros((2, 2, 1), np.uint8)
    images = Dataset.from_tensors(image).repeat().map(slow, spec=TensorSpec((2, 2, 1), "uint8"))
    return images.map(lambda x: ops.flip_left_right(x)).with_options(NUMPY)


SLOW: dict[str, Callable[[_Slow], Dataset]] = {
    "batch": lambda s: _numbers(s).batch(LONG).prefetch(1),
    "batch of images": lambda s: _pictures(s).batch(LONG),
    "zipped batches": lambda s: Dataset.zip(Dataset.range(10**6).batch(LONG), _numbers(s).batch(LONG)).prefetch(1),
    "shuffle": lambda s: _numbers(s).shuffle(LONG).prefetch(1),
    "skip": lambda s: _numbers(s).skip(LONG).prefetch(1),
    "filter": lambda s: Dataset.range(10**6).filter(lambda x: bool(s(x) < 0)).prefetch(1),
}


@pytest.mark.parametrize("make", SLOW.values(), ids=SLOW.keys())
def test_closing_stops_after_the_element_at_hand(
    make: Callable[[_Slow], Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    slow = _Slow()
    items = iter(make(slow))
    taken: list[Any] = []
    taker = threading.Thread(target=take_until_closed, args=(items, taken))
    taker.start()
    slow.running.wait()

    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        items.close()
    calls = slow.calls
    taker.join()

    assert "still runs" not in caplog.text  # nobody lost patience
    assert _threads() == []
    assert slow.calls == calls < LONG // 10
    assert taken == []


# ---- the garbage collector


def _endless() -> Dataset:
    return Dataset.range(10**9).map(lambda x: np.asarray(x) + 0, traced=False, num_parallel_calls=2)


def _endless_pictures() -> Dataset:
    images = Dataset.from_tensors(encoded(noise(8, 8), "PNG")).repeat().map(lambda x: ops.decode_png(x, channels=3))
    images = images.map(lambda x: np.asarray(x), traced=False, num_parallel_calls=2)
    return images.map(lambda x: ops.flip_left_right(x)).batch(2).prefetch(2).with_options(NUMPY)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Garbage is collected so often that it happens in every thread."""
    before = gc.get_threshold()
    gc.freeze()  # what other tests have imported is not looked through each time
    gc.set_threshold(20, 2, 2)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("eager_collector")
@pytest.mark.parametrize("count, make", [(60, _endless), (15, _endless_pictures)], ids=["parallel map", "everything"])
def test_iterators_in_cycles_leave_no_thread(
    count: int, make: Callable[[], Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    dataset = make()
    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        for _ in range(count):
            items = iter(dataset)
            next(items)
            cycle: list[Any] = [items]
            cycle.append(cycle)
            del items, cycle
        gc.collect()
        _wait_until_gone()

    assert "still runs" not in caplog.text  # no thread waited for another one


def test_collected_in_a_thread_of_a_pipeline_it_is_told_to_stop_and_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That thread may hold what the other one waits for: here, the opening of its gate."""
    gate = _Gate()
    held: list[Any] = [iter(QUIET["parallel map"](gate))]
    next(held[0])
    gate.quiet.wait()

    def drop(x: Any) -> Any:
        if x == 5:
            held.clear()
            gc.collect()
            gate.opened.set()
        return x

    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        assert len(list(Dataset.range(20).map(drop, traced=False, num_parallel_calls=1))) == 20
        _wait_until_gone()

    assert "still runs" not in caplog.text


def test_a_closer_that_fails_keeps_no_other_from_being_called() -> None:
    from gpupipe.flow.run import Run

    run, called = Run(Options().resolve()), []

    def fail(wait: bool) -> None:
        called.append("fail")
        raise KeyError

    run.on_close(lambda wait: called.append(f"first {wait}"))
    run.on_close(fail)
    run.on_close(lambda wait: called.append(f"last {wait}"))

    with pytest.raises(KeyError):
        run.close(wait=False)

    assert sorted(called) == ["fail", "first False", "last False"]
    with pytest.raises(KeyError):
        run.close()
    assert called[3:] == ["fail"]  # the others are done


# ---- what an iterator says that was closed or that failed, and ends that are none


def test_an_iterator_that_was_closed_before_it_began_says_so() -> None:
    items = iter(Dataset.range(9).prefetch(2))
    items.close()

    with pytest.raises(gp.ClosedError, match=r"next\(\) needs an open iterator, got one that was closed; make a new"):
        next(items)


def test_what_ended_an_iterator_is_in_what_it_says_from_then_on() -> None:
    items = iter(Dataset.range(9).map(_flaky).with_options(Options(on_error="skip", max_bad=0)))
    with pytest.raises(gp.TooManyBadError):
        list(items)

    with pytest.raises(gp.ClosedError, match=r"next\(\) .* was ended by a TooManyBadError"):
        next(items)
    with pytest.raises(gp.ClosedError, match=r"state_dict .* was ended by a TooManyBadError"):
        items.state_dict()


def _flaky(x: Any) -> Any:
    return 1 // (int(x) % 3)


@pytest.mark.skipif(os.name == "nt", reason="SIGINT to a child is different there")
def test_control_c_ends_a_loop_whose_filter_lets_nothing_through() -> None:
    code = "import gpupipe as gp; print('ready', flush=True); "
    code += "list(gp.Dataset.range(1).repeat().filter(lambda x: x > 3))"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=10)
    finally:
        child.kill()

    assert "KeyboardInterrupt" in errors
    assert child.returncode != 0


class _Torn:
    """What elements are taken from, where its executor or its processes fail after one more element."""

    def __init__(self, items: Any) -> None:
        self._items = iter([next(items)])

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        for element in self._items:
            return element
        raise GpupipeError("a worker process ended before it was ready")

    def snapshot(self) -> Any:
        return None


def test_a_failure_that_stands_for_no_element_is_not_an_end() -> None:
    items = iter(Dataset.range(6))
    assert [int(next(items)), int(next(items))] == [0, 1]
    items._items = _Torn(items._items)
    assert int(next(items)) == 2

    with pytest.raises(GpupipeError, match="ended before it was ready"):
        next(items)

    assert items.state_dict()["delivered"] == 3
    assert [int(x) for x in items] == [3, 4, 5]
