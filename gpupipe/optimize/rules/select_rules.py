"""select_rules: a choice by index moves below steps that cost something, which then run on chosen elements only."""

from __future__ import annotations

from dataclasses import replace

from ...plan.batches import Batch, PaddedBatch
from ...plan.index import Rows, Select, Sliced
from ...plan.node import Node, Step

__all__ = ["choose_rows", "sink_selects"]


def sink_selects(node: Node) -> Node | None:
    """map(f)[indices] => [indices].map(f), and likewise for prefetch and with_options."""
    match node:
        case Select(source=Step() as step) if step.facts.keeps_rows and not isinstance(step, Batch | PaddedBatch):
            return replace(step, source=replace(node, source=step.source))
        case _:
            return None


def choose_rows(node: Node) -> Node | None:
    """batch(n)[indices] => [rows].batch(n), where no batch but the last can be short.

    Not under ``on_error="replace"``: a batch made by itself takes the replacement of a bad row from its own rows.
    """
    match node:
        case Select(source=Batch() | PaddedBatch() as batch, order=order):
            full = batch.drop or (batch.source.cardinality >= 0 and batch.source.cardinality % batch.size == 0)
            if isinstance(order, Sliced) and order.step == 1:
                count = None if order.count is None else order.count * batch.size
                chosen = replace(node, source=batch.source, order=Sliced(order.start * batch.size, 1, count))
            elif not isinstance(order, Rows) and (full or (isinstance(order, Sliced) and order.step > 0)):
                chosen = replace(node, source=batch.source, order=Rows(order, batch.size, batch.drop))
            else:
                return None
            return replace(batch, source=chosen, places=True)
        case _:
            return None
