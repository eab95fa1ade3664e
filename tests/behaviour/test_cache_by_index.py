"""A cache in memory whose elements are taken by index: full once each was given, in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset

N = 40


class Counting:
    """A function that counts its calls; it fails for one number, as often as it is told to."""

    def __init__(self, bad: int = -1, failures: int = 0) -> None:
        self.calls, self._bad, self._failures = 0, bad, failures

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if int(x) == self._bad and self._failures:
            self._failures -= 1
            raise ValueError("bad")
        return x


def chain(function: Counting) -> Dataset:
    return Dataset.range(N).map(function, traced=False, spec=gp.TensorSpec((), "int64")).cache()


SHUFFLES: dict[str, Callable[[Dataset], Dataset]] = {
    "all": lambda ds: ds.shuffle(gp.ALL, seed=3),
    "all, twice": lambda ds: ds.shuffle(gp.ALL, seed=3).repeat(2),
    "one of two": lambda ds: ds.concatenate(Dataset.range(9)).shuffle(gp.ALL, seed=3),
}


@pytest.mark.parametrize("order", SHUFFLES.values(), ids=SHUFFLES)
def test_a_whole_pass_fills_it(order: Callable[[Dataset], Dataset]) -> None:
    function = Counting()
    ds = order(chain(function))

    passes = [[np.asarray(x).tolist() for x in ds.iterator(epoch)] for epoch in range(3)]

    assert function.calls == N
    without = order(Dataset.range(N))
    assert passes == [[np.asarray(x).tolist() for x in without.iterator(epoch)] for epoch in range(3)]


def test_a_pass_that_ends_early_keeps_nothing() -> None:
    function = Counting()
    ds = chain(function).shuffle(gp.ALL)

    for _ in range(2):
        for number, _ in enumerate(ds):
            if number == N - 3:  # nothing reads ahead in this chain
                break
    assert N < function.calls < 2 * N
    before = function.calls
    assert len(list(ds)) == N
    assert function.calls == before + N
    assert len(list(ds)) == N
    assert function.calls == before + N


def test_an_error_of_the_last_element_of_a_pass_that_another_thread_closes_is_not_kept() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def function(x: Any) -> Any:
        calls.append(x)
        if len(calls) == N:
            inside.set()
            go_on.wait(20)
            raise ValueError("closed meanwhile")
        return x

    calls: list[Any] = []
    ds = Dataset.range(N).map(function, traced=False, spec=gp.TensorSpec((), "int64")).cache().shuffle(gp.ALL)
    items = ds.iterator()
    with ThreadPoolExecutor(1) as pool:
        loop = pool.submit(list, items)
        assert inside.wait(20)
        items.close()
        go_on.set()
        with pytest.raises(gp.GpupipeError):
            loop.result(20)

    assert sorted(int(x) for x in ds) == list(range(N))


def test_single_elements_are_computed_each_time_until_it_is_full() -> None:
    function = Counting()
    ds = chain(function)

    assert [int(ds[5]), int(ds[5])] == [5, 5]
    assert function.calls == 2
    list(ds.shuffle(gp.ALL))
    assert [int(ds[5]), int(ds[6])] == [5, 6]
    assert function.calls == N + 2


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "by index"])
def test_a_bad_element_is_kept_and_raised_in_each_pass(shuffled: bool) -> None:
    function = Counting(bad=11, failures=1)
    ds = chain(function).shuffle(gp.ALL) if shuffled else chain(function)

    for _ in range(3):
        items, found, errors = iter(ds), [], 0
        while True:
            try:
                found.append(int(next(items)))
            except StopIteration:
                break
            except gp.DataError:
                errors += 1
        assert (sorted(found), errors) == ([n for n in range(N) if n != 11], 1)
    assert function.calls == N


def test_what_a_user_does_to_an_element_does_not_change_the_cache() -> None:
    ds = Dataset.from_tensor_slices(np.ones((6, 4), np.float32)).map(lambda x: x * 2).cache().shuffle(gp.ALL)

    for _ in range(3):
        for x in ds.batch(2):
            assert (x == 2).all()
            x[:] = 0
        for x in ds:
            assert not x.flags.writeable


def test_it_resumes_in_the_middle_with_a_full_cache_and_with_an_empty_one() -> None:
    def made() -> Dataset:
        return chain(Counting()).shuffle(gp.ALL, seed=2).batch(3)

    ds = made()
    list(ds)
    items = ds.iterator(1)
    wanted = [x.tolist() for x in ds.iterator(1)]
    for _ in range(5):
        next(items)
    state = items.state_dict()

    for again in (ds, made()):
        resumed = again.iterator(1)
        resumed.load_state_dict(state)
        assert [x.tolist() for x in resumed] == wanted[5:]
