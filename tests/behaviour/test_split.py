"""split: parts with no element in common, the same in every epoch; from_indexable: anything with items by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.chains.damage import write

Range = gp.Dataset.range
NUMBER = gp.TensorSpec((), "int64")


def order(ds: gp.Dataset, epoch: int = 0) -> list[int]:
    return [int(x) for x in ds.iterator(epoch)]


# ---- split


@pytest.mark.parametrize("n", [0, 1, 3, 10, 999])
@pytest.mark.parametrize("fractions", [[1], [0.8, 0.1, 0.1], [0.5, 0.5], [1 / 3, 1 / 3, 1 / 3], [0.0, 1.0]], ids=str)
def test_parts_are_disjoint_and_complete(n: int, fractions: list[float]) -> None:
    parts = Range(n).split(fractions, seed=1)
    found = [order(part) for part in parts]

    assert sorted(x for one in found for x in one) == list(range(n))
    assert [len(part) for part in parts] == [len(one) for one in found]
    assert all(abs(len(one) - n * f) < 1 for one, f in zip(found, fractions, strict=True))


@pytest.mark.parametrize(
    ("n", "fractions", "sizes"),
    [
        (10, [0.8, 0.1, 0.1], [8, 1, 1]),
        (11, [0.8, 0.1, 0.1], [9, 1, 1]),  # 8.8, 1.1, 1.1
        (15, [0.8, 0.1, 0.1], [12, 2, 1]),  # 12, 1.5, 1.5: the first of equal remainders
        (100, [0.29, 0.71], [29, 71]),  # 0.29 * 100 is below 29 in floating point
        (7, [1 / 3, 1 / 3, 1 / 3], [3, 2, 2]),
        (1, [0.5, 0.5], [1, 0]),
        (1_000_003, [0.7, 0.3], [700_002, 300_001]),
    ],
)
def test_sizes_are_by_largest_remainder(n: int, fractions: list[float], sizes: list[int]) -> None:
    assert [part.cardinality() for part in Range(n).split(fractions)] == sizes


def test_parts_are_stable() -> None:
    ds = Range(1000)
    train, test = ds.split([0.9, 0.1], seed=4)
    first = order(test)

    assert order(test, epoch=3) == first
    assert order(test.with_options(gp.Options(seed=9))) == first
    assert order(Range(1000).split([0.9, 0.1], seed=4)[1]) == first
    assert order(test.repeat(2)) == first * 2
    assert set(order(train, epoch=1)) == set(range(1000)) - set(first)


def test_a_part_is_no_piece_of_the_input() -> None:
    _, test = Range(10_000).split([0.9, 0.1])
    found = np.array(order(test))

    assert len(np.unique(found // 1000)) == 10
    assert (np.diff(found) < 0).sum() > 300  # in random order, too


def test_parts_of_records_are_counted_when_asked(tmp_path: Path) -> None:
    write(tmp_path / "r", [b"%d" % i for i in range(25)])
    ds = gp.TFRecordDataset(tmp_path / "r")

    train, test = ds.split([0.8, 0.2])

    assert train.cardinality() == gp.UNKNOWN_CARDINALITY
    assert (len(train), len(test)) == (20, 5)
    assert sorted(int(x) for part in (train, test) for x in part) == list(range(25))
    assert int(train[0]) == int(next(iter(train)))


@pytest.mark.parametrize(
    ("fractions", "error", "text"),
    [
        ([], ValueError, "whose sum is 1"),
        ([0.5, 0.6], ValueError, "whose sum is 1, got .* with 1.1"),
        ([1.5, -0.5], ValueError, "fractions from 0 to 1, got 1.5"),
        ([float("nan"), 1], ValueError, "fractions from 0 to 1, got nan"),
        (["0.5", 0.5], TypeError, "needs numbers, got '0.5'"),
        ([True], TypeError, "needs numbers, got True"),
    ],
    ids=str,
)
def test_wrong_fractions_are_refused(fractions: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"split needs .*{text}|split {text}"):
        Range(10).split(fractions)


def test_a_wrong_seed_and_an_endless_input_are_refused() -> None:
    with pytest.raises(TypeError, match="split needs an integer for seed, got None"):
        Range(10).split([1.0], seed=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="split needs a dataset that ends"):
        Range(10).repeat().split([1.0])


# ---- from_indexable


class Pairs:
    """As a map-style dataset of PyTorch is written."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[Any, int]:
        if i == 13:
            raise ValueError("unlucky")
        if i == 14:
            raise IndexError("gone")  # which ends no iteration
        if type(i) is not int or not 0 <= i < self.n:
            raise IndexError(i)
        return np.full(3, i, np.float32), i * i


@pytest.mark.parametrize("calls", [None, 3, gp.AUTOTUNE])
def test_items_come_in_order(calls: int | None) -> None:
    ds = gp.Dataset.from_indexable(Pairs(9), num_parallel_calls=calls)

    assert ds.cardinality() == len(ds) == 9
    found = list(ds)
    assert [(x.tolist(), int(y)) for x, y in found] == [([i] * 3, i * i) for i in range(9)]
    assert [y.tolist() for _, y in ds.batch(4)] == [[0, 1, 4, 9], [16, 25, 36, 49], [64]]
    assert int(ds[-1][1]) == 64
    assert sorted(int(y) for _, y in ds.shuffle(gp.ALL)) == [i * i for i in range(9)]


def test_an_exception_of_an_item_is_the_error_of_that_element() -> None:
    ds = gp.Dataset.from_indexable(Pairs(16))

    with pytest.raises(
        gp.DataError, match="from_indexable at index 13: from_indexable: raised ValueError: unlucky"
    ) as e:
        list(ds)
    assert isinstance(e.value.__cause__, ValueError)
    with pytest.raises(gp.DataError, match="unlucky"):
        ds[13]
    kept = [int(y) for _, y in ds.with_options(gp.Options(on_error="skip"))]
    assert kept == [i * i for i in range(16) if i not in (13, 14)]


def test_a_spec_is_checked() -> None:
    ds = gp.Dataset.from_indexable([1, 2, 2.5], spec=NUMBER)

    assert ds.element_spec == NUMBER
    assert int(ds[1]) == 2
    with pytest.raises(gp.DataError, match=r"from_indexable at index 2: .*int64"):
        ds[2]


@pytest.mark.parametrize(
    "items", [{1: 2}, {1, 2}, iter([1]), 5, (x for x in [1]), None], ids=lambda x: type(x).__name__
)
def test_what_has_no_items_by_number_is_refused(items: Any) -> None:
    with pytest.raises(TypeError, match="from_indexable needs an object with __len__ and __getitem__"):
        gp.Dataset.from_indexable(items)
