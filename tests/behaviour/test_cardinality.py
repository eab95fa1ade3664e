"""cardinality: the table of the reference. Never a wrong number, and UNKNOWN where only reading would tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec
from tests.behaviour.model import run

INFINITE, UNKNOWN = gp.INFINITE_CARDINALITY, gp.UNKNOWN_CARDINALITY

FINITE = Dataset.range(10)
ENDLESS = Dataset.range(10).repeat()
FILTERED = Dataset.range(10).filter(lambda x: x >= 0)

ROWS: list[tuple[str, Callable[[Dataset], Dataset], tuple[int, int, int]]] = [
    ("map", lambda d: d.map(lambda x: x + 1), (10, -1, -2)),
    ("python map", lambda d: d.map(lambda x: int(x)), (10, -1, -2)),
    ("prefetch", lambda d: d.prefetch(2), (10, -1, -2)),
    ("cache", lambda d: d.cache(), (10, -1, -2)),
    ("shuffle", lambda d: d.shuffle(3), (10, -1, -2)),
    ("enumerate", lambda d: d.enumerate(), (10, -1, -2)),
    ("with_options", lambda d: d.with_options(gp.Options(threads=1)), (10, -1, -2)),
    ("filter", lambda d: d.filter(lambda x: x > 3), (-2, -2, -2)),
    ("flat_map", lambda d: d.flat_map(lambda x: Dataset.from_tensors(x)), (-2, -2, -2)),
    ("interleave", lambda d: d.interleave(lambda x: Dataset.from_tensors(x)), (-2, -2, -2)),
    ("batch(3)", lambda d: d.batch(3), (4, -1, -2)),
    ("padded_batch(3)", lambda d: d.padded_batch(3), (4, -1, -2)),
    ("batch(3, True)", lambda d: d.batch(3, drop_remainder=True), (3, -1, -2)),
    ("padded_batch(3, True)", lambda d: d.padded_batch(3, drop_remainder=True), (3, -1, -2)),
    ("shard(3, 0)", lambda d: d.shard(3, 0), (4, -1, -2)),
    ("shard(3, 1)", lambda d: d.shard(3, 1), (3, -1, -2)),
    ("repeat(0)", lambda d: d.repeat(0), (0, 0, 0)),
    ("repeat(2)", lambda d: d.repeat(2), (20, -1, -2)),
    ("repeat()", lambda d: d.repeat(), (-1, -1, -1)),
    ("take(0)", lambda d: d.take(0), (0, 0, -2)),
    ("take(3)", lambda d: d.take(3), (3, 3, -2)),
    ("take(30)", lambda d: d.take(30), (10, 30, -2)),
    ("take(-1)", lambda d: d.take(-1), (10, -1, -2)),
    ("skip(3)", lambda d: d.skip(3), (7, -1, -2)),
    ("skip(30)", lambda d: d.skip(30), (0, -1, -2)),
    ("skip(-1)", lambda d: d.skip(-1), (0, -1, -2)),
    ("concatenate finite", lambda d: d.concatenate(Dataset.range(2)), (12, -1, -2)),
    ("concatenate endless", lambda d: d.concatenate(ENDLESS), (-1, -1, -1)),
    ("concatenate unknown", lambda d: d.concatenate(FILTERED), (-2, -1, -2)),
    ("zip range(3)", lambda d: Dataset.zip(d, Dataset.range(3)), (3, 3, -2)),
    ("zip endless", lambda d: Dataset.zip(d, ENDLESS), (10, -1, -2)),
    ("batch(2, True).unbatch()", lambda d: d.batch(2, drop_remainder=True).unbatch(), (10, -1, -2)),
    ("batch(2).unbatch()", lambda d: d.batch(2).unbatch(), (-2, -1, -2)),
]


@pytest.mark.parametrize(("make", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_the_table_holds(make: Callable[[Dataset], Dataset], expected: tuple[int, int, int]) -> None:
    assert tuple(make(source).cardinality() for source in (FINITE, ENDLESS, FILTERED)) == expected


@pytest.mark.parametrize("make", [pytest.param(row[1], id=row[0]) for row in ROWS])
def test_a_known_number_is_the_number_of_elements(make: Callable[[Dataset], Dataset]) -> None:
    for source in (FINITE, ENDLESS, FILTERED):
        count = make(source).cardinality()
        if count >= 0:
            assert len(run(make(source))) == count == len(make(source))
        elif count == INFINITE:
            assert len(run(make(source).take(31))) == (31 if make is not _SKIPS_ALL else 0)


_SKIPS_ALL = next(row[1] for row in ROWS if row[0] == "skip(-1)")


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (Dataset.from_tensors(1), 1),
        (Dataset.from_tensor_slices([1, 2, 3]), 3),
        (Dataset.range(10, 0, -3), 4),
        (Dataset.from_generator(lambda: iter([1]), output_signature=TensorSpec((), "int64")), UNKNOWN),
        (gp.TFRecordDataset([]), UNKNOWN),
    ],
    ids=["from_tensors", "from_tensor_slices", "range", "from_generator", "TFRecordDataset"],
)
def test_sources(dataset: Dataset, expected: int) -> None:
    assert dataset.cardinality() == expected


def test_len_says_why_there_is_none() -> None:
    with pytest.raises(TypeError, match="infinite"):
        len(ENDLESS)
    with pytest.raises(TypeError, match="unknown"):
        len(FILTERED)


def test_a_dataset_is_true_even_if_it_is_empty() -> None:
    assert Dataset.range(0)
    assert ENDLESS
