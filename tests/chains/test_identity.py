"""Identity: which elements draw alike, for every way to compose a chain. No image is needed to ask."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.flow.run import Context, Run
from gpupipe.optimize.lower.compile import lower_in
from gpupipe.random import mix64

FILES = 6
RECORDS = 5


def elements(ds: gp.Dataset, epoch: int = 0) -> list[tuple[Any, int]]:
    """What a chain delivers, with the key of each element."""
    run = Run(ds.options().resolve())
    at = Context(run, epoch)
    try:
        flow = lower_in(ds.plan, run.settings, at).flow
        return [(value, mix64(stream.key, position)) for value, stream, position in flow.open(at)]
    finally:
        run.close()


def keys(ds: gp.Dataset, epoch: int = 0) -> list[int]:
    return [key for _, key in elements(ds, epoch)]


def draws(ds: gp.Dataset, epoch: int = 0) -> list[Any]:
    """What a chain delivers."""
    with ds.iterator(epoch) as items:
        return list(items)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("d")
    paths = [str(folder / f"train-{i:02d}") for i in range(FILES)]
    for i, path in enumerate(paths):
        with gp.io.TFRecordWriter(path) as writer:
            for j in range(RECORDS):
                writer.write(b"record %d of file %d" % (j, i))
    return paths


def base(files: Sequence[str]) -> gp.Dataset:
    return gp.Dataset.list_files(list(files), shuffle=False).interleave(gp.TFRecordDataset, cycle_length=3)


def with_number(x: Any, rng: Any) -> Any:
    """A random op: its number depends on the element's identity and on the epoch."""
    return x, rng.integers(0, 2**31)


def random(ds: gp.Dataset) -> gp.Dataset:
    return ds.map(with_number, rng=True)


def numbers(count: int) -> gp.Dataset:
    return gp.Dataset.range(count)


def rules() -> list[str]:
    from gpupipe.optimize.rules import graph_rules
    from gpupipe.optimize.rules import plan_rules as rules

    return [*graph_rules.GRAPH_RULES, *(rule.__name__ for rule in rules.PLAN_RULES)]


def one_by_one(files: list[str]) -> gp.Dataset:
    return gp.Dataset.list_files(files, shuffle=False).flat_map(gp.TFRecordDataset)


def shard_of_files(files: list[str], i: int) -> gp.Dataset:
    return gp.Dataset.list_files(files, shuffle=False).shard(2, i).interleave(gp.TFRecordDataset, cycle_length=3)


ALL = FILES * RECORDS

DISTINCT: dict[str, tuple[int, Any]] = {
    "interleave": (ALL, base),
    "a file that is listed twice": (ALL + RECORDS, lambda f: gp.TFRecordDataset(f + f[:1])),
    "a file twice in a dataset": (
        ALL + RECORDS,
        lambda f: gp.Dataset.from_tensor_slices(f + f[:1]).flat_map(gp.TFRecordDataset),
    ),
    "concatenate with itself": (2 * ALL, lambda f: base(f).concatenate(base(f))),
    "concatenate on the left": (27, lambda f: numbers(9).concatenate(numbers(9)).concatenate(numbers(9))),
    "concatenate on the right": (27, lambda f: numbers(9).concatenate(numbers(9).concatenate(numbers(9)))),
    "repeat": (3 * ALL, lambda f: base(f).repeat(3)),
    "repeat three deep": (8 * ALL, lambda f: base(f).repeat(2).repeat(2).repeat(2)),
    "repeat, map, repeat": (36, lambda f: random(numbers(9).repeat(2)).repeat(2)),
    "repeat of concatenate": (36, lambda f: numbers(9).concatenate(numbers(9)).repeat(2)),
    "concatenate of repeats": (36, lambda f: numbers(9).repeat(2).concatenate(numbers(9).repeat(2))),
    "cache": (ALL, lambda f: base(f).cache()),
    "cache, repeat": (2 * ALL, lambda f: base(f).cache().repeat(2)),
    "repeated one by one": (3 * ALL, lambda f: base(f).flat_map(lambda x: gp.Dataset.from_tensors(x).repeat(3))),
}


@pytest.mark.parametrize("name", DISTINCT)
def test_keys_are_distinct(files: list[str], name: str) -> None:
    count, chain = DISTINCT[name]
    found = keys(chain(files))

    assert len(found) == count
    assert len(set(found)) == count


def rewritten(files: list[str]) -> gp.Dataset:
    return base(files).shuffle(8).repeat(2).skip(3).skip(2).take(40).take(30)


EQUAL: dict[str, tuple[Any, Any]] = {
    "zip has the keys of its first input": (lambda f: gp.Dataset.zip(base(f), numbers(30)), base),
    "batch and unbatch": (lambda f: base(f).batch(4).unbatch(), base),
    "batches across passes": (lambda f: base(f).repeat(2).batch(7).unbatch(), lambda f: base(f).repeat(2)),
    "the first pass": (lambda f: base(f).repeat(3).take(ALL), base),
    "the first half": (lambda f: base(f).concatenate(base(f)).take(ALL), base),
    "rewritten": (rewritten, lambda f: rewritten(f).with_options(gp.Options(disabled_rules=tuple(rules())))),
}


@pytest.mark.parametrize("name", EQUAL)
def test_keys_are_equal_in_order(files: list[str], name: str) -> None:
    one, other = EQUAL[name]

    assert keys(one(files)) == keys(other(files))


SAME_SET: dict[str, Any] = {
    "one file after the other": lambda f: [one_by_one(f)],
    "records of files": lambda f: [gp.TFRecordDataset(f)],
    "shards of elements": lambda f: [base(f).shard(2, i) for i in range(2)],
    "shards of files": lambda f: [shard_of_files(f, i) for i in range(2)],
    "files sliced in Python": lambda f: [base(f[0::2]), base(f[1::2])],
    "shuffle": lambda f: [base(f).shuffle(7)],
}


@pytest.mark.parametrize("name", SAME_SET)
def test_keys_do_not_depend_on_the_order_or_on_shards(files: list[str], name: str) -> None:
    found = [key for part in SAME_SET[name](files) for key in keys(part)]

    assert sorted(found) == sorted(keys(base(files)))
    assert found != keys(base(files))


def test_another_directory_with_the_same_names_keeps_keys(files: list[str], tmp_path: Path) -> None:
    moved = [str(shutil.copy(path, tmp_path)) for path in files]

    assert keys(base(moved)) == keys(base(files))
    assert keys(gp.TFRecordDataset(moved)) == keys(gp.TFRecordDataset(files))


def test_cached_random_values_do_not_depend_on_the_epoch_that_filled_the_cache(files: list[str]) -> None:
    assert draws(random(base(files)).cache(), 0) == draws(random(base(files)).cache(), 5)


def test_a_random_map_before_or_behind_a_shuffle_gives_a_record_the_same_value(files: list[str]) -> None:
    before, behind = draws(random(base(files)).shuffle(9)), draws(random(base(files).shuffle(9)))

    assert len(before) == FILES * RECORDS
    assert dict(before) == dict(behind)


def test_a_random_map_before_or_behind_a_repeat_gives_the_same_stream(files: list[str]) -> None:
    assert draws(random(base(files).repeat(2))) == draws(random(base(files)).repeat(2))
