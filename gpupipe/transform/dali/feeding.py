"""feeding: the rows of a batch as DALI takes them, without a copy where that can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError, DecodeError, ShapeError, SpecError
from ...graph.op import Array
from ...graph.values import Value
from ..program import Feed

__all__ = ["LEGAL", "VERIFIED", "Entry", "entry_of", "kept", "tensors_of", "wholly", "wrap"]

VERIFIED = "verified"
"""Name of the input that says which decoded images are given whole."""


_WHOLE = 1 << 24
"""Pixels of a side that no image has."""


LEGAL = tuple(
    np.dtype(name) for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)
"""dtypes that DALI takes as they are; it silently reinterprets others (complex and big-endian become float32)."""


def wrap(row: Any) -> Array:
    """One array as DALI takes it: contiguous, native byte order, a legal dtype. Copies only where it must.

    Raises:
        SpecError: for a dtype that DALI has no equal of.
    """
    array = np.asarray(row)
    dtype = array.dtype.newbyteorder("=")
    if dtype not in LEGAL:
        raise SpecError(f"the DALI executor needs one of {', '.join(map(str, LEGAL))}, got {array.dtype}")
    return np.asarray(array, dtype, order="C")


@dataclass(frozen=True, slots=True)
class Entry:
    """How one input of the program enters DALI.

    Attributes:
        kind: "bytes" (encoded, one row each), "rows" (an array for each row) or "batch" (one array[B, ...]).
        dtype: of the rows.
        ndim: of one row.
    """

    kind: str
    dtype: str
    ndim: int


def entry_of(value: Value, rows: Sequence[Any] | Array) -> Entry:
    """Decide from the first batch how an input enters, where the spec leaves something open."""
    if value.spec.dtype is bytes or isinstance(rows[0], (bytes, memoryview, bytearray)):
        return Entry("bytes", "uint8", 1)
    if isinstance(rows, np.ndarray):
        batch = wrap(rows)
        return Entry("batch", str(batch.dtype), batch.ndim - 1)
    first = wrap(rows[0])
    rank = first.ndim if value.spec.rank is None else value.spec.rank
    return Entry("rows", str(first.dtype if value.spec.dtype is None else np.dtype(value.spec.dtype)), rank)


def wholly(feed: Feed) -> Array:
    """What the input `VERIFIED` gets for a batch: int32[B,2], the size of what is given of each image."""
    out = np.ones((feed.size, 2), np.int32)
    out[list(feed.verified)] = _WHOLE
    return out


def kept(feed: Feed) -> Feed:
    """The same rows in memory of their own: views of a block of a file would hold all of it."""
    values = [
        [bytes(row) if isinstance(row, memoryview) else row for row in rows] if isinstance(rows, list) else rows
        for rows in feed.values
    ]
    return Feed(feed.size, tuple(values))


def tensors_of(
    tensors: Any, who: str, rows: Sequence[Any] | Array, entry: Entry, size: int, causes: dict[int, DataError]
) -> Any:
    """One input of a batch as a TensorList that shares its memory.

    Args:
        tensors: `nvidia.dali.tensors`.
        who: for messages.
        rows: of the input.
        entry: how it enters.
        size: rows of the batch.
        causes: gets the rows that do not fit, and why.

    Raises:
        SpecError: a batch in one array is another than the first one.
    """
    if entry.kind == "batch":
        batch = wrap(rows)
        if str(batch.dtype) != entry.dtype or batch.ndim != entry.ndim + 1 or len(batch) != size:
            raise SpecError(f"{who} need {entry.dtype} rows of rank {entry.ndim}, got {batch.dtype}{batch.shape}")
        return tensors.TensorListCPU(batch)
    if entry.kind == "bytes":
        for row, data in enumerate(rows):
            if not len(data):
                causes[row] = DecodeError("an image needs bytes, got none", stage="decode")
        return tensors.TensorListCPU([tensors.TensorCPU(data) for data in rows], contiguous=False)
    arrays = [wrap(row) for row in rows]
    for row, array in enumerate(arrays):
        if str(array.dtype) != entry.dtype or array.ndim != entry.ndim:
            causes[row] = ShapeError(
                f"{who} need {entry.dtype} with {entry.ndim} dimensions, got {array.dtype}{array.shape}"
            )
    if causes:
        return None
    return tensors.TensorListCPU([tensors.TensorCPU(array) for array in arrays], contiguous=False)
