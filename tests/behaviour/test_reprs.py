"""What a notebook or a debugger shows of an object is short, and made at once, whatever the object holds."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.ops.normalize import Normalize
from gpupipe.ragged import stack_arrays
from gpupipe.spec import flatten

LETTERS = 2000
IMAGE = np.random.RandomState(0).randint(0, 255, (300, 400, 3)).astype(np.uint8)
WIDE = {f"feature {i}": np.zeros(3) for i in range(1000)}
FILES = [f"/data/{i:05d}.tfrecord" for i in range(20_000)]
NAME = "n" * 100_000


def _doubled(x: Any) -> Any:
    for _ in range(40):  # as a tree it has 2**40 leaves
        x = x + x
    return x


def _traced() -> Any:
    plan: Any = Dataset.range(3).map(_doubled, traced=True).plan
    return plan


OBJECTS: dict[str, Callable[[], Any]] = {
    "Ragged of rows": lambda: gp.Ragged(np.arange(1_000_000), [0, 400_000, 1_000_000]),
    "Ragged of images": lambda: stack_arrays([IMAGE, IMAGE[:200], IMAGE], 2),
    "Ragged of Ragged": lambda: gp.Ragged(gp.Ragged(np.arange(100_000), np.arange(100_001)), [0, 50_000, 100_000]),
    "Ragged of bytes": lambda: gp.Ragged([b"x" * 1_000_000] * 3, [0, 1, 3]),
    "RaggedSpec": lambda: gp.RaggedSpec((1, *(None,) * 1000), "int32"),
    "TensorSpec": lambda: TensorSpec((1,) * 5000, "int32"),
    "DatasetSpec": lambda: gp.DatasetSpec(dict.fromkeys(WIDE, TensorSpec(()))),
    "Dataset of features": lambda: Dataset.from_tensors(WIDE),
    "Dataset of arrays": lambda: Dataset.from_tensor_slices(WIDE),
    "Dataset of one array": lambda: Dataset.from_tensors(IMAGE),
    "Dataset of a split": lambda: Dataset.range(2000).split([0.005] * 200)[0],
    "Dataset of a zip": lambda: Dataset.zip(tuple(Dataset.range(3) for _ in range(1000))),
    "Dataset of a long name": lambda: Dataset.range(3).cache(NAME[:4000]),
    "Dataset of a graph": lambda: Dataset.range(3).map(_doubled, traced=True),
    "TFRecordDataset": lambda: gp.TFRecordDataset(FILES),
    "TextLineDataset": lambda: gp.TextLineDataset(FILES),
    "FixedLengthRecordDataset": lambda: gp.FixedLengthRecordDataset(FILES, 8),
    "ArrowDataset": lambda: gp.ArrowDataset(FILES, "a", spec=gp.TensorSpec((), "int64")),
    "CsvDataset": lambda: gp.CsvDataset(FILES, ["int32"]),
    "HDF5Dataset": lambda: gp.HDF5Dataset(FILES, "a", spec=gp.TensorSpec((), "int64")),
    "HuggingFaceDataset": lambda: gp.HuggingFaceDataset(
        pytest.importorskip("datasets").Dataset.from_dict({key: [0] for key in WIDE})
    ),
    "NumpyDataset": lambda: gp.NumpyDataset(FILES, spec=gp.TensorSpec((), "int64")),
    "ParquetDataset": lambda: gp.ParquetDataset(FILES, "a", spec=gp.TensorSpec((), "int64")),
    "DatasetIterator": lambda: iter(Dataset.from_tensors(WIDE)),
    "Options": lambda: Options(error_manifest=NAME, bad_records=NAME),
    "BadRecord": lambda: gp.BadRecord(NAME, 3, "offset", 1, "read", "y" * 500, "left out", 0),
    "FixedLenFeature": lambda: gp.io.FixedLenFeature((100, 100), "int64", default_value=np.zeros((100, 100), int)),
    "FixedLenSequenceFeature": lambda: gp.io.FixedLenSequenceFeature((1,) * 5000, "int64", True),
    "LMDBDataset": lambda: pytest.importorskip("lmdb") and gp.LMDBDataset(FILES),
    "WebDataset": lambda: gp.WebDataset(FILES, dict.fromkeys(WIDE, "jpg")),
    "VarLenFeature": lambda: gp.io.VarLenFeature("int64"),
    "RaggedFeature": lambda: gp.io.RaggedFeature("int64"),
    "ValueIterator": lambda: gp.compat.make_one_shot_iterator(Dataset.from_tensors(WIDE)),
    "an op": lambda: gp.io.ParseSingleExample(tuple((name, gp.io.FixedLenFeature((), bytes)) for name in WIDE)),
    "a plan": lambda: gp.TFRecordDataset(FILES).plan,
    "a long plan": lambda: functools.reduce(lambda d, _: d.map(lambda x: x + 1), range(300), Dataset.range(3)).plan,
    "a traced function": lambda: _traced().traced,
    "a graph": lambda: _traced().traced.outputs[0],
    "a constant": lambda: Dataset.range(3).map(lambda x: (ops.cast(x, "int8"), b"y" * 1_000_000)).plan,
    "a structure": lambda: flatten(WIDE)[1],
    "findings": lambda: Dataset.range(5).repeat().shuffle(3).check(),
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_what_is_shown_of_an_object_is_short(make: Callable[[], Any]) -> None:
    shown = make()

    before = time.process_time()
    text = repr(shown)

    assert len(text) <= LETTERS
    assert time.process_time() - before < 5  # of this process: others do not count
    assert str(shown) and len(str(shown)) <= 60_000  # a spec in a message is whole


def test_every_public_class_is_among_them() -> None:
    classes = {
        name
        for module in (gp, gp.io)
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and not issubclass(getattr(module, name), BaseException)
    }

    covered = {name.split()[0] for name in OBJECTS} | {"ParseSingleExample", "ReadFile", "TFRecordWriter"}
    assert classes <= covered


def test_small_objects_are_shown_whole() -> None:
    assert repr(gp.Ragged([1, 2, 3], [0, 2, 2, 3])) == "<Ragged ragged int64[3,~] [[1, 2], [], [3]]>"
    assert repr(gp.Ragged(np.arange(9.0), [0, 8, 9])) == (
        "<Ragged ragged float64[2,~] [[0.0, 1.0, 2.0, ..., 5.0, 6.0, 7.0], [8.0]]>"
    )
    assert repr(Dataset.range(3)) == (
        "<Dataset range(0, 3, 1), element_spec=TensorSpec(shape=(), dtype=dtype('int64'), layout=None)>"
    )
    assert repr(Normalize(mean=0.5)).startswith("Normalize(mean=0.5, std=1.0")
