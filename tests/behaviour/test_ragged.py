"""Ragged: rows of unequal length as one leaf; `ragged_batch`, and how ragged leaves go through the other steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.behaviour.model import fails_where, outcomes, run
from tests.behaviour.test_windows import drawn, shown, unpacked

D = gp.Dataset
ROWS = [[1, 2], [], [3]]


def triangle(n: int = 5) -> gp.Dataset:
    """0..k-1 for each k from 1 to n: vectors of unequal length."""
    return D.range(1, n + 1).flat_map(lambda k: D.range(k).batch(n))


def declared(rows: list[Any], *shape: int | None, dtype: Any = "int64") -> gp.Dataset:
    """Arrays of a declared shape."""
    spec = gp.TensorSpec(shape, dtype)
    return D.from_generator(lambda: iter([np.asarray(row, spec.dtype) for row in rows]), output_signature=spec)


# ---- the type


def test_rows_are_slices_of_the_values() -> None:
    ragged = gp.Ragged([1, 2, 3], [0, 2, 2, 3])

    assert ragged.to_list() == ROWS
    assert len(ragged) == 3
    assert [row.tolist() for row in ragged] == ROWS
    assert ragged[0].tolist() == [1, 2]
    assert ragged[-1].tolist() == [3]
    assert ragged.row_lengths().tolist() == [2, 0, 1]
    assert ragged.dtype == np.int64
    assert ragged.shape == (3, None)
    assert (ragged.ndim, ragged.ragged_rank) == (2, 1)
    assert ragged.nbytes == 3 * 8 + 4 * 8
    assert str(ragged.leaf_spec()) == "ragged int64[3,~]"
    with pytest.raises(IndexError):
        ragged[3]


@pytest.mark.parametrize("cut", [slice(None), slice(1, 3), slice(2, 1), slice(None, None, -1), slice(0, 3, 2)], ids=str)
def test_slices_are_ragged_again(cut: slice) -> None:
    ragged = gp.Ragged(np.array([1, 2, 3], np.int32), np.array([0, 2, 2, 3], np.int32))

    assert ragged[cut].to_list() == ROWS[cut]
    assert ragged[cut].dtype == np.int32
    assert ragged[cut].row_splits.dtype == np.int32


def test_rows_may_be_arrays_byte_strings_or_ragged_themselves() -> None:
    points = gp.Ragged(np.arange(6.0).reshape(3, 2), [0, 1, 3])
    words = gp.Ragged([b"a\0", b"bc", b""], [0, 0, 3])
    deep = gp.Ragged(gp.Ragged([1, 2, 3], [0, 2, 2, 3]), [0, 1, 1, 3])

    assert points.shape == (2, None, 2)
    assert points.to_list() == [[[0, 1]], [[2, 3], [4, 5]]]
    assert words.to_list() == [[], [b"a\0", b"bc", b""]]
    assert words.leaf_spec() == gp.RaggedSpec((2, None), bytes)
    assert deep.to_list() == [[[1, 2]], [], [[], [3]]]
    assert deep.ragged_rank == 2
    assert deep.shape == (3, None, None)
    assert isinstance(deep[0], gp.Ragged)
    assert deep[::2].to_list() == [[[1, 2]], [[], [3]]]
    assert deep[1:].to_list() == [[], [[], [3]]]
    assert deep.flat_values.tolist() == [1, 2, 3]
    assert [splits.tolist() for splits in deep.nested_row_splits] == [[0, 1, 1, 3], [0, 2, 2, 3]]


def test_padding_makes_one_array() -> None:
    assert gp.Ragged([1, 2, 3], [0, 2, 2, 3]).to_padded().tolist() == [[1, 2], [0, 0], [3, 0]]
    assert gp.Ragged([b"a"], [0, 1, 1]).to_padded().tolist() == [[b"a"], [b""]]
    assert gp.Ragged([b"a"], [0, 1, 1]).to_padded("x").tolist() == [[b"a"], [b"x"]]
    assert gp.Ragged([0.5], [0, 0, 1]).to_padded(np.nan).dtype == np.float64
    assert gp.Ragged([True], [0, 0, 1]).to_padded().tolist() == [[False], [True]]
    deep = gp.Ragged(gp.Ragged([1, 2, 3], [0, 2, 2, 3]), [0, 1, 1, 3])
    assert deep.to_padded(9).tolist() == [[[1, 2], [9, 9]], [[9, 9], [9, 9]], [[9, 9], [3, 9]]]
    points = gp.Ragged(np.ones((3, 2), np.float32), [0, 1, 3])
    assert points.to_padded().tolist() == [[[1, 1], [0, 0]], [[1, 1], [1, 1]]]
    assert gp.Ragged(np.zeros(0, np.int8), [0]).to_padded().shape == (0, 0)


def test_values_and_fillings_that_do_not_fit_are_refused() -> None:
    for fill in (1.5, "x", b"x", type(None), [1, 2]):
        with pytest.raises(TypeError, match="to_padded needs"):
            gp.Ragged([1, 2, 3], [0, 2, 2, 3]).to_padded(fill)
    for values in (3, None, b"abc", [[1], [2, 3]], object()):
        with pytest.raises((gp.PlanError, TypeError)):
            gp.Ragged(values, [0, 3])


@pytest.mark.parametrize(
    ("splits", "text"),
    [
        ([1, 3], "start with 0, got 1"),
        ([], "vector of integers"),
        (np.zeros(0, int), "start with 0, got nothing"),
        ([0, 2], "end with 3, the number of values, got 2"),
        ([0, 4], "end with 3, the number of values, got 4"),
        ([0, 2, 1, 3], "ascend, got 1 after 2"),
        ([0, -1, 3], "ascend, got -1 after 0"),
        ([0.0, 3.0], "vector of integers"),
        ([[0, 3]], "vector of integers"),
    ],
    ids=str,
)
def test_splits_that_do_not_fit_are_refused(splits: Any, text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        gp.Ragged([1, 2, 3], splits)


def test_it_cannot_be_changed() -> None:
    values = np.arange(3)
    ragged = gp.Ragged(values, [0, 1, 3])

    with pytest.raises(ValueError, match="read-only"):
        ragged[0][0] = 7
    with pytest.raises(ValueError, match="read-only"):
        ragged.row_splits[0] = 7
    with pytest.raises(AttributeError):
        ragged.values = values  # type: ignore[misc]
    values[0] = 1  # what was handed in stays the caller's
    with pytest.raises(TypeError, match="a Ragged is not an array"):
        np.asarray(ragged)


# ---- ragged_batch


@pytest.mark.parametrize(
    ("shape", "rank"),
    [((None,), 1), ((None, 3), 1), ((2, None), 2), ((None, None), 2), ((None, 3, None, 4), 3)],
    ids=str,
)
def test_every_dimension_up_to_the_last_unknown_one_is_ragged(shape: tuple[int | None, ...], rank: int) -> None:
    rows = [np.arange(np.prod(s)).reshape(s) for s in ([n or 2 for n in shape], [n or 1 for n in shape])]
    dataset = declared(rows, *shape).ragged_batch(2, drop_remainder=True)

    (batch,) = list(dataset)

    assert batch.ragged_rank == rank
    assert batch.to_list() == [row.tolist() for row in rows]
    assert dataset.element_spec == gp.RaggedSpec((2, *(None,) * rank, *shape[rank:]), "int64", ragged_rank=rank)
    assert dataset.element_spec.accepts(batch.leaf_spec())
    assert batch.flat_values.shape[1:] == shape[rank:]


def test_the_splits_have_the_dtype_that_was_asked_for() -> None:
    dataset = declared(ROWS, None).ragged_batch(3, row_splits_dtype=np.int32)

    (batch,) = list(dataset)

    assert batch.row_splits.dtype == np.int32
    assert dataset.element_spec.row_splits_dtype == np.int32
    assert gp.RaggedSpec((None, None), "int64") != gp.RaggedSpec((None, None), "int64", row_splits_dtype="int32")


def test_rows_come_back_from_unbatch_and_keep_their_identities() -> None:
    rows = triangle()
    batches = rows.ragged_batch(2)

    assert run(batches.unbatch()) == run(rows)
    assert run(batches.unbatch().map(drawn, rng=True)) == run(rows.map(drawn, rng=True))
    assert declared(ROWS, None).ragged_batch(2).unbatch().element_spec == gp.TensorSpec((None,), "int64")
    deep = declared([[[1, 2]], [[3], [4]]], None, None).ragged_batch(2)
    assert deep.unbatch().element_spec == gp.RaggedSpec((None, None), "int64")
    assert unpacked(deep.unbatch()) == [[[1, 2]], [[3], [4]]]


def test_what_a_python_function_returns_is_known_to_be_ragged_from_the_first_element_on() -> None:
    batches = declared([*ROWS, [4]], None).ragged_batch(2).map(lambda r: r[:])

    assert unpacked(batches.rebatch(3)) == [ROWS, [[4]]]
    assert unpacked(batches.batch(2)) == [[ROWS[:2], [[3], [4]]]]
    with pytest.raises(gp.DataError, match="padded_batch: needs arrays, numbers or bytes, got a ragged int64"):
        list(batches.padded_batch(2))


def test_ragged_leaves_go_through_the_other_steps() -> None:
    batches = declared(ROWS, None).ragged_batch(2)
    both = [[[1, 2], []], [[3]]]

    assert unpacked(batches.map(lambda r: (r, len(r)))) == [(both[0], 2), (both[1], 1)]
    assert run(batches.map(lambda r: r.to_padded(-1))) == [[[1, 2], [-1, -1]], [[3]]]
    assert run(batches.map(lambda r: r.values + 1)) == [[2, 3], [4]]
    assert unpacked(batches.filter(lambda r: len(r) == 2)) == both[:1]
    assert unpacked(D.zip(batches, D.range(2)).shuffle(1).prefetch(1)) == [(both[0], 0), (both[1], 1)]
    assert batches.concatenate(batches).element_spec == batches.element_spec
    assert unpacked(batches.flat_map(lambda r: D.from_tensor_slices(r.to_padded()))) == [[1, 2], [0, 0], [3]]
    cached = batches.cache()
    assert unpacked(cached) == unpacked(cached) == both
    assert [type(batch) for batch in batches.as_numpy_iterator()] == [gp.Ragged] * 2
    assert unpacked(batches.as_numpy_iterator()) == both


def test_a_ragged_may_be_an_element_and_be_sliced() -> None:
    ragged = gp.Ragged([1, 2, 3], [0, 2, 2, 3])

    assert D.from_tensors((ragged, 1)).element_spec == (gp.RaggedSpec((3, None), "int64"), gp.TensorSpec((), "int64"))
    assert D.from_tensor_slices(ragged).element_spec == gp.TensorSpec((None,), "int64")
    assert run(D.from_tensor_slices((ragged, [7, 8, 9]))) == [([1, 2], 7), ([], 8), ([3], 9)]
    assert unpacked(D.from_generator(lambda: iter([ragged]))) == [ROWS]
    other = gp.Ragged([1, 2, 4], [0, 2, 2, 3])
    assert D.from_tensors(ragged).plan.fingerprint != D.from_tensors(other).plan.fingerprint
    same = gp.Ragged([1, 2, 3], [0, 2, 2, 3])
    assert D.from_tensors(ragged).plan.fingerprint == D.from_tensors(same).plan.fingerprint


def test_a_declared_result_is_checked() -> None:
    batches = declared(ROWS, None).ragged_batch(2)

    assert unpacked(batches.map(lambda r: r[:1], spec=gp.RaggedSpec((None, None), "int64"))) == [[[1, 2]], [[3]]]
    for wrong in (gp.TensorSpec((None, None), "int64"), gp.RaggedSpec((None, None), "float32")):
        with pytest.raises(gp.DataError, match="got ragged int64"):
            list(batches.map(lambda r: r[:1], spec=wrong))
    with pytest.raises(gp.DataError, match="needs ragged int64"):
        list(batches.map(lambda r: r.to_padded(), spec=gp.RaggedSpec((None, None), "int64")))


# ---- bad elements and mistakes


def test_bad_elements_leave_as_they_do_in_a_batch() -> None:
    dataset = triangle(6).map(fails_where(lambda x: len(x) in (2, 5))).ragged_batch(2)
    left = [[[0], [0, 1, 2]], [[0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]]

    assert [shown(x) for x in outcomes(dataset)] == ["error", left[0], "error", left[1]]
    assert unpacked(dataset.with_options(gp.Options(on_error="skip"))) == left
    replaced = unpacked(dataset.with_options(gp.Options(on_error="replace")))
    assert replaced == [[[0], [0]], [[0, 1, 2], [0, 1, 2, 3]], left[1]]


def test_a_failing_last_batch_is_replaced_by_a_ragged_one() -> None:
    batches = triangle(3).ragged_batch(2).map(fails_where(lambda x: len(x) == 1))

    assert unpacked(batches.with_options(gp.Options(on_error="replace"))) == [[[0], [0, 1]]] * 2


def test_dimensions_that_have_to_agree_are_checked() -> None:
    rows = [np.zeros((2, 3)), np.zeros((1, 4))]
    spec = gp.TensorSpec(None, "float64")
    dataset = D.from_generator(lambda: iter(rows), output_signature=spec)

    assert [batch.ragged_rank for batch in dataset.ragged_batch(2)] == [2]
    with pytest.raises(gp.DataError, match=r"ragged_batch: needs elements of one shape, got \(3,\) after \(2, 3\)"):
        list(D.from_generator(lambda: iter([rows[0], np.zeros(3)]), output_signature=spec).ragged_batch(2))


def test_mistakes_are_refused_where_they_are_written() -> None:
    for dtype in ("float32", "int16", "nonsense", None):
        with pytest.raises(TypeError, match="row_splits_dtype int64 or int32"):
            triangle().ragged_batch(2, row_splits_dtype=dtype)
    with pytest.raises(ValueError, match="ragged_rank"):
        gp.RaggedSpec((None,), "int64")
    with pytest.raises(TypeError, match="a spec needs a boolean, integer, float or bytes dtype"):
        gp.RaggedSpec((None, None), "complex64")


def test_more_values_than_the_splits_can_count_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpupipe import ragged

    with pytest.raises(OverflowError, match="more than row splits of dtype int32 can count"):
        ragged.splits_of(np.full(3, 2**30), np.int32)

    def too_many(*args: Any) -> Any:
        raise OverflowError("2147483648 values are more than row splits of dtype int32 can count")

    monkeypatch.setattr("gpupipe.flow.batching.rebatch.stack_arrays", too_many)
    with pytest.raises(gp.DataError, match="can count; use row_splits_dtype='int64'"):
        list(declared(ROWS, None).ragged_batch(3, row_splits_dtype="int32"))
