"""accelerate: what Accelerate's `prepare` does to a loader: its rank's batches, its device, where the epoch ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..classes import dataclass
from ..errors import DataError, PlanError
from ..flow.element import is_repeated
from ..load.converted import ConvertedIterator
from ..load.iterator import AT_ONCE
from ..load.progress import Numbers
from ..options import Settings
from ..plan.batches import last_batch
from ..plan.node import Node, walk
from ..plan.order import Shard
from ..plan.ranks import ranks_of
from ..ragged import Ragged, stack_ragged_rows
from ..spec import flatten, map_structure
from .lists import row_count
from .loader import Chain

__all__ = ["Prepared", "PreparedIterator", "check_skip", "prepared"]


class PreparedIterator(ConvertedIterator):
    """An iterator that knows one element ahead whether the epoch ends, for Accelerate's accumulation of gradients.

    Its state is that after the last element that `next` returned. In the last step of an epoch the ranks tell each
    other how many rows they have: those with fewer repeat theirs, as collective calls need equal shapes, and
    `gather_for_metrics` leaves out what is there a second time.

    Args:
        plan: the chain.
        settings: its options.
        epochs: the numbers of the epochs.
        convert: a function of one element.
        ranks: how many processes there are.
        device: of this one.

    Attributes:
        end_of_dataloader: whether the last element was given.
        remainder: rows of the last step, over all ranks, that are no repetitions; 0 if all are, -1 if batches have no
            rows.
    """

    def __init__(
        self, plan: Node, settings: Settings, epochs: Numbers, convert: Callable[[Any], Any], ranks: int, device: Any
    ) -> None:
        super().__init__(plan, settings, epochs, convert)
        self.end_of_dataloader, self.remainder = False, 0
        self._ranks, self._device = ranks, device
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
            if self._ranks > 1:
                return self._completed(element)
        except DataError as found:
            self._error = found  # it is the next call's
        else:
            self._undelivered, self._check_at = (following, self._undelivered), AT_ONCE
        return element

    def _completed(self, element: Any) -> Any:
        """The batch of the last step, with as many rows as that of every other rank."""
        import torch
        from accelerate.utils import gather

        leaves, _ = flatten(element)
        rows = min((count for leaf in leaves if (count := row_count(leaf)) is not None), default=-1)
        new = 0 if self._stream is None or is_repeated(self._stream) else rows
        gathered: Any = gather(torch.tensor([[rows, new]], device=self._device))
        found = gathered.tolist()
        most, valid = max(one[0] for one in found), sum(one[1] for one in found)
        if min(one[0] for one in found) < 0:
            self.remainder = -1
            return element
        self.remainder = 0 if valid == most * self._ranks else valid
        if rows == most:
            return element
        again = np.arange(most) % rows
        return map_structure(lambda leaf: _taken(leaf, again) if row_count(leaf) == rows else leaf, element)

    def close(self) -> None:
        """Stop every thread of this iterator, see `DatasetIterator.close`."""
        super().close()
        if not self._progress.ended:
            self._unlisted()

    def _unlisted(self) -> None:
        if self._listed:
            _gradients()._remove_dataloader(self)


def _taken(leaf: Any, rows: Any) -> Any:
    """The rows at these places."""
    if isinstance(leaf, list):
        return [leaf[row] for row in rows]
    return stack_ragged_rows([leaf[int(row)] for row in rows], leaf) if isinstance(leaf, Ragged) else leaf[rows]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a rank of a run under Accelerate loops over.

    Attributes:
        chain: its batches.
        device: where they go, a `torch.device`.
        ranks: how many processes there are.
    """

    chain: Chain
    device: Any
    ranks: int

    def iterator(self, epochs: Numbers, convert: Callable[[Any], Any]) -> PreparedIterator:
        """An iterator over the batches of this rank."""
        settings = self.chain.options().resolve()
        return PreparedIterator(self.chain.plan, settings, epochs, convert, self.ranks, self.device)


def prepared(chain: Chain) -> Prepared | None:
    """The part of this process in a run under Accelerate; None if there is no such run.

    Batch i is that of rank ``i % ranks``. Where the number of ranks does not divide that of the batches, the last ranks
    get batches from the start a second time, so that all make as many steps; a chain that leaves out a short last batch
    leaves out a short last round as well. That is what Accelerate does with PyTorch's loaders. A chain with `by_rank`
    is divided already.

    Args:
        chain: the batches of all ranks.

    Raises:
        PlanError: the chain is divided among the ranks by `shard`, or by a `by_rank` that pads.
    """
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    if state is None or not state._shared_state:  # no Accelerator was made
        return None
    here = state()
    ranks = here.num_processes
    if ranks == 1:
        return Prepared(chain, here.device, 1)
    own = ranks_of(chain.plan)
    if own is not None:
        if own.remainder == "pad":
            raise PlanError(
                f"prepare needs the batches of all ranks, or by_rank(remainder='drop'), got {own.describe()} at "
                f"{own.line}, whose padding gather_for_metrics cannot tell from rows; leave by_rank out"
            )
        return Prepared(chain, here.device, ranks)
    for node in walk(chain.plan):
        if isinstance(node, Shard) and node.shards == ranks:
            raise PlanError(
                f"prepare needs the batches of all ranks, which it divides, got {node.describe()} at {node.line}; "
                "leave shard out, or do not give the loader to prepare"
            )
    batch = last_batch(chain.plan)
    even: Literal["drop", "wrap"] = "drop" if batch is not None and batch.drop else "wrap"
    return Prepared(chain.shard(ranks, here.process_index, even=even), here.device, ranks)


def check_skip(loader: Any) -> None:
    """Refuse `skip_first_batches` of a loader that was not told the epoch: it may be another one than the first.

    Raises:
        PlanError: Accelerate skips the first batches of the first loop, and nobody has set its epoch.
    """
    if "accelerate.data_loader" not in sys.modules or loader._items is not None:
        return
    active = _gradients().active_dataloader
    skips = type(active).__name__ == "SkipDataLoader" and getattr(active, "skip_batches", 0) > 0
    if skips and loader.chain._requested_epoch() is None:
        raise PlanError(
            "skip_first_batches needs the epoch that is resumed, as its batches are others in each: call "
            "loader.set_epoch(epoch) before; for transformers' Trainer add the callback of the guide's page Trainers"
        )


def _gradients() -> Any:
    """Accelerate's record of the loops that run."""
    from accelerate.state import GradientState

    return GradientState()
