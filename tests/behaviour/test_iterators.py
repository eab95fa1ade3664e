"""Iterators: independent of each other, and what one says that was closed or that failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import GpupipeError
from tests.chains.damage import no_thread_left


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    with no_thread_left():
        yield


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


# ---- ends that are none


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
