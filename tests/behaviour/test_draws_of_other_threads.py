"""What another thread draws while a function is traced is not taken for a draw of the function."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp


class Somebody:
    """A thread that draws when it is asked to."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw = draw
        self._wanted, self._done, self._ended = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def draws(self) -> None:
        self._done.clear()
        self._wanted.set()
        assert self._done.wait(10)

    def end(self) -> None:
        self._ended = True
        self._wanted.set()
        self._thread.join(10)

    def _run(self) -> None:
        while self._wanted.wait(10) and not self._ended:
            self._wanted.clear()
            self._draw()
            self._done.set()


@pytest.fixture(params=[random.random, np.random.rand], ids=["random", "numpy"])
def somebody(request: pytest.FixtureRequest) -> Iterator[Somebody]:
    made = Somebody(request.param)
    yield made
    made.end()


@pytest.mark.parametrize("times", [1, 1000])
def test_draws_of_another_thread_are_no_draws_of_the_function(somebody: Somebody, times: int) -> None:
    left = [times]

    def function(x: Any) -> Any:
        if left[0]:
            left[0] -= 1
            somebody.draws()
        return x + 1

    assert [int(x) for x in gp.Dataset.range(3).map(function, traced=True)] == [1, 2, 3]
    assert left[0] == (0 if times == 1 else times - 17)


def test_a_function_that_draws_on_some_calls_is_refused(somebody: Somebody) -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(1)
        somebody.draws()
        return x + len(calls)

    with pytest.raises(gp.TraceError, match="draws from a random generator"):
        gp.Dataset.range(3).map(function, traced=True)
    assert len(calls) == 2
