"""host_arrays: iterators whose arrays are all on the host."""

from __future__ import annotations

from typing import Any

from ..errors import PlanTypeError
from ..spec import Compound, DatasetSpec, map_structure
from ..transform.array import to_host
from .iterator import DatasetIterator

__all__ = ["HostIterator", "OwnedIterator", "on_host"]


class HostIterator(DatasetIterator):
    """The same, with every array on the host. Nested datasets stay what they are."""

    def _next(self) -> Any:
        return map_structure(on_host, super()._next())


class OwnedIterator(DatasetIterator):
    """The iterator of `as_numpy_iterator`: arrays on the host, and nothing that is no array."""

    def _next(self) -> Any:
        return map_structure(_array_on_host, super()._next())


def _array_on_host(leaf: Any) -> Any:
    """The same, where a nested dataset is an error."""
    if isinstance(leaf, Compound) and isinstance(spec := leaf.leaf_spec(), DatasetSpec):
        raise PlanTypeError(f"as_numpy_iterator needs arrays, numbers or bytes, got a {spec}")
    return on_host(leaf)


def on_host(leaf: Any) -> Any:
    """A delivered leaf in host memory."""
    if isinstance(leaf, Compound):
        return leaf
    return to_host(leaf)
