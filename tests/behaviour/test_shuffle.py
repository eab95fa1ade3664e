"""shuffle: what must hold whatever the numbers are."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, compat, set_seed
from tests.behaviour.model import run


def test_the_bound_is_reached_and_elements_may_wait_long() -> None:
    ahead, waited = 0, 0
    for epoch in range(25):
        for p, index in enumerate(run(Dataset.range(60).shuffle(10).iterator(epoch=epoch))):
            ahead, waited = max(ahead, index - p), max(waited, p - index)

    assert ahead == 9
    assert waited > 30  # there is no lower bound: an element waits for ever with probability (9/10)**k


def test_a_buffer_of_everything_is_a_uniform_permutation() -> None:
    n, epochs = 5, 1200
    places = np.zeros((n, n))
    orders: Counter[tuple[int, ...]] = Counter()
    dataset = Dataset.range(n).shuffle(n)
    for epoch in range(epochs):
        order = run(dataset.iterator(epoch=epoch))
        orders[tuple(order)] += 1
        places[order, range(n)] += 1

    # Fixed seeds: no flake. 5 standard deviations of a binomial for each place; for the orders a chi-square (119
    # degrees of freedom, standard deviation 15.4) within 5 of them.
    expected = epochs / n
    assert abs(places - expected).max() < 5 * (epochs * (1 / n) * (1 - 1 / n)) ** 0.5
    mean = epochs / 120
    chi = sum((orders[order] - mean) ** 2 / mean for order in orders) + (120 - len(orders)) * mean
    assert abs(chi - 119) < 5 * 15.4


def test_every_slot_of_a_small_buffer_is_equally_likely() -> None:
    dataset = Dataset.range(40).shuffle(4)
    first = Counter(int(next(dataset.iterator(epoch=epoch))) for epoch in range(1000))

    assert set(first) == {0, 1, 2, 3}
    assert all(abs(count - 250) < 5 * (1000 * 0.25 * 0.75) ** 0.5 for count in first.values())


def test_the_seed_of_the_chain_counts() -> None:
    dataset = Dataset.range(30).shuffle(30, seed=1)
    default = run(dataset.iterator(epoch=0))

    assert run(dataset.with_options(Options(seed=0)).iterator(epoch=0)) == default
    assert run(dataset.with_options(Options(seed=5)).iterator(epoch=0)) != default
    set_seed(5)
    try:
        assert run(dataset.iterator(epoch=0)) == run(dataset.with_options(Options(seed=5)).iterator(epoch=0))
    finally:
        set_seed(0)


def test_a_large_buffer_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        assert sorted(run(Dataset.range(5).shuffle(10**12))) == list(range(5))
        assert sorted(run(Dataset.range(5).shuffle(10**12).repeat(2))) == sorted([*range(5)] * 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 5_000_000


# ---- of an unknown number of elements

ODD = Dataset.range(40).filter(lambda x: x % 2 == 1)


def test_a_shuffle_by_an_unknown_cardinality_is_one_of_everything() -> None:
    shuffled = ODD.shuffle(ODD.cardinality(), seed=1)

    assert run(shuffled.iterator(epoch=0)) == run(ODD.shuffle(1000, seed=1).iterator(epoch=0)) != run(ODD)
    assert sorted(run(shuffled)) == run(ODD)
    assert shuffled.cardinality() == gp.UNKNOWN_CARDINALITY


def test_passes_never_mix_and_each_has_its_own_order() -> None:
    twice = run(ODD.shuffle(-2, seed=1).repeat(2).iterator(epoch=0))

    assert sorted(twice[:20]) == sorted(twice[20:]) == run(ODD)
    assert twice[:20] != twice[20:]
    assert run(ODD.apply(compat.shuffle_and_repeat(-2, 2, seed=1)).iterator(epoch=0)) == twice


@pytest.mark.parametrize("endless", [ODD.repeat(), Dataset.range(3).repeat().batch(2), Dataset.counter()])
@pytest.mark.parametrize("size", [gp.UNKNOWN_CARDINALITY, gp.INFINITE_CARDINALITY])
def test_what_has_no_end_is_refused(endless: Dataset, size: int) -> None:
    with pytest.raises(gp.PlanError, match="needs a dataset that ends, got an infinite one; shuffle before repeat"):
        endless.shuffle(size)


def test_any_other_negative_number_is_refused() -> None:
    for size in (0, -1, -3):
        with pytest.raises(gp.PlanError, match=r"buffer_size >= 1, .*use gpupipe.ALL, or UNKNOWN_CARDINALITY where"):
            ODD.shuffle(size)
