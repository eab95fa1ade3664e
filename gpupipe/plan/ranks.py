"""ranks: the rows of one rank out of the batches that all ranks share."""

from __future__ import annotations

from dataclasses import replace

from ..classes import dataclass
from .batches import Batch
from .index import Select, Share
from .node import ElementType, Facts, Node, Step, walk

__all__ = ["SKIPS", "ByRank", "ranks_of", "unchecked", "with_own_rows"]

SKIPS = (
    "by_rank needs on_error='raise' or 'replace', got 'skip': rows that are left out would move between the batches of "
    "the ranks, and their numbers of steps would differ"
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
