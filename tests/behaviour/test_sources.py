"""Where elements come from: values, structure, and what is read when."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, TensorSpec, TFRecordDataset
from tests.behaviour.model import run

# ---- from_tensors, from_tensor_slices


def test_values_convert_by_the_rules_of_numpy() -> None:
    (element,) = Dataset.from_tensors((1, 1.5, True, np.float32(1), np.uint8(7), [1, 2], []))

    names = ["int64", "float64", "bool", "float32", "uint8", "int64", "float64"]
    assert [leaf.dtype.name for leaf in element] == names


# ---- from_generator


def test_a_generator_may_yield_tuples_where_its_signature_has_an_array_and_lists_where_it_has_a_tuple() -> None:
    rows = Dataset.from_generator(lambda: iter([(1, 2), (3, 4)]), output_signature=TensorSpec((2,), "int64"))
    pairs = Dataset.from_generator(
        lambda: iter([[(("a",), ("b",)), 1]]), output_signature=(TensorSpec((2, 1), bytes), TensorSpec((), "int64"))
    )

    assert run(rows) == [[1, 2], [3, 4]]
    assert run(pairs) == [([[b"a"], [b"b"]], 1)]


def test_python_floats_take_the_precision_of_the_signature() -> None:
    spec = (TensorSpec((), "float32"), TensorSpec((2,), "float16"))
    ((one, two),) = Dataset.from_generator(lambda: iter([(0.1, [0.2, float("inf")])]), output_signature=spec)

    assert (one.dtype, one) == (np.float32, np.float32(0.1))
    np.testing.assert_array_equal(two, np.array([0.2, np.inf], np.float16), strict=True)


def test_an_exception_in_a_generator_ends_it_and_is_the_cause() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    items = iter(Dataset.from_generator(numbers))

    assert next(items) == 1
    with pytest.raises(gp.DataError, match=r"from_generator.*KeyError") as caught:
        next(items)
    assert isinstance(caught.value.__cause__, KeyError)
    assert list(items) == []


# ---- TFRecordDataset


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
def test_files_are_listed_when_the_chain_is_written_by_text_path_or_bytes(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    dataset = Dataset.list_files(kind(tmp_path / "*"))
    (tmp_path / "b").write_bytes(b"")

    assert run(dataset) == [os.fsencode(tmp_path / "a")]
    assert run(TFRecordDataset(kind(tmp_path / "a"))) == []


def test_building_a_chain_reads_nothing(tmp_path: Path) -> None:
    dataset = TFRecordDataset(tmp_path / "not there yet").map(lambda x: (x, x)).shuffle(10).batch(2)

    assert dataset.element_spec == (TensorSpec((None,), bytes), TensorSpec((None,), bytes))
    assert dataset.cardinality() == gp.UNKNOWN_CARDINALITY
