"""minimum, maximum, clip and where: on images, masks and labels, with NumPy's and TensorFlow's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops._shared.samples import noise
from tests.ops.value_chains import BACKENDS, assert_equal, mask_of, photo, rows

X = noise(6, 5)
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


def values(image: Any, mask: Any, label: Any) -> Any:
    x, m = photo(image), mask_of(mask)
    f = ops.cast(x, "float32") / 255
    return (
        np.clip(f, 0.25, 0.5),
        ops.clip(x, label, 200),
        np.minimum(x, x[::-1]),
        np.maximum(f, ops.cast(label, "float32") / 8),
        ops.where(m > 127, x, 255),
        ops.where((f > 0.2) & ~(f > 0.7), f, -1.0),
        ops.where(label % 2 == 0, x, m),
        ops.where(m[..., 0] >= 100, np.int64(1), label),
        ops.minimum(label, 5),
        ops.where(label == 3, 1, label),
    )


def expected(x: Any, m: Any, label: Any) -> Any:
    f = x.astype(np.float32) / np.float32(255)
    return (
        np.clip(f, np.float32(0.25), np.float32(0.5)),
        np.clip(x, label.astype(np.uint8), 200),
        np.minimum(x, x[::-1]),
        np.maximum(f, np.float32(label / 8)),
        np.where(m > 127, x, np.uint8(255)),
        np.where((f > 0.2) & ~(f > 0.7), f, np.float32(-1)),
        np.where(label % 2 == 0, x, m),
        np.where(m[..., 0] >= 100, np.int64(1), label),
        np.minimum(label, 5),
        np.where(label == 3, 1, label),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_traced_function_gives_numpys_results(backend: str) -> None:
    inputs = rows(lambda i, m, y: (photo(i), mask_of(m), y), "numpy")

    assert_equal(rows(values, backend), [expected(*row) for row in inputs])


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_constant_arrays_go_with_images_and_those_of_floats_become_float32(backend: str) -> None:
    table = np.array([0.5, 1, 2])

    def fn(image: Any, mask: Any, label: Any) -> Any:
        x = photo(image)
        limits = np.array([9, 99, 200], np.uint8)
        return ops.where(x > 99, table, 0.0), ops.minimum(x, limits), np.maximum(x / 99, table)

    for (a, b, c), (x,) in zip(rows(fn, backend), rows(lambda i, m, y: (photo(i),), "numpy"), strict=True):
        np.testing.assert_array_equal(a, np.where(x > 99, table, 0).astype(np.float32))
        np.testing.assert_array_equal(b, np.minimum(x, [9, 99, 200]))
        np.testing.assert_array_equal(c, np.maximum(x / np.float32(99), table.astype(np.float32)))
        assert a.dtype == c.dtype == np.float32 and b.dtype == np.uint8


def test_mistakes_name_what_is_needed() -> None:
    with pytest.raises(SpecError, match=r"a condition of booleans, got uint8.*; compare it first: x != 0"):
        ops.where(X, X, 0)
    with pytest.raises(SpecError, match="where needs numbers, got bytes"):
        ops.where(np.bool_(True), b"x", 0)
    with pytest.raises(SpecError, match="do not broadcast"):
        ops.where(X > 0, X, np.zeros((4, 4), np.uint8))
    with pytest.raises(SpecError, match="clip needs high that fits uint8, got 300"):
        ops.clip(X, 0, 300)
    with pytest.raises(SpecError, match="clip needs low up to high, got 5 and 4"):
        ops.clip(X, 5, 4)
    with pytest.raises(SpecError, match="clip needs numbers, got bytes"):
        ops.clip(b"x", 5, 6)
    with pytest.raises(PlanTypeError, match="clip needs a number for low, got 'a'"):
        ops.clip(X, "a", 6)
    with pytest.raises(SpecError, match=r"'minimum' is not defined for uint8.*300 out of bounds"):
        ops.minimum(X, 300)
    with pytest.raises(SpecError, match=r"'minimum' is not defined for bytes"):
        Dataset.from_tensor_slices(["a"]).map(lambda x: ops.minimum(x, 1))
    with pytest.raises(PlanTypeError, match="maximum needs numbers, got Symbol and dict"):
        Dataset.range(1).map(lambda x: ops.maximum(x, {}))
    with pytest.raises(SpecError, match=r"an image supports \+ - \* / and comparisons, got 'pow'"):
        rows(lambda i, m, y: (photo(i) ** 2,), "numpy")
