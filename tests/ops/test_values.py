"""Ops on any values: shapes, choices by flags, draws, classes, Python functions, as NumPy and TensorFlow have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.errors import DataError, FunctionError, ParseError, PlanError, PlanTypeError, SpecError, TraceError
from gpupipe.graph.trace import trace
from gpupipe.log import logger
from gpupipe.ops._shared.samples import noise
from gpupipe.spec import TensorSpec, flatten
from tests.ops.refusals import refused
from tests.ops.value_chains import (
    BACKENDS,
    COUNT,
    assert_equal,
    assert_same_by_place_and_resumed,
    dataset,
    mask_of,
    on,
    photo,
    rows,
)

X = noise(6, 5)
TABLE = (np.arange(256)[::-1] % 19).astype(np.int64)
PAIRS = np.arange(16).reshape(8, 2)
HOT = np.eye(COUNT, dtype=np.float32)
MINUS, HALVES, LIMITS = np.float32(-1), np.array([0.5, 1, 2]), np.array([9, 99, 200], np.uint8)

Traced = Callable[[Any, Any, Any], Any]

LIKE_NUMPY: list[tuple[Traced, Traced]] = [
    (lambda x, m, y: m[..., 0], lambda x, m, y: m[..., 0]),
    (lambda x, m, y: x[2:5, ::-1, :2], lambda x, m, y: x[2:5, ::-1, :2]),
    (lambda x, m, y: x[..., ::-1], lambda x, m, y: x[..., ::-1]),
    (lambda x, m, y: x[3, :, None], lambda x, m, y: x[3, :, None]),
    (lambda x, m, y: ops.reshape(x, (-1, 9)), lambda x, m, y: x.reshape(-1, 9)),
    (lambda x, m, y: ops.expand_dims(m[..., 0], -1), lambda x, m, y: m),
    (lambda x, m, y: ops.squeeze(m, -1), lambda x, m, y: m[..., 0]),
    (lambda x, m, y: ops.stack([x, x[::-1]], axis=-1), lambda x, m, y: np.stack([x, x[::-1]], -1)),
    (lambda x, m, y: ops.concat([x, m], axis=-1), lambda x, m, y: np.concatenate([x, m], -1)),
    (lambda x, m, y: ops.gather(x, [2, 0], axis=-1), lambda x, m, y: x[..., [2, 0]]),
    (lambda x, m, y: ops.gather(x, 1, axis=0), lambda x, m, y: x[1]),
    (lambda x, m, y: ops.gather(TABLE, m[..., 0]), lambda x, m, y: TABLE[m[..., 0]]),
    (lambda x, m, y: ops.one_hot(y, COUNT)[2:5], lambda x, m, y: HOT[y][2:5]),
    (lambda x, m, y: ops.one_hot(y, COUNT)[y], lambda x, m, y: HOT[y][y]),
    (lambda x, m, y: ops.gather(PAIRS, y), lambda x, m, y: PAIRS[y]),
    (lambda x, m, y: ops.stack([y, y + 1]), lambda x, m, y: np.array([y, y + 1])),
    (lambda x, m, y: ops.concat([ops.one_hot(y, 8), ops.one_hot(y, 2)]), lambda x, m, y: np.append(HOT[y], HOT[y, :2])),
    (lambda x, m, y: ops.reshape(y, (1, 1)), lambda x, m, y: y.reshape(1, 1)),
    (lambda x, m, y: np.clip(floats(x), 0.25, 0.5), lambda x, m, y: floats(x).clip(np.float32(0.25), np.float32(0.5))),
    (lambda x, m, y: ops.clip(x, y, 200), lambda x, m, y: np.clip(x, np.uint8(y), 200)),
    (lambda x, m, y: np.minimum(x, x[::-1]), lambda x, m, y: np.minimum(x, x[::-1])),
    (lambda x, m, y: np.maximum(floats(x), floats(y)), lambda x, m, y: np.maximum(floats(x), floats(y))),
    (lambda x, m, y: ops.where(m > 127, x, 255), lambda x, m, y: np.where(m > 127, x, np.uint8(255))),
    (lambda x, m, y: ops.where(between(x), floats(x), -1.0), lambda x, m, y: np.where(between(x), floats(x), MINUS)),
    (lambda x, m, y: ops.where(y % 2 == 0, x, m), lambda x, m, y: np.where(y % 2 == 0, x, m)),
    (lambda x, m, y: ops.where(m[..., 0] > 99, np.int64(1), y), lambda x, m, y: np.where(m[..., 0] > 99, 1, y)),
    (lambda x, m, y: ops.where(x > 99, HALVES, 0.0), lambda x, m, y: np.where(x > 99, HALVES, 0).astype(np.float32)),
    (lambda x, m, y: ops.minimum(x, LIMITS), lambda x, m, y: np.minimum(x, LIMITS)),
    (lambda x, m, y: np.maximum(floats(x), HALVES), lambda x, m, y: np.maximum(floats(x), HALVES.astype(np.float32))),
    (lambda x, m, y: ops.minimum(y, 5), lambda x, m, y: np.minimum(y, 5)),
    (lambda x, m, y: ops.where(y == 3, 1, y), lambda x, m, y: np.where(y == 3, 1, y)),
]  # fmt: skip
"""What ops make of an image, a mask and a label, and NumPy."""


def floats(x: Any) -> Any:
    return ops.cast(x, "float32") / 255


def between(x: Any) -> Any:
    return (x > 50) & ~(x > 178)


def shapes(image: Any, mask: Any, label: Any) -> Any:
    return tuple(ours(photo(image), mask_of(mask), label) for ours, _ in LIKE_NUMPY)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_traced_function_gives_numpys_results(backend: str) -> None:
    inputs = rows(lambda i, m, y: (photo(i), mask_of(m), y), "numpy")

    assert_equal(rows(shapes, backend), [tuple(numpys(*row) for _, numpys in LIKE_NUMPY) for row in inputs])


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_access_and_a_resumed_run_give_the_same(backend: str) -> None:
    assert_same_by_place_and_resumed(dataset().map(shapes, traced=True).with_options(on(backend)))
    assert_same_by_place_and_resumed(dataset().map(shared).with_options(on(backend)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_geometry_knows_the_size_of_what_a_subscript_leaves(backend: str) -> None:
    def crop(image: Any, mask: Any, label: Any) -> Any:
        x = ops.decode_png(image, channels=3)[2:-3, 4:]
        m = ops.expand_dims(ops.decode_png(mask, channels=1)[2:-3, 4:, 0], -1)
        return ops.random_crop((x, m), (13, 13))

    got = rows(crop, backend)

    assert_equal(got, rows(crop, "numpy"))
    assert {x.shape for x, _ in got} == {(13, 13, 3)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_size_of_several_crops_is_that_of_each_of_them(backend: str) -> None:
    x = noise(20, 24)

    def cropped(image: Any) -> Any:
        return ops.center_crop(ops.five_crop(ops.flip_up_down(image), (9, 11)), (6, 8))

    (made,) = Dataset.from_tensors(x).map(cropped).with_options(on(backend))

    np.testing.assert_array_equal(made, ops.five_crop(x[::-1], (9, 11))[:, 2:8, 2:10])


AFTER_BATCH: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda x: x[:, 1], lambda x: x[:, 1]),
    (lambda x: x[..., 0], lambda x: x[..., 0]),
    (lambda x: x[:, None, ::-1], lambda x: x[:, None, ::-1]),
    (lambda x: ops.expand_dims(x, 1), lambda x: x[:, None]),
    (lambda x: ops.reshape(x, (-1, 6)), lambda x: x.reshape(-1, 6)),
    (lambda x: ops.squeeze(x[..., :1], 2), lambda x: x[..., 0]),
    (lambda x: ops.stack([x, x], 2), lambda x: np.stack([x, x], 2)),
    (lambda x: ops.concat([x, x], -1), lambda x: np.concatenate([x, x], -1)),
    (lambda x: ops.gather(x, [2, 0], 1), lambda x: x[:, [2, 0]]),
]


def test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart() -> None:
    batches = Dataset.from_tensor_slices(np.arange(24).reshape(4, 3, 2)).batch(2)
    found = batches.map(lambda x: tuple(ours(x) for ours, _ in AFTER_BATCH), traced=True)

    assert_equal(list(found), [tuple(numpys(x) for _, numpys in AFTER_BATCH) for x in batches])


def on_batches(function: Any) -> Any:
    return Dataset.from_tensor_slices(np.arange(24).reshape(4, 3, 2)).batch(2).map(function)


ROWS = "works on each row of a batch, got axis 0"
SELECTS = r"a subscript that selects rows of a batch .*; use x\[..., key\] for a part of each row"

test_after_batch_what_mixes_rows_is_refused = refused(
    (SpecError, ROWS, lambda: on_batches(lambda x: ops.expand_dims(x, 0))),
    (SpecError, ROWS, lambda: on_batches(lambda x: ops.concat([x, x]))),
    (SpecError, ROWS, lambda: on_batches(lambda x: ops.gather(x, [0]))),
    (SpecError, r"a shape of \(-1, ...\) there, got \(3, 2\)", lambda: on_batches(lambda x: ops.reshape(x, (3, 2)))),
    (TraceError, SELECTS, lambda: on_batches(lambda x: ops.cast(x, "int8")[0])),
    (TraceError, SELECTS, lambda: on_batches(lambda x: ops.cast(x, "int8")[..., 0, 0, 0])),
)


def test_byte_strings_can_be_stacked_and_selected() -> None:
    chain = Dataset.from_tensor_slices(["a", "b\0"]).map(lambda x: (ops.stack([x, b"c\0"]), ops.stack([x, x])[1]))

    assert [(both.tolist(), one) for both, one in chain] == [([b"a", b"c\0"], b"a"), ([b"b\0", b"c\0"], b"b\0")]


def test_an_index_outside_is_an_error_of_its_element() -> None:
    chain = Dataset.range(3).map(lambda i: ops.gather([5, 7], i))
    with pytest.raises(DataError, match="gather needs indices from 0 to 1, got 2"):
        list(chain)
    with pytest.raises(DataError, match="gather needs indices from 0 to 1, got -1"):
        ops.gather([5, 7], -1)
    negative = Dataset.range(2).map(lambda i: ops.stack([i, i + 5])[-1 - i], traced=True)
    assert list(negative) == [5, 1]  # a subscript counts from the end, as in Python


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_image_without_the_row_is_an_error_of_its_element(backend: str) -> None:
    chain = (
        dataset()
        .map(lambda i, m, y: (ops.decode_png(i, channels=3)[:, 25], y))
        .with_options(on(backend, on_error="skip"))
    )
    assert [int(y) for _, y in chain] == [0, 1, 2, 3, 4]  # images are 30, 29, ... pixels wide


IMAGE_ERRORS: list[tuple[Any, str]] = [
    (lambda x: x[..., 3], "an index from -3 to 2, got 3"),
    (lambda x: x[0, 0, 0, 0], "at most 3 indices .*, got 4"),
    (lambda x: ops.reshape(x, (5, -1)), "reshape needs a shape of as many numbers"),
    (lambda x: ops.squeeze(x, 2), "squeeze needs an axis of size 1, got axis 2"),
    (lambda x: ops.expand_dims(x, 5), "expand_dims needs an axis from -4 to 3"),
    (lambda x: ops.stack([x, x[:2]]), "stack needs values of one shape"),
    (lambda x: ops.stack([x, ops.cast(x, "int16")]), "stack needs values of one dtype.*ops.cast"),
    (lambda x: ops.concat([x, x[:2]], 1), "concat needs values that differ along axis 1 only"),
    (lambda x: ops.gather(x, [3], -1), "gather needs indices of known parts"),
    (lambda x: ops.gather(np.arange(20), x), r"a table of 256 numbers .*, got 20; .* np.pad\(table, \(0, 236\)"),
    (lambda x: ops.gather(np.arange(256.0), ops.cast(x, "int32")), "needs images of uint8 or uint16 as indices"),
    (lambda x: ops.gather(np.full(256, (1 << 24) + 1), x), "a table of numbers that float32 holds"),
    (lambda x: ops.gather(x, x[0, 0, 0]), "a constant table"),
]


def on_photo(function: Any) -> Any:
    return dataset().map(lambda image, mask, label: function(photo(image)))


@pytest.mark.parametrize(("fn", "text"), IMAGE_ERRORS)
def test_mistakes_with_images_name_what_is_needed(fn: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text + r".*, at .*test_values\.py:\d+"):
        on_photo(fn)


def test_joining_images_of_unknown_height_is_refused() -> None:
    with pytest.raises(SpecError, match=r"images of known size along axis 0, .*; resize or crop them first"):
        dataset().map(lambda i, m, y: ops.concat([ops.decode_png(i, 3), ops.decode_png(i, 3)]))


def test_plain_numbers_take_the_dtype_beside_them() -> None:
    chain = Dataset.range(2).map(lambda i: ops.stack([ops.cast(i, "int16"), 3, -1]))
    assert [(x.dtype, x.tolist()) for x in chain] == [(np.int16, [0, 3, -1]), (np.int16, [1, 3, -1])]
    with pytest.raises(SpecError, match="stack needs values of one dtype, got uint8, int64"):
        ops.stack([np.uint8(3), -1])


def test_an_index_of_ones_own_table_names_gather() -> None:
    with pytest.raises(TraceError, match=r"needs an index of a value .* use ops\.gather\(table, index\), .*"):
        Dataset.range(2).map(lambda i: np.arange(5)[ops.cast(i, "int32")])


def test_what_explains_a_chain_shows_no_types_of_inputs() -> None:
    chain = dataset().map(lambda i, m, y: photo(i)[..., 0]).batch(2).with_options(on("numpy"))
    assert "subscript(key=(Ellipsis, 0)) -> uint8[12,12]" in str(chain.explain())


NAMES = Dataset.from_tensor_slices(["a"])
MANY = Dataset.range(64)

test_wrong_arguments_name_what_is_needed = refused(
    (PlanTypeError, "stack needs a list or tuple of values, got none", lambda: ops.stack([])),
    (PlanTypeError, "concat needs a list or tuple of values, got ndarray", lambda: ops.concat(X)),
    (PlanTypeError, r"expand_dims needs axis as an integer, got 1\.5", lambda: ops.expand_dims(X, 1.5)),  # type: ignore[arg-type]
    (PlanTypeError, "shape as plain integers, at most one of them -1, got", lambda: ops.reshape(X, (-1, -1))),
    (SpecError, "a subscript is not defined for bytes", lambda: NAMES.map(lambda x: ops.stack([x[0]]))),
    (SpecError, "gather needs indices that are integers, got float64", lambda: ops.gather(X, 1.5)),
)


NAN = np.array([np.nan, 1.0, -np.inf, np.inf, 0.5], np.float32)


def test_minimum_and_maximum_are_numpys() -> None:
    for a, b in ((X, X[::-1]), (X, 100), (NAN, NAN[::-1].copy()), (NAN, 0.75), (3, 4), (np.int64(3), np.arange(5))):
        for ours, theirs in ((ops.minimum, np.minimum), (ops.maximum, np.maximum)):
            got = ours(a, b)
            np.testing.assert_array_equal(got, theirs(a, b))
            assert np.asarray(got).dtype == theirs(a, b).dtype


def test_integers_and_a_float_make_float32_as_in_arithmetic() -> None:
    assert ops.minimum(X, 0.5).dtype == np.float32
    assert ops.maximum(np.arange(3), 0.5).dtype == np.float64  # 64-bit integers, no image: NumPy's
    assert ops.where(X > 3, X, 0.5).dtype == np.float32
    assert ops.where(np.bool_(True), 1.0, 0.0).dtype == np.float32


@pytest.mark.parametrize("number", [-1, 256])
def test_where_names_itself_and_the_dtypes_that_have_no_common_one(number: int) -> None:
    for x in (X, Dataset.from_list([X])):
        with pytest.raises(SpecError, match=f"^where finds no dtype for values of uint8 and {number}; convert"):
            x.map(lambda y: ops.where(y > 3, y, number)) if isinstance(x, Dataset) else ops.where(x > 3, x, number)
    with pytest.raises(SpecError, match=f"^where finds no dtype for values of {number} and uint8; convert"):
        ops.where(X > 3, number, X)
    assert ops.where(X > 3, ops.cast(X, "int64"), number).dtype == np.int64


def test_clip_keeps_the_dtype_and_takes_one_limit() -> None:
    for dtype in ("uint8", "int16", "float16", "float32", "float64"):
        assert ops.clip(X.astype(dtype), 3, 99).dtype == np.dtype(dtype)
    np.testing.assert_array_equal(ops.clip(X, None, 9), np.minimum(X, 9))
    np.testing.assert_array_equal(ops.clip(X, [9, 1, 3], None), np.maximum(X, np.array([9, 1, 3], np.uint8)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_crop_knows_the_size_of_an_image_that_stands_after_a_flag(backend: str) -> None:
    def crop(image: Any, mask: Any, label: Any) -> Any:
        x = ops.decode_png(image, channels=3)
        chosen = ops.where(label > 3, x, 255)
        scaled = ops.random_uniform() * ops.minimum(np.full((1, 1, 3), 99, np.uint8), x)
        return ops.random_crop(chosen, (19, 20)), ops.random_crop(scaled, (19, 20))

    got = rows(crop, backend)
    assert_equal(got, rows(crop, "numpy", 8))
    assert {a.shape for a, _ in got} == {(19, 20, 3)}


def test_after_batch_a_flag_chooses_for_each_row() -> None:
    chain = Dataset.range(6).batch(3).map(lambda x: ops.where(x % 2 == 0, x, -x), traced=True)

    assert [batch.tolist() for batch in chain] == [[0, -1, 2], [-3, 4, -5]]


test_mistakes_in_choices_name_what_is_needed = refused(
    (SpecError, r"a condition of booleans, got uint8.*; compare it first: x != 0", lambda: ops.where(X, X, 0)),
    (SpecError, "where needs numbers, got bytes", lambda: ops.where(np.bool_(True), b"x", 0)),
    (SpecError, "do not broadcast", lambda: ops.where(X > 0, X, np.zeros((4, 4), np.uint8))),
    (SpecError, "clip needs high that fits uint8, got 300", lambda: ops.clip(X, 0, 300)),
    (SpecError, "clip needs low up to high, got 5 and 4", lambda: ops.clip(X, 5, 4)),
    (SpecError, "clip needs numbers, got bytes", lambda: ops.clip(b"x", 5, 6)),
    (PlanTypeError, "clip needs a number for low, got 'a'", lambda: ops.clip(X, "a", 6)),
    (SpecError, r"'minimum' is not defined for uint8.*300 out of bounds", lambda: ops.minimum(X, 300)),
    (SpecError, r"'minimum' is not defined for bytes", lambda: NAMES.map(lambda x: ops.minimum(x, 1))),
    (PlanTypeError, "maximum needs numbers, got Symbol and dict", lambda: MANY.map(lambda x: ops.maximum(x, {}))),
    (SpecError, r"supports \+ - \* / and comparisons, got 'pow'", lambda: list(on_photo(lambda x: x**2))),
)


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


def shared(image: Any, mask: Any, label: Any) -> Any:
    coin, factor = ops.random_uniform() < 0.5, ops.random_uniform(0.5, 1.5)
    x = ops.random_flip_left_right(photo(image), p=ops.cast(coin, "float32"))
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


test_mistakes_in_draws_name_what_is_needed = refused(
    (PlanTypeError, "a number for minval, .*; shape is the third argument", lambda: ops.random_uniform((3,), 0, 1)),
    (SpecError, "minval below maxval, got 2 and 2", lambda: ops.random_uniform(2, 2)),
    (SpecError, "maxval for int32, got None", lambda: ops.random_uniform(0, dtype="int32")),
    (SpecError, "maxval from 0 to 256, got 257", lambda: ops.random_uniform(0, 257, dtype="uint8")),
    (PlanTypeError, r"an integer for maxval, got 1\.5", lambda: ops.random_uniform(0, 1.5, dtype="int32")),
    (SpecError, "a dtype of integers or floats, got 'bool'", lambda: ops.random_uniform(0, 1, dtype="bool")),
    (PlanTypeError, "shape as integers of at least 0", lambda: ops.random_uniform(0, 1, (2, -1))),
    (SpecError, "at most 1048576 numbers", lambda: ops.random_uniform(0, 1, (1 << 11, 1 << 11))),
)


def test_floats_have_bounds_beyond_those_of_integers() -> None:
    drawn = ops.random_uniform(-1e20, 1e20)

    assert -1e20 <= drawn < 1e20


def test_a_class_is_one_and_the_others_zero() -> None:
    got = ops.one_hot(np.int64(2), 4)

    assert got.dtype == np.float32
    assert got.tolist() == [0, 0, 1, 0]


def test_the_type_can_be_chosen() -> None:
    assert ops.one_hot(1, 2, dtype=bool).tolist() == [False, True]
    assert ops.one_hot(1, 2, 7, -7, dtype="int8").tolist() == [-7, 7]


def test_values_that_a_type_holds_nearly_or_not_at_all_on_purpose_are_taken() -> None:
    assert ops.one_hot(1, 2, 0.9, float("-inf")).tolist() == [float("-inf"), np.float32(0.9)]
    assert ops.one_hot(1, 2, 65504, 1e-9, "float16").tolist() == [0, 65504]
    assert ops.one_hot(0, 2, 1.0, 0.0, bool).tolist() == [True, False]
    assert np.isnan(ops.one_hot(0, 2, 1, float("nan"))[1])


@pytest.mark.tf
def test_one_hot_is_tensorflows(tf: Any) -> None:
    labels = np.array([[0, 4, -1], [2, 9, 3]], np.int32)

    np.testing.assert_array_equal(ops.one_hot(labels, 5), tf.one_hot(labels, 5).numpy())
    np.testing.assert_array_equal(
        ops.one_hot(labels, 5, 2, 1, "int64"), tf.one_hot(labels, 5, 2, 1, dtype="int64").numpy()
    )


def of_a_batch(labels: Any, backend: Any) -> Any:
    images = np.zeros((len(labels), 4, 4, 3), np.uint8)
    batches = Dataset.from_tensor_slices((images, labels)).batch(len(labels))
    mixed = batches.map(lambda x, y: ops.mixup(x, y, num_classes=3, seed=1))
    return next(iter(mixed.with_options(Options(backend=backend))))[1]


@pytest.mark.parametrize("backend", ["numpy", "fast", "dali"])
@pytest.mark.parametrize("number", [3, 255, -2])
def test_a_class_that_does_not_exist_is_logged_once(number: int, backend: str, caplog: Any) -> None:
    labels = np.array([0, number, number, 2])
    logger._warned.clear()
    hot = of_a_batch(labels, backend)
    of_a_batch(labels, backend)

    assert hot.sum() == pytest.approx(2)
    texts = [record.message for record in caplog.records if "one_hot" in record.message]
    assert len(texts) == 1
    assert f"of 3 classes, at {__file__}:" in texts[0]
    assert f"got class number {number}: its vector has no class" in texts[0]


@pytest.mark.parametrize("form", ["eager", "in Python", "on the host", "after a draw"])
def test_so_is_one_that_no_executor_gets(form: str, caplog: Any) -> None:
    labels = np.array([[0, 1], [7, 7]])
    logger._warned.clear()
    for _ in range(2):
        if form == "eager":
            ops.one_hot(labels, 7)
        else:
            functions: dict[str, Any] = {
                "in Python": lambda y: ops.one_hot(y.tolist(), 7),
                "on the host": lambda y: ops.one_hot(y, 7),
                "after a draw": lambda y: (ops.one_hot(y, 7), ops.random_uniform()),
            }
            list(Dataset.from_tensor_slices(labels).map(functions[form]))

    texts = [record.message for record in caplog.records if "one_hot" in record.message]
    assert [text.count(f"at {__file__}:") for text in texts] == [1]


def test_minus_one_stands_for_no_class(caplog: Any) -> None:
    logger._warned.clear()
    assert not ops.one_hot(-1, 3).any()
    assert not ops.one_hot(np.zeros(0, int), 3).size
    assert not of_a_batch([-1, -1], "numpy").any()

    assert not caplog.records


def test_it_is_traced_for_labels() -> None:
    traced = trace(lambda y: ops.one_hot(y, 10), flatten(0)[1], [TensorSpec((), "int64")])

    assert traced is not None
    assert traced.outputs[0].spec == TensorSpec((10,), "float32")


ONE = Dataset.from_tensor_slices(X[None])

test_mistakes_in_classes_name_what_is_needed = refused(
    (SpecError, "one_hot needs integers, got float64", lambda: ops.one_hot(1.5, 3)),
    (SpecError, "depth from 1", lambda: ops.one_hot(1, 0)),
    (PlanTypeError, "an integer for depth", lambda: ops.one_hot(1, 2.5)),  # type: ignore[arg-type]
    (SpecError, "on_value that fits uint8", lambda: ops.one_hot(1, 3, on_value=0.5, dtype="uint8")),
    (SpecError, "on_value that fits float16, got 1000000.0", lambda: ops.one_hot(1, 3, 1e6, dtype="float16")),
    (SpecError, "off_value that fits float32, got -1e", lambda: ops.one_hot(1, 3, 1, -1e39)),
    (SpecError, "on_value that fits float32", lambda: ops.one_hot(1, 3, 10**300)),
    (SpecError, "on_value that fits float64", lambda: ops.one_hot(1, 3, 10**400, dtype="float64")),
    (SpecError, "on_value that fits bool, got 0.5", lambda: ops.one_hot(1, 3, 0.5, 0.1, dtype="bool")),
    (SpecError, "off_value that fits bool, got -1", lambda: ops.one_hot(1, 3, 1, -1, dtype="bool")),
    (SpecError, "off_value that fits int64, got nan", lambda: ops.one_hot(1, 3, 1, float("nan"), dtype="int64")),
    (SpecError, "on_value that fits int64, got inf", lambda: ops.one_hot(1, 3, float("inf"), dtype="int64")),
    (PlanTypeError, "a number for on_value", lambda: ops.one_hot(1, 3, np.complex64(1))),  # type: ignore[arg-type]
    (PlanTypeError, "cast needs a dtype, got an array", lambda: ops.cast("uint8", np.zeros((2, 2)))),
    (PlanTypeError, "cast needs a dtype, got an array", lambda: ops.cast("uint8", [1, 2])),
    (PlanTypeError, "cast needs a dtype, got an array", lambda: ONE.map(lambda x: ops.cast("uint8", x))),
    (PlanTypeError, "one_hot needs a dtype, got an array", lambda: ops.one_hot(1, 3, dtype=np.zeros(3))),
    (
        PlanTypeError,
        "random_uniform needs a dtype, got an array",
        lambda: ops.random_uniform(0, 1, dtype=np.zeros(3)),
    ),
    (PlanTypeError, "a number for off_value", lambda: ops.one_hot(1, 3, off_value="x")),  # type: ignore[arg-type]
)


INT = TensorSpec((), "int64")
VECTOR = TensorSpec((None,), "float32")


def fail(*args: Any) -> Any:
    raise KeyError("nope")


def returns(value: Any, spec: Any = INT) -> Any:
    """What a function that returns `value` gives."""
    return ops.py_function(lambda x: value, [0], spec)


def test_a_traced_function_calls_it_once_for_each_row() -> None:
    seen: list[Any] = []

    def count(name: bytes, n: np.int64) -> dict[str, Any]:
        seen.append((name, n))
        return {"length": len(name) * n, "parts": np.full(n, 0.5, np.float32)}

    def fn(x: Any) -> Any:
        return ops.py_function(count, (x["name"], x["n"]), {"length": INT, "parts": VECTOR}), x["n"] + 1

    chain = Dataset.from_tensor_slices({"name": [b"ab", b"cde"], "n": [2, 0]}).map(fn, traced=True)
    assert seen == []

    found = [(x["length"], x["parts"].tolist(), n) for x, n in chain]

    assert found == [(4, [0.5, 0.5], 3), (0, [], 1)]
    assert seen == [(b"ab", 2), (b"cde", 0)]
    assert all(type(name) is bytes for name, _ in seen)


def test_python_numbers_take_the_type_of_the_spec() -> None:
    assert returns(3, TensorSpec((), "uint8")).dtype == np.uint8
    assert returns(2.5, TensorSpec((), "float32")).dtype == np.float32
    assert returns(True).dtype == np.int64
    assert returns([1, 2], VECTOR).tolist() == [1, 2]
    assert returns("é", TensorSpec((), bytes)) == "é".encode()


def test_a_list_stands_for_a_tuple_where_the_spec_has_one() -> None:
    assert returns([1, 2], (INT, INT)) == (1, 2)


test_a_result_unlike_the_spec_is_an_error_of_the_data = refused(
    (FunctionError, r"needs to return int64, got float64", lambda: returns(1.5)),
    (FunctionError, "to return float32, got float64", lambda: returns(np.float64(1), TensorSpec((), "float32"))),
    (FunctionError, "got 300 .*out of bounds", lambda: returns(300, TensorSpec((), "uint8"))),
    (FunctionError, r"return float32\[\?\], got float32\[2,2\]", lambda: returns(np.zeros((2, 2), "f4"), VECTOR)),
    (FunctionError, r"needs to return int64, got the structure \(\*, \*\)", lambda: returns((1, 2))),
    (FunctionError, r"got the structure \*", lambda: returns(1, (INT, INT))),
    (FunctionError, "got the structure None", lambda: returns(None)),
    (FunctionError, "got {1}", lambda: returns({1})),
    (FunctionError, "got <object", lambda: returns(object())),
    (FunctionError, r"got bytes for \[1\]", lambda: returns((1, b"x"), (INT, INT))),
)


def test_an_exception_is_kept_as_the_cause() -> None:
    with pytest.raises(FunctionError, match=r"fail\(\) raised KeyError: 'nope'") as caught:
        ops.py_function(fail, [1], INT)

    assert isinstance(caught.value.__cause__, KeyError) and caught.value.stage == "py_function"


def test_an_error_that_says_what_is_wrong_with_the_data_passes_as_it_is() -> None:
    def refuse(x: Any) -> Any:
        raise ParseError("no label")

    with pytest.raises(ParseError, match="no label"):
        ops.py_function(refuse, [1], INT)


test_mistakes_are_found_while_tracing = refused(
    (SpecError, "dtype and rank", lambda: ops.py_function(fail, [1], TensorSpec(None, "int64"))),
    (PlanTypeError, "needs a TensorSpec for each result, got <class 'int'>", lambda: ops.py_function(fail, [1], int)),
    (PlanTypeError, "needs a function, got int", lambda: ops.py_function(3, [1], INT)),  # type: ignore[arg-type]
    (PlanTypeError, "tuple or list of arguments", lambda: ops.py_function(fail, 1, INT)),  # type: ignore[arg-type]
    (PlanError, "at least one argument", lambda: ops.py_function(fail, [], INT)),
)
