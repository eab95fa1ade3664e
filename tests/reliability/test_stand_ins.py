"""`iterator.valid` tells stand-ins for bad elements from what was read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.chains.data import on, parse
from tests.reliability.bad_records import BATCH, INT, Shards, doubled, host, inverse, kinds_in_turn, train
from tests.reliability.executors import EXECUTORS

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_threads_left", "quiet")]


def masks(ds: gp.Dataset) -> list[Any]:
    """What `iterator.valid` says of each element."""
    with ds.iterator(0) as items:
        return [np.asarray(items.valid).tolist() for _ in items]


def first_three(rows: Any) -> Any:
    """A Python function that changes the number of rows."""
    return np.array(rows.tolist()[:3])


VALID: dict[str, tuple[Callable[[gp.Dataset], gp.Dataset], list[Any]]] = {
    "batches": (lambda ds: ds.batch(4), [[False, True, True, False], [True, True, False, True]]),
    "elements": (lambda ds: ds, [False, True, True, False, True, True, False, True]),
    "behind prefetch": (lambda ds: ds.batch(5).prefetch(2), [[False, True, True, False, True], [True, False, True]]),
    "a map on batches": (
        lambda ds: ds.batch(4).map(lambda x: x + 1),
        [[False, True, True, False], [True, True, False, True]],
    ),
    "unbatch": (lambda ds: ds.batch(4).unbatch(), [False, True, True, False, True, True, False, True]),
    "batches of batches": (lambda ds: ds.batch(2).batch(2), [[False, False], [True, False]]),
    "windows": (
        lambda ds: ds.window(4).flat_map(lambda w: w.batch(4)),
        [[False, True, True, False], [True, True, False, True]],
    ),
    "a cache": (lambda ds: ds.batch(4).cache().repeat(2), [[False, True, True, False], [True, True, False, True]] * 2),
    "a filter behind": (lambda ds: ds.batch(4).unbatch().filter(lambda x: x < 5), [False, True, True, False, True]),
    "a Python function of rows": (lambda ds: ds.batch(4).map(first_three), [[False] * 3] * 2),
    "a Python function of batches": (
        lambda ds: ds.batch(4).map(doubled),
        [[False, True, True, False], [True, True, False, True]],
    ),
}


@pytest.mark.parametrize(("chain", "expected"), VALID.values(), ids=list(VALID))
def test_valid_tells_stand_ins_from_what_was_read(
    chain: Callable[[gp.Dataset], gp.Dataset], expected: list[Any]
) -> None:
    ds = chain(gp.Dataset.range(8).map(inverse, spec=INT)).with_options(gp.Options(on_error="replace"))

    assert masks(ds) == expected


def test_valid_of_several_before_the_first_good_element() -> None:
    def late(x: Any) -> Any:
        return int(x) if int(x) > 2 else 1 // 0

    with gp.Dataset.range(5).map(late, spec=INT).with_options(gp.Options(on_error="replace")).iterator(0) as items:
        assert [(int(x), items.valid) for x in items] == [(3, False), (3, False), (3, False), (3, True), (4, True)]


def test_valid_is_true_where_nothing_is_replaced() -> None:
    skipped = gp.Dataset.range(8).map(inverse, spec=INT).with_options(gp.Options(on_error="skip"))

    assert masks(skipped.batch(4)) == [[True] * 4, [True]]
    assert masks(skipped) == [True] * 5


def test_valid_needs_an_element() -> None:
    with gp.Dataset.range(3).iterator(0) as items, pytest.raises(gp.PlanError, match=r"call next\(\) first"):
        _ = items.valid


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    "places", [[0, 1, 17, 30, 63], list(range(16, 32)), list(range(40))], ids=["some", "a batch", "most"]
)
def test_valid_of_a_transform_stage(tmp_path: Path, executor: str, places: list[int]) -> None:
    kinds = kinds_in_turn(places)
    shards = Shards(tmp_path / "good", 64, 1).write().damaged(tmp_path / "data", kinds)
    ds = gp.TFRecordDataset(shards.path(0)).map(train).batch(BATCH).with_options(on(executor, on_error="replace"))

    found: list[tuple[bool, int]] = []
    with ds.iterator(0) as items:
        for _, labels in items:
            assert items.valid.dtype == bool and items.valid.shape == (BATCH,)
            found += zip(items.valid.tolist(), host(labels).tolist(), strict=True)

    assert [valid for valid, _ in found] == [n not in kinds for n in range(64)]
    assert [label for valid, label in found if valid] == [n for n in range(64) if n not in kinds]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_valid_of_rows_of_a_batch_that_the_user_made(tmp_path: Path, executor: str) -> None:
    kinds = {1: "DQT removed", 6: "12 bits", 8: "Huffman counts of 255"}
    shards = Shards(tmp_path / "good", 16, 1).write().damaged(tmp_path / "data", kinds)

    def later(encoded: Any, label: Any) -> Any:
        return ops.decode_jpeg(encoded, channels=3), label

    ds = gp.TFRecordDataset(shards.path(0)).map(parse).batch(8).cache().map(later)

    assert masks(ds.with_options(on(executor, on_error="replace"))) == [
        [n not in kinds for n in range(8)],
        [n not in kinds for n in range(8, 16)],
    ]
