"""Caches: what they depend on, whose numbers their elements draw, and what fills one that is asked by index."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import noise
from tests.behaviour.model import outcomes


def _bad(x: Any) -> Any:
    if x == 2:
        raise ValueError("no")
    return x


EXPECTED: dict[Any, Any] = {
    "skip": [[0, 1], [3, 4], [5]],
    "replace": [[0, 1], [1, 3], [4, 5]],
    "raise": ["error", [0, 1], [3, 4], [5]],
}


@pytest.mark.parametrize("order", [["skip", "replace", "raise"], ["raise", "replace", "skip"]], ids=str)
def test_each_treatment_of_bad_elements_has_its_own_contents(order: list[Any]) -> None:
    chain = Dataset.range(6).map(_bad, traced=False).batch(2).cache()

    for on_error in order * 2:  # full the second time
        got = outcomes(chain.with_options(Options(on_error=on_error)))
        assert sorted(map(str, got)) == sorted(map(str, EXPECTED[on_error]))


@pytest.mark.parametrize("first", ["numpy", "dali"])
def test_each_executor_has_its_own_pixels(first: str) -> None:
    def chain() -> Dataset:
        images = Dataset.from_tensors(noise(40, 50)).repeat(2)
        return images.map(lambda x: ops.resize(x, (17, 23), antialias=True)).batch(2).cache()

    def pixels(dataset: Dataset, backend: Any) -> Any:
        (batch,) = dataset.with_options(Options(device="cpu", backend=backend))
        return np.asarray(batch)

    alone = {backend: pixels(chain(), backend) for backend in ("numpy", "dali")}
    assert not np.array_equal(alone["numpy"], alone["dali"])  # they round differently: that is how one can tell

    shared = chain()
    for backend in (first, "dali" if first == "numpy" else "numpy", first):
        np.testing.assert_array_equal(pixels(shared, backend), alone[backend])


def test_after_an_error_below_a_cache_every_element_still_has_its_own_numbers() -> None:
    def numbers(step: Any) -> dict[int, int]:
        chain = Dataset.range(400).map(step, traced=False).batch(2).cache().unbatch().map(_drawn, rng=True)
        return dict(element for element in outcomes(chain) if element != "error")  # both are in their first epoch

    expected, got = numbers(lambda x: x), numbers(_bad)

    assert len(set(expected.values())) == 400
    assert got == {x: number for x, number in expected.items() if x != 2}


def _drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, rng.integers(10**9)


def _flipped(image: Any) -> Any:
    return ops.random_flip_left_right(image)


IMAGES = (np.arange(9 * 4 * 4 * 3) % 251).astype(np.uint8).reshape(9, 4, 4, 3)
CHAINS: dict[str, tuple[Callable[[], Dataset], Callable[[Dataset], Dataset]]] = {
    "numbers": (lambda: Dataset.range(9), lambda d: d.map(_drawn, rng=True)),
    "passes": (lambda: Dataset.range(4).repeat(2), lambda d: d.map(_drawn, rng=True)),
    "rows of batches": (lambda: Dataset.range(9).batch(4), lambda d: d.unbatch().map(_drawn, rng=True)),
    "traced ops on batches": (lambda: Dataset.from_tensor_slices(IMAGES).batch(4), lambda d: d.map(_flipped)),
}


def _in_epoch(dataset: Dataset, epoch: int) -> list[str]:
    dataset = dataset.with_options(Options(device="cpu", backend="numpy"))
    return [repr(element) for element in dataset.iterator(epoch=epoch)]


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("chain", CHAINS)
def test_behind_a_cache_random_numbers_are_those_without_it(tmp_path: Path, chain: str, where: str) -> None:
    make, draw = CHAINS[chain]
    without = draw(make())
    cached = make().cache() if where == "memory" else make().cache(tmp_path / "c")

    for epoch in (0, 1, 0, 2):  # the first fills it
        assert _in_epoch(draw(cached), epoch) == _in_epoch(without, epoch)
    assert _in_epoch(without, 0) != _in_epoch(without, 1)
    twice = _in_epoch(draw(cached.repeat(2)), 0)
    assert twice[: len(twice) // 2] == _in_epoch(without, 0)
    assert twice[len(twice) // 2 :] != _in_epoch(without, 0)  # a later pass draws anew
    assert _in_epoch(draw(cached.concatenate(cached)), 0)[len(twice) // 2 :] != _in_epoch(without, 0)


# ---- by index: full once each element was given, in any order


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
    assert [len(list(ds)), len(list(ds))] == [N, N]
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


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "by index"])
def test_a_bad_element_is_kept_and_raised_in_each_pass(shuffled: bool) -> None:
    function = Counting(bad=11, failures=1)
    ds = chain(function).shuffle(gp.ALL) if shuffled else chain(function)

    for _ in range(3):
        assert sorted(outcomes(ds), key=str) == sorted([*range(11), *range(12, N), "error"], key=str)
    assert function.calls == N


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
