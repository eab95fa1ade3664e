"""ranks: the method of `Dataset` that gives each rank its rows of the batches that all share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..arguments import integer
from ..errors import PlanError, PlanTypeError
from ..graph.symbols import active_trace
from ..plan.batches import Batch
from ..plan.index import blocker, why_not
from ..plan.node import Node
from ..plan.order import options_of, without_last_steps
from ..plan.ranks import SKIPS, ByRank, ranks_of
from ..ranks.find import own_rank
from .base import Chain

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Ranks"]


class Ranks(Chain):
    """Ranks that train together."""

    def by_rank(
        self,
        rank: int | None = None,
        world: int | None = None,
        remainder: Literal["drop", "pad"] = "drop",
        check: bool = True,
    ) -> Dataset:
        """Keep this rank's rows of every batch: the chain is written once, with the batch of all ranks together.

        Of a batch of B rows rank r of W gets rows r, r + W, r + 2 W, ...: B / W of them, and only these are read and
        decoded. So each rank makes the same number of steps, and the batches of all ranks together are those of a
        loop without ranks, in content and order, whatever W is. One state serves all ranks: it is a number of
        batches, and W may be another where it is loaded.

        It follows `batch` of a chain that can be indexed (`shuffle(gp.ALL)`, not a shuffle buffer); a prefetch may be
        between. Steps behind it run on the rank's own rows.

        Before its first batch a rank waits for the others, and all of them compare what they are about to do: steps,
        batch, functions, options with the seed, files with their sizes, epoch and position. If they differ, each
        raises. Ranks compare through torch.distributed or JAX, where one of them is initialised in this process; else
        nothing is compared, and the log says so. `first()` waits for nobody, and a loop that ended after one element
        does not count as an epoch: a rank may look at a batch before the others start.

        Args:
            rank: of this process, from 0. Default: from torch.distributed or JAX if one of them is initialised, else
                from the variables of a launcher (torchrun, srun, Open MPI, MPICH).
            world: the number of ranks; given together with `rank`.
            remainder: ``"drop"`` leaves out a last batch with fewer than B rows. ``"pad"`` completes it with elements
                from the start of the epoch; `iterator.valid`, bool[B / W], is False for these rows, which a loss or a
                metric has to leave out.
            check: compare the ranks. False waits for nobody.

        Example:
            >>> from gpupipe import Dataset
            >>> ds = Dataset.range(8).batch(4)
            >>> [[batch.tolist() for batch in ds.by_rank(r, 2, check=False)] for r in range(2)]
            [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]

        Raises:
            PlanError: there is no such rank, or nothing says which it is; W does not divide B; no `batch` right before
                it; a step cannot be indexed, names it; ``on_error="skip"``, which moves rows between batches.
            RanksDisagreeError: by `next`, on every rank: names the rank that differs and the part, or the rank that
                did not come.
        """
        if (rank is None) != (world is None):
            raise PlanError(f"by_rank needs rank and world, or none of them, got rank={rank!r} and world={world!r}")
        if remainder not in ("drop", "pad"):
            raise PlanError(f"by_rank needs remainder='drop' or 'pad', got {remainder!r}")
        if not isinstance(check, bool):
            raise PlanTypeError(f"by_rank needs check=True or False, got {check!r}")
        if active_trace() is not None:
            raise PlanError("by_rank needs the chain of the loop, got a dataset inside a function")
        if rank is None or world is None:
            rank, world, said = own_rank()
        else:
            world = integer("by_rank", "world", world, 1)
            rank, said = integer("by_rank", "rank", rank, 0), "the arguments"
        if rank >= world:
            raise PlanError(f"by_rank needs a rank from 0 to {world - 1}, got {rank} from {said}")
        batch, above = self._batch_of_all()
        if batch.size % world:
            less, more = batch.size // world * world, (batch.size // world + 1) * world
            fits = f"{less} or {more}" if less else f"{more}"
            raise PlanError(
                f"by_rank needs a batch that {world} ranks can share, got {batch.describe()} at {batch.line}: it is "
                f"the batch of all ranks together; {fits} rows would do"
            )
        if remainder == "pad" and batch.drop:
            raise PlanError(
                f"by_rank(remainder='pad') needs a last batch to complete, got {batch.describe()} at {batch.line}; "
                "leave drop_remainder out: every batch will be full"
            )
        node: Node = ByRank(batch, world, rank, remainder, check)
        for step in reversed(above):
            node = step.with_sources((node,))
        return self._then(node)

    def _batch_of_all(self) -> tuple[Batch, Sequence[Node]]:
        """The batch that the ranks share, and the prefetches and options behind it, the last one first."""
        if ranks_of(self.plan) is not None:
            raise PlanError("by_rank needs the batches of all ranks, got a chain that has it already")
        if options_of(self.plan).on_error == "skip":
            raise PlanError(SKIPS)
        node, above = without_last_steps(self.plan)
        if not isinstance(node, Batch):
            raise PlanError(
                f"by_rank needs batch right before it, with the rows of all ranks together, got {node.describe()} at "
                f"{node.line}; steps on batches come behind by_rank, and then see the rows of their rank"
            )
        step = blocker(node)
        if step is not None:
            raise PlanError(f"by_rank needs steps that can be indexed, and {why_not(step)}")
        return node, above
