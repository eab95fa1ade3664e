"""order: the lowering of steps that pass elements of their input on unchanged, or with a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...flow.buffer_sizes import REFERENCE
from ...flow.order.repeat import RepeatFlow
from ...flow.order.select import EnumerateFlow, TakeFlow
from ...flow.order.shuffle import ShuffleFlow
from ...flow.order.shuffle_by_index import INDEX_BYTES, ShuffleByIndexFlow, has_cheap_index
from ...flow.prefetch.prefetch import PrefetchFlow
from ...flow.run import Flow
from ...plan.index import Rows, Select, asked_of, blocker
from ...plan.node import Node
from ...plan.order import WHOLE, Enumerate, Prefetch, Repeat, Shard, Shuffle, Skip, Take, WithOptions
from ...spec import TensorSpec
from ..pending import AHEAD, Pending
from ..rules.plan_rules import ShuffleRepeat
from ..rules.select_rules import makes_all_batches
from .lowerer import Lowerer, Lowering
from .stall import where

__all__ = ["ORDER"]


def over(make: Callable[[Any, Flow], Flow]) -> Lowering:
    """The lowering of a step that reads no values, by a function of its node and the flow below it."""

    def lower(lowerer: Lowerer, node: Node, source: Pending) -> Pending:
        return source.through(lambda flow: make(node, flow), node.describe())

    return lower


def skipped(node: Skip, flow: Flow) -> Flow:
    """All but the first elements; none of them for a negative count."""
    from ...flow.order.skip_by_index import skipping

    return TakeFlow(flow, 0) if node.count < 0 else skipping(flow, node.count, where(node))


def shard(lowerer: Lowerer, node: Shard, source: Pending) -> Pending:
    """Every n-th element."""
    from ...flow.order.skip_by_index import shards_of

    indexed = node.even is not None and blocker(node.source) is None
    why = makes_all_batches(node, lowerer.settings.on_error)
    if why == "":
        why = "the rule choose_batches is disabled"
    text = node.describe() + (f" of all batches, which it makes: {why}" if why else "")
    return source.through(lambda flow: shards_of(flow, node.shards, node.index, node.even, indexed), text)


def select(lowerer: Lowerer, node: Select, source: Pending) -> Pending:
    """Elements by their indices."""
    from ...flow.order.asked import BATCHES_AHEAD, PLACES_AHEAD, AskedFlow
    from ...flow.order.select_by_index import SelectFlow

    order = node.order
    if (asked := asked_of(order)) is not None:
        rows = order.rows if isinstance(order, Rows) else 1
        ahead = BATCHES_AHEAD if isinstance(order, Rows) or node.element.batched else PLACES_AHEAD
        text = f"{node.describe()} by an index, as their places come"
        return source.through(lambda flow: AskedFlow(flow, asked, rows, ahead, where(node)), text)
    return source.through(lambda flow: SelectFlow(flow, node.order), f"{node.describe()} by an index, nothing is held")


def enumerate_(lowerer: Lowerer, node: Enumerate, source: Pending) -> Pending:
    """Add a column of numbers before the others."""
    source = lowerer.flat(node, source)
    flow = EnumerateFlow(source.flow, node.start)
    return source.with_first(flow, TensorSpec((), "int64"), node.describe(), node.infer(source.element))


def passes(node: Repeat | ShuffleRepeat) -> int:
    """How many passes a repeat makes: one over an input known to be empty, even if billions were asked for."""
    return 1 if node.source.cardinality == 0 and node.count > 1 else node.count


def shuffle(lowerer: Lowerer, node: Shuffle | ShuffleRepeat, source: Pending) -> Pending:
    """Shuffle through a buffer, which holds indices where the input has a cheap index."""
    how: tuple[Any, ...] = (node.size, node.seed, node.reshuffle)
    if isinstance(node, ShuffleRepeat):
        how = (*how, passes(node), where(node))
    return source.through(
        lambda flow: (ShuffleByIndexFlow if has_cheap_index(flow) else ShuffleFlow)(flow, *how),
        node.describe() + buffer_text(node, source),
    )


def buffer_text(node: Shuffle | ShuffleRepeat, source: Pending) -> str:
    """The contents of a shuffle buffer, for `explain()`."""
    size, most = node.size, node.source.cardinality
    if size == WHOLE and most < 0:
        each = f" as references, about {REFERENCE} bytes each" if source.references else ""
        return f" holding all {'batches' if source.batch is not None or source.unstack else 'elements'}{each}"
    count = f"all {most}" if size == WHOLE else f"{size}"
    number = most if size == WHOLE else size
    if source.batch is not None or source.unstack:
        return f" holding {count} batches"
    if source.references:
        return f" holding {count} references, about {number * REFERENCE:,} bytes"
    if has_cheap_index(source.flow):
        return f" holding {count} indices, about {number * INDEX_BYTES:,} bytes"
    return f" holding {count} elements"


def prefetch(lowerer: Lowerer, node: Prefetch, source: Pending) -> Pending:
    """Make elements ahead; batches whose rows are pending wait in their stage instead."""
    if source.batch is not None and not source.above:
        ready = max(source.ready, AHEAD if node.size < 0 else node.size)
        return replace(source, ready=ready, steps=(*source.steps, node.describe()))
    size, tuned = lowerer.number(node, node.size, AHEAD)
    return source.through(lambda flow: PrefetchFlow(flow, size, where(node), tuned) if size else flow, node.describe())


ORDER: dict[type[Node], Lowering] = {
    Take: over(lambda node, flow: TakeFlow(flow, node.count)),
    Skip: over(skipped),
    Shard: shard,
    Select: select,
    Enumerate: enumerate_,
    Repeat: over(lambda node, flow: RepeatFlow(flow, passes(node), where(node))),
    Shuffle: shuffle,
    ShuffleRepeat: shuffle,
    Prefetch: prefetch,
    WithOptions: lambda lowerer, node, source: source,  # options are read before a chain is lowered
}
