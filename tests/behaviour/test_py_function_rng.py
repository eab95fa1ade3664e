"""ops.py_function(fn, ..., rng=True): what the generator depends on, and what it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import FunctionError
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.random import BatchRng, one_word, philox, philox_key
from tests.behaviour.model import run
from tests.conformance.harness import host
from tests.reliability.executors import EXECUTORS

FLOAT = gp.TensorSpec((), "float64")
FILES = [encoded(picture(8, 9 + i)) for i in range(12)]


def drawn(x: Any, rng: np.random.Generator) -> float:
    return float(rng.random())


def number(x: Any, seed: int | None = None) -> Any:
    """A traced number of the element."""
    return ops.py_function(drawn, (x,), FLOAT, rng=True, seed=seed)


def pairs(count: int = 12) -> gp.Dataset:
    return gp.Dataset.range(count).map(lambda x: (x, number(x)))


def by_element(dataset: gp.Dataset) -> dict[int, float]:
    return {int(x): float(y) for x, y in dataset}


EXPECTED = by_element(pairs().epoch(0))


def test_every_element_has_numbers_of_its_own() -> None:
    assert len(set(EXPECTED.values())) == 12
    assert all(0 <= y < 1 for y in EXPECTED.values())


@pytest.mark.parametrize("size", [1, 5, 12])
@pytest.mark.parametrize("threads", [1, 3])
def test_they_are_equal_for_all_batch_sizes_threads_orders_and_shards(size: int, threads: int) -> None:
    options = gp.Options(threads=threads)

    assert by_element(pairs().batch(size).unbatch().with_options(options).epoch(0)) == EXPECTED
    assert by_element(gp.Dataset.range(12).shuffle(12).map(lambda x: (x, number(x))).epoch(0)) == EXPECTED
    batches = gp.Dataset.range(12).batch(size).map(lambda x: (x, number(x))).unbatch()
    assert by_element(batches.with_options(options).epoch(0)) == EXPECTED
    shards = [by_element(pairs().shard(3, i).with_options(options).epoch(0)) for i in range(3)]
    assert {x: y for shard in shards for x, y in shard.items()} == EXPECTED
    assert [float(pairs().epoch(0)[i][1]) for i in range(12)] == list(EXPECTED.values())


def test_they_differ_between_epochs_seeds_and_calls() -> None:
    def two(x: Any) -> Any:
        return number(x), number(x), number(x, seed=3), number(x, seed=3), number(x, seed=4)

    rows = np.array(run(gp.Dataset.range(8).map(two).epoch(0)))

    assert list(EXPECTED.values())[:8] == rows[:, 0].tolist()
    assert rows[:, 2].tolist() == rows[:, 3].tolist()
    assert len(set(rows[:, [0, 1, 2, 4]].ravel().tolist())) == 32
    assert by_element(pairs().epoch(0)) == EXPECTED
    assert not set(by_element(pairs().epoch(1)).values()) & set(EXPECTED.values())
    assert not set(by_element(pairs().with_options(gp.Options(seed=7)).epoch(0)).values()) & set(EXPECTED.values())


@pytest.mark.parametrize("backend", EXECUTORS)
def test_an_augmentation_in_python_is_the_same_on_every_executor(backend: Any) -> None:
    """Python draws a shift and moves the pixels; then the executor's ops go on with the image."""
    image = gp.TensorSpec((8, 8, 3), "uint8")

    def moved(x: Any, rng: np.random.Generator) -> Any:
        return np.roll(x, int(rng.integers(1, 8)), axis=0)

    def augment(data: Any) -> Any:
        x = ops.center_crop(ops.decode_jpeg(data, 3), (8, 8))
        return ops.flip_left_right(ops.py_function(moved, (x,), image, rng=True)), number(data)

    options = gp.Options(device="gpu") if backend == "gpu" else gp.Options(backend=backend, device="cpu")
    numpy = gp.Options(backend="numpy", device="cpu")
    chain = gp.Dataset.from_tensor_slices(FILES).map(augment)
    single = [(x, float(y)) for x, y in chain.with_options(numpy).epoch(0)]
    batches = list(chain.batch(5).with_options(options).epoch(0))

    assert np.concatenate([host(y) for _, y in batches]).tolist() == [y for _, y in single]
    found = np.concatenate([host(x) for x, _ in batches])
    # a JPEG is decoded by another decoder on a GPU
    assert np.abs(found.astype(int) - np.stack([x for x, _ in single])).max() <= (8 if backend == "gpu" else 0)


