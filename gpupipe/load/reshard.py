"""reshard: a state of one of N shards goes on in one of M, where every shard stopped at the same element of the whole.

``ds.shard(N, i)`` gives every N-th element. Once each of the N ranks was given k of them, the first N * k elements of
the whole were given, and any number of ranks can share what is left: M of them go on with ``skip(N * k)`` and every
M-th element. That needs a chain that holds nothing behind `shard`, and one place in which all ranks stopped. Shards of
one size (`even=`) are made of what is left: M of them leave out, or wrap around, what does not divide by M.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import StateError
from ..plan.batches import Batch, PaddedBatch
from ..plan.node import Node
from ..plan.order import Shard, Skip
from ..plan.outline import outline

__all__ = ["Sharding", "begun", "one_of", "resharded", "sharding"]


@dataclass(frozen=True, slots=True)
class Sharding:
    """The `shard` of a chain.

    Attributes:
        node: the step.
        rows: elements of it in one element of the chain, a short last batch aside.
        above: the steps behind it, the last one first.
    """

    node: Shard
    rows: int
    above: tuple[Node, ...]


def sharding(plan: Node) -> Sharding | None:
    """The `shard` of a chain, if nothing behind it holds or drops elements."""
    rows = 1
    above: list[Node] = []
    node = plan
    while not isinstance(node, Shard):
        if not node.facts.keeps_rows:
            return None
        if isinstance(node, (Batch, PaddedBatch)):
            rows *= node.size
        above.append(node)
        node = node.sources[0]
    return Sharding(node, rows, tuple(above))


def _with(found: Sharding, node: Node) -> Node:
    """The chain with another step in the place of its `shard`."""
    for step in reversed(found.above):
        node = step.with_sources((node,))
    return node


def begun(plan: Node, first: int) -> Node:
    """The chain without the first elements of the whole; which of the others are this shard's does not change.

    Args:
        plan: with a `shard`.
        first: how many elements of the whole are left out.
    """
    found = sharding(plan)
    if found is None:
        raise StateError("load_state_dict needs a chain with shard(), and maps, batches and prefetch behind it")
    shard = found.node
    rest = Skip(shard.source, first, line=shard.line)
    return _with(found, replace(shard, source=rest, index=(shard.index - first) % shard.shards))


def resharded(plan: Node, state: Any) -> int | str | None:
    """Where the whole stands, in elements, by a state of this chain in other shards.

    A chain may name the number of shards in one step only, `shard`: what is left is shared out in other steps, too.

    Returns:
        How many elements of the whole were given; why they cannot be shared out again, in words; None where the state
        is of these shards, or of another chain.
    """
    found, given = sharding(plan), state.get("shard") if isinstance(state, dict) else None
    match given:
        case {"shards": int(shards), "index": int(index), "elements": elements} if found is not None:
            mine = found.node
        case _:
            return None
    if (shards, index) == (mine.shards, mine.index) or not 0 <= index < shards:
        return None
    other, theirs = outline(_with(found, replace(mine, shards=shards, index=index))), state.get("steps")
    if not isinstance(theirs, list) or len(theirs) != len(other.steps):
        return None
    for i, (step, was) in enumerate(zip(other.steps, theirs, strict=True)):
        if list(step) != was:
            return _other_step(plan, found, i, str(was[0]), step[0], shards)
    if type(elements) is not int or elements < 0:
        return (
            f"load_state_dict needs a state that says how far all shards were, to go on in shard {mine.index} of "
            f"{mine.shards}, got one of shard {index} of {shards} whose epoch had bad elements: their places are not "
            f'shared out; use on_error="replace", which keeps every count'
        )
    return elements


def _other_step(plan: Node, found: Sharding, i: int, was: str, text: str, shards: int) -> str:
    """Which step makes a state of other shards one of another chain."""
    mine = outline(plan)
    what = f"step {i + 1} was {was}, where this one has {mine.steps[i][0]} (at {mine.lines[i]})"
    if not (was.startswith("take(") and text.startswith("take(")):
        return f"load_state_dict needs a state of this chain, in other shards of it at most, got one whose {what}"
    return (
        f"load_state_dict needs a take that does not depend on the number of shards, to go on in shard "
        f"{found.node.index} of {found.node.shards} behind one of {shards}: {what}; leave the take out and write "
        f"shard({found.node.shards}, {found.node.index}, even='drop')"
    )


def one_of(states: Any) -> Any:
    """A state out of those of all shards, which must have stopped at the same element of the whole.

    Raises:
        StateError: they are not all of the shards, or stopped at several places.
    """
    if not isinstance(states, (list, tuple)):
        return states
    shards = [state.get("shard") if isinstance(state, dict) else None for state in states]
    if not states or not all(isinstance(shard, dict) for shard in shards):
        raise StateError("load_state_dict needs one state, or a list of the states of all shards of one chain")
    parts = [(shard.get("shards"), shard.get("index"), shard.get("elements")) for shard in shards if shard]
    counts, places = {part[0] for part in parts}, {part[2] for part in parts}
    if counts != {len(parts)} or {part[1] for part in parts} != set(range(len(parts))):
        raise StateError(
            f"load_state_dict needs the states of all shards, each once, got those of shards "
            f"{[part[1] for part in parts]} of {sorted(counts, key=str)}"
        )
    if len(places) > 1:
        raise StateError(
            f"load_state_dict needs shards that all stopped at the same element of the whole, got them at "
            f"{sorted(places, key=str)}; save the states after the same step on every rank"
        )
    return states[0]
