"""Equal explicit seeds draw alike in all inputs of a zip; everything else keeps draws apart.

Each input holds the numbers 0 to 23, so that a pair matches where its parts are equal. Where tf.data is installed,
`tests/differential/test_tfdata_seeds.py` tries the same chains there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.flow.state.checkpoints import EVERY
from tests.behaviour.manifests import written
from tests.behaviour.model import plain
from tests.reliability.resume import goes_on, resumed_after, taken

N = 24

Chain = Callable[[Any], Any]


def numbers(n: int = N) -> Any:
    """0 to n - 1."""
    return Dataset.range(n)


def _in_turn(*inputs: Any) -> Any:
    return Dataset.choose_from_datasets(inputs, Dataset.range(2).repeat(N))


def _zipped(chain: Chain, other: Any = None) -> Any:
    """The numbers of a chain beside those of the same, or of another."""
    return Dataset.zip((chain(numbers()), chain(numbers()) if other is None else other))


def alike(dataset: Any, epoch: int = 0) -> int:
    """How many pairs match."""
    pairs = [plain(pair) for pair in dataset.iterator(epoch=epoch)]
    assert pairs
    return sum(len({str(part) for part in pair}) == 1 for pair in pairs)


PAIRED: dict[str, Chain] = {
    "shuffle": lambda x: x.shuffle(100, seed=1),
    "a buffer that is smaller": lambda x: x.shuffle(7, seed=1),
    "shuffle(ALL)": lambda x: x.shuffle(gp.ALL, seed=1),
    "shuffle(ALL) of batches": lambda x: x.batch(4).shuffle(gp.ALL, seed=1).unbatch(),
    "one order for all epochs": lambda x: x.shuffle(100, seed=1, reshuffle_each_iteration=False),
    "shuffle, repeat": lambda x: x.shuffle(100, seed=1).repeat(3),
    "shuffle(ALL), repeat": lambda x: x.shuffle(gp.ALL, seed=1).repeat(3),
    "repeat, shuffle": lambda x: x.repeat(2).shuffle(100, seed=1),
    "shuffle, shard": lambda x: x.shuffle(100, seed=1).shard(3, 1),
    "shuffle, concatenate": lambda x: x.shuffle(100, seed=1).concatenate(x.shuffle(100, seed=2)),
    "shuffle twice": lambda x: x.shuffle(5, seed=1).shuffle(100, seed=2),
    "cache, shuffle": lambda x: x.cache().shuffle(100, seed=1),
    "shuffle, batch, unbatch": lambda x: x.shuffle(100, seed=1).batch(5).unbatch(),
    "split": lambda x: x.split([0.5, 0.5], seed=3)[0].shuffle(gp.ALL, seed=1),
    "chosen from shuffled ones": lambda x: _in_turn(x.shuffle(100, seed=1), x.shuffle(100, seed=2)),
    "drawn from two": lambda x: Dataset.sample_from_datasets([x, x.skip(5)], seed=1),
    "drawn anew": lambda x: Dataset.sample_from_datasets([x, x.skip(5)], seed=1, rerandomize_each_iteration=True),
    "kept by class": lambda x: x.rejection_resample(lambda i: i % 2, [0.9, 0.1], [0.5, 0.5], 1).map(lambda which, i: i),
    "random numbers": lambda x: Dataset.zip((x, Dataset.random(seed=1, rerandomize_each_iteration=True))),
    "inner datasets": lambda x: x.flat_map(lambda i: numbers(n=5).shuffle(5, seed=1)),
    "shuffled outer ones": lambda x: x.shuffle(9, seed=2).interleave(lambda i: numbers(n=5).shuffle(5, seed=1), 3),
    "of a Python function": lambda x: numbers(n=3).flat_map(lambda i: numbers(n=int(i) + 4).shuffle(9, seed=1)),
    "windows": lambda x: x.window(6).flat_map(lambda w: w.shuffle(6, seed=1)),
}


@pytest.mark.parametrize("disabled", [(), ("shuffle_and_repeat", "drop_no_ops", "sink_selects")], ids=["", "no rules"])
@pytest.mark.parametrize("chain", PAIRED.values(), ids=PAIRED.keys())
def test_inputs_of_a_zip_with_equal_seeds_match(chain: Chain, disabled: tuple[str, ...]) -> None:
    zipped = _zipped(chain).with_options(Options(disabled_rules=disabled))
    seen = [list(map(plain, zipped.iterator(epoch=epoch))) for epoch in range(3)]

    assert all(a == b for epoch in seen for a, b in epoch)
    assert [a for a, _ in seen[1]] == [plain(x) for x in chain(numbers()).iterator(epoch=1)]  # what it is alone
    assert min(map(len, seen)) >= 5


def _half() -> Any:
    return numbers(N // 2)


STRUCTURES: dict[str, Callable[[Chain], Any]] = {
    "a zip in a zip": lambda f: Dataset.zip((_zipped(f), f(numbers()))).map(lambda ab, c: (*ab, c)),
    "a zip below one of the shuffles": lambda f: _zipped(f, f(_zipped(lambda x: x).map(lambda a, b: a))),
    "a repeat below one of the shuffles": lambda f: _zipped(lambda x: f(x.map(lambda i: i % 12)), f(_half().repeat(2))),
    "a concatenation below one of them": lambda f: _zipped(f, f(_half().concatenate(Dataset.range(N // 2, N)))),
    "a zip inside interleave": lambda f: Dataset.range(3).interleave(lambda i: _zipped(f), cycle_length=2),
    "a zip, then repeat": lambda f: _zipped(f).repeat(2),
    "zips that are mixed": lambda f: _in_turn(_zipped(f), _zipped(f)),
}


def _twice(x: Any) -> Any:
    return x.shuffle(100, seed=1).repeat(2)


def _over_all(x: Any) -> Any:
    return x.shuffle(gp.ALL, seed=1).repeat(2)


@pytest.mark.parametrize("shuffled", [_twice, _over_all], ids=["a buffer", "ALL"])
@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES.keys())
def test_pairs_match_wherever_the_zip_stands_and_whatever_is_below(structure: Any, shuffled: Chain) -> None:
    dataset = structure(shuffled)
    for epoch in range(2):
        pairs = [plain(pair) for pair in dataset.iterator(epoch=epoch)]

        assert all(len(set(pair)) == 1 for pair in pairs)
        assert len(pairs) >= 2 * N


def test_nested_repeats_are_counted_through() -> None:
    nested = numbers().shuffle(100, seed=1).repeat(2).repeat(3)

    assert alike(_zipped(lambda x: x.shuffle(100, seed=1).repeat(6), nested)) == 6 * N


def test_elements_by_place_match() -> None:
    zipped = _zipped(_over_all)

    assert len(zipped) == 2 * N
    assert [plain(zipped[i]) for i in range(2 * N)] == [plain(x) for x in zipped.iterator(epoch=0)]
    assert all(a == b for a, b in (plain(zipped[i]) for i in range(2 * N)))
    assert all(a == b for a, b in map(plain, zipped[::5]))


def test_inputs_without_seeds_stay_apart() -> None:
    for dataset in (_zipped(lambda x: x.shuffle(gp.ALL)), _zipped(lambda x: x.shuffle(100).repeat(2).skip(N))):
        assert all(alike(dataset, epoch) < 8 for epoch in range(5))  # 8 of 24 by chance: 1 in 100,000


def orders(*parts: list[Any]) -> None:
    """Check that no two of several orders are equal."""
    assert len({tuple(part) for part in parts}) == len(parts)


@pytest.mark.parametrize("size", [100, gp.ALL], ids=["a buffer", "ALL"])
def test_epoch_pass_branch_and_outer_element_stay_in_the_key(size: Any) -> None:
    def shuffled() -> Any:
        return numbers().shuffle(size, seed=1)

    def run(dataset: Any, epoch: int = 0) -> list[Any]:
        return [plain(x) for x in dataset.iterator(epoch=epoch)]

    def split(seen: list[Any]) -> list[list[Any]]:
        return [seen[i : i + N] for i in range(0, len(seen), N)]

    orders(*(run(shuffled(), epoch) for epoch in range(4)))
    orders(*split(run(shuffled().repeat(6))))
    orders(*split(run(shuffled().repeat(2).repeat(3))))
    orders(*split(run(shuffled().repeat().take(2 * N).repeat(3))))
    orders(*split(run(Dataset.range(4).flat_map(lambda i: shuffled()))))
    orders(*split(run(Dataset.range(2).repeat(2).flat_map(lambda i: shuffled().repeat(2)))))
    left = shuffled().concatenate(shuffled()).concatenate(shuffled())
    right = shuffled().concatenate(shuffled().concatenate(shuffled()))
    orders(*split(run(left.repeat(2))))
    assert run(left.repeat(2)) == run(right.repeat(2))
    choice = Dataset.from_tensor_slices(np.repeat(np.arange(3), N))
    orders(*split(run(Dataset.choose_from_datasets([shuffled(), shuffled(), shuffled()], choice))))


def test_nested_mixtures_of_one_seed_do_not_draw_the_same_numbers() -> None:
    inner = Dataset.sample_from_datasets([Dataset.from_tensors(i).repeat() for i in range(2)], seed=1)
    outer = Dataset.sample_from_datasets([inner, Dataset.from_tensors(2).repeat()], seed=1)
    firsts = {int(outer.with_options(Options(seed=seed)).first()) for seed in range(60)}

    assert firsts == {0, 1, 2}


def test_random_ops_draw_by_identity_whatever_their_seeds() -> None:
    images = np.random.default_rng(1).integers(0, 255, (N, 9, 9, 3), np.uint8)

    def crop(x: Any) -> Any:
        return ops.random_crop(x, (3, 3, 3), seed=7)

    def cropped() -> Dataset:
        return Dataset.from_tensor_slices(images).map(crop)

    pairs = [(a.tobytes(), b.tobytes()) for a, b in Dataset.zip((cropped(), cropped()))]
    whole = Dataset.from_tensor_slices(images)
    joint = Dataset.zip((whole, whole)).map(lambda a, b: ops.random_crop((a, b), (3, 3, 3)))
    behind = Dataset.zip((whole, whole)).map(lambda a, b: (crop(a), crop(b)))

    assert sum(a == b for a, b in pairs) < 8
    assert all((a == b).all() for dataset in (joint, behind) for a, b in dataset)


@pytest.mark.parametrize("chain", PAIRED.values(), ids=PAIRED.keys())
def test_a_resumed_zip_goes_on_with_the_same_pairs(chain: Chain) -> None:
    whole = taken(iter(_zipped(chain)))
    for count in (9, N + 3):
        assert resumed_after(lambda: _zipped(chain), min(count, len(whole)))[0] == whole[count:]


def test_buffers_of_records_resume_with_the_draws_of_their_inner_datasets(tmp_path: Path) -> None:
    written(tmp_path, [25] * 4)

    def chain() -> Dataset:
        records = (
            Dataset.list_files(str(tmp_path / "*.tfrecord"), seed=1).interleave(gp.TFRecordDataset).shuffle(9, seed=1)
        )
        return records.flat_map(lambda record: Dataset.range(4).shuffle(4, seed=1))

    goes_on(lambda: Dataset.zip((Dataset.counter(), chain())), [10])
    # right behind a checkpoint, whose buffer is still full
    goes_on(lambda: Dataset.zip((chain(), chain())), [4 * EVERY + 1])
    for first, (second, third) in zip(chain(), Dataset.zip((chain(), chain())), strict=True):
        assert first == second == third


def test_a_state_of_another_law_is_refused() -> None:
    items = iter(numbers().shuffle(9, seed=1))
    state = items.state_dict()
    state["law"] = 1

    with pytest.raises(gp.StateError, match=r"law of random numbers 2, got 1: .* another version .* start the epoch"):
        iter(numbers().shuffle(9, seed=1)).load_state_dict(state)
