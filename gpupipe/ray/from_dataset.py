"""from_dataset: the rows of a dataset of Ray Data as a dataset of gpupipe, by number."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from itertools import accumulate
from typing import Any

from ..dataset import Dataset
from ..errors import PlanTypeError
from .to_dataset import ray_data

__all__ = ["from_dataset"]

OPEN = 16
"""Blocks whose arrays are kept at hand: they lie in Ray's memory."""


def from_dataset(rd: Any) -> Dataset:
    """Make a dataset of the rows of a `ray.data.Dataset`, as dicts of their columns.

    It is run, in its order, and kept in Ray's memory (`materialize`). Rows have numbers, so ``shuffle(gp.ALL)``,
    `split`, `ds[i]` and `on_ray` work. Text becomes bytes in UTF-8.

    Args:
        rd: the dataset.

    Raises:
        PlanTypeError: another object.
        MissingDependencyError: Ray Data is not installed.
    """
    data = ray_data("from_dataset")
    if not isinstance(rd, data.Dataset):
        raise PlanTypeError(f"from_dataset needs a ray.data.Dataset, got {type(rd).__name__}")
    options = rd.context.execution_options
    ordered, options.preserve_order = options.preserve_order, True
    try:
        return Dataset.from_indexable(_Rows(rd.materialize().to_numpy_refs()))
    finally:
        options.preserve_order = ordered


class _Rows:
    """The rows of blocks in Ray's memory.

    Args:
        refs: references to the blocks, dicts of arrays.
    """

    def __init__(self, refs: list[Any]) -> None:
        import ray

        sizes = ray.get([ray.remote(_size).remote(ref) for ref in refs])
        self._refs = [ref for ref, size in zip(refs, sizes, strict=True) if size]
        self._ends = list(accumulate(size for size in sizes if size))
        self._open: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        block = bisect_right(self._ends, index)
        row = index - (self._ends[block - 1] if block else 0)
        return {name: _value(column[row]) for name, column in self._block(block).items()}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}  # copies open their own

    def _block(self, number: int) -> Any:
        found = self._open.get(number)
        if found is None:
            import ray

            found = self._open[number] = ray.get(self._refs[number])
            while len(self._open) > OPEN:
                self._open.pop(next(iter(self._open)), None)
        return found


def _size(block: dict[str, Any]) -> int:
    return len(next(iter(block.values()), ()))


def _value(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value
