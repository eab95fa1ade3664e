"""Subscripts, reshape, expand_dims, squeeze, stack, concat and gather: NumPy's and TensorFlow's results everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import DataError, PlanTypeError, SpecError, TraceError
from gpupipe.ops._shared.samples import noise
from tests.ops.value_chains import BACKENDS, COUNT, assert_equal, dataset, mask_of, on, photo, rows

X = noise(6, 5)
TABLE = (np.arange(256)[::-1] % 19).astype(np.int64)


def shapes(image: Any, mask: Any, label: Any) -> Any:
    x, m = photo(image), mask_of(mask)
    hot = ops.one_hot(label, COUNT)
    return (
        m[..., 0],
        x[2:5, ::-1, :2],
        x[..., ::-1],
        x[3, :, None],
        ops.reshape(x, (-1, 9)),
        ops.expand_dims(m[..., 0], -1),
        ops.squeeze(m, -1),
        ops.stack([x, x[::-1]], axis=-1),
        ops.concat([x, m], axis=-1),
        ops.gather(x, [2, 0], axis=-1),
        ops.gather(x, 1, axis=0),
        ops.gather(TABLE, m[..., 0]),
        hot[2:5],
        hot[label],
        ops.gather(np.arange(16).reshape(8, 2), label),
        ops.stack([label, label + 1]),
        ops.concat([hot, hot[:2]]),
        ops.reshape(label, (1, 1)),
    )


def expected(x: Any, m: Any, label: Any) -> Any:
    hot = np.eye(COUNT, dtype=np.float32)[label]
    return (
        m[..., 0],
        x[2:5, ::-1, :2],
        x[..., ::-1],
        x[3, :, None],
        x.reshape(-1, 9),
        m,
        m[..., 0],
        np.stack([x, x[::-1]], -1),
        np.concatenate([x, m], -1),
        x[..., [2, 0]],
        x[1],
        TABLE[m[..., 0]],
        hot[2:5],
        hot[label],
        np.arange(16).reshape(8, 2)[label],
        np.array([label, label + 1]),
        np.concatenate([hot, hot[:2]]),
        label.reshape(1, 1),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_traced_function_gives_numpys_results(backend: str) -> None:
    inputs = rows(lambda i, m, y: (photo(i), mask_of(m), y), "numpy")

    assert_equal(rows(shapes, backend), [expected(*row) for row in inputs])


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


def test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart() -> None:
    batches = Dataset.from_tensor_slices(np.arange(24).reshape(4, 3, 2)).batch(2)

    def change(x: Any) -> Any:
        return (
            x[:, 1],
            x[..., 0],
            x[:, None, ::-1],
            ops.expand_dims(x, 1),
            ops.reshape(x, (-1, 6)),
            ops.squeeze(x[..., :1], 2),
            ops.stack([x, x], 2),
            ops.concat([x, x], -1),
            ops.gather(x, [2, 0], 1),
        )

    for x, got in zip(batches, batches.map(change, traced=True), strict=True):
        meant = (
            x[:, 1],
            x[..., 0],
            x[:, None, ::-1],
            x[:, None],
            x.reshape(-1, 6),
            x[..., 0],
            np.stack([x, x], 2),
            np.concatenate([x, x], -1),
            x[:, [2, 0]],
        )
        assert_equal([got], [meant])


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda x: ops.expand_dims(x, 0), SpecError, "works on each row of a batch, got axis 0"),
        (lambda x: ops.concat([x, x]), SpecError, "works on each row of a batch, got axis 0"),
        (lambda x: ops.gather(x, [0]), SpecError, "works on each row of a batch, got axis 0"),
        (lambda x: ops.reshape(x, (3, 2)), SpecError, r"needs a shape of \(-1, ...\) there, got \(3, 2\)"),
        (lambda x: ops.cast(x, "int8")[0], TraceError, "a subscript that selects rows of a batch"),
        (lambda x: ops.cast(x, "int8")[..., 0, 0, 0], TraceError, "a subscript that selects rows of a batch"),
    ],
)
def test_after_batch_what_mixes_rows_is_refused(fn: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Dataset.from_tensor_slices(np.arange(24).reshape(4, 3, 2)).batch(2).map(fn)


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
    (
        lambda x: ops.gather(np.arange(20), x),
        r"a table of 256 numbers .*, got 20; fill it up: np.pad\(table, \(0, 236\)",
    ),
    (lambda x: ops.gather(np.arange(256.0), ops.cast(x, "int32")), "needs images of uint8 or uint16 as indices"),
    (lambda x: ops.gather(np.full(256, (1 << 24) + 1), x), "a table of numbers that float32 holds"),
    (lambda x: ops.gather(x, x[0, 0, 0]), "a constant table"),
]


@pytest.mark.parametrize(("fn", "text"), IMAGE_ERRORS)
def test_mistakes_with_images_name_what_is_needed(fn: Any, text: str) -> None:
    with pytest.raises(SpecError, match=text + r".*, at .*test_shapes\.py:\d+"):
        dataset().map(lambda i, m, y: fn(photo(i)))


def test_joining_images_of_unknown_height_is_refused() -> None:
    with pytest.raises(
        SpecError, match=r"concat needs images of known size along axis 0, .*; resize or crop them first"
    ):
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


def test_wrong_arguments_name_what_is_needed() -> None:
    with pytest.raises(PlanTypeError, match="stack needs a list or tuple of values, got none"):
        ops.stack([])
    with pytest.raises(PlanTypeError, match="concat needs a list or tuple of values, got ndarray"):
        ops.concat(X)
    with pytest.raises(PlanTypeError, match=r"expand_dims needs axis as an integer, got 1\.5"):
        ops.expand_dims(X, 1.5)  # type: ignore[arg-type]
    with pytest.raises(PlanTypeError, match=r"reshape needs shape as plain integers, at most one of them -1, got"):
        ops.reshape(X, (-1, -1))
    with pytest.raises(SpecError, match="a subscript is not defined for bytes"):
        Dataset.from_tensor_slices(["a"]).map(lambda x: ops.stack([x[0]]))
    with pytest.raises(SpecError, match="gather needs indices that are integers, got float64"):
        ops.gather(X, 1.5)
