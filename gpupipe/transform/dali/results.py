"""results: convert DALI's host outputs to NumPy arrays, and check them against their specs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import SpecError
from ...graph.values import Apply, Item, Value
from ...spec import TensorSpec
from ..array import copied, overlap
from .library import POOL

__all__ = ["check_result", "separate", "to_numpy", "unlike"]


def to_numpy(output: Any, size: int) -> Any:
    """A TensorListCPU as one array[B, ...], or as a list of arrays if shapes differ. They own DALI's buffers."""
    if output.is_dense_tensor():
        return np.asarray(POOL.lend(output.as_tensor()))[:size]
    rows = [np.asarray(POOL.lend(output[row])) for row in range(size)]
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else rows


def check_result(value: Value, result: Any) -> None:
    """Compare a result with the spec of its value.

    Raises:
        SpecError: it differs, since a user's op or function was declared wrongly.
    """
    for row in result:
        got = TensorSpec(tuple(row.shape), row.dtype)
        if not value.spec.accepts(got):
            raise unlike(value, value.spec, str(got))


def unlike(value: Value, spec: TensorSpec, got: str) -> SpecError:
    """The error for a user's op or function whose result differs from its declared spec."""
    made = value.value if isinstance(value, Item) else value
    name = made.op.name if isinstance(made, Apply) else repr(made)
    where = f" ({made.line})" if isinstance(made, Apply) and made.line else ""
    return SpecError(f"{name}{where} was declared as {spec}, DALI gave {got}; correct its spec")


def separate(results: list[Any]) -> list[Any]:
    """Copy results that share memory with an earlier one: in DALI a reshape is a view, and so is a no-op cast."""
    for n, later in enumerate(results):
        for earlier in results[:n]:
            if overlap(earlier, later):
                results[n] = [copied(row) for row in later] if isinstance(later, list) else copied(later)
                break
    return results
