"""windows: the lowering of windows, groups and buckets. They hold elements, so pending values are computed first."""

from __future__ import annotations

from ...flow.batching.group_by import Buckets, GroupFlow, Groups
from ...flow.batching.image_buckets import ImageSizes, SizeBuckets
from ...flow.batching.windows import Datasets, WindowFlow
from ...flow.combine.flat_map import FlatMapFlow
from ...flow.combine.inner import Inner
from ...flow.maps.python_function import PythonFunction
from ...plan.batches import Bucketed
from ...plan.image_buckets import ImageBuckets, image_leaf
from ...plan.node import ElementType, Node
from ...plan.padding import padding
from ...plan.windows import GroupByWindow, Window
from ...spec import LEAF, Structure, TensorSpec
from ..pending import Pending
from .batches import names_of
from .inner import DynamicInner
from .lowerer import Lowerer, Lowering

__all__ = ["WINDOWS"]

KEY_AND_GROUP = ElementType(Structure(tuple, (), (LEAF, LEAF), 2), (TensorSpec((), "int64"), TensorSpec(None, None)))


def window(lowerer: Lowerer, node: Window, source: Pending) -> Pending:
    """Make one dataset for each leaf of a window."""
    source = lowerer.placed(node, source)
    datasets, aligned = Datasets(source.element, node.make, node.fingerprint, node.line), lowerer.zipped(node)
    flow = WindowFlow(source.flow, node.size, node.shift, node.stride, node.drop, datasets, aligned)
    return source.then(flow, node.describe(), node.infer(source.element))


def group_by_window(lowerer: Lowerer, node: GroupByWindow, source: Pending) -> Pending:
    """Give the elements of datasets that a function makes of groups."""
    source = lowerer.placed(node, source)
    key = PythonFunction(node.key, source.element.structure or LEAF, node.name, site=node.name)
    size_fn = None if node.size_fn is None else PythonFunction(node.size_fn, LEAF, node.name)
    groups = Groups(key, node.size, size_fn, Datasets(source.element, node.make, node.fingerprint, node.line))
    reduced = DynamicInner(node, KEY_AND_GROUP, lowerer.made)
    lowerer.placer.made = lowerer.placer.made or lowerer.delivered(node)
    flow = FlatMapFlow(GroupFlow(source.flow, groups), Inner(reduced))
    return Pending.learning(node, flow, (*source.steps, node.describe()), reduced.learns())


def bucketed(lowerer: Lowerer, node: Bucketed, source: Pending) -> Pending:
    """Batch elements of similar length."""
    source = lowerer.placed(node, source)
    element = source.element
    shapes, values, _ = padding(node, element)
    length = PythonFunction(node.length, element.structure or LEAF, node.name, site=node.name)
    how = shapes, values, names_of(element), node.to_boundary, node.pad, node.drop
    flow = GroupFlow(source.flow, Buckets(length, node.boundaries, node.sizes, *how))
    return source.then(flow, node.describe(), node.infer(element))


def image_buckets(lowerer: Lowerer, node: ImageBuckets, source: Pending) -> Pending:
    """Batch images by their size."""
    source = lowerer.placed(node, source)
    element, function, leaf = node.infer(source.element), None, -1
    if node.size is None:
        leaf = image_leaf(source.element)
    else:
        function = PythonFunction(node.size, source.element.structure or LEAF, node.name, site=node.name)
    sizes = ImageSizes(node.name, leaf, node.oriented, function)
    limits = node.sizes, node.rows, node.budget, node.patch
    flow = GroupFlow(source.flow, SizeBuckets(sizes, node.buckets, *limits, names_of(element), node.drop))
    return source.then(flow, node.describe(), element)


WINDOWS: dict[type[Node], Lowering] = {
    Window: window,
    GroupByWindow: group_by_window,
    Bucketed: bucketed,
    ImageBuckets: image_buckets,
}
