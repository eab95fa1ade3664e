"""lazy: the types of columns that are read when they are needed."""

from __future__ import annotations

from ...extract.records.reference import Extent, Reference
from ...transform.cached_array import CachedArray

__all__ = ["LAZY"]

LAZY = frozenset((Reference, Extent, CachedArray))
"""The types of columns that are read when they are needed."""
