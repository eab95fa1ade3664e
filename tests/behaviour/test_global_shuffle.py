"""shuffle(gp.ALL): a uniform order of the whole dataset that is computed, held nowhere and filled by nothing."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.flow.order.permutation import SMALL, Permutation
from gpupipe.random import mix64

MILLION = 1_000_000
Range = gp.Dataset.range


def order(ds: gp.Dataset, epoch: int = 0) -> list[int]:
    return [int(x) for x in ds.iterator(epoch)]


def chi_square_limit(freedom: int) -> float:
    """What chi-square exceeds with a probability of 0.001 (Wilson and Hilferty's approximation, 1931)."""
    z = 3.0902
    return float(freedom * (1 - 2 / (9 * freedom) + z * (2 / (9 * freedom)) ** 0.5) ** 3)


# ---- the permutation


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, SMALL - 1, SMALL, SMALL + 1, 4225, 5000, 65_537, 100_003])
def test_every_place_comes_once(n: int) -> None:
    whole = Permutation(n, 1)(np.arange(n))

    assert np.array_equal(np.sort(whole), np.arange(n))


def test_a_place_does_not_depend_on_what_is_asked_with_it() -> None:
    permutation = Permutation(50_000, 7)
    whole = permutation(np.arange(50_000))

    for i in (0, 1, 4095, 4096, 49_999):
        assert permutation(np.array([i])).tolist() == [whole[i]]


def test_the_order_is_the_same_on_every_machine() -> None:
    assert Permutation(6, 1)(np.arange(6)).tolist() == [5, 2, 1, 0, 3, 4]
    assert Permutation(MILLION, 1)(np.arange(6)).tolist() == [820120, 448767, 241661, 896411, 161888, 602530]


def test_all_orders_of_four_are_equally_likely() -> None:
    seen = Counter(tuple(Permutation(4, mix64(seed, 9))(np.arange(4)).tolist()) for seed in range(4800))

    assert len(seen) == 24
    assert sum((count - 200) ** 2 / 200 for count in seen.values()) < chi_square_limit(23)


@pytest.mark.parametrize("seed", range(2))
def test_a_million_places_are_in_a_uniform_order(seed: int) -> None:
    x = Permutation(MILLION, mix64(seed, 1))(np.arange(MILLION))
    places = np.arange(MILLION)

    displacement = np.abs(x - places).mean() / MILLION
    neighbours = np.corrcoef(x[:-1], x[1:])[0, 1]
    own = np.corrcoef(x, places)[0, 1]
    table, _, _ = np.histogram2d(places, x, bins=16, range=[[0, MILLION]] * 2)
    expected = MILLION / 256
    assert 0.323 <= displacement <= 0.343  # a third, if it is uniform
    assert abs(neighbours) < 0.01
    assert abs(own) < 0.01
    assert np.array_equal(np.bincount(x, minlength=MILLION), np.ones(MILLION, np.int64))
    # Rows and columns are fixed: 15 * 15 degrees of freedom.
    assert ((table - expected) ** 2 / expected).sum() < chi_square_limit(225)
    assert ((table - expected) ** 2 / expected).sum() > 100  # as even as a grid is not random either


def test_orders_of_two_keys_are_unrelated() -> None:
    a, b = (Permutation(100_000, key)(np.arange(100_000)) for key in (1, 2))

    assert (a == b).sum() < 15  # one is expected; 15 have a probability below 1e-11
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.02


# ---- the step


def test_it_may_be_the_same_in_every_epoch_and_pass() -> None:
    ds = Range(100).shuffle(gp.ALL, reshuffle_each_iteration=False)

    assert order(ds, 0) == order(ds, 5)
    assert order(ds.repeat(2), 1) == order(ds) * 2


def test_passes_have_other_orders_and_never_mix() -> None:
    found = order(Range(50).shuffle(gp.ALL).repeat(3))

    passes = [found[:50], found[50:100], found[100:]]
    assert all(sorted(one) == list(range(50)) for one in passes)
    assert len(set(map(tuple, passes))) == 3


def test_repeat_before_it_mixes_passes() -> None:
    found = order(Range(50).repeat(2).shuffle(gp.ALL))

    assert Counter(found) == dict.fromkeys(range(50), 2)
    assert len(set(found[:50])) < 50


def test_nothing_is_asked_for_before_its_time() -> None:
    asked: list[int] = []

    class Items:
        def __len__(self) -> int:
            return 1_000_000_000

        def __getitem__(self, i: int) -> int:
            asked.append(i)
            return i

    ds = gp.Dataset.from_indexable(Items(), spec=gp.TensorSpec((), "int64")).shuffle(gp.ALL).batch(4)

    batch = next(iter(ds)).tolist()
    assert asked[:4] == batch
    assert len(asked) < 50
    assert len(set(asked)) == len(asked)


def test_maps_run_behind_it_in_threads_and_once_for_each_element() -> None:
    seen: list[int] = []

    def note(x: Any) -> Any:
        seen.append(int(x))
        return x

    ds = Range(500).map(note, num_parallel_calls=2).shuffle(gp.ALL, seed=1)

    assert sorted(order(ds)) == list(range(500))
    assert sorted(seen) == list(range(500))
    assert "sink_selects x1" in ds.explain()


def test_all_is_one_thing_with_a_name() -> None:
    assert repr(gp.ALL) == "gpupipe.ALL"
    assert copy.deepcopy(gp.ALL) is gp.ALL
    with pytest.raises(TypeError, match="shuffle needs an integer for buffer_size"):
        Range(3).shuffle("ALL")  # type: ignore[arg-type]
    with pytest.raises(gp.PlanError, match=r"shuffle needs buffer_size >= 1, got -3; for the whole dataset use gp"):
        Range(3).shuffle(-3)
