"""shuffle(gp.UNKNOWN_CARDINALITY): a buffer that holds everything, for what has no index."""

from __future__ import annotations

import pytest

import gpupipe as gp
from gpupipe import Dataset, compat
from tests.behaviour.model import run

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
