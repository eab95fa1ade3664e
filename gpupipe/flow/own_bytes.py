"""own_bytes: what is kept owns its bytes: a view would pin the whole block of the file that it was read in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .element import Element

__all__ = ["keep", "own_bytes"]


def own_bytes(columns: Sequence[Any]) -> tuple[Any, ...]:
    """Columns that can be kept: memory views of a block are copied to bytes."""
    for column in columns:
        if type(column) is memoryview:
            return tuple([bytes(column) if type(column) is memoryview else column for column in columns])
    return tuple(columns)


def keep(element: Element) -> Element:
    """An element that can be held for long: it owns its bytes instead of pinning the block they were read in."""
    value, stream, position = element
    return (own_bytes(value), stream, position) if type(value) is tuple else element
