"""accelerate: what Accelerate's `prepare` does to a loader: its rank's batches, its device, where the epoch ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..classes import dataclass
from ..errors import DataError
from ..load.converted import ConvertedIterator
from ..load.iterator import AT_ONCE
from ..load.progress import Numbers
from ..options import Settings
from ..plan.node import Node
from ..spec import TensorSpec
from .loader import Chain

__all__ = ["Prepared", "PreparedIterator", "prepared"]


class PreparedIterator(ConvertedIterator):
    """An iterator that knows one element ahead whether the epoch ends, for Accelerate's accumulation of gradients.

    Its state is that after the last element that `next` returned.

    Args:
        plan: the chain.
        settings: its options.
        epochs: the numbers of the epochs.
        convert: a function of one leaf.
        remainder: rows of the last step, over all ranks, that are not there a second time; 0 if none is, -1 if unknown.

    Attributes:
        end_of_dataloader: whether the last element was given.
        remainder: as given.
    """

    def __init__(
        self, plan: Node, settings: Settings, epochs: Numbers, convert: Callable[[Any], Any], remainder: int
    ) -> None:
        super().__init__(plan, settings, epochs, convert)
        self.end_of_dataloader, self.remainder = False, remainder
        self._listed = False
        self._error: DataError | None = None

    def __next__(self) -> Any:
        if not self._listed:
            self._listed = True
            _gradients()._add_dataloader(self)
        error, self._error = self._error, None
        if error is not None:
            raise error
        try:
            element = super().__next__()
        except StopIteration:
            self._unlisted()
            raise
        try:
            following = super().__next__()
        except StopIteration:
            self.end_of_dataloader = True
        except DataError as found:
            self._error = found  # it is the next call's
        else:
            self._undelivered, self._check_at = (following, self._undelivered), AT_ONCE
        return element

    def close(self) -> None:
        """Stop every thread of this iterator, see `DatasetIterator.close`."""
        super().close()
        if not self._progress.ended:
            self._unlisted()

    def _unlisted(self) -> None:
        if self._listed:
            _gradients()._remove_dataloader(self)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a rank of a run under Accelerate loops over.

    Attributes:
        chain: its batches.
        device: where they go, a `torch.device`.
        ranks: how many processes there are.
        remainder: see `PreparedIterator`.
    """

    chain: Chain
    device: Any
    ranks: int
    remainder: int

    def iterator(self, epochs: Numbers, convert: Callable[[Any], Any]) -> PreparedIterator:
        """An iterator over the batches of this rank."""
        settings = self.chain.options().resolve()
        return PreparedIterator(self.chain.plan, settings, epochs, convert, self.remainder)


def prepared(chain: Chain) -> Prepared | None:
    """The part of this process in a run under Accelerate; None if there is no such run.

    Batch i is that of rank ``i % ranks``. The last ranks get batches from the start a second time where their number
    does not divide that of the batches, so that all make as many steps.

    Args:
        chain: the batches of all ranks.
    """
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    if state is None or not state._shared_state:  # no Accelerator was made
        return None
    here = state()
    if here.num_processes == 1:
        return Prepared(chain, here.device, 1, 0)
    batches = max(chain.cardinality(), 0)
    over = batches % here.num_processes
    rows = _rows(chain.plan.element.specs)
    remainder = -1 if not batches or (over and rows is None) else over * (rows or 0)
    mine = chain.shard(here.num_processes, here.process_index, even="wrap")
    return Prepared(mine, here.device, here.num_processes, remainder)


def _rows(specs: Sequence[TensorSpec]) -> int | None:
    """The number of rows that every batch has; None if it varies."""
    return specs[0].shape[0] if specs and specs[0].shape else None


def _gradients() -> Any:
    """Accelerate's record of the loops that run."""
    from accelerate.state import GradientState

    return GradientState()
