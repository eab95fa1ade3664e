"""gpupipe.compat: what chains of 2017-2018 called, with the meaning it had then."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, compat, ops
from gpupipe.compat import py_function
from gpupipe.graph.classify import classify
from tests.behaviour.model import run
from tests.chains.damage import no_thread_left


def _square(x: Any) -> int:
    return int(x) ** 2


def _six_times(x: Any) -> Dataset:
    return Dataset.from_tensors(x).repeat(6)


@pytest.mark.parametrize("arguments", [{}, {"num_parallel_batches": 3}, {"num_parallel_calls": 2}], ids=str)
def test_map_and_batch_is_map_then_batch(arguments: dict[str, Any]) -> None:
    made = Dataset.range(7).apply(compat.map_and_batch(_square, 3, **arguments))
    dropped = Dataset.range(7).apply(compat.map_and_batch(_square, 3, drop_remainder=True, **arguments))

    assert run(made) == [[0, 1, 4], [9, 16, 25], [36]]
    assert run(dropped) == [[0, 1, 4], [9, 16, 25]]


def test_shuffle_and_repeat_is_shuffle_then_repeat() -> None:
    made = Dataset.range(10).apply(compat.shuffle_and_repeat(4, 3, seed=5))

    assert list(made) == list(Dataset.range(10).shuffle(4, seed=5).repeat(3))
    assert Dataset.range(3).apply(compat.shuffle_and_repeat(2)).cardinality() == gp.INFINITE_CARDINALITY


@pytest.mark.parametrize("arguments", [{}, {"buffer_output_elements": 2, "prefetch_input_elements": 3}], ids=str)
def test_parallel_interleave_has_interleaves_order(arguments: dict[str, Any]) -> None:
    numbers = Dataset.range(1, 6)
    made = numbers.apply(compat.parallel_interleave(_six_times, 2, block_length=4, **arguments))

    assert list(made) == list(numbers.interleave(_six_times, 2, 4))
    assert list(made)[:12] == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2]


def test_what_is_made_ahead_is_bounded_by_what_was_asked_for() -> None:
    taken: list[int] = []
    started: list[int] = []

    def numbers(name: Any) -> Iterator[int]:
        started.append(int(name))
        for i in range(1000):
            taken.append(int(name))
            yield i

    def make(name: Any) -> Dataset:
        return Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64"), args=(name,))

    ahead = compat.parallel_interleave(make, 2, buffer_output_elements=5, prefetch_input_elements=1)
    enough = threading.Event()
    both = Counter({0: 2 + 5, 1: 2 + 5})  # taken, and waiting in the queue
    with iter(Dataset.range(50).apply(ahead)) as items:
        for _ in range(4):
            next(items)
        for _ in range(200):
            enough.wait(0.01 if Counter(taken) != both else 0)
        enough.wait(0.05)

        assert Counter(taken) == both
    assert started == [0, 1]


def test_sloppy_does_not_wait_for_the_slow_one() -> None:
    free = threading.Event()

    def numbers(name: Any) -> Iterator[int]:
        for i in range(3):
            free.wait(30 if name == 0 else 0.05)  # for a while neither has an element
            yield int(name) * 10 + i

    def make(name: Any) -> Dataset:
        return Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64"), args=(name,))

    made = Dataset.range(2).apply(compat.parallel_interleave(make, 2, sloppy=True, buffer_output_elements=4))
    with iter(made) as items:
        first = [int(next(items)) for _ in range(2)]
        free.set()
        rest = sorted(int(x) for x in items)

    assert first == [10, 11]
    assert sorted([*first, *rest]) == [0, 1, 2, 10, 11, 12]


NO_DATASET: Any = _square  # a function that gives a number where a dataset is needed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compat.map_and_batch(_square, 2, 1, num_parallel_calls=1), "map_and_batch takes .* not both"),
        (lambda: compat.map_and_batch(_square, 2, 0), "map_and_batch needs num_parallel_batches >= 1, got 0"),
        (lambda: compat.parallel_interleave(NO_DATASET, 2, buffer_output_elements=0), "buffer_output_elements >= 1, g"),
        (lambda: compat.make_one_shot_iterator(NO_DATASET), "make_one_shot_iterator needs a Dataset, got function"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(gp.GpupipeError, match=message):
        call()


def test_a_one_shot_iterator_ends_with_out_of_range() -> None:
    iterator = compat.make_one_shot_iterator(Dataset.range(2))

    assert iterator.element_spec == gp.TensorSpec((), "int64")
    assert [iterator.get_next(), iterator.get_next()] == [0, 1]
    for _ in range(2):
        with pytest.raises(compat.OutOfRangeError, match="end of sequence"):
            iterator.get_next()
    assert list(iterator) == []
    assert issubclass(compat.OutOfRangeError, gp.GpupipeError)


def test_an_initializable_iterator_begins_when_it_is_told_to_and_counts_epochs() -> None:
    iterator = compat.make_initializable_iterator(Dataset.range(20).shuffle(20))
    with pytest.raises(compat.NotInitializedError, match="call initializer"):
        iterator.get_next()

    iterator.initializer()
    first = [int(x) for x in iterator]
    iterator.initializer()
    second = [iterator.get_next() for _ in range(3)]
    iterator.initializer()
    third = [int(x) for x in iterator]

    assert sorted(first) == sorted(third) == list(range(20))
    assert first != third
    assert set(second) < set(range(20))


def test_an_iterator_survives_a_bad_element_and_closes_its_threads() -> None:
    with no_thread_left():
        numbers = Dataset.from_tensor_slices([2, 0, 1]).map(lambda x: 4 // int(x), num_parallel_calls=2).prefetch(1)
        with compat.make_one_shot_iterator(numbers) as iterator:
            assert iterator.get_next() == 2
            with pytest.raises(gp.DataError, match="ZeroDivisionError"):
                iterator.get_next()
            assert iterator.get_next() == 4
        with pytest.raises(gp.ClosedError, match="was closed"):
            iterator.get_next()


def _with_py_function(x: Any) -> Any:
    return py_function(lambda y: y + 1, [x], np.int64)


def _beside_an_op(x: Any) -> Any:
    return py_function(lambda y: y + 1, [ops.cast(x, "int64")], np.int64)


@pytest.mark.parametrize("fn", [_with_py_function, _beside_an_op])
def test_a_function_with_py_function_is_ordinary_python(fn: Callable[[Any], Any]) -> None:
    assert classify(fn) == "python"
    assert list(Dataset.range(3).map(fn)) == [1, 2, 3]


def test_py_function_gives_what_tout_says() -> None:
    said: list[Any] = []

    assert py_function(lambda: said.append(1), [], ()) == ()
    assert said == [1]
    number = py_function(lambda: 3, [], "float32")
    assert type(number) is np.float32
    pair = py_function(lambda a, b: (a + b, [b"x", b"y"]), (1, np.int64(2)), (np.int64, "string"))
    assert pair[0] == 3
    assert pair[1].tolist() == [b"x", b"y"]
    with pytest.raises(gp.DataError, match=r"py_function needs int32 of .*, got float64"):
        py_function(lambda: np.float64(1), [], np.int32)
    with pytest.raises(gp.DataError, match=r"needs int64 of .*, got float64"):
        py_function(lambda: 1.5, [], np.int64)
    with pytest.raises(gp.DataError, match=r"py_function needs 2 results of .*, got 1"):
        py_function(lambda: 1, [], (np.int64, np.int64))
    with pytest.raises(gp.PlanError, match=r"use ops\.py_function"):
        Dataset.range(2).map(_with_py_function, traced=True)
