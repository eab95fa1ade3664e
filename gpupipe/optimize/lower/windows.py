"""windows: windows, groups, ragged batches and batches of other sizes into flows.

All of them hold elements, so what is pending is computed before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import PlanError
from ...flow.batching.group_by import Buckets, GroupFlow, Groups
from ...flow.batching.rebatch import RowsFlow
from ...flow.batching.unbatch import UnbatchFlow
from ...flow.batching.windows import Datasets, HeldFlow, WindowFlow
from ...flow.combine.flat_map import FlatMapFlow
from ...flow.combine.inner import Inner
from ...flow.maps.python_function import PythonFunction
from ...plan.node import Element
from ...plan.padding import padding
from ...plan.windows import Bucketed, GroupByWindow, Held, RaggedBatch, Rebatch, Window, ragged_ranks
from ...ragged import RaggedSpec
from ...spec import LEAF, Structure, TensorSpec
from ..pending import Pending
from .inner import DynamicInner
from .registry import lowers

if TYPE_CHECKING:
    from .lowerer import Lowerer

__all__ = []

KEY_AND_GROUP = Element(Structure(tuple, (), (LEAF, LEAF), 2), (TensorSpec((), "int64"), TensorSpec(None, None)))


def placed(lowerer: Lowerer, node: Any, label: str) -> Pending:
    """The input with every leaf computed."""
    return lowerer.placer.place(lowerer.done[id(node.source)], label=label)


def names_of(element: Element) -> tuple[str, ...]:
    """The names of the leaves, for messages."""
    return tuple(element.structure.leaf_names()) if element.structure else ("",)


def datasets_of(lowerer: Lowerer, node: Window | GroupByWindow, element: Element) -> Datasets:
    """What makes datasets of gathered elements of this type."""
    if node.make is None:
        raise PlanError(f"{node.describe()} has nobody who makes its datasets")
    return Datasets(element, node.make, node.fingerprint, node.line)


@lowers(Held)
def _held(lowerer: Lowerer, node: Held) -> Pending:
    return Pending.columns_of(HeldFlow(node.elements, node.base), node.element, (node.describe(),))


@lowers(Window)
def _window(lowerer: Lowerer, node: Window) -> Pending:
    source = placed(lowerer, node, "window")
    datasets = datasets_of(lowerer, node, source.element)
    aligned = id(node) in lowerer.zipped
    flow = WindowFlow(source.flow, node.size, node.shift, node.stride, node.drop, datasets, aligned)
    return Pending.columns_of(flow, node.infer(source.element), (*source.steps, node.describe()))


@lowers(GroupByWindow)
def _group_by_window(lowerer: Lowerer, node: GroupByWindow) -> Pending:
    source = placed(lowerer, node, node.name)
    structure = source.element.structure or LEAF
    size_fn = None if node.size_fn is None else PythonFunction(node.size_fn, LEAF, node.name)
    groups = Groups(
        PythonFunction(node.key, structure, node.name, site=node.name),
        node.size,
        size_fn,
        datasets_of(lowerer, node, source.element),
    )
    reduced = DynamicInner(node, KEY_AND_GROUP, lowerer.lower_inner)
    lowerer.placer.made = lowerer.placer.made or id(node) in lowerer.delivered
    flow = FlatMapFlow(GroupFlow(source.flow, groups), Inner(reduced))
    pending = reduced.batched(lowerer.learned(node, flow, (*source.steps, node.describe()), reduced.learned))
    reduced.expect(pending.element)
    return pending


@lowers(Bucketed)
def _bucketed(lowerer: Lowerer, node: Bucketed) -> Pending:
    source = placed(lowerer, node, node.name)
    element = source.element
    shapes, values, _ = padding(node, element)
    buckets = Buckets(
        PythonFunction(node.length, element.structure or LEAF, node.name, site=node.name),
        node.boundaries,
        node.sizes,
        shapes,
        values,
        names_of(element),
        node.to_boundary,
        node.pad,
        node.drop,
    )
    flow = GroupFlow(source.flow, buckets)
    return Pending.columns_of(flow, node.infer(element), (*source.steps, node.describe()))


@lowers(RaggedBatch)
def _ragged_batch(lowerer: Lowerer, node: RaggedBatch) -> Pending:
    source = placed(lowerer, node, node.name)
    element, ranks = source.element, ragged_ranks(source.element)
    return rows(lowerer, node, source, (node.size,), ranks, (node.splits,) * len(ranks), node.infer(element))


@lowers(Rebatch)
def _rebatch(lowerer: Lowerer, node: Rebatch) -> Pending:
    source = placed(lowerer, node, node.name)
    specs = source.element.specs
    ranks = tuple(1 if isinstance(spec, RaggedSpec) and spec.ragged_rank == 1 else 0 for spec in specs)
    splits = tuple(spec.row_splits_dtype if isinstance(spec, RaggedSpec) else "int64" for spec in specs)
    element = node.infer(source.element)
    source = replace(source, flow=UnbatchFlow(source.flow, names_of(source.element)))
    return rows(lowerer, node, source, node.sizes, ranks, splits, element)


def rows(
    lowerer: Lowerer,
    node: RaggedBatch | Rebatch,
    source: Pending,
    sizes: tuple[int, ...],
    ranks: tuple[int, ...],
    splits: tuple[Any, ...],
    element: Element,
) -> Pending:
    """Rows into batches of type `element`."""
    names = names_of(source.element)
    aligned = id(node) in lowerer.zipped
    flow = RowsFlow(source.flow, sizes, node.drop, ranks, splits, names, node.name, aligned)
    return Pending.columns_of(flow, element, (*source.steps, node.describe()))
