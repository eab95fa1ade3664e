"""rebatch: batches cut anew, to one size or to several in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.behaviour.model import outcomes, run

D = gp.Dataset


@pytest.mark.parametrize(
    ("sizes", "rows"), [(4, 4), (2, 2), (1, 1), ([2, 2], 2), (3, None), (8, None), ([2, 1], None)], ids=str
)
def test_batches_that_divide_have_no_short_one(sizes: Any, rows: int | None) -> None:
    full = D.from_tensor_slices({"x": np.zeros((12, 5), np.float32), "y": np.arange(12)}).batch(4, drop_remainder=True)
    d = full.rebatch(sizes)

    assert d.element_spec == {"x": gp.TensorSpec((rows, 5), "float32"), "y": gp.TensorSpec((rows,), "int64")}
    assert rows is None or {len(batch["y"]) for batch in d} == {rows}
    assert len(d) == d.cardinality() == len(list(d))
    less = full.map(
        lambda x: (x["x"], x["y"]), spec=(gp.TensorSpec((None, 5), "float32"), gp.TensorSpec((4,), "int64"))
    )
    assert less.rebatch(sizes).element_spec == tuple(d.element_spec.values())
    assert full.filter(lambda x: True).rebatch(sizes).element_spec == d.element_spec
    dropped = D.range(8).batch(3).rebatch(sizes, drop_remainder=True).element_spec
    assert dropped == gp.TensorSpec((sizes if isinstance(sizes, int) else rows,), "int64")
    assert d.map(lambda x: x["y"] + 1).element_spec == gp.TensorSpec((rows,), "int64")


def test_static_rows_hold_where_batches_are_lost() -> None:
    def bad(x: Any) -> Any:
        if x[0] in (2, 6):
            raise ValueError("bad")
        return x

    full = D.range(12).batch(2, drop_remainder=True).map(bad, spec=gp.TensorSpec((2,), "int64")).batch(2).unbatch()
    for on_error in ("skip", "raise"):
        d = full.rebatch(1).with_options(gp.Options(on_error=on_error))

        assert d.element_spec == gp.TensorSpec((1,), "int64")
        assert [x for x in outcomes(d) if x != "error"] == [[0], [1], [4], [5], [8], [9], [10], [11]]


def test_random_ops_behind_it_draw_for_the_rows_they_would_have_without() -> None:
    images = D.from_tensor_slices(np.arange(6 * 8 * 8, dtype=np.uint8).reshape(6, 8, 8, 1))

    def crops(d: gp.Dataset) -> Any:
        return run(d.map(lambda x: ops.random_crop(x, (2, 2))).unbatch().iterator(epoch=0))

    assert crops(images.batch(4).rebatch(3)) == crops(images.batch(6))


def test_a_bad_batch_is_raised_and_the_rest_is_cut() -> None:
    def bad(x: Any) -> Any:
        if x[0] == 2:
            raise ValueError("bad")
        return x

    dataset = D.range(8).batch(2).map(bad).rebatch(3)

    assert outcomes(dataset) == ["error", "error", [0, 1, 4], [5, 6, 7]]  # one for each row, as with unbatch
    assert run(dataset.with_options(gp.Options(on_error="skip"))) == [[0, 1, 4], [5, 6, 7]]


def test_the_sources_of_unknown_specs_are_cut_too() -> None:
    d = D.from_generator(lambda: iter([np.arange(3), np.arange(2)]))

    assert run(d.rebatch(2)) == [[0, 1], [2, 0], [1]]
    with pytest.raises(gp.DataError, match="leaves with equal numbers of rows"):
        list(D.from_generator(lambda: iter([1, 2])).rebatch(2))


def test_rows_that_do_not_stack_name_the_method() -> None:
    d = D.from_tensors(np.zeros((1, 2))).concatenate(D.from_tensors(np.zeros((1, 3))))

    with pytest.raises(gp.DataError, match="rebatch: needs elements of one shape"):
        list(d.rebatch(2))


@pytest.mark.parametrize("size", [0, [2, 0], [-1], np.array([1, 0]), [], 1.5, None, "2", [1.5], [[1]], True], ids=str)
def test_a_size_that_is_no_integer_above_zero_is_refused_where_it_is_written(size: Any) -> None:
    with pytest.raises(gp.PlanError, match="rebatch needs"):
        D.range(4).batch(2).rebatch(size)


def test_elements_without_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rebatch needs leaves with a first dimension, got the scalar int64"):
        D.range(4).rebatch(2)
    with pytest.raises(ValueError, match="rebatch needs leaves of one length, got 2 and 3"):
        D.from_tensors((np.zeros(2), np.zeros(3))).rebatch(2)


def test_endless_input_stays_endless_where_batches_have_a_known_size() -> None:
    assert D.range(4).batch(2, True).repeat().rebatch(3).cardinality() == gp.INFINITE_CARDINALITY
    assert D.range(4).batch(2).repeat().rebatch(3).cardinality() == gp.UNKNOWN_CARDINALITY
    assert run(D.range(4).batch(2).repeat().rebatch(3).take(2)) == [[0, 1, 2], [3, 0, 1]]
