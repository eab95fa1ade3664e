"""Iterators: independent of each other, and no thread outlives them, however they end."""

from __future__ import annotations

import gc
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import GpupipeError
from tests.behaviour.model import plain, run


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("gpupipe")}


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    assert _threads() == set()
    yield
    deadline = time.monotonic() + 5
    while _threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _threads() == set()


def _busy() -> Dataset:
    """A chain with every kind of thread that needs no image: prefetch, and a pool of Python maps."""
    return Dataset.range(10_000).prefetch(3).map(lambda x: np.int64(x) + 0, num_parallel_calls=2).batch(2).prefetch(2)


def _pictures() -> Dataset:
    """A chain with a transform stage, micro-batches below it and a prefetch."""
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "PNG")
    dataset = Dataset.from_tensor_slices([out.getvalue()] * 300).map(lambda x: ops.decode_png(x, channels=3))
    dataset = dataset.map(lambda x: x + np.uint8(1), traced=False).map(lambda x: ops.flip_left_right(x)).batch(4)
    return dataset.prefetch(2).with_options(Options(device="cpu", backend="numpy"))


@pytest.mark.parametrize("chain", [_pictures, _busy])
@pytest.mark.parametrize("end", ["break", "with", "garbage", "exhausted", "close before next", "error"])
def test_no_thread_is_left_behind(end: str, chain: Callable[[], Dataset]) -> None:
    dataset = chain()
    match end:
        case "break":
            for _ in dataset:
                assert _threads()
                break
        case "with":
            with dataset.iterator() as items:
                next(items)
        case "garbage":
            held = iter(dataset)
            next(held)
            del held
        case "exhausted":
            assert len(list(dataset.take(75))) == 75
        case "close before next":
            iter(dataset).close()
        case "error":
            with pytest.raises(KeyError):
                for _ in dataset:
                    raise KeyError

    gc.collect()
    deadline = time.monotonic() + 5
    while _threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _threads() == set()


def test_iterators_are_independent() -> None:
    dataset = Dataset.range(4).map(lambda x: int(x))
    one, two = iter(dataset), iter(dataset)

    assert [plain(next(one)), plain(next(one)), plain(next(two)), plain(next(one))] == [0, 1, 0, 2]
    assert run(two) == [1, 2, 3]
    assert run(one) == [3]


@pytest.mark.parametrize("begun", [False, True])
def test_a_closed_iterator_says_so_and_never_looks_like_one_at_its_end(begun: bool) -> None:
    items = iter(_busy())
    if begun:
        next(items)
    items.close()
    items.close()

    for _ in range(2):
        with pytest.raises(gp.ClosedError, match=r"next\(\) needs an open iterator, got one that was closed"):
            next(items)
        with pytest.raises(gp.ClosedError, match="was closed; make a new one"):
            for _ in items:
                pass
    assert _threads() == set()


def test_what_ended_an_iterator_is_in_what_it_says_from_then_on() -> None:
    items = iter(Dataset.range(9).map(_flaky).with_options(Options(on_error="skip", max_bad=0)))
    with pytest.raises(gp.TooManyBadError):
        list(items)

    with pytest.raises(gp.ClosedError, match=r"next\(\) .* was ended by a TooManyBadError"):
        next(items)
    with pytest.raises(gp.ClosedError, match=r"state_dict .* was ended by a TooManyBadError"):
        items.state_dict()


def test_nothing_starts_before_the_first_next() -> None:
    calls: list[int] = []

    def noted(x: Any) -> Any:
        calls.append(1)
        return x

    items = iter(Dataset.range(3).map(noted).prefetch(2))
    time.sleep(0.02)

    assert calls == []
    assert _threads() == set()
    items.close()


def _flaky(x: Any) -> Any:
    return 1 // (int(x) % 3)


@pytest.mark.parametrize(
    "chain",
    [
        lambda d: d.map(_flaky),
        lambda d: d.map(_flaky, num_parallel_calls=2),
        lambda d: d.map(_flaky).prefetch(2),
        lambda d: d.map(_flaky).prefetch(2).map(lambda x: x),
        lambda d: d.map(_flaky).cache(),
        lambda d: d.map(_flaky, spec=TensorSpec((), "int64")),
    ],
    ids=["map", "pool", "prefetch", "prefetch inside", "cache", "spec"],
)
def test_next_goes_on_after_an_error(chain: Callable[[Dataset], Dataset]) -> None:
    items = iter(chain(Dataset.range(1, 6)))

    assert [plain(next(items)), plain(next(items))] == [1, 0]
    with pytest.raises(gp.DataError, match="ZeroDivisionError"):
        next(items)
    assert run(items) == [1, 0]


def test_closing_from_another_thread_ends_a_waiting_next() -> None:
    gate = threading.Event()

    def wait(x: Any) -> Any:
        gate.wait(0.2)
        return x

    items = iter(Dataset.range(1000).map(wait).prefetch(1))
    next(items)
    closer = threading.Timer(0.05, items.close)
    closer.start()

    got = []
    with pytest.raises(gp.ClosedError, match="was closed"):
        for x in items:
            got.append(x)
    closer.join()
    assert len(got) < 500  # all of them would take 200 s


def test_first_looks_without_counting_an_epoch() -> None:
    dataset = Dataset.range(30).shuffle(30)
    expected = run(dataset.iterator(epoch=0))

    assert plain(dataset.first()) == expected[0]
    assert run(dataset) == expected
    with pytest.raises(IndexError, match="empty"):
        Dataset.range(0).first()


# ---- signals and processes


def _child(body: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )


CHAINS = {
    "a prefetch": "gp.Dataset.range(10**6).map(slow).prefetch(2)",
    "a filter that lets nothing through": "gp.Dataset.range(1).repeat().filter(lambda x: x > 3)",
}


@pytest.mark.skipif(os.name == "nt", reason="SIGINT to a child is different there")
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_control_c_ends_the_program(chain: str) -> None:
    child = _child(
        f"""
        import time
        import gpupipe as gp

        def slow(x):
            time.sleep(0.05)
            return x

        dataset = {chain}
        print("ready", flush=True)
        for x in dataset:
            pass
        """
    )
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


def test_a_program_may_end_in_the_middle_of_an_iteration() -> None:
    child = _child(
        """
        import gpupipe as gp
        dataset = gp.Dataset.range(10**6).map(lambda x: int(x), num_parallel_calls=2).prefetch(2).batch(2).prefetch(2)
        items = iter(dataset)
        print(next(items))
        """
    )
    try:
        out, errors = child.communicate(timeout=20)
    finally:
        child.kill()

    assert (child.returncode, out, errors) == (0, "[0 1]\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_in_a_forked_child_the_iterator_says_so_and_a_new_one_works() -> None:
    child = _child(
        """
        import os, warnings
        warnings.simplefilter("ignore")  # Python itself warns about fork with threads
        import gpupipe as gp
        dataset = gp.Dataset.range(100).map(lambda x: int(x), num_parallel_calls=2).prefetch(2)
        items = iter(dataset)
        next(items)
        pid = os.fork()
        if pid == 0:
            try:
                next(items)
            except gp.ClosedError as error:
                print("child:", error, flush=True)
            print("child:", len(list(dataset)), flush=True)
            del items
            os._exit(0)
        os.waitpid(pid, 0)
        print("parent:", len(list(items)), flush=True)
        """
    )
    try:
        out, errors = child.communicate(timeout=20)
    finally:
        child.kill()

    assert errors == ""
    assert out.splitlines() == [
        "child: this iterator was created before a fork; make a new one in this process",
        "child: 100",
        "parent: 99",
    ]


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
