"""Nothing that is delivered shares memory with what a user's function, the user or the pipeline goes on to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, TensorSpec, ops
from tests.behaviour.model import run

# ---- functions that fill one buffer again and again


def _filled(shape: tuple[int, ...], dtype: Any) -> Callable[[], Iterator[Any]]:
    """A generator that gives one buffer again and again, full of its number."""

    def numbers() -> Iterator[Any]:
        buffer = np.zeros(shape, dtype)
        for i in range(8):
            buffer[...] = i
            yield buffer

    return numbers


class _Filler:
    def __init__(self) -> None:
        self._buffer = np.zeros(2, np.int64)

    def __call__(self, x: Any) -> Any:
        self._buffer[:] = x
        return self._buffer


PAIR = TensorSpec((2,), "int64")
SOURCES: dict[str, Callable[[], Dataset]] = {
    "generator": lambda: Dataset.from_generator(_filled((2,), np.int64)),
    "generator with a signature": lambda: Dataset.from_generator(_filled((2,), np.int64), output_signature=PAIR),
    "map": lambda: Dataset.range(8).map(_Filler(), traced=False),
    "map with a spec": lambda: Dataset.range(8).map(_Filler(), spec=PAIR),
    "py_function": lambda: Dataset.range(8).map(_wrapped(_Filler())),
}
BUFFERS: dict[str, Callable[[Dataset], Dataset]] = {
    "batch": lambda d: d.batch(4).unbatch(),
    "padded batch": lambda d: d.padded_batch(4).unbatch(),
    "shuffle": lambda d: d.shuffle(8),
    "prefetch": lambda d: d.prefetch(8),
    "cache": lambda d: d.cache(),
}


def _wrapped(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x: ops.py_function(function, (x,), PAIR)


@pytest.mark.parametrize("buffer", BUFFERS.values(), ids=BUFFERS.keys())
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_buffer_may_be_used_again(source: Callable[[], Dataset], buffer: Callable[[Dataset], Dataset]) -> None:
    assert sorted(run(buffer(source()))) == [[i, i] for i in range(8)]


@pytest.mark.parametrize("backend", ["numpy", "dali"])
def test_a_buffer_for_images_too(backend: Any) -> None:
    for spec in (None, TensorSpec((4, 4, 3), "uint8")):
        images = Dataset.from_generator(_filled((4, 4, 3), np.uint8), output_signature=spec)
        firsts = images.map(ops.flip_left_right).batch(2).map(lambda x: x[:, 0, 0, 0])

        assert run(firsts.with_options(Options(device="cpu", backend=backend))) == [[0, 1], [2, 3], [4, 5], [6, 7]]


# ---- arrays that a dataset is made of


def test_a_dataset_keeps_its_own_copy() -> None:
    array = np.arange(4)
    slices, whole = Dataset.from_tensor_slices((array, array * 2)), Dataset.from_tensors(array)
    half = iter(slices)
    next(half)

    array[:] = 9

    assert run(slices) == [(i, 2 * i) for i in range(4)]
    assert run(half) == [(i, 2 * i) for i in range(1, 4)]
    assert run(whole) == [[0, 1, 2, 3]]


def test_a_large_array_is_not_copied() -> None:
    array = np.zeros((2, 1 << 20), np.uint8)
    (whole,) = Dataset.from_tensors(array)

    assert np.shares_memory(whole, array)
    assert not whole.flags.writeable


# ---- stand-ins for bad elements


def test_a_stand_in_is_not_the_array_that_was_delivered() -> None:
    def fail(x: Any) -> Any:
        if x in (0, 2, 3):
            raise ValueError
        return np.array([int(x)])

    seen, held = [], []
    for x in Dataset.range(5).map(fail, traced=False).with_options(Options(on_error="replace")):
        seen.append(x.tolist())
        held.append(x)
        x += 10

    assert seen == [[1], [1], [1], [1], [4]]
    assert len({id(x) for x in held}) == 5
    assert [x.tolist() for x in held] == [[11], [11], [11], [11], [14]]


def test_stand_ins_do_not_reach_into_the_next_epoch() -> None:
    starts: list[int] = []

    def numbers() -> Iterator[int]:
        starts.append(1)
        yield from range(3)

    def fail(x: Any) -> Any:
        if len(starts) == 1:
            raise ValueError
        return x

    source = Dataset.from_generator(numbers, output_signature=TensorSpec((), "int64"))
    chain = source.map(fail, traced=False).with_options(Options(on_error="replace"))

    assert run(chain.epochs(2)) == [0, 1, 2]


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("batched", [True, False])
def test_one_value_returned_twice_is_two_arrays(backend: Any, batched: bool) -> None:
    images = np.arange(2 * 3 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3, 3)
    pairs = Dataset.from_tensor_slices(images).map(lambda x: (ops.flip_left_right(x),) * 2)

    for x, y in (pairs.batch(2) if batched else pairs).with_options(Options(device="cpu", backend=backend)):
        np.testing.assert_array_equal(x, y)
        assert not np.shares_memory(x, y)
