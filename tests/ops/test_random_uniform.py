"""random_uniform: numbers drawn for each element, which ops share."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import DataError, PlanTypeError, SpecError
from tests.ops.value_chains import BACKENDS, COUNT, assert_equal, dataset, on, photo, rows

MANY = Dataset.range(64)


def drawn(fn: Any, chain: Dataset = MANY) -> Any:
    return np.stack(list(chain.map(fn, traced=True).iterator(epoch=0)))


def test_numbers_are_uniform_between_the_bounds() -> None:
    got = drawn(lambda i: ops.random_uniform(-1, 3, 64))

    assert got.dtype == np.float32
    assert got.min() >= -1 and got.max() < 3
    counts = np.histogram(got, 8, (-1, 3))[0]
    assert (abs(counts - 512) < 106).all()  # 5 standard deviations of a count


def test_integers_are_all_of_the_range_and_equally_likely() -> None:
    got = drawn(lambda i: ops.random_uniform(-2, 3, (2, 64), "int8"))

    assert got.dtype == np.int8 and got.shape == (64, 2, 64)
    assert (abs(np.bincount(got.ravel() + 2) - 1638) < 181).all()  # 5 standard deviations


@pytest.mark.parametrize(("dtype", "top"), [("uint8", 256), ("int64", 2**63 - 1), ("uint32", 2**32)])
def test_integers_reach_the_ends_of_their_dtype(dtype: str, top: int) -> None:
    low = np.iinfo(dtype).min
    got = drawn(lambda i: ops.random_uniform(int(low), top, 64, dtype)).astype(np.float64)

    assert abs(got.mean() / (float(top) + float(low) + 1) - 0.5) < 0.05 if low == 0 else abs(got.mean()) < 4e17
    assert got.max() - got.min() > 0.98 * (float(top) - float(low))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_upper_bound_is_excluded_where_rounding_would_reach_it(dtype: str) -> None:
    low = np.nextafter(np.dtype(dtype).type(1), np.dtype(dtype).type(0))
    got = drawn(lambda i: ops.random_uniform(float(low), 1.0, 64, dtype))

    assert set(got.ravel().tolist()) == {float(low)}


@pytest.mark.tf
def test_bounds_and_dtypes_are_tensorflows(tf: Any) -> None:
    for low, high, shape, dtype in ((0, None, (3,), "float32"), (-2, 7, (2, 2), "int32"), (0.5, 0.75, (), "float64")):
        ours, theirs = ops.random_uniform(low, high, shape, dtype), tf.random.uniform(shape, low, high, dtype)

        assert ours.dtype == theirs.numpy().dtype and np.shape(ours) == theirs.shape
        assert (ours >= low).all() and (ours < (1 if high is None else high)).all()
    with pytest.raises(ValueError, match="Must specify maxval"):
        tf.random.uniform((), 0, dtype="int32")


def shared(image: Any, mask: Any, label: Any) -> Any:
    coin, factor = ops.random_uniform() < 0.5, ops.random_uniform(0.5, 1.5)
    x = ops.random_flip_left_right(photo(image), ops.cast(coin, "float32"))
    return x * factor, coin, factor, ops.where(coin, label, -1), photo(image)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch", [1, 5])
def test_a_draw_is_one_value_for_all_that_read_it_on_every_executor_and_batch_size(backend: str, batch: int) -> None:
    got = rows(shared, backend, batch, threads=2)

    assert_equal(got, rows(shared, "numpy", 8, threads=1))
    assert {bool(coin) for _, coin, *_ in got} == {True, False}
    for number, (x, coin, factor, label, whole) in enumerate(got):
        np.testing.assert_array_equal(x, (whole[:, ::-1] if coin else whole) * factor)
        assert label == (number if coin else -1)


def test_shards_and_random_access_draw_the_same() -> None:
    chain = dataset().map(lambda image, mask, label: (label, ops.random_uniform(shape=2)), traced=True)
    whole = [tuple(map(np.asarray, row)) for row in chain.iterator(epoch=0)]

    assert_equal([chain[i] for i in range(COUNT)], whole)
    parts = [dataset().shard(2, n).map(lambda image, mask, label: (label, ops.random_uniform(shape=2))) for n in (0, 1)]
    assert_equal(list(parts[0].iterator(epoch=0)), whole[::2])
    assert_equal(list(parts[1].iterator(epoch=0)), whole[1::2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_that_is_resumed_draws_the_same(backend: str) -> None:
    chain = dataset().shuffle(4, seed=1).map(shared).batch(2).with_options(on(backend))
    whole = list(chain.iterator(epoch=0))
    items = chain.iterator(epoch=0)
    next(items)
    state = json.loads(json.dumps(items.state_dict()))
    items.close()
    again = iter(chain)
    again.load_state_dict(state)

    assert_equal(list(again), whole[1:])


def test_calls_differ_and_equal_seeds_do_not() -> None:
    seeds = (None, None, 3, 3)
    a, b, c, d = drawn(lambda i: ops.stack([ops.random_uniform(seed=seed) for seed in seeds]), MANY.take(5)).T

    assert (a != b).all() and (a != c).all()
    np.testing.assert_array_equal(c, d)


def test_after_batch_every_row_draws_its_own() -> None:
    (got,) = list(Dataset.range(64).batch(64).map(lambda x: ops.random_uniform() + x * 0, traced=True))

    assert got.shape == (64,) and len(set(got.tolist())) == 64


def test_bounds_may_be_traced() -> None:
    got = drawn(lambda i: ops.random_uniform(i, i + 1, dtype="int64"), Dataset.range(9))
    assert got.tolist() == list(range(9))

    with pytest.raises(DataError, match="random_uniform needs minval below maxval, got 2 and 2"):
        list(Dataset.range(4).map(lambda i: ops.random_uniform(i, 2, dtype="int64"), traced=True))


def test_a_python_map_draws_by_the_element_too() -> None:
    def draw(i: Any) -> Any:
        assert isinstance(int(i), int)
        return ops.random_uniform()

    chain = Dataset.range(6).map(draw, traced=False)
    once, again = (list(chain.iterator(epoch=0)) for _ in range(2))
    assert once == again and len(set(once)) == 6


def test_two_eager_calls_differ_unless_they_have_a_seed() -> None:
    assert ops.random_uniform() != ops.random_uniform()
    assert ops.random_uniform(seed=1) == ops.random_uniform(seed=1)


def test_mistakes_name_what_is_needed() -> None:
    with pytest.raises(PlanTypeError, match=r"a number for minval, got .*; shape is the third argument"):
        ops.random_uniform((3,), 0, 1)
    with pytest.raises(SpecError, match="minval below maxval, got 2 and 2"):
        ops.random_uniform(2, 2)
    with pytest.raises(SpecError, match="maxval for int32, got None"):
        ops.random_uniform(0, dtype="int32")
    with pytest.raises(SpecError, match="maxval from 0 to 256, got 257"):
        ops.random_uniform(0, 257, dtype="uint8")
    with pytest.raises(PlanTypeError, match=r"an integer for maxval, got 1\.5"):
        ops.random_uniform(0, 1.5, dtype="int32")
    with pytest.raises(SpecError, match="a dtype of integers or floats, got 'bool'"):
        ops.random_uniform(0, 1, dtype="bool")
    with pytest.raises(PlanTypeError, match="shape as integers of at least 0"):
        ops.random_uniform(0, 1, (2, -1))
    with pytest.raises(SpecError, match="at most 1048576 numbers"):
        ops.random_uniform(0, 1, (1 << 11, 1 << 11))


def test_floats_have_bounds_beyond_those_of_integers() -> None:
    drawn = ops.random_uniform(-1e20, 1e20)

    assert -1e20 <= drawn < 1e20
