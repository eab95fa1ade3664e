"""batch and padded_batch: what is padded with what, and what is said of elements that do not fit.

The elements, specs and errors of both, and of unbatch, are compared with those of tf.data in tests/differential.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset
from gpupipe.errors import ShapeError
from tests.behaviour.model import run


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
