"""ranks: the rows of one rank out of the batches that all ranks share; and the elements that workers on Ray make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from ..classes import dataclass
from ..errors import PlanError
from ..options import Options
from .batches import Batch
from .index import Select, Share
from .node import ElementType, Facts, Node, Step, walk
from .order import Repeat, options_of

__all__ = [
    "SKIPS",
    "WORKERS_SKIP",
    "ByRank",
    "FromWorkers",
    "OnRay",
    "handed_to_workers",
    "in_this_process",
    "ranks_of",
    "unchecked",
    "with_own_rows",
    "workers_of",
]

SKIPS = (
    "by_rank needs on_error='raise' or 'replace', got 'skip': rows that are left out would move between the batches of "
    "the ranks, and their numbers of steps would differ"
)

WORKERS_SKIP = (
    "on_ray needs on_error='raise' or 'replace', got 'skip': rows that are left out would move between the batches of "
    "the workers"
)


@dataclass(frozen=True, slots=True, eq=False)
class ByRank(Step):
    """Rows `index`, `index + shards`, ... of every batch of the input, a `Batch`.

    What says which rank this is, and how far all of them are, is not part of a state: one state is that of all ranks.

    Attributes:
        shards: how many ranks there are; they divide the rows of a batch.
        index: this rank.
        remainder: "drop" leaves out a short last batch, "pad" completes it with elements from the start.
        check: whether the ranks compare their chains before the first batch.
        first: elements that all ranks together have had: a multiple of the batch.
    """

    facts = Facts(payload="holds", holds_nothing=True)
    located = ("shards", "index", "check", "first")

    shards: int
    index: int
    remainder: str = "drop"
    check: bool = True
    first: int = 0

    @property
    def batch(self) -> Batch:
        """The batch that all ranks share."""
        assert isinstance(self.source, Batch)
        return self.source

    @property
    def rows(self) -> int:
        """Rows of this rank in every batch."""
        return self.batch.size // self.shards

    @property
    def share(self) -> Share:
        """The elements of this rank."""
        return Share(self.shards, self.index, self.batch.size, self.first, self.remainder == "pad")

    def infer(self, *inputs: ElementType) -> ElementType:
        specs = tuple(spec.row().batched(self.rows) for spec in inputs[0].specs)
        return ElementType(inputs[0].structure, specs, batched=True)

    def _cardinality(self) -> int:
        n = self.batch.source.cardinality
        return n if n < 0 else self.share.size(n) // self.rows

    def describe(self) -> str:
        return f"by_rank(rank={self.index}, world={self.shards}, remainder={self.remainder!r})"


@dataclass(frozen=True, slots=True, eq=False)
class OnRay(Step):
    """The elements of the input, made by workers on Ray: by their numbers, in segments of consecutive ones.

    Where elements are made is not part of a state.

    Attributes:
        workers: how many.
        segment: elements that a worker makes at a time.
        ahead: segments that may be asked for.
        resources: what Ray gives a worker: "CPU" and others.
        max_restarts: how often Ray restarts a worker.
        engine: makes the flow that asks the workers, `gpupipe.on_ray.segments.Engine`.
        first: elements that were given before.
    """

    facts = Facts(payload="reads", holds_nothing=True, as_long=True, keeps_rows=True, work="queue")
    located = ("workers", "segment", "ahead", "resources", "max_restarts", "first")

    workers: int
    segment: int
    ahead: int
    resources: Mapping[str, float]
    max_restarts: int
    engine: Any = field(compare=False)
    first: int = 0

    def _cardinality(self) -> int:
        n = self.source.cardinality
        return n if n < 0 else max(0, n - self.first)

    def describe(self) -> str:
        return f"on_ray(workers={self.workers}, segment={self.segment})"


@dataclass(frozen=True, slots=True, eq=False)
class FromWorkers(Node):
    """What an `OnRay` becomes where it runs: a source. The chain of the workers is a value of it, not an input.

    Attributes:
        chain: what the workers run.
        options: with which options.
        step: the step as it was written.
    """

    facts = Facts(name="on_ray", work="queue")

    chain: Node
    options: Options
    step: OnRay = field(compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.chain.element

    def _cardinality(self) -> int:
        return self.step.cardinality

    def _branch(self, below: int) -> int:
        return self.step.branch

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.step.random_calls

    def describe(self) -> str:
        return self.step.describe()


def ranks_of(root: Node) -> ByRank | None:
    """Find the `by_rank` of a chain."""
    return next((node for node in walk(root) if isinstance(node, ByRank)), None)


def with_own_rows(root: Node) -> Node:
    """A chain whose batches are made of this rank's rows only: batch(n).by_rank() => [rows].batch(n / ranks).

    A bad row is an error of its batch: no row of the next one fills it up.
    """
    if ranks_of(root) is None:
        return root
    done: dict[int, Node] = {}
    for node in walk(root):
        now = node.with_sources([done[id(source)] for source in node.sources]) if node.sources else node
        if isinstance(node, ByRank):
            batch = done[id(node.source)]
            assert isinstance(batch, Batch)
            rows = Select(batch.source, node.share, line=node.line, branch=batch.source.branch)
            now = replace(batch, source=rows, size=node.rows, drop=True, places=True)
        done[id(node)] = now
    return done[id(root)]


def unchecked(root: Node) -> Node:
    """A chain that looks at some elements of this rank, without the other ranks."""
    done: dict[int, Node] = {}
    for node in walk(root) if ranks_of(root) is not None else ():
        now = node.with_sources([done[id(source)] for source in node.sources]) if node.sources else node
        done[id(node)] = replace(now, check=False) if isinstance(now, ByRank) else now
    return done.get(id(root), root)


def workers_of(root: Node) -> OnRay | None:
    """Find the `on_ray` of a chain."""
    return next((node for node in walk(root) if isinstance(node, OnRay)), None)


def in_this_process(root: Node) -> Node:
    """A chain without workers: it makes the same elements itself."""
    done: dict[int, Node] = {}
    for node in walk(root) if workers_of(root) is not None else ():
        now = node.with_sources([done[id(source)] for source in node.sources]) if node.sources else node
        done[id(node)] = now.source if isinstance(now, OnRay) else now
    return done.get(id(root), root)


def handed_to_workers(root: Node, seed: int) -> Node:
    """A chain whose `on_ray` is a source. The rows of a rank are chosen before (`with_own_rows`).

    Args:
        root: the chain.
        seed: of the run; the workers do not know what `set_seed` set here.

    Raises:
        PlanError: `on_ray` is elsewhere than in the one line of steps that the loop runs.
    """
    step = workers_of(root)
    if step is None:
        return root
    above: list[Node] = []
    node = root
    while node is not step:
        if len(node.sources) != 1 or isinstance(node, Repeat):
            raise PlanError(
                f"on_ray needs to be the one source of the steps behind it, got {node.describe()} at {node.line}, "
                f"behind on_ray at {step.line}; let on_ray follow it"
            )
        above.append(node)
        node = node.sources[0]
    if workers_of(step.source) is not None:
        raise PlanError(f"on_ray needs a chain without workers, got two of it, at {step.line}; leave one out")
    options = replace(options_of(root), seed=seed, device="cpu")
    node = FromWorkers(step.source, options, step, line=step.line)
    for one in reversed(above):
        node = one.with_sources((node,))
    return node
