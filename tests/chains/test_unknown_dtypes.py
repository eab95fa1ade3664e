"""An unknown dtype is no float64, which is what NumPy takes None for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, RaggedSpec, TensorSpec, ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops.cast import Cast
from gpupipe.spec import DatasetSpec, same_dtype


@pytest.mark.parametrize("dtype", ["float64", "float32", bytes])
def test_specs_differ(dtype: Any) -> None:
    known, unknown = TensorSpec((None,), dtype), TensorSpec((None,), None)

    assert known != unknown
    assert known == TensorSpec((None,), dtype)
    assert hash(known) == hash(TensorSpec((None,), dtype))
    assert unknown == TensorSpec((None,))
    assert not same_dtype(known.dtype, None)
    assert RaggedSpec((None, None), dtype) != RaggedSpec((None, None), None)
    assert DatasetSpec(known) != DatasetSpec(unknown)
    assert DatasetSpec(known) == DatasetSpec(TensorSpec((None,), dtype))
    assert RaggedSpec((2, None), dtype) != RaggedSpec((3, None), dtype)
    assert known != DatasetSpec(known)


def test_a_spec_of_float64_does_not_stand_for_any() -> None:
    with pytest.raises(SpecError, match="needs float64"):
        TensorSpec((), None).require("it", dtype="float64")
    assert not TensorSpec(None, "float64").accepts(RaggedSpec((None, None), "int32"))
    assert not Cast("float64").is_identity(TensorSpec((), None))


@pytest.mark.parametrize("weight", [0.4, 1.7])
def test_where_needs_booleans(weight: float) -> None:
    ds = Dataset.from_tensor_slices((np.full(2, weight), np.zeros((2, 4, 5, 3), np.uint8)))

    with pytest.raises(SpecError, match="where needs a condition of booleans, got float64"):
        ds.map(lambda w, x: ops.where(w, ops.flip_left_right(x), x), traced=True)


def test_numbers_of_float64_name_no_files(tmp_path: Path) -> None:
    with pytest.raises(PlanTypeError, match="needs a dataset of single file names"):
        gp.TFRecordDataset(Dataset.from_tensor_slices([1.5, 2.5]))
    with gp.io.TFRecordWriter(str(tmp_path / "x")) as out, pytest.raises(PlanTypeError, match="a dataset of bytes"):
        out.write(Dataset.from_tensor_slices([1.5, 2.5]))
