"""batch, padded_batch, unbatch: what is stacked, padded and taken apart."""

from __future__ import annotations

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec
from gpupipe.errors import ShapeError
from tests.behaviour.model import outcomes, run


def _ragged(*lengths: int) -> Dataset:
    """int64 vectors of these lengths, of unknown spec."""
    return Dataset.from_tensor_slices(list(lengths)).map(lambda n: np.arange(1, int(n) + 1))


# ---- batch


def test_the_last_batch_is_short_or_left_out() -> None:
    assert run(Dataset.range(5).batch(2)) == [[0, 1], [2, 3], [4]]
    assert run(Dataset.range(5).batch(2, drop_remainder=True)) == [[0, 1], [2, 3]]


def test_the_batch_dimension_is_static_only_without_a_remainder() -> None:
    dataset = Dataset.from_tensor_slices({"x": np.zeros((5, 3), np.float32), "y": [b"a"] * 5})

    assert dataset.batch(2).element_spec == {"x": TensorSpec((None, 3), np.float32), "y": TensorSpec((None,), bytes)}
    assert dataset.batch(2, True).element_spec["x"] == TensorSpec((2, 3), np.float32)


def test_shapes_that_differ_name_leaf_shapes_and_elements() -> None:
    dataset = _ragged(2, 2, 3).map(lambda x: {"label": 1, "x": x}).batch(3)

    with pytest.raises(ShapeError, match=r"batch.*\['x'\], got \(3,\) after \(2,\).*index 0.*padded_batch"):
        next(iter(dataset))


def test_only_the_batch_that_does_not_stack_is_lost() -> None:
    assert outcomes(_ragged(1, 1, 1, 2, 3, 3).batch(2)) == [[[1], [1]], "error", [[1, 2, 3], [1, 2, 3]]]


def test_a_map_over_a_batch_sees_the_whole_batch() -> None:
    dataset = Dataset.range(5).batch(2)

    assert run(dataset.map(lambda x: x * 2)) == [[0, 2], [4, 6], [8]]
    assert run(dataset.map(lambda x: int(x.sum()))) == [1, 5, 4]


# ---- padded_batch


def test_unknown_dimensions_are_padded_to_the_largest_of_the_batch() -> None:
    assert run(_ragged(1, 3, 2).padded_batch(2)) == [[[1, 0, 0], [1, 2, 3]], [[1, 2]]]
    assert run(_ragged(1, 3, 2).padded_batch(2, drop_remainder=True)) == [[[1, 0, 0], [1, 2, 3]]]


def test_each_kind_of_leaf_has_its_own_filling() -> None:
    rows = Dataset.range(1, 3).map(
        lambda n: (np.ones(int(n), bool), np.array([b"x"] * int(n), object), np.ones(int(n), np.float32))
    )

    assert run(rows.padded_batch(2)) == [([[True, False], [True, True]], [[b"x", b""], [b"x", b"x"]], [[1, 0], [1, 1]])]


def test_one_value_serves_every_leaf_and_none_is_the_default() -> None:
    pairs = _ragged(1, 2).map(lambda x: (x, x * 2))

    assert run(pairs.padded_batch(2, padding_values=-1)) == [([[1, -1], [1, 2]], [[2, -1], [2, 4]])]
    assert run(pairs.padded_batch(2, padding_values=(None, 9))) == [([[1, 0], [1, 2]], [[2, 9], [2, 4]])]


def test_dictionaries_are_padded_by_key() -> None:
    dataset = _ragged(1, 2).map(lambda x: {"a": x, "b": x})

    got = run(dataset.padded_batch(2, padded_shapes={"b": [3], "a": [None]}, padding_values={"a": 7, "b": None}))

    assert got == [{"a": [[1, 7], [1, 2]], "b": [[1, 0, 0], [1, 2, 0]]}]


def test_the_spec_of_a_padded_batch_shows_what_is_known() -> None:
    known = Dataset.from_generator(lambda: iter([[1], [1, 2]]), output_signature=TensorSpec((None,), "int64"))

    assert known.padded_batch(2).element_spec == TensorSpec((None, None), "int64")
    assert known.padded_batch(2, padded_shapes=[4], drop_remainder=True).element_spec == TensorSpec((2, 4), "int64")
    assert run(known.padded_batch(2, padded_shapes=[4], padding_values=-1)) == [[[1, -1, -1, -1], [1, 2, -1, -1]]]


