"""feed_cached: the arrays of a cache on a GPU as the input of a graph there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import DataError
from ..array import on_gpu, uploaded
from ..cached_array import CachedArray
from .feeding import Entry, check_rows, wrap

__all__ = ["tensors_on_gpu"]


def tensors_on_gpu(
    tensors: Any, who: str, rows: Sequence[Any], entry: Entry, device_id: int, causes: dict[int, DataError]
) -> list[Any] | None:
    """One input of a batch as GPU tensors; rows that are still on the host are copied there, together.

    Args:
        tensors: `nvidia.dali.tensors`.
        who: for messages.
        rows: a `CachedArray` each, or an array of the host.
        entry: how it enters.
        device_id: ordinal of the GPU.
        causes: receives the errors of rows that do not fit.
    """
    arrays = [row.array if type(row) is CachedArray else row for row in rows]
    check_rows(who, arrays, entry, causes)
    if causes:
        return None
    of_host = [i for i, array in enumerate(arrays) if not on_gpu(array)]
    moved = dict(zip(of_host, uploaded([wrap(arrays[i]) for i in of_host], device_id), strict=True)) if of_host else {}
    return [
        tensors.TensorGPU(moved[i], "", device_id) if i in moved else _tensor(tensors, row, device_id)
        for i, row in enumerate(rows)
    ]


def _tensor(tensors: Any, row: CachedArray, device_id: int) -> Any:
    if row.tensor is None:  # made once: for a small image it costs more than all else
        row.tensor = tensors.TensorGPU(row.array, "", device_id)
    return row.tensor
