"""host_arrays: iterators that give all arrays in host memory."""

from __future__ import annotations

from typing import Any

from ..errors import PlanTypeError
from ..spec import Compound, DatasetSpec, map_structure
from ..transform.array import to_host
from .iterator import DatasetIterator

__all__ = ["HostIterator", "OwnedIterator", "on_host"]


class HostIterator(DatasetIterator):
    """An iterator that gives every array on the host. Nested datasets are left alone."""

    def _next(self) -> Any:
        return map_structure(on_host, super()._next())


class OwnedIterator(DatasetIterator):
    """The iterator of `as_numpy_iterator`, which gives arrays on the host and refuses nested datasets."""

    def _next(self) -> Any:
        return map_structure(_array_on_host, super()._next())


def _array_on_host(leaf: Any) -> Any:
    """Return a leaf in host memory.

    Raises:
        PlanTypeError: the leaf is a nested dataset.
    """
    if isinstance(leaf, Compound) and isinstance(spec := leaf.leaf_spec(), DatasetSpec):
        raise PlanTypeError(f"as_numpy_iterator needs arrays, numbers or bytes, got a {spec}")
    return on_host(leaf)


def on_host(leaf: Any) -> Any:
    """Return a leaf in host memory; a `Compound`, such as a nested dataset, as it is."""
    if isinstance(leaf, Compound):
        return leaf
    return to_host(leaf)
