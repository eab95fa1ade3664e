"""check_shuffles: checks for shuffle buffers that are too large or too small; see `checks`."""

from __future__ import annotations

from ...flow.buffer_sizes import REFERENCE
from ...flow.order.shuffle_by_index import INDEX_BYTES
from ...plan.batches import Batch, PaddedBatch
from ...plan.files import Records, Samples
from ...plan.index import blocker
from ...plan.node import Node
from ...plan.order import WHOLE, Shuffle
from ...plan.sources import Files, Range, Slices
from ..pending import size_of

__all__ = ["shuffle_holds_all", "small_shuffle"]

MANY = 1_000
"""Elements that a buffer may hold without a finding: the shuffle of a small dataset is not a mistake."""


MUCH = 1 << 24
"""Bytes that a buffer may hold without a finding."""


def shuffle_holds_all(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a buffer that holds every element, which an index makes needless, and which otherwise costs memory."""
    if not isinstance(node, Shuffle) or isinstance(node.source, Files):
        return None
    count, whole = node.cardinality, node.size == WHOLE
    if not whole and not 0 <= count <= node.size:
        return None
    each = _bytes_held(node.source)
    indexed = blocker(node.source) is None
    if not whole and (not indexed or (count < MANY and (each or 0) * count < MUCH)):
        return None
    what = "every element" if count < 0 else f"all {count:,} elements"
    cost = "" if each == 0 else " at their full size," if each is None else f" {each:,} bytes each,"
    if each and count >= 0:
        cost = f" {each * count:,} bytes,"
    text = f"{node.name} holds {what} in memory,{cost} and reads them all before it yields the first one"
    if isinstance(node.source, (Slices, Range)):  # see flow/order/shuffle_by_index.py
        text = f"{node.name} holds the indices of {what}, {INDEX_BYTES * count:,} bytes"
    if indexed:
        return f"{text}; shuffle(gp.ALL) gives a uniform order too, and holds nothing"
    return f"{text}; if that is too much, give it a number of elements, or use shuffle(gp.ALL) where there is an index"


def _bytes_held(node: Node) -> int | None:
    """Bytes that a buffer after this step holds of each element: 0 if it is in memory anyway, None if unknown."""
    while not node.facts.in_memory:
        if isinstance(node.made, Records) and not node.made.compression:
            return REFERENCE
        if isinstance(node.made, Samples) and node.made.by_index:
            return REFERENCE * len(node.made.columns)
        if node.payload == "reads" or not (node.same_leaves or node.outputs):
            return size_of(node.element.specs) if node.element.specs else None
        node = node.sources[0]  # traced maps are computed after the shuffle
    return 0


def small_shuffle(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a buffer of one element, which changes nothing, or one smaller than a batch, which hardly does."""
    if not isinstance(node, Shuffle) or 0 <= node.cardinality <= node.size:
        return None
    if node.size == 1:
        return "shuffle(1) changes nothing: its buffer holds one element; give it thousands, or gp.ALL"
    batch = next((step for step in above if isinstance(step, (Batch, PaddedBatch))), None)
    if batch is not None and node.size < batch.size:
        return (
            f"shuffle({node.size}) has a smaller buffer than the {batch.name}({batch.size}) at {batch.line}: an "
            f"element comes at most {node.size - 1} positions early, less than one batch; give it thousands, or gp.ALL"
        )
    return None