def test_called_in_a_python_map_it_belongs_to_the_element_and_elsewhere_to_the_seed() -> None:
    eager = gp.Dataset.range(5).map(lambda x: number(int(x)), traced=False)

    assert run(eager.epoch(0)) == run(eager.epoch(0)) != run(eager.epoch(1))
    assert number(1, seed=3) == number(2, seed=3) != number(1, seed=4)


def test_ragged_rows_and_bytes_have_generators_too() -> None:
    lengths = gp.Dataset.range(4).flat_map(lambda n: gp.Dataset.range(n).batch(4)).ragged_batch(3)

    def draw(x: Any) -> Any:
        return ops.py_function(lambda row, rng: float(rng.random()), (x,), FLOAT, rng=True)

    assert len(set(run(gp.Dataset.from_tensor_slices([b"a", b"a"]).map(draw)))) == 2
    assert isinstance(draw(next(iter(lengths))), np.float64)
    grouped = gp.Dataset.from_list([next(iter(lengths))] * 2)
    assert len(set(run(grouped.map(draw)))) == 2


def test_mistakes_are_told() -> None:
    with pytest.raises(gp.PlanError, match="py_function needs rng=True with a seed"):
        ops.py_function(drawn, (1,), FLOAT, seed=3)
    with pytest.raises(TypeError, match="py_function needs seed to be an integer or None, got 'a'"):
        ops.py_function(drawn, (1,), FLOAT, rng=True, seed="a")  # type: ignore[arg-type]
    with pytest.raises(FunctionError, match="takes 1 positional argument but 2 were given"):
        ops.py_function(lambda x: 0.0, (1,), FLOAT, rng=True)


# ---- Philox4x32-10: known answers, and the same in any number at a time

KNOWN = (
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
"""Counter, key and words of the known answers that come with Random123 (Salmon et al., SC 2011)."""


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    assert philox(np.array([counter], np.uint64), key).tolist() == [list(words)]
    if counter[2:] == (0, 0):
        assert one_word(key, counter[0] | counter[1] << 32, 0) == words[0]


@pytest.mark.parametrize("count", [499, 500, 501, 7_999, 8_000, 8_001, 16_385])
def test_words_do_not_depend_on_how_many_are_drawn_at_once(count: int) -> None:
    counter = np.random.default_rng(count).integers(0, 1 << 32, (count, 4)).astype(np.uint64)
    before = counter.copy()
    key = philox_key(7, 3)

    drawn = philox(counter, key)

    assert (counter == before).all()
    for row in (0, 1, 498, 499, 500, count - 2, count - 1):
        if row < count:
            assert (drawn[row] == philox(counter[row : row + 1], key)[0]).all()
    assert len(np.unique(drawn[:, 0])) > 0.99 * count


def test_a_batch_draws_what_each_of_its_elements_draws_alone() -> None:
    keys = np.random.default_rng(0).integers(0, 1 << 63, 300).astype(np.uint64)
    rng = BatchRng(5, 2, keys, site=9)
    first, second = rng.words(22), rng.words(1)

    for row in (0, 128, 299):
        alone = BatchRng(5, 2, keys[row : row + 1], site=9)
        assert (alone.words(22)[0] == first[row]).all()
        assert (alone.words(1)[0] == second[row]).all()
        assert one_word(philox_key(5, 2), int(keys[row]), 9) == first[row, 0]
