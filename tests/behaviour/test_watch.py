"""Nothing spins for ever without a word: steps that give nothing are named in the log, and stop when told to."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset
from gpupipe.flow import stall as watch
from tests.behaviour.model import take_until_closed


def _never(x: Any) -> Any:
    return str(x) == "never"


def _numbers() -> Dataset:
    """More than anybody waits for, in one pass: nothing but the step itself looks whether to stop."""
    return Dataset.range(10**15)


def _fails(x: Any) -> Any:
    raise ValueError(str(x))


NUMBER, NONE = gp.TensorSpec((), "int64"), Dataset.range(3).filter(_never)

SPINS: dict[str, tuple[Callable[[], Dataset], str]] = {
    "a Python filter": (lambda: _numbers().filter(_never), "filter"),
    "a traced filter": (lambda: _numbers().filter(lambda x: x < 0), "filter"),
    "flat_map of nothing": (lambda: _numbers().flat_map(lambda x: Dataset.range(0)), "flat_map"),
    "interleave of filtered datasets": (lambda: _numbers().interleave(lambda x: NONE), "interleave"),
    "skip": (lambda: _numbers().filter(lambda x: x >= 0).skip(10**15), "skip"),
    "unbatch of empty batches": (lambda: Dataset.from_tensors(np.zeros((0, 2))).repeat(10**15).unbatch(), "unbatch"),
    "unique without new values": (lambda: _numbers().map(lambda x: x % 3).unique().skip(3), "unique"),
    "repeat of empty passes": (lambda: NONE.repeat(10**12), "repeat"),
    "shuffle and repeat of empty passes": (lambda: NONE.shuffle(9).repeat(10**12), "shuffle_and_repeat"),
    "ignore_errors of errors": (lambda: _numbers().map(_fails, spec=NUMBER).ignore_errors(), "ignore_errors"),
}

THREADED = {
    "on the user's thread": lambda dataset: dataset,
    "on a prefetch thread": lambda dataset: dataset.prefetch(2),
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second: what is said depends on no machine's speed."""
    seconds = itertools.count(0.0)
    monkeypatch.setattr(watch, "monotonic", lambda: next(seconds))


@pytest.mark.parametrize("place", THREADED)
@pytest.mark.parametrize("name", SPINS)
@pytest.mark.usefixtures("clock")
def test_what_gives_nothing_is_named_and_can_be_stopped(
    name: str, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, step = SPINS[name]
    items = iter(THREADED[place](make()))
    said: list[str] = []

    def close_when_it_was_said() -> None:
        until = time.monotonic() + 60
        while not said and time.monotonic() < until:
            said.extend(x for x in caplog.messages if x.startswith(step) and "given none" in x)
            time.sleep(0.01)
        items.close()

    closer = threading.Thread(target=close_when_it_was_said)
    closer.start()
    left: list[Any] = []
    take_until_closed(items, left)
    closer.join(60)

    assert left == []
    assert not closer.is_alive()
    assert f"{__file__}:" in said[0] and f"> {step})" in said[0]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("gpupipe-prefetch")]


def test_pauses_grow(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(watch, "monotonic", lambda: now[0])
    one = watch.Watch(watch.Where("filter(f())", "train.py:3", "range > filter"), seconds=10)

    for count in range(1, 200 * 1024 + 1):
        now[0] = count / 1024  # one look a second
        one.nothing(count)

    times = [float(text.partition(" for ")[2].split()[0]) for text in caplog.messages]
    assert times == pytest.approx([10, 30, 70, 150], abs=4)
    assert caplog.messages[0].startswith("filter(f()) at train.py:3 (chain: range > filter) has taken 11,264 elements")

    caplog.clear()
    slow = watch.Watch(watch.Where("filter"), seconds=10)
    for count in range(1, 20):
        now[0] += 1.0  # one element a second
        slow.nothing(count)
    assert len(caplog.messages) == 1


def test_a_step_that_gives_something_now_and_then_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(watch, "monotonic", lambda: now.__setitem__(0, now[0] + 0.5) or now[0])
    monkeypatch.setattr(watch, "SECONDS", 4.0)  # a look takes half a second, and there are 7 between two elements
    rare = [
        Dataset.range(20_000).filter(lambda x: x % 100 == 0),
        Dataset.range(20_000).filter(lambda x: int(str(x)) % 100 == 0),
        Dataset.range(2000).interleave(lambda x: Dataset.range(10, 20).filter(lambda y: y == 15), cycle_length=3),
        Dataset.range(20_000).map(lambda x: x // 100).unique(),
    ]

    assert [len(list(dataset)) for dataset in rare] == [200, 200, 2000, 200]
    assert not caplog.messages
