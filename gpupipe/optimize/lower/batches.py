"""batches: the lowering of steps that make batches and take them apart."""

from __future__ import annotations

from dataclasses import replace

from ...errors import PlanError
from ...flow.run import Flow
from ...plan.batches import Batch, PaddedBatch, RaggedBatch, Rebatch, Unbatch, ragged_ranks
from ...plan.node import ElementType, Node
from ...plan.padding import padding
from ...plan.ranks import ByRank
from ...ragged import RaggedSpec
from ..pending import Pending
from .lowerer import Lowerer, Lowering

__all__ = ["BATCHES", "names_of"]


def names_of(element: ElementType) -> tuple[str, ...]:
    """The names of the leaves, for messages."""
    return tuple(element.structure.leaf_names()) if element.structure else ("",)


def batch(lowerer: Lowerer, node: Batch, source: Pending) -> Pending:
    """Batch rows that stay expressions, to be computed together later."""
    if source.batch is not None or source.unstack:
        source = lowerer.placed(node, source)
    element = node.infer(source.element)
    if lowerer.computes_at_once("map_and_batch"):
        source = lowerer.placer.place(source, label="map")
    elif not source.placed:
        lowerer.placer.count({"map_and_batch": 1})
    aligned = node.places or lowerer.zipped(node)
    steps = (*source.steps, node.describe())
    return replace(source, batch=(node.size, node.drop), aligned=aligned, element=element, steps=steps, line=node.line)


def padded_batch(lowerer: Lowerer, node: PaddedBatch, source: Pending) -> Pending:
    """Pad rows to one shape and stack them."""
    from ...flow.batching.padded import PaddedBatchFlow

    source = lowerer.placed(node, source)
    element = source.element
    shapes, values, _ = padding(node, element)
    aligned = node.places or lowerer.zipped(node)
    flow = PaddedBatchFlow(source.flow, node.size, node.drop, shapes, values, names_of(element), aligned)
    return source.then(flow, node.describe(), node.infer(element))


def unbatch(lowerer: Lowerer, node: Unbatch, source: Pending) -> Pending:
    """Take batches apart."""
    from ...flow.batching.unbatch import UnbatchFlow

    source = lowerer.placed(node, source)
    flow = UnbatchFlow(source.flow, names_of(source.element))
    return source.then(flow, node.describe(), node.infer(source.element))


def ragged_batch(lowerer: Lowerer, node: RaggedBatch, source: Pending) -> Pending:
    """Batch rows of several lengths, end to end."""
    source = lowerer.placed(node, source)
    ranks = ragged_ranks(source.element)
    return _rows(lowerer, node, source, source.flow, (node.size,), ranks, (node.splits,) * len(ranks))


def rebatch(lowerer: Lowerer, node: Rebatch, source: Pending) -> Pending:
    """Put the rows of batches into other batches."""
    from ...flow.batching.unbatch import UnbatchFlow

    source = lowerer.placed(node, source)
    specs = source.element.specs
    ranks = tuple(1 if isinstance(spec, RaggedSpec) and spec.ragged_rank == 1 else 0 for spec in specs)
    splits = tuple(spec.row_splits_dtype if isinstance(spec, RaggedSpec) else "int64" for spec in specs)
    flow = UnbatchFlow(source.flow, names_of(source.element))
    return _rows(lowerer, node, source, flow, node.sizes, ranks, splits)


def _rows(
    lowerer: Lowerer,
    node: RaggedBatch | Rebatch,
    source: Pending,
    rows: Flow,
    sizes: tuple[int, ...],
    ranks: tuple[int, ...],
    splits: tuple[str, ...],
) -> Pending:
    from ...flow.batching.rebatch import RebatchFlow

    names, aligned = names_of(source.element), lowerer.zipped(node)
    flow = RebatchFlow(rows, sizes, node.drop, ranks, splits, names, node.name, aligned)
    return source.then(flow, node.describe(), node.infer(source.element))


def by_rank(lowerer: Lowerer, node: ByRank, source: Pending) -> Pending:
    """Refuse ranks inside of a function: in the chain of a loop they are choices of rows (`with_own_rows`) by now."""
    raise PlanError(f"by_rank needs the chain of the loop, got a dataset inside a function, at {node.line}")


BATCHES: dict[type[Node], Lowering] = {
    Batch: batch,
    ByRank: by_rank,
    PaddedBatch: padded_batch,
    Unbatch: unbatch,
    RaggedBatch: ragged_batch,
    Rebatch: rebatch,
}