def test_padding_behind_an_unknown_element_is_checked_at_the_first_one() -> None:
    with pytest.raises(gp.PlanError, match=r"padded_batch needs a padded shape of rank 1.*in the padded_batch at "):
        next(iter(_ragged(1, 2).padded_batch(2, padded_shapes=[2, 2])))
    with pytest.raises(TypeError, match="padded_batch needs a value of dtype int64"):
        next(iter(_ragged(1, 2).padded_batch(2, padding_values=0.5)))
    with pytest.raises(TypeError, match="padded_batch needs padded_shapes as a tuple of 2"):
        next(iter(_ragged(1, 2).map(lambda x: (x, x)).padded_batch(2, padded_shapes=[2])))


def test_rows_larger_than_the_padded_shape_cost_their_batch() -> None:
    assert outcomes(_ragged(1, 3, 2, 1).padded_batch(2, padded_shapes=[2])) == ["error", [[1, 2], [1, 0]]]


def test_a_row_larger_than_the_padded_shape_is_named_with_that_shape_and_one_place() -> None:
    rows = Dataset.range(1, 9).map(lambda n: np.zeros(n), traced=False)

    with pytest.raises(ShapeError, match=r"no larger than the padded shape \[5\], got \(6,\); crop them, or") as caught:
        list(rows.padded_batch(1, [5]))
    assert caught.value.offset == 5
    assert str(caught.value).count("index") == 1
    named = rows.map(lambda x: {"x": np.stack([x, x])}).padded_batch(2, {"x": [None, 4]})
    with pytest.raises(ShapeError, match=r"no larger than the padded shape \[None, 4\] for .*x.*, got \(2, 5\)"):
        list(named)


def test_ranks_that_differ_cost_their_batch() -> None:
    dataset = Dataset.from_tensors([1, 2]).concatenate(Dataset.from_tensors(1))

    assert outcomes(dataset.padded_batch(2)) == ["error"]
    with pytest.raises(ShapeError, match=r"needs elements of one rank, got \(\) after \(2,\) \(.* at index 0\)"):
        list(dataset.padded_batch(2))


def test_a_row_of_another_rank_than_the_padded_shape_is_named_with_that_shape() -> None:
    rows = Dataset.from_tensors([1, 2]).concatenate(Dataset.from_tensors([[1, 2], [3, 4]]))

    with pytest.raises(ShapeError, match=r"needs elements of rank 1, as the padded shape \[5\] has, got \(2, 2\)"):
        list(rows.padded_batch(1, [5]))


def test_none_stands_for_the_defaults_of_a_part() -> None:
    pair = Dataset.from_tensors(([1, 2], {"s": np.ones(1), "t": b"x"}))

    values = run(pair.padded_batch(1, ([3], {"s": [3], "t": []}), (-1, None)))
    shapes = run(pair.padded_batch(1, ([3], None), (None, {"s": 7.0, "t": None})))
    late = run(pair.map(lambda x, y: (x, y), traced=False).padded_batch(1, ([3], None), (-1, None)))

    assert values == [([[1, 2, -1]], {"s": [[1.0, 0.0, 0.0]], "t": [b"x"]})]
    assert shapes == [([[1, 2, 0]], {"s": [[1.0]], "t": [b"x"]})]
    assert late == [([[1, 2, -1]], {"s": [[1.0]], "t": [b"x"]})]
    with pytest.raises(TypeError, match="padded_batch needs padding_values as a dict with the keys"):
        pair.padded_batch(1, None, (-1, 0))
    with pytest.raises(TypeError, match="padded_batch needs padding_values as a tuple of 2"):
        pair.padded_batch(1, None, (-1, None, None))


# ---- unbatch


def test_unbatch_is_the_inverse_of_batch() -> None:
    pairs = Dataset.from_tensor_slices({"a": [1, 2, 3], "b": ([4, 5, 6], [b"x", b"y", b"z"])})

    assert run(pairs.batch(2).unbatch()) == run(pairs)
    assert pairs.batch(2).unbatch().element_spec == pairs.element_spec


def test_batches_without_rows_vanish() -> None:
    assert run(_ragged(2, 0, 1).unbatch()) == [1, 2, 1]


def test_unbatch_of_unequal_leaves_is_an_error() -> None:
    dataset = Dataset.range(2).map(lambda x: (np.zeros(2), np.zeros(2 + int(x)))).unbatch()

    assert outcomes(dataset) == [(0, 0), (0, 0), "error"]


def test_a_number_and_an_array_do_not_stack() -> None:
    numbers = Dataset.range(3).map(lambda x: np.asarray(x) + 0, traced=False)
    arrays = Dataset.range(3).map(lambda x: np.zeros(2, np.int64), traced=False)

    assert outcomes(numbers.concatenate(arrays).batch(2)) == [[0, 1], "error", [[0, 0], [0, 0]]]
    assert outcomes(arrays.concatenate(numbers).batch(2)) == [[[0, 0], [0, 0]], "error", [1, 2]]
