"""to_host: results on a GPU that a step reads on the host, as text for `explain()` and as findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...classes import dataclass
from ...plan.batches import Batch, Bucketed, PaddedBatch, RaggedBatch, Rebatch, Unbatch
from ...plan.cache import Cache
from ...plan.image_buckets import ImageBuckets
from ...plan.maps import Filter, FlatMap, Map, RejectionResample, Scan, TakeWhile, Unique
from ...plan.node import Node, walk
from ...plan.windows import GroupByWindow, Window

__all__ = ["DELIVERY", "ON_ROWS", "PY_FUNCTION", "SIZES", "ToHost", "advice"]

DELIVERY = "elements that are delivered without a batch"


PY_FUNCTION = "ops.py_function"


SIZES = "the sizes of what ops.dali_function gives"


ON_ROWS = "an op on rows after one on batches"
"""The readers of results on the host that are not steps of the chain."""


@dataclass(frozen=True)
class ToHost:
    """Results that are copied from a GPU to the host.

    Attributes:
        gpu: ordinal of the GPU.
        reader: the name of the step that reads them there, or one of the readers above.
        line: ``file:line`` of the reader.
        node: the step; None where the reader is not one.
        each: "batch", "row" (of an input batch) or "element".
        size: bytes of each of these; None if unknown.
    """

    gpu: int
    reader: str
    line: str
    node: Node | None
    each: str
    size: int | None

    def __str__(self) -> str:
        return f"{self.copied} to the host, for {self.reader}{f' at {self.line}' if self.line else ''}"

    @property
    def copied(self) -> str:
        """The amount that is copied, in words."""
        return f"all of each {self.each}" if self.size is None else f"{self.size:,} bytes of each {self.each}"


_PARTS = {
    DELIVERY: "end the chain with batch(...)",
    PY_FUNCTION: "write it with ops, or with ops.dali_function",
    SIZES: "give it a spec with height and width, or same_size=True",
    ON_ROWS: "call the op on batches (mixup, cutmix) after all others",
}


_BATCHES = (Batch, PaddedBatch, RaggedBatch, Rebatch, Unbatch, Window, GroupByWindow, Bucketed, ImageBuckets)


_QUESTIONS = (Filter, TakeWhile, RejectionResample, Scan, Unique)


def advice(copies: Sequence[ToHost], stays: bool) -> Iterator[tuple[ToHost, str]]:
    """Say how to keep results on the GPU, once for each step and reader that copies them needlessly.

    Args:
        copies: the results that stages of a chain copy to the host.
        stays: whether another stage delivers on the GPU.
    """
    for copy in {(copy.line, copy.reader): copy for copy in copies}.values():
        if stays and isinstance(copy.node, Cache) and copy.each == "element":
            continue  # images are decoded once and augmented in every epoch
        what = f"the chain copies {copy.copied} from GPU {copy.gpu} to the host, for {copy.reader}"
        yield copy, f"{what}; {_instead(copy)}"


def _instead(copy: ToHost) -> str:
    node = copy.node
    if copy.reader in _PARTS:
        return _PARTS[copy.reader]
    if isinstance(node, Cache):
        return 'put the cache before the map that makes the images: encoded images are smaller; or cache(device="gpu")'
    if isinstance(node, Map) and node.traced is not None and any(isinstance(below, _BATCHES) for below in walk(node)):
        return "put batch after the map, so that both are computed at once"
    if isinstance(node, Map) and node.traced is not None:
        return "take 'deferral' out of Options(disabled_rules=...)"
    if isinstance(node, Batch) and not node.source.element.batched:
        return "take 'map_and_batch' out of Options(disabled_rules=...)"
    if isinstance(node, Map):
        return "write its function with ops, or call it in the loop"
    if isinstance(node, PaddedBatch | Bucketed) and not node.source.element.batched:
        return "bring the images to one size with ops (resize, crop, pad_to_bounding_box), and write batch"
    if isinstance(node, _BATCHES):
        return "make batches once, with batch, of the size that is wanted"
    if isinstance(node, _QUESTIONS):
        return "put it before the map that makes the images, and let it read the values that exist by then"
    if isinstance(node, FlatMap):
        return "let its function make datasets of undecoded data, and compute images after it"
    return "put it before the map that makes the images"
