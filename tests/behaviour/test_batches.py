"""Batches, groups and buckets: what is padded with what, what a group is, and what is said of what does not fit.

Elements, specs, their order and the classes of errors are compared with those of tf.data in tests/differential.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset
from gpupipe.errors import ShapeError
from tests.behaviour.model import outcomes, run
from tests.behaviour.test_windows import drawn


def _ragged(*lengths: int) -> Dataset:
    """int64 vectors of these lengths, of unknown spec."""
    return Dataset.from_tensor_slices(list(lengths)).map(lambda n: np.arange(1, int(n) + 1))


def _two(first: object, second: object) -> Dataset:
    return Dataset.from_tensors(first).concatenate(Dataset.from_tensors(second))


def _dicts(dataset: Dataset) -> Dataset:
    return dataset.map(lambda x: {"x": x})


WIDER = Dataset.range(1, 9).map(lambda n: np.zeros(n), traced=False)
UNFIT: list[tuple[Callable[[], Dataset], type[Exception], str]] = [
    (lambda: _dicts(_ragged(2, 2, 3)).batch(3), ShapeError, r"\['x'\], got \(3,\) after \(2,\).*index 0.*padded_batch"),
    (lambda: _ragged(1).padded_batch(2, [2, 2]), gp.PlanError, "a padded shape of rank 1.*in the padded_batch at "),
    (lambda: _ragged(1).padded_batch(2, padding_values=0.5), TypeError, "padded_batch needs a value of dtype int64"),
    (lambda: _ragged(1).map(lambda x: (x, x)).padded_batch(2, [2]), TypeError, "needs padded_shapes as a tuple of 2"),
    (lambda: WIDER.padded_batch(1, [5]), ShapeError, r"range at index 5: .* shape \[5\], got \(6,\); crop them, or"),
    (lambda: _dicts(WIDER).padded_batch(2, {"x": [4]}), ShapeError, r"the padded shape \[4\] for .*x.*, got \(5,\)"),
    (lambda: _two([1, 2], 1).padded_batch(2), ShapeError, r"of one rank, got \(\) after \(2,\) \(.* at index 0\)"),
    (lambda: _two([1], [[1]]).padded_batch(1, [5]), ShapeError, r"rank 1, as the padded shape \[5\] has, got \(1, 1"),
]


@pytest.mark.parametrize(("chain", "kind", "text"), UNFIT)
def test_what_does_not_fit_is_named_with_its_leaf_its_shape_and_its_place(
    chain: Callable[[], Dataset], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        list(chain())


def test_each_kind_of_leaf_has_its_own_filling() -> None:
    rows = Dataset.from_list([(np.ones(n, bool), np.array([b"x"] * n, object), np.ones(n, np.float32)) for n in (1, 2)])

    assert run(rows.padded_batch(2)) == [([[True, False], [True, True]], [[b"x", b""], [b"x", b"x"]], [[1, 0], [1, 1]])]


def test_none_stands_for_the_defaults_of_a_part() -> None:
    pair = Dataset.from_tensors(([1, 2], {"s": np.ones(1), "t": b"x"}))

    values = run(pair.padded_batch(1, ([3], {"s": [3], "t": []}), (-1, None)))
    shapes = run(pair.padded_batch(1, ([3], None), (None, {"s": 7.0, "t": None})))
    late = run(pair.map(lambda x, y: (x, y), traced=False).padded_batch(1, ([3], None), (-1, None)))

    assert values == [([[1, 2, -1]], {"s": [[1.0, 0.0, 0.0]], "t": [b"x"]})]
    assert shapes == [([[1, 2, 0]], {"s": [[1.0]], "t": [b"x"]})]
    assert late == [([[1, 2, -1]], {"s": [[1.0]], "t": [b"x"]})]
    for wrong, text in (((-1, 0), "dict with the keys"), ((-1, None, None), "tuple of 2")):
        with pytest.raises(TypeError, match=f"padded_batch needs padding_values as a {text}"):
            pair.padded_batch(1, None, wrong)


# ---- group_by_window and bucket_by_sequence_length: what a group is, and what fails


def lists(lengths: list[int]) -> Dataset:
    """Vectors of these lengths; vector i holds only i."""
    spec = gp.TensorSpec((None,), "int64")
    rows = [np.full(n, i, np.int64) for i, n in enumerate(lengths)]
    return Dataset.from_generator(lambda: iter(rows), output_signature=spec)


def test_the_function_gets_the_key_and_a_dataset_of_whole_elements() -> None:
    seen = []

    def reduce(key: Any, group: Dataset) -> Dataset:
        seen.append((type(key), int(key), len(group), group.element_spec))
        return group.map(lambda d: d["a"] + key * 100)

    dataset = Dataset.from_tensor_slices({"a": [1, 2, 3], "b": [0.0, 1.0, 2.0]})

    assert run(dataset.group_by_window(lambda d: d["a"] % 2, reduce, window_size=2)) == [101, 103, 2]
    spec = {"a": gp.TensorSpec((), "int64"), "b": gp.TensorSpec((), "float64")}
    assert seen == [(np.int64, 1, 2, spec), (np.int64, 0, 1, spec)]


def test_elements_keep_their_identities_in_a_group() -> None:
    dataset = Dataset.range(8)
    expected = run(dataset.map(drawn, rng=True))

    flat = dataset.group_by_window(lambda x: x % 2, lambda k, d: d, 2)
    batches = dataset.group_by_window(lambda x: x % 2, lambda k, d: d.batch(2), 2)

    assert run(flat.map(drawn, rng=True)) == [expected[i] for i in run(flat)]
    assert run(batches.unbatch().map(drawn, rng=True)) == [expected[i] for i in run(flat)]


# ---- bad elements


def test_a_bad_element_is_raised_at_once_and_groups_go_on() -> None:
    def bad(x: Any) -> Any:
        if x in (1, 4):
            raise ValueError("bad")
        return x

    dataset = Dataset.range(7).map(bad).group_by_window(lambda x: x % 2, lambda k, d: d.batch(3), 3)

    assert outcomes(dataset) == ["error", "error", [0, 2, 6], [3, 5]]
    assert run(dataset.with_options(gp.Options(on_error="skip"))) == [[0, 2, 6], [3, 5]]
    assert run(dataset.with_options(gp.Options(on_error="replace"))) == [[0, 0, 2], [3, 3, 5], [6]]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (lambda x: 1 // int(x), "raised ZeroDivisionError"),
        (lambda x: float(x), "key_func that returns one integer, got float64"),
        (lambda x: (int(x), 1), "key_func that returns one integer, got 2 values"),
        (lambda x: int(x) > 0, "key_func that returns one integer, got bool"),
        (lambda x: np.arange(int(x)), "key_func that returns one integer, got ndarray"),
    ],
)
def test_a_key_that_is_no_integer_is_an_error_of_its_element(key: Callable[..., Any], text: str) -> None:
    with pytest.raises(gp.DataError, match=f"range at index 0: group_by_window: .*{text}"):
        list(Dataset.range(2).group_by_window(key, lambda k, d: d, 2))


def test_a_size_below_one_for_a_key_is_an_error_of_the_element_that_begins_the_group() -> None:
    dataset = Dataset.range(4).group_by_window(lambda x: x % 2, lambda k, d: d.batch(2), None, lambda k: 2 if k else 0)

    assert outcomes(dataset) == ["error", "error", [1, 3]]
    with pytest.raises(gp.DataError, match="window_size_func that returns sizes >= 1, got 0 for 0"):
        list(dataset)


def test_a_function_that_raises_is_an_error_in_the_place_of_its_group() -> None:
    def reduce(key: Any, group: Dataset) -> Dataset:
        if key == 0:
            raise KeyError("no")
        return group.batch(2)

    dataset = Dataset.range(6).group_by_window(lambda x: x % 2, reduce, 2)

    assert outcomes(dataset) == ["error", [1, 3], "error", [5]]


# ---- buckets


def test_the_spec_of_a_source_is_not_needed_beforehand() -> None:
    rows = [np.full(n, n) for n in (1, 2, 5)]
    d = Dataset.from_generator(lambda: iter(rows))

    assert lists([1]).bucket_by_sequence_length(len, [3], [2, 1]).element_spec == gp.TensorSpec((None, None), "int64")
    assert run(d.bucket_by_sequence_length(len, [3], [2, 1], padding_values=-1)) == [[[1, -1], [2, 2]], [[5] * 5]]
    assert run(d.bucket_by_sequence_length(len, [3, 7], [2, 1, 1], pad_to_bucket_boundary=True))[1] == [[5] * 5 + [0]]
    with pytest.raises(TypeError, match="in the bucket_by_sequence_length at"):
        list(d.bucket_by_sequence_length(len, [3], [2, 1], padding_values=np.float32(0)))


def test_an_element_that_is_too_long_or_does_not_stack_is_an_error() -> None:
    d = lists([1, 7, 1])
    padded = d.bucket_by_sequence_length(len, [4], [2, 2], pad_to_bucket_boundary=True)

    with pytest.raises(gp.DataError, match=r"at index 1: .*lengths below the last boundary 4 to pad to it, got 7"):
        list(padded)
    assert outcomes(padded) == ["error", [[0, 0, 0], [2, 0, 0]]]
    assert run(d.bucket_by_sequence_length(len, [4], [2, 2])) == [[[0], [2]], [[1] * 7]]
    with pytest.raises(gp.DataError, match="bucket_by_sequence_length: needs elements of one shape"):
        list(lists([1, 2]).bucket_by_sequence_length(len, [4], [2, 2], no_padding=True))


WRONG: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda d: d.group_by_window(lambda x: x, lambda k, g: g), ValueError, "either window_size or window_size_func"),
    (lambda d: d.group_by_window(lambda x: x, lambda k, g: g, 0), ValueError, "window_size >= 1, got 0"),
    (lambda d: d.group_by_window(lambda x: x * 0.5, lambda k, g: g, 2), ValueError, "returns one integer, got float64"),
    (lambda d: list(d.group_by_window(lambda x: x, lambda k, g: k, 2)), TypeError, "returns a Dataset, got int64"),
    (
        lambda d: list(d.group_by_window(lambda x: x % 2, lambda k, g: Dataset.zip(g, g) if k else g, 2)),
        TypeError,
        "group_by_window needs datasets of one structure",
    ),
    (lambda d: d.bucket_by_sequence_length(len, [2], [2]), ValueError, "got 1 sizes and 1 boundaries"),
    (lambda d: d.bucket_by_sequence_length(len, [3, 3], [2, 2, 2]), ValueError, "boundaries that ascend"),
    (lambda d: d.bucket_by_sequence_length(len, [3], [2, 0]), ValueError, "batch_sizes >= 1"),
    (lambda d: d.bucket_by_sequence_length(len, [], [2], pad_to_bucket_boundary=True), ValueError, "boundaries to pad"),
    (lambda d: d.bucket_by_sequence_length(len, [1.5], [2, 2]), TypeError, r"integer for bucket_boundaries, got 1\.5"),
    (lambda d: lists([1]).bucket_by_sequence_length(len, [3], [2, 2], None, 0.5), TypeError, "value of dtype int64"),
    (lambda d: d.bucket_by_sequence_length(lambda x: x * 0.5, [3], [2, 2]), TypeError, "one integer, got float64"),
]


@pytest.mark.parametrize(("write", "kind", "text"), WRONG)
def test_mistakes_are_refused_where_they_are_written(
    write: Callable[[Any], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        write(Dataset.range(4))
