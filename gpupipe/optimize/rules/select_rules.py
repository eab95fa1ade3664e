"""select_rules: a choice by index moves below steps that cost something, which then run on chosen elements only."""

from __future__ import annotations

from dataclasses import replace

from ...plan.batches import Batch, PaddedBatch
from ...plan.index import ENDLESS, Order, Rows, Select, Share, Sliced, blocker
from ...plan.node import Node, Step
from ...plan.order import Shard, Skip

__all__ = ["choose_batches", "choose_rows", "makes_all_batches", "sink_selects"]


def choose_batches(node: Node) -> Node | None:
    """batch(n).shard(m, i) => batch(n)[i::m], where batches can be indexed: the others are not made.

    Only under ``on_error="raise"``: otherwise the good rows of a batch with a bad one move to its neighbours, or
    replace that one, so a shard has to look at all batches. A skip may be between them, as in a state of other shards.
    """
    if not isinstance(node, Shard) or makes_all_batches(node) != "":
        return None
    source, first = _skipped(node)
    rounds = Share(node.shards, node.index, node.shards, first)
    order = Sliced(first + node.index, node.shards) if node.even is None else rounds
    return Select(source, order, line=node.line, branch=node.branch)


def makes_all_batches(node: Shard, on_error: str = "raise") -> str | None:
    """Say why a shard of batches makes those of all shards.

    Returns:
        The reason; "" where it makes only its own; None if it is no shard of batches.
    """
    source, _ = _skipped(node)
    batch = source
    while batch.facts.keeps_rows and not isinstance(batch, Batch | PaddedBatch):
        batch = batch.sources[0]
    if not isinstance(batch, Batch | PaddedBatch) or node.shards == 1:
        return None
    step = blocker(source)
    if step is not None:
        return f"{step.describe()} at {step.line} cannot be indexed"
    if on_error == "skip":
        return "on_error='skip' fills up a batch with rows of the next one"
    if on_error == "replace":
        return "on_error='replace' takes the last good row for a bad one, from any batch"
    if node.even == "wrap":
        return "even='wrap' needs the first ones"
    return ""


def _skipped(node: Shard) -> tuple[Node, int]:
    """The input of a shard below a skip, and how many elements that skips."""
    source = node.source
    return (source.source, source.count) if isinstance(source, Skip) and source.count >= 0 else (source, 0)


def sink_selects(node: Node) -> Node | None:
    """map(f)[indices] => [indices].map(f), and likewise for prefetch and with_options."""
    match node:
        case Select(source=Step() as step) if step.facts.keeps_rows and not isinstance(step, Batch | PaddedBatch):
            return replace(step, source=replace(node, source=step.source))
        case _:
            return None


def _in_order(order: Order) -> bool:
    """Whether a short last batch can only be the last one chosen."""
    return (isinstance(order, Sliced) and order.step > 0) or (isinstance(order, Share) and not order.pad)


def _last(order: Sliced) -> int:
    """The largest index of a slice, as far as it does not depend on the input."""
    return max(order.start, order.start + ((order.count or 1) - 1) * order.step)


def choose_rows(node: Node) -> Node | None:
    """batch(n)[indices] => [rows].batch(n), where no batch but the last can be short.

    Not under ``on_error="replace"``: a batch made by itself takes the replacement of a bad row from its own rows.
    """
    match node:
        case Select(source=Batch() | PaddedBatch() as batch, order=order):
            full = batch.drop or (batch.source.cardinality >= 0 and batch.source.cardinality % batch.size == 0)
            if isinstance(order, Sliced) and (_last(order) + 1) * batch.size > ENDLESS:
                return None  # no dataset has rows of such numbers: asking for the batch says so
            if isinstance(order, Sliced) and order.step == 1:
                count = None if order.count is None else order.count * batch.size
                chosen = replace(node, source=batch.source, order=Sliced(order.start * batch.size, 1, count))
            elif not isinstance(order, Rows) and (full or _in_order(order)):
                chosen = replace(node, source=batch.source, order=Rows(order, batch.size, batch.drop))
            else:
                return None
            return replace(batch, source=chosen, places=True)
        case _:
            return None
