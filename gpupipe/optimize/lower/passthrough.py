"""passthrough: nodes that do not look at values, as steps to be put above a flow or a batch."""

from __future__ import annotations

from typing import Any

from ...errors import PlanError
from ...flow.memory import REFERENCE
from ...flow.order.by_index import shards_of, skipping
from ...flow.order.repeat import RepeatFlow
from ...flow.order.select import TakeFlow
from ...flow.order.shuffle import ShuffleFlow
from ...flow.order.shuffle_by_index import PLACE, ShufflePlacesFlow, can_place
from ...flow.prefetch.prefetch import PrefetchFlow
from ...flow.run import Flow
from ...plan.indexed import blocker
from ...plan.node import Node
from ...plan.steps import WHOLE, Prefetch, Repeat, Shard, Shuffle, Skip, Take
from ..pending import Pending, Step
from ..rules.plan_rules import ShuffleRepeat
from .stall import where

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
        case Shard(source=source, shards=shards, index=index, even=even):
            places = even is not None and blocker(source) is None
            return lambda flow: shards_of(flow, shards, index, even, places)
        case Repeat(source=source, count=count):
            passes = some(source, count)
            return lambda flow: RepeatFlow(flow, passes, where(node))
        case Shuffle(size=size, seed=seed, reshuffle=reshuffle):
            return lambda flow: _shuffled(flow, size, seed, reshuffle)
        case ShuffleRepeat(source=source, size=size, seed=seed, reshuffle=reshuffle, count=count):
            passes = some(source, count)
            return lambda flow: _shuffled(flow, size, seed, reshuffle, passes, where(node))
        case Prefetch(size=0):
            return lambda flow: flow
        case Prefetch(size=size):
            return lambda flow: PrefetchFlow(flow, 2 if size < 0 else size)
        case _:
            raise PlanError(f"{node.describe()} cannot be lowered")


def _shuffled(flow: Flow, *how: Any) -> Flow:
    """A shuffle; over what has places, one that holds these."""
    return (ShufflePlacesFlow if can_place(flow) else ShuffleFlow)(flow, *how)


def some(source: Node, count: int) -> int:
    """How many passes a repeat makes: one over what is known to be empty, were it counted in billions."""
    return 1 if source.cardinality == 0 and count > 1 else count


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
        return f" holding {count} references, about {_most(size, most) * REFERENCE:,} bytes"
    if can_place(source.flow):
        return f" holding {count} places, about {_most(size, most) * PLACE:,} bytes"
    return f" holding {count} elements"


def _most(size: int, most: int) -> int:
    return most if size == WHOLE else size
