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


def unique(found: Sequence[Any]) -> bool:
    return len(set(found)) == len(found)


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


def test_keys_are_unique(files: list[str]) -> None:
    found = keys(base(files))

    assert len(found) == FILES * RECORDS
    assert unique(found)


def test_the_order_of_an_interleave_does_not_matter(files: list[str]) -> None:
    one_by_one = gp.Dataset.list_files(files, shuffle=False).flat_map(gp.TFRecordDataset)

    assert set(keys(base(files))) == set(keys(one_by_one)) == set(keys(gp.TFRecordDataset(files)))


def test_another_directory_with_the_same_names_keeps_keys(files: list[str], tmp_path: Path) -> None:
    moved = [str(shutil.copy(path, tmp_path)) for path in files]

    assert keys(base(moved)) == keys(base(files))
    assert keys(gp.TFRecordDataset(moved)) == keys(gp.TFRecordDataset(files))


def test_shards_of_elements_keep_keys(files: list[str]) -> None:
    halves = [set(keys(base(files).shard(2, i))) for i in range(2)]

    assert halves[0] | halves[1] == set(keys(base(files)))
    assert not halves[0] & halves[1]


def test_shards_of_files_keep_keys(files: list[str]) -> None:
    def shard(i: int) -> gp.Dataset:
        return gp.Dataset.list_files(files, shuffle=False).shard(2, i).interleave(gp.TFRecordDataset, cycle_length=3)

    assert set(keys(shard(0))) | set(keys(shard(1))) == set(keys(base(files)))


def test_files_sliced_in_python_keep_keys(files: list[str]) -> None:
    assert set(keys(base(files[0::2]))) | set(keys(base(files[1::2]))) == set(keys(base(files)))


def test_a_file_that_is_listed_twice_gives_distinct_keys(files: list[str]) -> None:
    assert unique(keys(gp.TFRecordDataset(files + files[:1])))
    assert unique(keys(gp.Dataset.from_tensor_slices(files + files[:1]).flat_map(gp.TFRecordDataset)))


def test_shuffle_keeps_keys(files: list[str]) -> None:
    shuffled = keys(base(files).shuffle(7))

    assert set(shuffled) == set(keys(base(files)))
    assert shuffled != keys(base(files))


def test_concatenate_of_a_chain_with_itself_is_distinct_and_keeps_its_first_half(files: list[str]) -> None:
    ds = base(files)
    twice, once = keys(ds.concatenate(ds)), keys(ds)

    assert unique(twice)
    assert twice[: len(once)] == once


def test_passes_of_repeat_are_distinct_and_the_first_is_unchanged(files: list[str]) -> None:
    thrice, once = keys(base(files).repeat(3)), keys(base(files))

    assert len(thrice) == 3 * len(once)
    assert unique(thrice)
    assert thrice[: len(once)] == once


def test_repeat_of_repeat_is_distinct(files: list[str]) -> None:
    found = keys(base(files).repeat(2).repeat(2))

    assert len(found) == 4 * FILES * RECORDS
    assert unique(found)


def test_zip_has_the_keys_of_its_first_input(files: list[str]) -> None:
    assert keys(gp.Dataset.zip(base(files), numbers(30))) == keys(base(files))


def test_random_ops_in_two_zipped_branches_are_independent() -> None:
    pairs = draws(gp.Dataset.zip(random(numbers(50)), random(numbers(50))))

    assert len(pairs) == 50
    assert sum(left[1] == right[1] for left, right in pairs) < 5


def test_filling_and_replaying_a_cache_give_equal_keys(files: list[str]) -> None:
    ds = base(files).cache()
    filling, replaying = keys(ds, 0), keys(ds, 1)

    assert len(filling) == FILES * RECORDS
    assert filling == replaying
    assert unique(filling)


def test_passes_over_a_cache_are_distinct(files: list[str]) -> None:
    found = keys(base(files).cache().repeat(2))

    assert len(found) == 2 * FILES * RECORDS
    assert unique(found)


