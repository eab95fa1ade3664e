"""batches: the methods of a `Dataset`: steps that make batches and take them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arguments import parallel_calls, rows_of_a_batch
from ..errors import PlanError
from ..plan.padding import padded_shapes as checked_shapes
from ..plan.padding import padding_values as checked_values
from ..plan.steps import Batch, PaddedBatch, Unbatch
from .base import Chain

if TYPE_CHECKING:
    from .core import Dataset

__all__ = ["Batches"]


class Batches(Chain):
    """The methods of a `Dataset`: steps that make batches and take them apart."""

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> Dataset:
        """Stack `batch_size` consecutive elements.

        Args:
            batch_size: rows of a batch.
            drop_remainder: leave out a short last batch.
            num_parallel_calls: accepted for compatibility: a batch is one run of the graph over `Options.threads`.
            deterministic: the same.
        """
        parallel_calls("batch", num_parallel_calls)
        return self._then(Batch(self.plan, rows_of_a_batch("batch", batch_size), bool(drop_remainder)))

    def padded_batch(
        self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, drop_remainder: bool = False
    ) -> Dataset:
        """Stack `batch_size` consecutive elements, each padded to one shape.

        Args:
            batch_size: rows of a batch.
            padded_shapes: a structure of shapes like the element; None or -1 in a shape is the largest of the batch.
                Without it unknown dimensions are padded.
            padding_values: one value, or a structure of them; 0, False or b"" unless given.
            drop_remainder: leave out a short last batch.
        """
        size = rows_of_a_batch("padded_batch", batch_size)
        element = self.plan.element
        shapes = values = None
        if element.structure is not None:
            shapes = checked_shapes(padded_shapes, element)
            values = checked_values(padding_values, element)
        given = None if element.known else (padded_shapes, padding_values)
        return self._then(PaddedBatch(self.plan, size, bool(drop_remainder), shapes, values, given))

    def unbatch(self) -> Dataset:
        """Take batches apart into their rows."""
        for spec in self.plan.element.specs:
            if spec.shape == ():
                raise PlanError(f"unbatch needs leaves with a first dimension, got the scalar {spec}")
        sizes = {spec.shape[0] for spec in self.plan.element.specs if spec.shape and spec.shape[0] is not None}
        if len(sizes) > 1:
            raise PlanError(f"unbatch needs leaves of one length, got {' and '.join(map(str, sorted(sizes)))}")
        return self._then(Unbatch(self.plan))
