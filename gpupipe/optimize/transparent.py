"""transparent: nodes that do not look at values, as steps to be put above a flow or a batch."""

from __future__ import annotations

from ..errors import PlanError
from ..flow.buffers import PrefetchFlow
from ..flow.elements import RepeatFlow, TakeFlow
from ..flow.indexed import shards_of, skipping
from ..flow.memory import REFERENCE
from ..flow.shuffle import ShuffleFlow
from ..plan.node import Node
from ..plan.steps import WHOLE, Prefetch, Repeat, Shard, Shuffle, Skip, Take
from .pending import Pending, Step
from .rules import ShuffleRepeat
from .watching import where

__all__ = ["held", "transparent_step"]


def transparent_step(node: Node) -> Step:
    """What a node does to a flow.

    Raises:
        PlanError: the node looks at values.
    """
    match node:
        case Take(count=count):
            return lambda flow: TakeFlow(flow, count)
        case Skip(count=count) if count < 0:
            return lambda flow: TakeFlow(flow, 0)
        case Skip(count=count):
            return lambda flow: skipping(flow, count, where(node))
        case Shard(shards=shards, index=index):
            return lambda flow: shards_of(flow, shards, index)
        case Repeat(count=count, number=number):
            return lambda flow: RepeatFlow(flow, count, number)
        case Shuffle(size=size, seed=seed, reshuffle=reshuffle):
            return lambda flow: ShuffleFlow(flow, size, seed, reshuffle)
        case ShuffleRepeat(size=size, seed=seed, reshuffle=reshuffle, count=count, number=number):
            return lambda flow: ShuffleFlow(flow, size, seed, reshuffle, count, number)
        case Prefetch(size=0):
            return lambda flow: flow
        case Prefetch(size=size):
            return lambda flow: PrefetchFlow(flow, 2 if size < 0 else size)
        case _:
            raise PlanError(f"{node.describe()} cannot be lowered")


def held(node: Node, source: Pending) -> str:
    """What the buffer of a shuffle holds, for `explain()`; nothing for other nodes."""
    if not isinstance(node, Shuffle | ShuffleRepeat):
        return ""
    size, most = node.size, node.source.cardinality
    if size == WHOLE and most < 0:
        each = f" as references, about {REFERENCE} bytes each" if source.references else ""
        return f" holding all {'batches' if source.batch is not None or source.unstack else 'elements'}{each}"
    count = f"all {most}" if size == WHOLE else f"{size}"
    if source.batch is not None or source.unstack:
        return f" holding {count} batches"
    if source.references:
        return f" holding {count} references, about {min(size, most if size == WHOLE else size) * REFERENCE:,} bytes"
    return f" holding {count} elements"
