"""hdf5: HDF5 files; a row is an item along the first axis of its datasets, a block is what one chunk has of them.

No number of bytes is too small for a number of rows: chunks that were never written have the dataset's fill value, and
a filter may make any chunk small. HDF5 itself compares the shape of a dataset without chunks with its bytes. Of chunks,
where there are more than 8 rows for each byte of the file, the index is read to its end, and where those that were
written have more rows than that, each of them once: a file in which that fails is one whose rows are not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from gpupipe.errors import MissingDependencyError
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.byte_file import ByteFile
from gpupipe.extract.tables.columns import Arrays, Column, Lists, Nulls, Scalars, Texts, Values
from gpupipe.extract.tables.sound import SOUND
from gpupipe.extract.tables.table import MOST_BYTES, Format, Table
from gpupipe.missing import LIBRARIES
from gpupipe.spec import Array, TensorSpec

from ...classes import dataclass

__all__ = ["Hdf5"]

_BLOCK = 256 << 10
"""Bytes of the rows of one block, where there are no chunks."""

_BLOCKS = 1 << 24
"""Blocks of a file: a dataset without any data in it may claim to be of any size."""

_ROWS = 8
"""Rows for each byte of a file that are believed without a look at them."""


@dataclass(frozen=True)
class Hdf5(Format):
    """HDF5, read by h5py. Links and data that lie in other files are not followed."""

    name: ClassVar[str] = "HDF5Dataset"

    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        try:
            import h5py
        except ImportError as error:
            raise MissingDependencyError(
                f"{self.name} needs h5py, which is not installed; install it with: pip install {LIBRARIES['hdf5']}"
            ) from error
        file = self.opened(path)
        with self.opening(file, "a damaged one"):
            root = h5py.File(ByteFile(file), "r")
            every = _found(h5py, root, root)
            found = every if names is None else _found(h5py, root, names)
            types = {name: _type_of(h5py, dataset) for name, dataset in found.items()}
            table = _Hdf5(self, file, found, types, every)
        if table.size > _ROWS * file.size and (file.path, file.tag, "rows", names) not in SOUND:
            with self.opening(
                file, "one with more rows than can be read; copy the file again, or write it with larger chunks"
            ):
                for name, dataset in found.items():
                    if isinstance(types[name], TensorSpec) and dataset.chunks:
                        _check_chunks(dataset, _ROWS * file.size)
            SOUND.add((file.path, file.tag, "rows", names))
        return table


def _check_chunks(dataset: Any, most: int) -> None:
    """Read the index of a dataset's chunks, and one row of each chunk that was written if they have more than `most`.

    Raises:
        Exception: a chunk cannot be found or read.
    """
    written = dataset.id.get_num_chunks()
    if written * dataset.chunks[0] > most:
        for number in range(written):
            at = dataset.id.get_chunk_info(number).chunk_offset
            dataset[tuple(slice(start, start + 1) for start in at)]  # decodes all of the chunk


def _found(h5py: Any, root: Any, names: Iterable[str]) -> dict[str, Any]:
    """The datasets of these names that there are."""
    return {name: dataset for name in names if (dataset := _of(h5py, root, name)) is not None}


def _of(h5py: Any, root: Any, name: str) -> Any:
    """The dataset of a name, with slashes between groups; None if there is none that belongs to this file."""
    at = root
    for part in name.strip("/").split("/"):
        if not isinstance(at, h5py.Group) or not isinstance(at.get(part, getlink=True), h5py.HardLink):
            return None
        at = at[part]
    return at if isinstance(at, h5py.Dataset) else None


def _type_of(h5py: Any, dataset: Any) -> TensorSpec | str:
    """The type of the rows of a dataset, or why they have none, to follow "a column"."""
    shape, dtype = dataset.shape, dataset.dtype
    if not shape:
        return "without axes, which has no rows"
    if dataset.external or dataset.is_virtual:
        return "whose data are in other files; copy them into this one"
    if dataset.chunks and prod(dataset.chunks) * dtype.itemsize > MOST_BYTES:
        return f"with chunks of more than {MOST_BYTES} bytes; write it with smaller ones"
    if _is_number(dtype):
        return TensorSpec(shape[1:], dtype) if prod(shape[1:]) else "with rows of 0 bytes"
    if len(shape) == 1 and (dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None):
        return TensorSpec((), bytes)
    inner = h5py.check_vlen_dtype(dtype)
    if len(shape) == 1 and isinstance(inner, np.dtype) and _is_number(inner):
        if not inner.isnative:
            return f"of lists of {inner}, whose bytes h5py does not swap; write it in the order of this machine"
        return TensorSpec((None,), inner)
    return f"of {dtype} {shape}, which is neither numbers nor byte strings; leave it out with keys="


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8


class _Hdf5(Table):
    fills = False

    def __init__(
        self,
        form: Hdf5,
        file: OpenFile,
        found: Mapping[str, Any],
        types: Mapping[str, TensorSpec | str],
        every: Mapping[str, Any],
    ) -> None:
        self._found = found
        lengths = {dataset.shape[0] for dataset in (found or every).values() if dataset.shape}
        if len(lengths) != 1:
            what = f"datasets of different lengths, {sorted(lengths)}; choose some with keys=" if lengths else "no rows"
            raise form.damaged(file, f"one with {what}")
        (rows,) = lengths
        typed = [dataset for name, dataset in found.items() if isinstance(types[name], TensorSpec)]
        chunks = [dataset.chunks[0] for dataset in typed if dataset.chunks]
        self._row_bytes = sum(prod(dataset.shape[1:]) * dataset.dtype.itemsize for dataset in typed)
        if self._row_bytes > MOST_BYTES:
            raise form.damaged(file, f"one with rows of {self._row_bytes} bytes, which are more than {MOST_BYTES}")
        most = max(chunks, default=max(1, _BLOCK // max(self._row_bytes, 1)))
        # A chunk of one dataset may have more rows than a block may have of another.
        most = min(most, MOST_BYTES // max(self._row_bytes, 1))
        if rows > most * _BLOCKS:
            raise form.damaged(file, f"one of {rows} rows, which are more than {_BLOCKS} blocks of {most}")
        super().__init__(file, types, [min(most, rows - start) for start in range(0, rows, most)], form.defaults)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        start, stop = self.starts[block : block + 2].tolist()
        return [(_column(dataset[start:stop], self.columns[name]), Nulls()) for name, dataset in self._found.items()]


def _column(values: Array, spec: TensorSpec | str) -> Column:
    if isinstance(spec, TensorSpec) and spec.shape == (None,):
        rows = [np.empty(0, spec.dtype), *values]
        return Lists(Scalars(_native(np.concatenate(rows, dtype=spec.dtype))), np.cumsum([len(row) for row in rows]))
    if values.dtype.kind == "S":
        return Texts(values)
    if values.dtype.kind == "O":
        return Values(list(values))
    values = _native(values)
    return Scalars(values) if values.ndim == 1 else Arrays(values)


def _native(values: Array) -> Array:
    """Numbers of this machine: in its order of bytes, and booleans that are 0 or 1."""
    if values.dtype.kind == "b":  # a byte may be anything in a damaged file
        return np.asarray(values.view(np.uint8) != 0)
    return values.astype(values.dtype.newbyteorder("="), copy=False)
