"""reshard: resuming a state of N shards with M shards, if all shards stopped at the same element.

``ds.shard(N, i)`` gives every N-th element. Once each of the N ranks has got k of them, the first N * k elements of
the whole dataset were given, and any number of ranks can share the rest: M of them continue with ``skip(N * k)`` and
every M-th element. That needs a chain that holds no elements after `shard`, and ranks that all stopped after the same
number of elements. Under `even=`, the rest is dropped or wrapped around so that M shards have the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..classes import dataclass
from ..errors import StateError
from ..flow.state.snapshot import as_int
from ..plan.batches import Batch, PaddedBatch
from ..plan.node import Node
from ..plan.order import Shard, Skip
from ..plan.outline import Outline, outline
from ..plan.ranks import ByRank, ranks_of
from .by_place import Unfit

__all__ = ["Sharding", "check_shards", "resharded", "sharding", "without_first"]


@dataclass(frozen=True, slots=True)
class Sharding:
    """The `shard` of a chain, or its `by_rank`.

    Attributes:
        node: the step.
        rows: its elements in one element of the chain, except in a short last batch.
        above: the steps after it, the last one first.
    """

    node: Shard | ByRank
    rows: int
    above: tuple[Node, ...]


def sharding(plan: Node) -> Sharding | None:
    """Find the `shard` of a chain, if no step after it holds or drops elements."""
    rows = 1
    above: list[Node] = []
    node = plan
    while not isinstance(node, Shard | ByRank):
        if not node.facts.keeps_rows:
            return None
        if isinstance(node, (Batch, PaddedBatch)):
            rows *= node.size
        above.append(node)
        node = node.sources[0]
    if isinstance(node, ByRank):
        rows *= node.rows
    return Sharding(node, rows, tuple(above))


def _with(found: Sharding, node: Node) -> Node:
    """Replace the `shard` of a chain."""
    for step in reversed(found.above):
        node = step.with_sources((node,))
    return node


def without_first(plan: Node, first: int) -> Node:
    """Remove the first elements of the whole dataset; which of the others belong to this shard does not change.

    Args:
        plan: a chain with a `shard`.
        first: how many elements of the whole dataset to remove.
    """
    found = sharding(plan)
    if found is None:
        raise StateError("load_state_dict needs a chain with shard(), and only maps, batches and prefetch after it")
    shard = found.node
    if isinstance(shard, ByRank):
        return _with(found, replace(shard, first=first))
    rest = Skip(shard.source, first, line=shard.line)
    return _with(found, replace(shard, source=rest, index=(shard.index - first) % shard.shards))


def resharded(plan: Node, state: dict[str, Any], ranks: bool = False, signing: Sequence[str] = ()) -> int | str | None:
    """Compare a state with this chain in other shards.

    Only the `shard` step of the chain may depend on the number of shards.

    Args:
        plan: the chain.
        state: the state.
        ranks: whether `by_rank` is a step of the state.
        signing: `Options.signing_parameters`.

    Returns:
        How many elements of the whole dataset were given; or an error message, if the rest cannot be shared out again;
        None if the state belongs to the same shard, or to another chain.
    """
    found, given = sharding(plan), state["shard"]
    if given is None:
        return None
    if found is None:
        node = ranks_of(plan)
        if node is None or (given["shards"], given["index"]) == (node.shards, node.index):
            return None
        return (
            "load_state_dict needs a state of this rank and of as many ranks, as steps other than maps, batches and "
            f"prefetch follow by_rank: got one of rank {given['index']} of {given['shards']} on rank {node.index} of "
            f"{node.shards}"
        )
    mine, shards, index, elements = found.node, given["shards"], given["index"], given["elements"]
    if (shards, index) == (mine.shards, mine.index):
        return None
    other, theirs = outline(_with(found, replace(mine, shards=shards, index=index)), ranks, signing), state["steps"]
    if not isinstance(theirs, list) or len(theirs) != len(other.steps):
        return None
    for i, (step, was) in enumerate(zip(other.steps, theirs, strict=True)):
        if list(step) != was:
            return _other_step(outline(plan, ranks), found, i, str(was[0]), step[0], shards)
    if elements is None:
        return (
            f"load_state_dict needs a state that says how far all shards were, to continue in shard {mine.index} of "
            f"{mine.shards}, got one of shard {index} of {shards} whose epoch had bad elements, so its count does not "
            f'tell how far it was; use on_error="replace", which keeps every count'
        )
    return as_int(elements, "elements")


def _other_step(mine: Outline, found: Sharding, i: int, was: str, text: str, shards: int) -> str:
    """Explain which step of a state of other shards differs from this chain."""
    what = f"step {i + 1} was {was}, where this one has {mine.steps[i][0]} (at {mine.lines[i]})"
    if not (was.startswith("take(") and text.startswith("take(")):
        return f"load_state_dict needs a state of this chain, or of other shards of it, got one whose {what}"
    return (
        f"load_state_dict needs a take that does not depend on the number of shards, to continue in shard "
        f"{found.node.index} of {found.node.shards} after one of {shards}: {what}; leave the take out and write "
        f"shard({found.node.shards}, {found.node.index}, even='drop')"
    )


def check_shards(states: list[dict[str, Any]]) -> None:
    """Check that states are those of all shards, which stopped at the same element of the whole dataset.

    Raises:
        StateError: they are not those of all shards, or the shards stopped at different elements.
    """
    shards = [state["shard"] for state in states]
    if not shards or None in shards:
        raise StateError("load_state_dict needs one state, or a list of the states of all shards of one chain")
    indices = [shard["index"] for shard in shards]
    counts, elements = {shard["shards"] for shard in shards}, {shard["elements"] for shard in shards}
    if counts != {len(shards)} or set(indices) != set(range(len(shards))):
        raise Unfit(
            f"load_state_dict needs the states of all shards, each once, got those of shards {indices} of "
            f"{sorted(counts, key=str)}"
        )
    if len(elements) > 1:
        raise Unfit(
            f"load_state_dict needs shards that all stopped at the same element of the whole dataset, got them at "
            f"{sorted(elements, key=str)}; save the states after the same step on every rank"
        )
