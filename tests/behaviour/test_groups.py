"""group_by_window and bucket_by_sequence_length: which elements meet, in which order groups leave, and what fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from tests.behaviour.model import outcomes, run
from tests.behaviour.test_windows import drawn

D = gp.Dataset


def lists(lengths: list[int]) -> gp.Dataset:
    """Vectors of these lengths; vector i holds only i."""
    spec = gp.TensorSpec((None,), "int64")
    rows = [np.full(n, i, np.int64) for i, n in enumerate(lengths)]
    return D.from_generator(lambda: iter(rows), output_signature=spec)


def grouped(items: list[int], key: Callable[[int], int], size: Callable[[int], int]) -> list[list[int]]:
    """The definition: a group leaves when it is full, what is left at the end by ascending key."""
    waiting: dict[int, list[int]] = {}
    out = []
    for item in items:
        rows = waiting.setdefault(key(item), [])
        rows.append(item)
        if len(rows) == size(key(item)):
            out.append(waiting.pop(key(item)))
    return out + [waiting[k] for k in sorted(waiting)]


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(items=st.lists(st.integers(-6, 6), min_size=1, max_size=20), keys=st.integers(1, 4), size=st.integers(1, 4))
def test_groups_leave_in_the_order_defined(items: list[int], keys: int, size: int) -> None:
    dataset = D.from_tensor_slices(items)

    def key(x: int) -> int:
        return x % keys - 1

    assert run(dataset.group_by_window(key, lambda k, d: d.batch(99), size)) == grouped(items, key, lambda k: size)
    assert run(
        dataset.group_by_window(key, lambda k, d: d.batch(99), window_size_func=lambda k: abs(int(k)) + 1)
    ) == grouped(items, key, lambda k: abs(k) + 1)


def test_the_function_gets_the_key_and_a_dataset_of_whole_elements() -> None:
    seen = []

    def reduce(key: Any, group: gp.Dataset) -> gp.Dataset:
        seen.append((type(key), int(key), len(group), group.element_spec))
        return group.map(lambda d: d["a"] + key * 100)

    dataset = D.from_tensor_slices({"a": [1, 2, 3], "b": [0.0, 1.0, 2.0]}).group_by_window(
        lambda d: d["a"] % 2, reduce, window_size=2
    )

    assert run(dataset) == [101, 103, 2]
    spec = {"a": gp.TensorSpec((), "int64"), "b": gp.TensorSpec((), "float64")}
    assert seen == [(np.int64, 1, 2, spec), (np.int64, 0, 1, spec)]


def test_elements_keep_their_identities_in_a_group() -> None:
    dataset = D.range(8)
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

    dataset = D.range(7).map(bad).group_by_window(lambda x: x % 2, lambda k, d: d.batch(3), 3)

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
    ids=["raises", "float", "pair", "bool", "vector"],
)
def test_a_key_that_is_no_integer_is_an_error_of_its_element(key: Callable[..., Any], text: str) -> None:
    with pytest.raises(gp.DataError, match=text) as caught:
        list(D.range(2).group_by_window(key, lambda k, d: d, 2))

    assert caught.value.stage == "group_by_window"
    assert (caught.value.file, caught.value.offset) == ("range", 0)


def test_a_size_below_one_for_a_key_is_an_error_of_the_element_that_begins_the_group() -> None:
    dataset = D.range(4).group_by_window(
        lambda x: x % 2, lambda k, d: d.batch(2), window_size_func=lambda k: 2 if k else 0
    )

    assert outcomes(dataset) == ["error", "error", [1, 3]]
    with pytest.raises(gp.DataError, match="window_size_func that returns sizes >= 1, got 0 for 0"):
        list(dataset)


def test_a_function_that_raises_is_an_error_in_the_place_of_its_group() -> None:
    def reduce(key: Any, group: gp.Dataset) -> gp.Dataset:
        if key == 0:
            raise KeyError("no")
        return group.batch(2)

    dataset = D.range(6).group_by_window(lambda x: x % 2, reduce, 2)

    assert outcomes(dataset) == ["error", [1, 3], "error", [5]]


# ---- mistakes


def test_mistakes_are_refused_where_they_are_written() -> None:
    d = D.range(4)

    with pytest.raises(ValueError, match="either window_size or window_size_func"):
        d.group_by_window(lambda x: x, lambda k, g: g)
    with pytest.raises(ValueError, match="either window_size or window_size_func"):
        d.group_by_window(lambda x: x, lambda k, g: g, 2, lambda k: 2)
    with pytest.raises(ValueError, match="window_size >= 1, got 0"):
        d.group_by_window(lambda x: x, lambda k, g: g, 0)
    with pytest.raises(ValueError, match="key_func that returns one integer, got float64"):
        d.group_by_window(lambda x: x * 0.5, lambda k, g: g, 2)
    with pytest.raises(TypeError, match="key_func that returns one integer, got int64, int64"):
        d.group_by_window(lambda x: (x, x), lambda k, g: g, 2)
    with pytest.raises(TypeError, match="with 2 arguments"):
        d.group_by_window(lambda x: x, lambda g: g, 2)
    with pytest.raises(TypeError, match="group_by_window needs a function that returns a Dataset, got int64"):
        list(d.group_by_window(lambda x: x, lambda k, g: k, 2))
    with pytest.raises(TypeError, match="group_by_window needs datasets of one structure"):
        list(d.group_by_window(lambda x: x % 2, lambda k, g: D.zip(g, g) if k else g, 2))


# ---- buckets


def test_elements_meet_others_of_about_their_length() -> None:
    dataset = lists([1, 5, 2, 3, 1, 4, 2]).bucket_by_sequence_length(len, [2, 4], [2, 3, 2])

    assert run(dataset) == [
        [[0], [4]],
        [[1, 1, 1, 1, 1], [5, 5, 5, 5, 0]],
        [[2, 2, 0], [3, 3, 3], [6, 6, 0]],
    ]
    assert dataset.element_spec == gp.TensorSpec((None, None), "int64")


def test_what_is_left_leaves_by_bucket_number() -> None:
    dataset = lists([9, 5, 2, 1]).bucket_by_sequence_length(len, [2, 4, 6], [9] * 4)

    assert [int(batch[0, 0]) for batch in dataset] == [3, 2, 1, 0]
    assert run(lists([9, 5, 2, 1]).bucket_by_sequence_length(len, [2, 4, 6], [9] * 4, drop_remainder=True)) == []


def test_padding_goes_to_the_longest_or_to_the_boundary() -> None:
    d = lists([1, 2, 3])

    assert run(d.bucket_by_sequence_length(len, [3, 6], [2, 1, 1], padding_values=-1)) == [
        [[0, -1], [1, 1]],
        [[2, 2, 2]],
    ]
    assert run(d.bucket_by_sequence_length(len, [3, 6], [2, 1, 1], pad_to_bucket_boundary=True)) == [
        [[0, 0], [1, 1]],
        [[2, 2, 2, 0, 0]],
    ]
    assert run(d.bucket_by_sequence_length(len, [3, 6], [2, 1, 1], padded_shapes=[4])) == [
        [[0, 0, 0, 0], [1, 1, 0, 0]],
        [[2, 2, 2, 0]],
    ]


def test_the_spec_of_a_source_is_not_needed_beforehand() -> None:
    rows = [np.full(n, n) for n in (1, 2, 5)]
    d = D.from_generator(lambda: iter(rows))

    assert run(d.bucket_by_sequence_length(len, [3], [2, 1], padding_values=np.int64(-1))) == [
        [[1, -1], [2, 2]],
        [[5] * 5],
    ]
    assert run(d.bucket_by_sequence_length(len, [3, 7], [2, 1, 1], pad_to_bucket_boundary=True))[1] == [[5] * 5 + [0]]
    with pytest.raises(TypeError, match="in the bucket_by_sequence_length at"):
        list(d.bucket_by_sequence_length(len, [3], [2, 1], padding_values=np.float32(0)))


def test_an_element_that_is_too_long_or_does_not_stack_is_an_error() -> None:
    d = lists([1, 7, 1])

    with pytest.raises(gp.DataError, match="lengths below the last boundary 4 to pad to it, got 7") as caught:
        list(d.bucket_by_sequence_length(len, [4], [2, 2], pad_to_bucket_boundary=True))
    assert caught.value.offset == 1
    assert outcomes(d.bucket_by_sequence_length(len, [4], [2, 2], pad_to_bucket_boundary=True)) == [
        "error",
        [[0, 0, 0], [2, 0, 0]],
    ]
    assert run(d.bucket_by_sequence_length(len, [4], [2, 2])) == [[[0], [2]], [[1] * 7]]
    with pytest.raises(gp.DataError, match="bucket_by_sequence_length: needs elements of one shape"):
        list(lists([1, 2]).bucket_by_sequence_length(len, [4], [2, 2], no_padding=True))


def test_mistakes_of_buckets_are_refused_where_they_are_written() -> None:
    d = lists([1])

    with pytest.raises(ValueError, match="one batch size more than boundaries, got 1 sizes and 1 boundaries"):
        d.bucket_by_sequence_length(len, [2], [2])
    with pytest.raises(ValueError, match="boundaries that ascend"):
        d.bucket_by_sequence_length(len, [3, 3], [2, 2, 2])
    with pytest.raises(ValueError, match="batch_sizes >= 1"):
        d.bucket_by_sequence_length(len, [3], [2, 0])
    with pytest.raises(ValueError, match="boundaries to pad to"):
        d.bucket_by_sequence_length(len, [], [2], pad_to_bucket_boundary=True)
    with pytest.raises(TypeError, match=r"integer for bucket_boundaries, got 1\.5"):
        d.bucket_by_sequence_length(len, [1.5], [2, 2])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="value of dtype int64"):
        d.bucket_by_sequence_length(len, [3], [2, 2], padding_values=np.float32(1))
    with pytest.raises(TypeError, match="element_length_func that returns one integer, got float64"):
        D.range(3).bucket_by_sequence_length(lambda x: x * 0.5, [3], [2, 2])
