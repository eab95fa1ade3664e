"""HDF5: groups, strings, items of varying length, compressed chunks, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import PlanError, RecordError
from gpupipe.extract.tables import hdf5
from gpupipe.spec import TensorSpec, spec_of
from tests.extract.tables.test_every_format import elements, skipping

h5py = pytest.importorskip("h5py")


def write(path: Path, **datasets: Any) -> str:
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return str(path)


@pytest.mark.parametrize("dtype", "int8 uint8 int16 uint32 int64 float16 float32 float64 bool >i4 >f8".split())
@pytest.mark.parametrize("shape", [(7,), (7, 2, 3)])
def test_the_items_of_a_dataset_are_those_that_h5py_reads(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    given = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = write(tmp_path / "one", x=given)
    ds = gp.HDF5Dataset(path, "x")

    with h5py.File(path) as file:
        assert elements(ds) == file["x"][:].tolist()
    assert elements(ds[3:]) == given[3:].tolist()
    for value in ds:
        assert spec_of(value) == ds.element_spec


def test_strings_and_items_of_varying_length(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "one", "w") as file:
        file.create_dataset("text", data=["a", "ü", ""], dtype=h5py.string_dtype())
        file.create_dataset("fixed", data=np.array([b"a", b"bcd", b""]))
        lists = file.create_dataset("lists", (3,), h5py.vlen_dtype(np.int32))
        for i in range(3):
            lists[i] = np.arange(i)
    ds = gp.HDF5Dataset(str(tmp_path / "one"), ["text", "fixed", "lists"])

    assert ds.element_spec == {
        "text": TensorSpec((), bytes),
        "fixed": TensorSpec((), bytes),
        "lists": TensorSpec((None,), "int32"),
    }
    assert elements(ds) == [
        {"text": b"a", "fixed": b"a", "lists": []},
        {"text": "ü".encode(), "fixed": b"bcd", "lists": [0]},
        {"text": b"", "fixed": b"", "lists": [0, 1]},
    ]


def test_datasets_in_groups_are_named_by_their_path(tmp_path: Path) -> None:
    path = write(tmp_path / "one", **{"top": np.arange(3), "train/x": np.arange(4), "train/y": np.arange(4) * 2})

    assert elements(gp.HDF5Dataset(path)) == [{"top": 0}, {"top": 1}, {"top": 2}]
    assert elements(gp.HDF5Dataset(path, ["train/y", "train/x"]))[2] == {"train/y": 4, "train/x": 2}
    with pytest.raises(PlanError, match="needs a column 'train'"):
        gp.HDF5Dataset(path, "train")


def test_datasets_of_different_lengths_are_refused_unless_some_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "one", a=np.arange(3), b=np.arange(4))

    with pytest.raises(RecordError, match=r"different lengths, \[3, 4\]; choose some with keys="):
        gp.HDF5Dataset(path)
    assert elements(gp.HDF5Dataset(path, "b")) == [0, 1, 2, 3]


def test_data_in_other_files_are_not_read(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", x=np.arange(3))
    (tmp_path / "raw").write_bytes(np.arange(3).tobytes())
    with h5py.File(tmp_path / "one", "w") as file:
        file["own"] = np.arange(3)
        file["link"] = h5py.ExternalLink(secret, "/x")
        file["soft"] = h5py.SoftLink("/link")
        file.create_dataset("external", (3,), np.int64, external=[(str(tmp_path / "raw"), 0, 24)])
        layout = h5py.VirtualLayout((3,), np.int64)
        layout[:] = h5py.VirtualSource(secret, "x", (3,))
        file.create_virtual_dataset("virtual", layout)
    path = str(tmp_path / "one")

    for name in ("link", "soft"):
        with pytest.raises(PlanError, match=f"needs a column '{name}'"):
            gp.HDF5Dataset(path, name)
    for name in ("external", "virtual"):
        with pytest.raises(PlanError, match=f"'{name}' in .* whose data are in other files"):
            gp.HDF5Dataset(path, name)
    assert elements(gp.HDF5Dataset(path, "own")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (np.zeros(3, [("a", "i4"), ("b", "f4")]), "neither numbers nor byte strings"),
        (np.zeros(3, complex), "neither numbers nor byte strings"),
        (np.array([[b"a"]]), "neither numbers nor byte strings"),
        (np.zeros((3, 0)), "with rows of 0 bytes"),
    ],
)
def test_items_that_are_no_leaves_are_refused(values: Any, complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "one", odd=values)

    with pytest.raises(PlanError, match=complaint):
        gp.HDF5Dataset(path)


def test_one_number_has_no_items(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no rows"):
        gp.HDF5Dataset(write(tmp_path / "one", x=3.5))


def test_a_dataset_without_data_that_claims_to_be_enormous_takes_no_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "one", "w") as file:
        file.create_dataset("x", (1 << 50,), np.uint8, chunks=(1 << 10,))

    with pytest.raises(RecordError, match="rows, which are more than"):
        gp.HDF5Dataset(str(tmp_path / "one"))


def test_a_block_of_too_many_bytes_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "one", "w") as file:
        file.create_dataset("long", data=np.arange(100), chunks=(100,))
        file.create_dataset("wide", data=np.zeros((100, 50)), chunks=(1, 50))
    monkeypatch.setattr(hdf5, "MOST_BYTES", 1000)

    with iter(skipping(gp.HDF5Dataset(str(tmp_path / "one"), "wide"))) as items:
        assert len(elements(items)) == 100
    with iter(skipping(gp.HDF5Dataset(str(tmp_path / "one")))) as items:
        assert elements(items) == []
        assert "a block of at most 1000 bytes is needed" in items.errors[0].reason
