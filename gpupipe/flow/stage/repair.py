"""repair: a group without its bad rows, and results copied to the host or joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import DataError
from ...transform.array import concatenate, to_host
from ..batching.batcher import Group
from ..element import Hole

__all__ = ["host_copy", "joined", "make_holes"]


def make_holes(group: Group, bad: dict[int, DataError]) -> None:
    """Turn bad rows of a group into holes, which `order` delivers in their places."""
    rows = group.rows
    holes = {i: (Hole(error), rows[i][1], rows[i][2]) for i, error in bad.items()}
    kept = [i for i in range(len(rows)) if i not in holes]
    if group.order is not None:
        moved = {old: new for new, old in enumerate(kept)}
        group.order = [
            item if not isinstance(item, int) else moved.get(item, holes.get(item, 0)) for item in group.order
        ]
    group.rows = [rows[i] for i in kept]


def host_copy(result: Any) -> Any:
    """Copy a result of a GPU stage to NumPy arrays."""
    return [to_host(row) for row in result] if isinstance(result, list) else to_host(result)


def joined(parts: Sequence[Any]) -> Any:
    """Join one output of several parts of a batch."""
    if not any(isinstance(part, list) for part in parts) and len({tuple(part.shape[1:]) for part in parts}) == 1:
        return concatenate(parts)
    return [row for part in parts for row in part]