def test_cached_random_values_do_not_depend_on_the_epoch_that_filled_the_cache(files: list[str]) -> None:
    assert draws(random(base(files)).cache(), 0) == draws(random(base(files)).cache(), 5)


def test_random_ops_behind_a_cache_differ_between_epochs(files: list[str]) -> None:
    ds = random(base(files).cache())

    first, second = draws(ds, 0), draws(ds, 1)

    assert [x for x, _ in first] == [x for x, _ in second]
    assert sum(a == b for (_, a), (_, b) in zip(first, second, strict=True)) < 3


def test_a_random_map_before_or_behind_a_shuffle_gives_a_record_the_same_value(files: list[str]) -> None:
    before, behind = draws(random(base(files)).shuffle(9)), draws(random(base(files).shuffle(9)))

    assert len(before) == FILES * RECORDS
    assert dict(before) == dict(behind)


def test_a_random_map_before_or_behind_a_repeat_gives_the_same_stream(files: list[str]) -> None:
    assert draws(random(base(files).repeat(2))) == draws(random(base(files)).repeat(2))


def test_elements_repeated_one_by_one_are_distinct(files: list[str]) -> None:
    found = keys(base(files).flat_map(lambda x: gp.Dataset.from_tensors(x).repeat(3)))

    assert len(found) == 3 * FILES * RECORDS
    assert unique(found)


def test_a_shuffle_inside_flat_map_differs_from_file_to_file(files: list[str]) -> None:
    def shuffled(path: Any) -> gp.Dataset:
        return gp.TFRecordDataset(path).shuffle(99)

    ds = gp.Dataset.list_files(files, shuffle=False).flat_map(shuffled)
    found = [value[0] for value, _ in elements(ds)]
    records = [bytes(x.read()) if hasattr(x, "read") else bytes(x) for x in found]

    orders = [tuple(record[:8] for record in records[i : i + RECORDS]) for i in range(0, len(records), RECORDS)]
    assert len(orders) == FILES and all(unique(order) for order in orders)
    assert len(set(orders)) > 1
    assert keys(ds) == keys(ds)


def test_concatenations_on_the_left_are_distinct() -> None:
    assert unique(keys(numbers(9).concatenate(numbers(9)).concatenate(numbers(9))))


def test_concatenations_on_the_right_are_distinct() -> None:
    assert unique(keys(numbers(9).concatenate(numbers(9).concatenate(numbers(9)))))


def test_repeat_of_concatenate_and_concatenate_of_repeats_are_distinct() -> None:
    both = numbers(9).concatenate(numbers(9)).repeat(2)
    each = numbers(9).repeat(2).concatenate(numbers(9).repeat(2))

    assert unique(keys(both)) and len(keys(both)) == 36
    assert unique(keys(each)) and len(keys(each)) == 36


def test_repeat_three_deep_is_distinct(files: list[str]) -> None:
    found = keys(base(files).repeat(2).repeat(2).repeat(2))

    assert len(found) == 8 * FILES * RECORDS
    assert unique(found)


def test_a_repeat_behind_a_map_behind_a_repeat_is_distinct() -> None:
    assert unique(keys(random(numbers(9).repeat(2)).repeat(2)))


def test_a_batch_keeps_the_keys_of_its_rows(files: list[str]) -> None:
    assert keys(base(files).batch(4).unbatch()) == keys(base(files))


def test_a_batch_of_one_pass_and_a_batch_across_passes_keep_keys(files: list[str]) -> None:
    assert keys(base(files).repeat(2).batch(7).unbatch()) == keys(base(files).repeat(2))


def test_rewriting_the_plan_keeps_keys(files: list[str]) -> None:
    ds = base(files).shuffle(8).repeat(2).skip(3).skip(2).take(40).take(30)
    plain = ds.with_options(gp.Options(disabled_rules=tuple(rules())))

    assert keys(ds) == keys(plain)
    assert len(keys(ds)) == 30


def rules() -> list[str]:
    from gpupipe.optimize.rules import graph_rules
    from gpupipe.optimize.rules import plan_rules as rules

    return [*graph_rules.GRAPH_RULES, *(rule.__name__ for rule in rules.PLAN_RULES)]
