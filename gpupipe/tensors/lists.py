"""lists: ragged leaves as lists of tensors, and dicts of them as lists of dicts, as detectors take them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import PlanError
from ..ragged import Ragged
from ..structure import flatten

__all__ = ["in_lists", "row_count", "rows_of"]


def row_count(leaf: Any) -> int | None:
    """Rows of a tensor, a ragged leaf or a list; None of what has none."""
    return len(leaf) if isinstance(leaf, list) or getattr(leaf, "ndim", 0) > 0 else None


def rows_of(ragged: Ragged, values: Any) -> list[Any]:
    """The rows of a ragged leaf.

    A row that is ragged itself is one tensor if its own rows are equally long, as those of an image are, else a list.

    Args:
        ragged: the leaf.
        values: its flat values, converted; tensors share their memory.
    """
    first, *splits = ragged.nested_row_splits
    return [_row(values, splits, int(a), int(b)) for a, b in pairwise(first)]


def _row(values: Any, splits: list[Any], start: int, stop: int) -> Any:
    shape, a, b = [stop - start], start, stop
    for one in splits:
        lengths = np.diff(one[a : b + 1])
        if len(lengths) and (lengths != lengths[0]).any():
            inner = splits[0]
            return [_row(values, splits[1:], int(inner[k]), int(inner[k + 1])) for k in range(start, stop)]
        shape.append(int(lengths[0]) if len(lengths) else 0)
        a, b = int(one[a]), int(one[b])
    return values[a:b].reshape(*shape, *values.shape[1:])


def _is_new(part: Any) -> bool:
    """Whether it is a list of tensors: an element that was not delivered may be converted again."""
    return isinstance(part, list) and not (part and isinstance(part[0], dict))


def in_lists(convert: Callable[[Any], Any], element: Any) -> Any:
    """Convert an element; dicts inside of it that hold lists become lists of dicts, one for each row.

    Args:
        convert: of an element, which makes lists of its ragged leaves.
        element: tuples and dicts of leaves.
    """
    return _divided(convert(element), False)


def _divided(value: Any, inside: bool) -> Any:
    if isinstance(value, tuple):
        parts = [_divided(part, True) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if not isinstance(value, dict):
        return value
    if not inside or not any(map(_is_new, value.values())):
        return {key: _divided(part, True) for key, part in value.items()}
    leaves, structure = flatten(value)
    counts = list(map(row_count, leaves))
    if len(set(counts)) > 1:
        named = zip(structure.leaf_names(), counts, strict=True)
        had = ", ".join(f"{name} of {'no' if count is None else count} rows" for name, count in named)
        raise PlanError(
            f"as_torch(lists=True) needs as many rows of all that is in a dict with ragged leaves, got {had}; put "
            "what has others outside of the dict"
        )
    return [structure.unflatten([leaf[row] for leaf in leaves]) for row in range(counts[0] or 0)]
