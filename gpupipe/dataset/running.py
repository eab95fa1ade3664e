"""running: the methods of a `Dataset`: options, facts and iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..arguments import integer
from ..errors import PlanError, PlanTypeError
from ..options import Options
from ..plan.node import INFINITE, UNKNOWN_CARDINALITY, epoch_key
from ..plan.steps import WithOptions, options_of
from .base import Chain

if TYPE_CHECKING:
    from ..load.iterator import DatasetIterator, OwnedIterator
    from ..optimize.explain import Explanation
    from .core import Dataset

__all__ = ["Running"]


class Running(Chain):
    """The methods of a `Dataset`: options, facts and iteration."""

    def with_options(self, options: Options) -> Dataset:
        """Set options; they are merged along the chain, the last one wins."""
        if not isinstance(options, Options):
            raise PlanTypeError(f"with_options needs gpupipe.Options, got {type(options).__name__}")
        return self._then(WithOptions(self.plan, options))

    def options(self) -> Options:
        """The options of the chain, merged."""
        return options_of(self.plan)

    @property
    def element_spec(self) -> Any:
        """The structure of `TensorSpec` of an element. Never reads data."""
        return self.plan.element.nested

    def cardinality(self) -> int:
        """How many elements there are, `INFINITE_CARDINALITY` (-1) or `UNKNOWN_CARDINALITY` (-2). Reads nothing."""
        return self.plan.cardinality

    def __len__(self) -> int:
        count = self.cardinality()
        if count == INFINITE:
            raise PlanTypeError("the dataset is infinite: it has no len()")
        if count == UNKNOWN_CARDINALITY:
            raise PlanTypeError("the length of the dataset is unknown before it is read: it has no len()")
        return count

    def explain(self) -> Explanation:
        """Say what the chain is and how it will run: stages, devices, fused ops, buffers. Reads no data."""
        from ..optimize.explain import explain

        return explain(self.plan, self.options().resolve())

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, epoch: int | None = None) -> DatasetIterator:
        """An iterator over one epoch.

        Args:
            epoch: what random ops and shuffles draw with. Unless set it counts the iterators that were started over the
                same sources with an equal chain: 0 for the first loop, 1 for the second.
        """
        if epoch is not None and integer("iterator", "epoch", epoch) < 0:
            raise PlanError(f"iterator needs an epoch >= 0, got {epoch}")
        from ..load.iterator import DatasetIterator

        epochs = self._counted() if epoch is None else iter((epoch,))
        return DatasetIterator(self.plan, self.options().resolve(), epochs)

    def epochs(self, count: int, start: int = 0) -> DatasetIterator:
        """One iterator over `count` epochs, numbered from `start`."""
        if integer("epochs", "count", count) < 0 or integer("epochs", "start", start) < 0:
            raise PlanError(f"epochs needs count and start >= 0, got {count} and {start}")
        from ..load.iterator import DatasetIterator

        return DatasetIterator(self.plan, self.options().resolve(), iter(range(start, start + count)))

    def _counted(self) -> Iterator[int]:
        """The number of an iterator, taken when it starts."""
        key = epoch_key(self.plan), self.options().resolve().seed
        number = self._passes.get(key, 0)
        self._passes[key] = number + 1
        yield number

    def as_numpy_iterator(self) -> OwnedIterator:
        """An iterator whose leaves are all on the host: arrays, NumPy scalars and bytes."""
        from ..load.iterator import OwnedIterator

        return OwnedIterator(self.plan, self.options().resolve(), self._counted())

    def first(self) -> Any:
        """The first element of epoch 0. Does not count as an epoch.

        Raises:
            IndexError: there is none.
        """
        with self.iterator(epoch=0) as items:
            for element in items:
                return element
        raise IndexError("the dataset is empty: it has no first element")
