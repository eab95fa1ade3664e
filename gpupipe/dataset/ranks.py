"""ranks: who makes the elements of a `Dataset`: each rank its rows of the batches that all share; workers on Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..arguments import integer
from ..brief import brief
from ..errors import PlanError, PlanTypeError
from ..graph.symbols import active_trace
from ..integers import plain
from ..plan.arrival import any_order
from ..plan.batches import Batch
from ..plan.index import blocker, why_not
from ..plan.node import Node
from ..plan.order import options_of, without_last_steps
from ..plan.ranks import SKIPS, WORKERS_SKIP, ByRank, OnRay, ranks_of, with_own_rows, workers_of
from ..ranks.find import own_rank
from .base import Chain

if TYPE_CHECKING:
    from .. import Dataset

__all__ = ["Ranks"]


class Ranks(Chain):
    """Ranks that train together, and workers on Ray."""

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

    def on_ray(
        self,
        workers: int,
        segment: int = 4,
        ahead: int | None = None,
        num_cpus: float = 1,
        resources: Mapping[str, float] | None = None,
        max_restarts: int = 10,
    ) -> Dataset:
        """Let workers on Ray, on this machine or others, make the elements so far; steps behind it run here.

        The elements, their bytes and order are those of the chain without it, in every epoch: element i is what
        ``ds[i]`` gives, whichever worker makes it. Ray starts the workers, brings what they made, restarts them and
        makes again what was lost with a worker or a node; each element comes once. A state is the number of elements
        that were given: it can be loaded with another number of workers, without `on_ray`, or in `by_rank`.

        It follows `batch`, so that whole batches travel, in a chain that can be indexed (`shuffle(gp.ALL)`). Call
        ``ray.init()`` before the loop. The workers need gpupipe and the files under the same paths, and compute images
        on their CPUs. They wait for the next loop, and end with the dataset. Arrays that no step behind `on_ray` has
        made lie in Ray's shared memory, and are read-only.

        Args:
            workers: how many, >= 1.
            segment: consecutive elements that a worker makes at a time, >= 1.
            ahead: segments that may be asked for; default ``2 * workers``. Ray's memory holds at most
                ``(ahead + 1) * segment`` elements.
            num_cpus: CPUs of a worker, as Ray counts them; its threads are as many.
            resources: other resources of Ray that a worker needs, e.g. ``{"data_node": 1}``.
            max_restarts: how often Ray restarts a worker before the loop looks whether there is progress.

        A bad element under ``on_error="raise"`` raises here, and the next `next` gives the element behind it: of a
        batch with a bad row, as in ``ds[i]``, the next batch.

        Raises:
            PlanError: a step cannot be indexed, or gives what is ready first; ``on_error="skip"``; no Ray cluster is
                connected when the loop starts.
            MissingDependencyError: by `next`: Ray is not installed.
            WorkersLostError: by `next`: a worker died after all its restarts without an element in between.
            WorkersDisagreeError: by `next`: a worker has other files, functions, or another version of gpupipe.
        """
        workers, segment = integer("on_ray", "workers", workers, 1), integer("on_ray", "segment", segment, 1)
        ahead = 2 * workers if ahead is None else integer("on_ray", "ahead", ahead, 1)
        max_restarts = integer("on_ray", "max_restarts", max_restarts, 0)
        given = _resources(num_cpus, resources)
        if active_trace() is not None:
            raise PlanError("on_ray needs the chain of the loop, got a dataset inside a function")
        if workers_of(self.plan) is not None:
            raise PlanError("on_ray needs a chain without workers, got one that has them already")
        if options_of(self.plan).on_error == "skip":
            raise PlanError(WORKERS_SKIP)
        step = blocker(with_own_rows(self.plan))
        if step is not None:
            raise PlanError(f"on_ray needs steps that can be indexed, and {why_not(step)}")
        first = any_order(self.plan, options_of(self.plan).deterministic is not False)
        if first is not None:
            raise PlanError(
                f"on_ray needs elements in one order, got {first.describe()} at {first.line}, which gives what is "
                "ready first; use deterministic=True"
            )
        from ..on_ray.segments import Engine

        return self._then(OnRay(self.plan, workers, segment, ahead, given, max_restarts, Engine()))

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


def _resources(num_cpus: Any, resources: Any) -> dict[str, float]:
    """What Ray gives a worker.

    Raises:
        PlanError: a number below 0.
        PlanTypeError: something other than numbers by name.
    """
    if resources is not None and not isinstance(resources, Mapping):
        raise PlanTypeError(f"on_ray needs resources as a dict of numbers, got {brief(resources)}")
    found: dict[str, float] = {}
    for name, count in {"CPU": num_cpus, **(resources or {})}.items():
        number = plain(count)
        if not isinstance(name, str) or isinstance(number, bool) or not isinstance(number, int | float):
            raise PlanTypeError(f"on_ray needs numbers of CPUs and resources, got {brief({name: count})}")
        if not 0 <= number < 1 << 31:
            raise PlanError(f"on_ray needs numbers of CPUs and resources >= 0, got {number} of {name!r}")
        found[name] = number
    if resources and {"CPU", "GPU", "memory"} & set(resources):
        raise PlanError(f"on_ray needs resources that you named yourself, got {sorted(resources)}; CPUs are num_cpus")
    return found
