"""ranges: the values that images may have, as far as a plan tells: 0..255 of bytes, and what ops make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...classes import dataclass
from ...graph.arithmetic import Arithmetic
from ...graph.op import Op
from ...graph.values import Apply, Input, Item, Value
from ...ops.convert_image_dtype import LARGEST, ConvertImageDtype
from ...ops.normalize import Normalize
from ...ops.per_image_standardization import PerImageStandardization
from ...plan.batches import Batch, PaddedBatch, Unbatch
from ...plan.node import Node
from ...spec import TensorSpec

__all__ = ["Range", "range_of"]


@dataclass(frozen=True, slots=True)
class Range:
    """The values of an image.

    Attributes:
        low: the smallest that its type and the ops before it allow.
        high: the largest.
        photograph: whether it was decoded as an image in colours, so that values near both ends do come; a gray image
            may be a mask with a few small numbers.
    """

    low: float
    high: float
    photograph: bool = False

    def through(self, function: Callable[[Any], Any]) -> Range:
        """After a monotonic function of the values, one result or one per channel."""
        ends = np.stack([np.asarray(function(end), float) for end in (self.low, self.high)])
        return replace(self, low=float(ends.min()), high=float(ends.max()))

    def __str__(self) -> str:
        return f"{self.low:.4g}..{self.high:.4g}"


def range_of(value: Value, source: Node) -> Range | None:
    """The values of an image; None where it is not certain.

    Args:
        value: in the graph of a map.
        source: the input of that map.
    """
    if isinstance(value, Input):
        below = _leaf(source, value.index)
        return _of_type(value.spec) if below is None else range_of(*below)
    whole = value.value if isinstance(value, Item) else value
    if not isinstance(whole, Apply):
        return _of_type(value.spec)
    op = whole.op
    if op.decodes:
        return _decoded(op, value.spec)
    index = value.index if isinstance(value, Item) and value.index < len(whole.x) else 0
    found = range_of(whole.x[index], source) if whole.x else None
    made = None if found is None else _after(op, found, value.spec, len(whole.x))
    return made or _of_type(value.spec)


def _after(op: Op, x: Range, made: TensorSpec, inputs: int) -> Range | None:
    """The values that an op makes of those of its first input."""
    if isinstance(op, ConvertImageDtype):
        return _converted(op, x)
    if isinstance(op, Normalize):
        mean, std = np.asarray(op.mean, float), np.asarray(op.std, float)
        return x.through(lambda end: (end - mean) / std)
    if isinstance(op, PerImageStandardization):
        return replace(x, low=-2.0, high=2.0)  # of mean 0 and variance 1: a photograph has values on both sides
    if isinstance(op, Arithmetic):
        return _computed(op, x) if inputs == 1 else None
    if op.levels == "unit" and made.dtype in (np.float16, np.float32):
        return replace(x, low=0.0, high=1.0)
    return x if op.levels else None


def _converted(op: ConvertImageDtype, x: Range) -> Range | None:
    source, result = (LARGEST.get(str(np.dtype(dtype))) for dtype in (op.source, op.dtype))
    if source is None or result is None:
        return None
    scaled = x.through(lambda end: end * result / source)
    return scaled if result == 1 else replace(scaled, low=max(scaled.low, 0.0), high=min(scaled.high, float(result)))


def _computed(op: Arithmetic, x: Range) -> Range | None:
    """After ``image (+ - * /) number``, or the number before the image but for the division."""
    number = op.right if op.right is not None else op.left
    if not isinstance(number, (int, float, np.number)) or op.operator not in ("add", "sub", "mul", "truediv"):
        return None
    if op.operator == "truediv" and (op.left is not None or not number):
        return None
    by = float(number)
    functions: dict[str, Callable[[float], float]] = {
        "add": lambda end: end + by,
        "sub": lambda end: end - by if op.left is None else by - end,
        "mul": lambda end: end * by,
        "truediv": lambda end: end / by,
    }
    return x.through(functions[op.operator])


def _decoded(op: Op, made: TensorSpec) -> Range | None:
    found = _of_type(made)
    if found is None:
        return Range(0.0, 1.0, True) if made.dtype == np.float32 else None
    channels = None if made.shape is None else made.shape[-1]
    return replace(found, photograph=channels != 1 and getattr(op, "palette", "colors") == "colors")


def _of_type(spec: TensorSpec) -> Range | None:
    """The values of an array of bytes, or of 16 bits."""
    return Range(0.0, float(np.iinfo(spec.dtype).max)) if spec.dtype in (np.uint8, np.uint16) else None


def _leaf(source: Node, index: int) -> tuple[Value, Node] | None:
    """A leaf of a step's elements as a value in the graph of the map that made it, and that map's input."""
    while source.same_leaves or isinstance(source, (Batch, PaddedBatch, Unbatch)):
        source = source.sources[0]
    return (source.outputs[index], source.sources[0]) if source.outputs else None
