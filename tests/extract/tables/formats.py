"""The tabular formats, for tests that all of them must pass: how a file is written, read by others and damaged."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp

Columns = dict[str, Any]


@dataclass(frozen=True)
class FormatCase:
    """One format.

    Attributes:
        name: for the names of tests, and of files.
        library: that writes and reads it; "" is NumPy.
        make: the dataset class.
        write: columns, rows of a block -> the bytes of a file.
        read: the columns of a file, by the library.
        block: bytes of a file, the number of a block -> where to change a byte so that the block is known to be bad; of
            column "name", which comes after "a"; None where no block is checked.
        hostile: whether the library survives any damage.
        header: where the bytes start without which no row is known.
    """

    name: str
    library: str
    make: Any
    write: Callable[[Columns, int], bytes]
    read: Callable[[bytes], Columns]
    block: Callable[[bytes, int], int] | None
    header: Callable[[bytes], int]
    hostile: bool = True

    def file(self, path: Path, columns: Columns, rows: int = 4) -> Path:
        """Write a file with blocks of some rows."""
        path.write_bytes(self.write(columns, rows))
        return path

    def damaged(self, path: Path, number: int) -> None:
        """Change a byte of a block."""
        assert self.block is not None
        data = bytearray(path.read_bytes())
        data[self.block(bytes(data), number)] ^= 0xFF
        path.write_bytes(data)


def columns(n: int = 10, first: int = 0) -> Columns:
    """Columns of the types that every format has: numbers, texts, arrays."""
    numbers = np.arange(first, first + n)
    return {
        "a": numbers.astype(np.int64),
        "name": [b"row %d of many" % i for i in numbers],
        "x": (numbers / 4).astype(np.float32),
    }


def rows_of(given: Columns) -> list[dict[str, Any]]:
    """The rows of some columns, as plain Python."""
    return [
        dict(zip(given, row, strict=True)) for row in zip(*(map(plain, given[name]) for name in given), strict=True)
    ]


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def element(value: Any) -> Any:
    """An element as plain Python."""
    return {name: plain(leaf) for name, leaf in value.items()} if isinstance(value, dict) else plain(value)


def _write_parquet(given: Columns, rows: int) -> bytes:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    parquet.write_table(
        pa.table(given), out, row_group_size=rows, write_page_checksum=True, compression="none", use_dictionary=False
    )
    return out.getvalue()


def _read_parquet(data: bytes) -> Columns:
    table = pytest.importorskip("pyarrow.parquet").read_table(io.BytesIO(data))
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _block_of_parquet(data: bytes, number: int) -> int:
    metadata = pytest.importorskip("pyarrow.parquet").ParquetFile(io.BytesIO(data)).metadata
    found = metadata.row_group(number).column(1)
    return int(found.data_page_offset + found.total_compressed_size - 1)


def _write_arrow(given: Columns, rows: int) -> bytes:
    pa = pytest.importorskip("pyarrow")
    out = io.BytesIO()
    table = pa.table(given)
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return out.getvalue()


def _read_arrow(data: bytes) -> Columns:
    table = pytest.importorskip("pyarrow").ipc.open_file(data).read_all()
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _block_of_arrow(data: bytes, number: int) -> int:
    """The highest byte of the second offset of column "name"."""
    pa = pytest.importorskip("pyarrow")
    whole = pa.py_buffer(data)
    offsets = pa.ipc.open_file(whole).get_batch(number).column(1).buffers()[1]
    return int(offsets.address - whole.address + 7)


def _write_npz(given: Columns, rows: int) -> bytes:
    out = io.BytesIO()
    arrays: Any = {name: np.asarray(values) for name, values in given.items()}
    np.savez(out, **arrays)
    return out.getvalue()


def _read_npz(data: bytes) -> Columns:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def _write_hdf5(given: Columns, rows: int) -> bytes:
    h5py = pytest.importorskip("h5py")
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        for name, values in given.items():
            array = np.asarray(values)
            chunks = (min(rows, len(array)),) if len(array) else None
            file.create_dataset(name, data=array, chunks=chunks, fletcher32=len(array) > 0)
    return out.getvalue()


def _read_hdf5(data: bytes) -> Columns:
    with pytest.importorskip("h5py").File(io.BytesIO(data), "r") as file:
        return {name: file[name][:] for name in ("a", "name", "x")}


def _block_of_hdf5(data: bytes, number: int) -> int:
    with pytest.importorskip("h5py").File(io.BytesIO(data), "r") as file:
        return int(file["name"].id.get_chunk_info(number).byte_offset)


FORMATS: list[FormatCase] = [
    FormatCase(
        "parquet",
        "pyarrow",
        gp.ParquetDataset,
        _write_parquet,
        _read_parquet,
        _block_of_parquet,
        lambda data: len(data) - 4,
    ),
    FormatCase(
        "arrow", "pyarrow", gp.ArrowDataset, _write_arrow, _read_arrow, _block_of_arrow, lambda data: len(data) - 4
    ),
    FormatCase("hdf5", "h5py", gp.HDF5Dataset, _write_hdf5, _read_hdf5, _block_of_hdf5, lambda data: 0, False),
    FormatCase("npz", "", gp.NumpyDataset, _write_npz, _read_npz, None, lambda data: len(data) - 22),
]

every_format = pytest.mark.parametrize("case", FORMATS, ids=lambda case: case.name)
