"""feeding: convert the rows of a batch to DALI tensors, without a copy if possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import DataError, DecodeError, ShapeError, SpecError
from ...graph.op import Array
from ...graph.values import Value
from ..cached_array import CachedArray
from ..program import Feed

__all__ = ["LEGAL", "VERIFIED", "Entry", "check_rows", "entry_of", "kept", "tensors_of", "wholly", "wrap"]

VERIFIED = "verified"
"""Name of the input that says which decoded images are returned whole."""


_WHOLE = 1 << 24
"""More pixels than any image has on a side."""


LEGAL = tuple(
    np.dtype(name) for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)
"""dtypes that DALI takes as they are; it silently reinterprets others (complex and big-endian become float32)."""


def wrap(row: Any) -> Array:
    """Make an array contiguous and of native byte order, as DALI needs it; copies only if necessary.

    Raises:
        SpecError: DALI has no such dtype.
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
        kind: "bytes" (an encoded image per row), "rows" (an array per row), "batch" (one array[B, ...]) or "cached" (a
            `CachedArray` per row, most of them on the GPU).
        dtype: of the rows.
        ndim: of one row.
    """

    kind: str
    dtype: str
    ndim: int


def entry_of(value: Value, rows: Sequence[Any] | Array) -> Entry:
    """Decide how an input enters DALI, from its spec and, where that is incomplete, from the first batch."""
    if value.spec.dtype is bytes or isinstance(rows[0], (bytes, memoryview, bytearray)):
        return Entry("bytes", "uint8", 1)
    if isinstance(rows[0], CachedArray):
        return Entry("cached", str(rows[0].dtype), rows[0].ndim)
    if isinstance(rows, np.ndarray):
        batch = wrap(rows)
        return Entry("batch", str(batch.dtype), batch.ndim - 1)
    first = wrap(rows[0])
    rank = first.ndim if value.spec.rank is None else value.spec.rank
    return Entry("rows", str(first.dtype if value.spec.dtype is None else np.dtype(value.spec.dtype)), rank)


def wholly(feed: Feed) -> Array:
    """The rows of the input `VERIFIED` for a batch: int32[B,2], the size of the returned part of each image."""
    out = np.ones((feed.size, 2), np.int32)
    out[list(feed.verified)] = _WHOLE
    return out


def kept(feed: Feed) -> Feed:
    """Copy bytes of a feed that is kept: a view of a file's block would keep the whole block alive."""
    values = [
        [bytes(row) if isinstance(row, memoryview) else row for row in rows] if isinstance(rows, list) else rows
        for rows in feed.values
    ]
    return Feed(feed.size, tuple(values), large=feed.large)


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
        causes: receives the errors of rows that do not fit.

    Raises:
        SpecError: a batch in one array has another dtype or shape than the first one.
    """
    if entry.kind == "batch":
        batch = wrap(rows)
        if str(batch.dtype) != entry.dtype or batch.ndim != entry.ndim + 1 or len(batch) != size:
            raise SpecError(f"{who} need {entry.dtype} rows of rank {entry.ndim}, got {batch.dtype}{batch.shape}")
        if size and _lacks_pixels(batch[0]):
            causes.update({row: _without_pixels(who, batch[row]) for row in range(size)})
            return None
        return tensors.TensorListCPU(batch)
    if entry.kind == "bytes":
        for row, data in enumerate(rows):
            if not len(data):
                causes[row] = DecodeError("an image needs bytes, got none", stage="decode")
        return tensors.TensorListCPU([tensors.TensorCPU(data) for data in rows], contiguous=False)
    arrays = [wrap(row.read() if type(row) is CachedArray else row) for row in rows]
    check_rows(who, arrays, entry, causes)
    if causes:
        return None
    return tensors.TensorListCPU([tensors.TensorCPU(array) for array in arrays], contiguous=False)


def check_rows(who: str, arrays: Sequence[Any], entry: Entry, causes: dict[int, DataError]) -> None:
    """Add to `causes` the errors of arrays that do not fit their entry."""
    for row, array in enumerate(arrays):
        if str(array.dtype) != entry.dtype or array.ndim != entry.ndim:
            causes[row] = ShapeError(
                f"{who} need {entry.dtype} with {entry.ndim} dimensions, got {array.dtype}{array.shape}"
            )
        elif _lacks_pixels(array):
            causes[row] = _without_pixels(who, array)


def _lacks_pixels(array: Array) -> bool:
    """Whether an image has no channels, or a clip no pixels: DALI's flip would write beyond its memory."""
    return not array.size and (array.ndim == 4 or (array.ndim == 3 and not array.shape[2]))


def _without_pixels(who: str, array: Array) -> ShapeError:
    return ShapeError(f"{who} need images with channels and clips with frames, got {array.dtype}{list(array.shape)}")
