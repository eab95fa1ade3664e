"""Steps on single elements: map, filter, take, skip, repeat, shard, enumerate, flat_map, apply, prefetch, cache."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec
from tests.behaviour.model import plain, run


def _noted(calls: list[int], x: Any) -> Any:
    calls.append(int(x))
    return x


# ---- map


def test_parallel_calls_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(x: Any) -> Any:
        both.wait()
        return x

    assert run(Dataset.range(4).map(meet, num_parallel_calls=2)) == [0, 1, 2, 3]


def test_without_an_order_every_element_still_comes_once() -> None:
    def slow_first(x: Any) -> Any:
        time.sleep(0.2 if x == 0 else 0)
        return x

    got = run(Dataset.range(20).map(slow_first, num_parallel_calls=2, deterministic=False))

    assert sorted(got) == list(range(20))
    assert got[0] != 0


def test_the_spec_of_a_python_function_is_checked() -> None:
    good = Dataset.range(3).map(lambda x: np.arange(int(x)), spec=TensorSpec((None,), "int64"))
    bad = Dataset.range(3).map(lambda x: int(x) / 2, spec=TensorSpec((), "int64"))

    assert good.element_spec == TensorSpec((None,), "int64")
    assert run(good) == [[], [0], [0, 1]]
    with pytest.raises(gp.DataError, match="map needs int64, got float64"):
        run(bad)


# ---- filter


@pytest.mark.parametrize("answer", [bool, np.bool_, lambda x: np.array(bool(x))], ids=["bool", "np.bool_", "0-d array"])
def test_a_predicate_may_return_any_boolean(answer: Any) -> None:
    assert run(Dataset.range(6).filter(lambda x: answer(int(x) % 2))) == [1, 3, 5]


# ---- flat_map, apply


@pytest.mark.parametrize("method", ["flat_map", "interleave"])
def test_functions_inside_may_use_the_element_of_the_function_around_them(method: str) -> None:
    def tens(a: Any) -> Dataset:
        inner = Dataset.range(4).filter(lambda b: bool(b >= a)).map(lambda b: (a * 10 + b, str(int(a))))
        return inner.concatenate(Dataset.from_generator(lambda n: iter([(np.int64(n), "end")]), args=(a,)))

    got = run(getattr(Dataset.range(2), method)(tens))

    expected = [[(a * 10 + b, b"%d" % a) for b in range(a, 4)] + [(a, b"end")] for a in range(2)]
    assert sorted(got) == sorted(expected[0] + expected[1])


# ---- prefetch


def test_prefetch_starts_with_the_first_next_and_runs_at_most_that_far_ahead() -> None:
    made: list[int] = []
    dataset = Dataset.range(100).map(lambda x: _noted(made, x)).prefetch(3)

    with dataset.iterator() as items:
        time.sleep(0.05)
        assert made == []
        next(items)
        deadline = time.monotonic() + 5
        while len(made) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert 4 <= len(made) <= 6  # one delivered, three waiting, one in the hands of the thread


# ---- cache


def test_the_cached_batches_are_not_changed_by_what_a_user_does_to_them() -> None:
    dataset = Dataset.range(4).batch(2).cache()
    expected = run(dataset)
    for batch in dataset:
        batch += 100

    assert run(dataset) == expected


def test_delivered_batches_are_writable_and_single_arrays_cannot_change_the_source() -> None:
    source = np.arange(6).reshape(3, 2)
    for dataset in (Dataset.from_tensor_slices(source), Dataset.from_tensor_slices(source).cache()):
        for _ in range(2):
            assert all(batch.flags.writeable for batch in dataset.batch(2).cache())
            for row in dataset:
                with pytest.raises(ValueError, match="read-only"):
                    row += 1


def test_elements_of_two_iterators_do_not_share_a_cache_that_is_being_filled() -> None:
    calls: list[int] = []
    dataset = Dataset.range(3).map(lambda x: _noted(calls, x)).cache()
    one, two = iter(dataset), iter(dataset)

    assert [plain(x) for pair in zip(one, two, strict=True) for x in pair] == [0, 0, 1, 1, 2, 2]
    assert len(calls) == 6
    assert run(dataset.repeat(3)) == [0, 1, 2] * 3
    assert len(calls) == 6
