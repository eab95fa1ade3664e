"""buffer_sizes: elements and bytes in running buffers, for `memory_report()`: counted only when one is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["REFERENCE", "bytes_of", "bytes_of_all"]

REFERENCE = 250
"""Bytes of one buffered reference to a record, its tuple and numbers included."""


def bytes_of(element: Any) -> int:
    """The payload of one element in bytes; a reference to a record counts as `REFERENCE`."""
    value = element[0]
    if type(value) is not tuple:
        return 0
    total = 0
    for column in value:
        size = getattr(column, "nbytes", None)
        total += size if size is not None else len(column) if isinstance(column, bytes) else REFERENCE
    return total


def bytes_of_all(elements: Iterable[Any]) -> tuple[int, int]:
    """How many slots hold an element (None is an empty slot), and the bytes of those elements."""
    there = [element for element in list(elements) if element is not None]
    return len(there), sum(map(bytes_of, there))
