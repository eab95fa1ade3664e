"""Epochs: another iterator is another epoch; equal (seed, epoch) gives equal numbers, passes of repeat differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import encoded, noise
from tests.behaviour.model import run


def _drawn(x: Any, rng: np.random.Generator) -> Any:
    return x, int(rng.integers(1 << 40))


def _flipped() -> Dataset:
    images = np.arange(20 * 2 * 3 * 3, dtype=np.uint8).reshape(20, 2, 3, 3)
    cropped = Dataset.from_tensor_slices(images).map(lambda x: ops.random_crop(x, (1, 2, 3)))
    return cropped.map(ops.random_flip_left_right).batch(6).with_options(Options(device="cpu", backend="numpy"))


CHAINS: dict[str, Callable[[], Dataset]] = {
    "shuffle": lambda: Dataset.range(20).shuffle(20),
    "rng": lambda: Dataset.range(20).map(_drawn, rng=True),
    "shuffle and rng": lambda: Dataset.range(20).shuffle(7).map(_drawn, rng=True).batch(3),
    "rng in parallel": lambda: Dataset.range(20).map(_drawn, num_parallel_calls=3, rng=True),
    "interleave": lambda: Dataset.range(4).interleave(lambda i: Dataset.range(i * 9, i * 9 + 5).shuffle(5)),
    "random crop and flip": _flipped,
    "zip": lambda: Dataset.zip(Dataset.range(9).shuffle(9), Dataset.range(9).shuffle(9)),
}


@pytest.fixture(params=list(CHAINS.values()), ids=list(CHAINS))
def make(request: pytest.FixtureRequest) -> Callable[[], Dataset]:
    return request.param  # type: ignore[no-any-return]


def test_the_second_iterator_of_epochs_and_a_numbered_one_agree(make: Callable[[], Dataset]) -> None:
    looped = make()
    first, second = run(looped), run(looped)
    both = run(make().epochs(2))

    assert first != second
    assert both == first + second
    assert run(make().iterator(epoch=0)) == first
    assert run(make().iterator(epoch=1)) == second
    assert run(make().epochs(1, start=1)) == second


def test_the_second_pass_of_repeat_is_something_else(make: Callable[[], Dataset]) -> None:
    dataset = make()
    first, second = run(dataset.iterator(epoch=0)), run(dataset.iterator(epoch=1))

    passes = run(dataset.repeat(2).iterator(epoch=0))

    assert passes[: len(first)] == first  # the first pass is the chain itself
    assert passes[len(first) :] not in (first, second)
    assert run(dataset.repeat(2).iterator(epoch=0)) == passes
    assert run(dataset.repeat(2).iterator(epoch=1)) != passes


def test_two_steps_draw_different_numbers() -> None:
    dataset = Dataset.range(5).map(_drawn, rng=True).map(lambda x, a, rng: (a, int(rng.integers(1 << 40))), rng=True)

    assert all(a != b for a, b in run(dataset))


def test_an_iterator_that_never_starts_is_no_epoch() -> None:
    dataset = Dataset.range(20).shuffle(20)
    unused = iter(dataset)

    assert run(dataset) == run(dataset.iterator(epoch=0))
    assert unused.epoch is None


def test_draws_before_and_behind_a_batch_are_equal() -> None:
    images = Dataset.from_tensor_slices(np.arange(20 * 2 * 3 * 3, dtype=np.uint8).reshape(20, 2, 3, 3))
    labels = Dataset.range(20)
    numpy = Options(device="cpu", backend="numpy")

    def crop(image: Any, label: Any) -> Any:
        return ops.random_crop(image, (1, 2, 3)), label + 1

    def chain(dataset: Dataset) -> Any:
        return run(dataset.with_options(numpy).iterator(epoch=2))

    expected = chain(Dataset.zip(images, labels).map(crop).batch(3))
    assert chain(Dataset.zip(images, labels).batch(3).map(crop)) == expected
    cached = chain(Dataset.zip(images, labels).batch(3).cache().map(crop))
    assert cached == chain(Dataset.zip(images, labels).cache().batch(3).map(crop))
    assert chain(Dataset.zip(images.batch(3), labels.batch(3)).map(crop)) == expected


def test_crops_do_not_depend_on_the_contents_before() -> None:
    """Each image is identified by its index."""
    data = [encoded(noise(height, 40), "PNG") for height in (30, 31, 32)]

    def crops(images: list[bytes]) -> Any:
        chain = Dataset.from_tensor_slices(images).map(lambda x: ops.random_crop(ops.decode_png(x, channels=3), (9, 9)))
        return run(chain.batch(3).with_options(Options(device="cpu", backend="numpy")).iterator(epoch=0))[0]

    assert crops([encoded(noise(40, 40), "PNG"), *data[1:]])[1:] == crops(data)[1:]
    twice = crops([data[0]] * 3)
    assert twice[0] != twice[1]
