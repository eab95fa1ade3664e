"""Within one stream a column is on the GPU or on the host, whatever its elements come from."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.spec import flatten
from gpupipe.transform.array import on_gpu, to_host
from tests.behaviour.a_gpu import a_gpu
from tests.stand_in_gpu import note_kinds

__all__ = ["a_gpu"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("a_gpu")]

IMAGES = np.arange(8 * 8 * 8 * 3, dtype=np.int64).reshape(8, 8, 8, 3).astype(np.uint8)
GPU = Options(device="gpu")
HOST = Options(device="cpu", backend="numpy")
STREAM = Dataset.from_tensor_slices


def _same(x: Any) -> Any:
    return np.array(x)


def _keep(x: Any) -> bool:
    return True


def _generated() -> Any:
    yield IMAGES[:4]
    yield IMAGES[4:]


def _by_value(n: Any) -> Dataset:
    return _images() if int(n) % 2 else STREAM(IMAGES[::-1]).batch(4)


def _images() -> Dataset:
    return STREAM(IMAGES).map(ops.flip_left_right).batch(4)


SOURCES: dict[str, Callable[[], Dataset]] = {
    "images": _images,
    "other images": lambda: STREAM(IMAGES[::-1]).map(ops.flip_up_down).batch(2),
    "single images": lambda: STREAM(IMAGES).map(ops.flip_left_right),
    "batches of the host": lambda: STREAM(IMAGES).batch(4),
    "one batch": lambda: Dataset.from_tensors(IMAGES[:4]),
    "rows of the host": lambda: STREAM(IMAGES),
    "python": lambda: STREAM(IMAGES).batch(4).map(_same, traced=False),
    "python on images": lambda: _images().map(_same, traced=False),
    "generator": lambda: Dataset.from_generator(_generated),
    "cache": lambda: _images().cache(),
    "filter": lambda: _images().filter(_keep),
    "padded": lambda: STREAM(IMAGES).map(ops.flip_left_right).padded_batch(4),
    "rebatch": lambda: _images().rebatch(3),
    "flat_map": lambda: Dataset.range(2).flat_map(lambda n: _images()),
    "made": lambda: Dataset.range(2).flat_map(_by_value),
    "made the other way": lambda: Dataset.range(2).interleave(lambda n: _by_value(1 - int(n)), cycle_length=2),
}

STEPS: dict[str, Callable[[Dataset], Dataset]] = {
    "nothing": lambda ds: ds,
    "take": lambda ds: ds.take(3),
    "repeat": lambda ds: ds.repeat(2),
    "shuffle": lambda ds: ds.shuffle(3, seed=1, reshuffle_each_iteration=False),
    "prefetch": lambda ds: ds.prefetch(2),
    "ignore_errors": lambda ds: ds.ignore_errors(),
}
"""Steps that keep the structure."""

SHAPES: dict[str, Callable[[Dataset], Dataset]] = {
    "alone": lambda ds: ds,
    "enumerate": lambda ds: ds.enumerate(),
    "with numbers": lambda ds: Dataset.zip((ds, Dataset.range(100).map(lambda n: n * 2))),
    "swapped": lambda ds: ds.enumerate().map(lambda n, x: (x, n)),
    "with labels": lambda ds: Dataset.zip({"y": Dataset.range(100).batch(4), "x": ds}),
}
"""Structures, the same for all inputs of a combiner."""

COMBINERS: dict[str, Callable[[list[Dataset]], Dataset]] = {
    "concatenate": lambda many: functools.reduce(Dataset.concatenate, many),
    "sample": lambda many: Dataset.sample_from_datasets(many, seed=3, rerandomize_each_iteration=False),
    "choose": lambda many: Dataset.choose_from_datasets(many, Dataset.range(len(many)).repeat(9)),
}


def _kinds(stream: Any) -> list[set[str]]:
    """Where the arrays of each column are; numbers without axes are nowhere."""
    kinds: list[set[str]] = []
    for element in stream:
        leaves = flatten(element)[0]
        kinds = kinds or [set() for _ in leaves]
        for column, leaf in zip(kinds, leaves, strict=True):
            if np.ndim(0 if on_gpu(leaf) else leaf) or on_gpu(leaf):
                column.add("gpu" if on_gpu(leaf) else "host")
    return kinds


def _values(stream: Any) -> list[Any]:
    return [[to_host(leaf) for leaf in flatten(element)[0]] for element in stream]


def _check(ds: Dataset) -> list[set[str]]:
    kinds = _kinds(ds.with_options(GPU))

    assert all(len(column) <= 1 for column in kinds), f"{kinds}\n{ds.with_options(GPU).explain()}"
    np.testing.assert_equal(_values(ds.with_options(GPU)), _values(ds.with_options(HOST)))
    return kinds


@pytest.mark.parametrize(("source", "combiner"), [*itertools.product(SOURCES, COMBINERS)])
def test_images_beside_another_source_are_of_one_kind(source: str, combiner: str) -> None:
    """With a structure in turn: every source and combiner meets most of them, `_random_chain` the others."""
    turn = list(SOURCES).index(source) + 2 * list(COMBINERS).index(combiner)
    shape = list(SHAPES.values())[turn % len(SHAPES)]
    for pair in ((_images(), SOURCES[source]()), (SOURCES[source](), _images())):
        assert {"gpu"} in _check(COMBINERS[combiner]([shape(ds) for ds in pair]))


def test_a_column_stays_what_it_is_in_every_epoch_of_an_iterator() -> None:
    ds = Dataset.range(4).shuffle(4, seed=3).flat_map(_by_value).with_options(GPU)
    with ds.epochs(6) as items:
        found = [on_gpu(x) for x in items]

    assert len(found) == 6 * 8
    assert len(set(found)) == 1


def _random_chain(seed: int) -> tuple[str, Dataset]:
    choose = random.Random(seed)

    def pick(table: dict[str, Any]) -> Any:
        names.append(choose.choice(list(table)))
        return table[names[-1]]

    names: list[str] = []
    shape = pick(SHAPES)
    parts = [pick(STEPS)(shape(pick(STEPS)(pick(SOURCES)()))) for _ in range(choose.randint(1, 3))]
    while len(parts) > 1:
        parts = [pick(STEPS)(pick(COMBINERS)(parts[:2])), *parts[2:]]
    return ", ".join(names), parts[0].take(12)


@pytest.mark.parametrize("seed", range(40))
def test_chains_at_random_give_one_kind_in_each_column(seed: int) -> None:
    names, ds = _random_chain(seed)

    assert _check(ds), names


@pytest.mark.parametrize("there", [GPU, HOST], ids=["from a gpu", "to a gpu"])
@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_states_of_such_chains_go_on_on_the_other_machine(seed: int, there: Options) -> None:
    _, ds = _random_chain(seed)
    with iter(ds.with_options(there)) as items:
        next(items)
        text = json.dumps(items.state_dict())
        expected = _values(items)

    _, ds = _random_chain(seed)  # of another process: its caches are empty
    again = iter(ds.with_options(HOST if there is GPU else GPU))
    again.load_state_dict(json.loads(text))

    np.testing.assert_equal(_values(again), expected)


def test_explain_says_which_columns_are_copied_to_the_gpu() -> None:
    ds = _images().enumerate().concatenate(STREAM(IMAGES).batch(4).enumerate()).with_options(GPU)

    assert "'[1]' copied to GPU 0, where the others are" in str(ds.explain())


def test_columns_that_are_numbers_stay_numbers() -> None:
    ds = _images().enumerate().concatenate(STREAM(IMAGES).batch(4).enumerate()).with_options(GPU)

    assert [type(number) for number, _ in ds] == [type(next(iter(Dataset.range(1).enumerate()))[0])] * 4


def test_the_stand_in_refuses_a_leaf_that_moves() -> None:
    (there,) = _images().take(1).with_options(GPU)
    kinds: dict[int, str] = {}
    note_kinds(kinds, (1, there))
    note_kinds(kinds, (np.int64(2), there))

    with pytest.raises(AssertionError, match="leaf 1 is on the host, and was on the GPU before"):
        note_kinds(kinds, (3, IMAGES))
