"""ranges: the values that images may have, as far as a plan tells: 0..255 of bytes, and what ops make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..classes import dataclass
from ..graph.arithmetic import Arithmetic
from ..graph.op import Op
from ..graph.values import Apply, Input, Item, Value
from ..ops.convert_image_dtype import LARGEST, ConvertImageDtype
from ..ops.normalize import Normalize
from ..ops.per_image_standardization import PerImageStandardization
from ..spec import LEAF, TensorSpec
from .batches import Batch, PaddedBatch, Unbatch
from .joins import OneStream, Zip
from .node import Node
from .order import Enumerate

__all__ = ["Range", "kernel_of", "range_of"]


@dataclass(frozen=True, slots=True)
class Range:
    """The values of an image.

    Attributes:
        low: the smallest that its type and the ops before it allow.
        high: the largest.
        photograph: whether it was decoded as an image of three channels, so that values near both ends do come; a gray
            image, or one channel, may be a mask with a few small numbers.
        classes: whether the values are numbers of classes, which have no mean: indices of a palette are "certainly",
            bytes of one channel that are no JPEG "perhaps".
    """

    low: float
    high: float
    photograph: bool = False
    classes: Literal["", "perhaps", "certainly"] = ""

    def through(self, function: Callable[[Any], Any]) -> Range:
        """After a monotonic function of the values, one result or one per channel."""
        ends = np.stack([np.asarray(function(end), float) for end in (self.low, self.high)])
        return replace(self, low=float(ends.min()), high=float(ends.max()), classes="")

    def __str__(self) -> str:
        return f"{self.low:.4g}..{self.high:.4g}"


_Known = dict[tuple[int, int], Range | None]
"""What is found: by the ids of a value and of its map's input, and by index and id for leaves of several inputs."""


def range_of(value: Value, source: Node) -> Range | None:
    """The values of an image; None where it is not certain, and in chains too deep to follow.

    Args:
        value: in the graph of a map.
        source: the input of that map.
    """
    try:
        return _of(value, source, {})
    except RecursionError:  # running such a chain says what to do
        return None


def _of(value: Value, source: Node, known: _Known) -> Range | None:
    """The values of an image; `known` has those of others."""
    key = id(value), id(source)
    if key not in known:
        known[key] = _found(value, source, known)
    return known[key]


def _found(value: Value, source: Node, known: _Known) -> Range | None:
    if isinstance(value, Input):
        return _of_leaf(source, value.index, known) or _of_type(value.spec)
    whole = value.value if isinstance(value, Item) else value
    if not isinstance(whole, Apply):
        return _of_type(value.spec)
    op, inputs = whole.op, whole.x
    if op.decodes or op.decodes_on_host:
        return _decoded(op, value.spec)
    image = value.index if isinstance(value, Item) and value.index < len(inputs) else 0
    if image or isinstance(value, Item):
        inputs = inputs[image : image + 1]  # an image for each of the images
    found = [one for one in (_of(x, source, known) for x in inputs) if one is not None]
    whole_known = found and len(found) == len(inputs)
    made = _after(op, _union(found), value.spec, len(inputs)) if whole_known else None
    if made is not None and made.classes and kernel_of(op, image) != "nearest":
        made = replace(made, classes="")
    if made is not None and made.photograph and op.domain == "any" and not _in_colours(value.spec):
        made = replace(made, photograph=False)  # such a part may be a mask, as masks are stored as colours, too
    return made or _of_type(value.spec)


def kernel_of(op: Op, image: int) -> str:
    """How an op interpolates an image, by its number among those of the call; "nearest" where it moves pixels alone."""
    found = getattr(op, "interpolation", getattr(op, "method", "nearest"))
    return str(found[image] if isinstance(found, tuple) and image < len(found) else found)


def _union(ranges: Sequence[Range]) -> Range:
    """The values of several images together; which of them a part shows is certain only if all are alike."""
    first, *others = ranges
    if all(one == first for one in others):
        return first
    return Range(min(one.low for one in ranges), max(one.high for one in ranges))


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
    if op.name == "cast":
        return _cast(x, made)
    if op.levels == "unit" and made.dtype in (np.float16, np.float32):
        return replace(x, low=0.0, high=1.0)
    return x if op.levels else None


def _cast(x: Range, made: TensorSpec) -> Range | None:
    """After a cast: floats keep the values, integers those that they can hold."""
    if made.dtype is None or made.dtype is bytes:
        return None
    dtype: Any = np.dtype(made.dtype)
    if dtype.kind == "b":
        return Range(0.0, 1.0)
    if dtype.kind not in "iu":
        return x
    limits = np.iinfo(dtype)
    return replace(x, low=max(x.low, float(limits.min)), high=min(x.high, float(limits.max)))


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
    colours = _in_colours(made) and op.name != "decode_png" and getattr(op, "palette", "colors") == "colors"
    if found is None:
        return Range(0.0, 1.0, colours) if made.dtype == np.float32 else None
    if getattr(op, "palette", "colors") == "indices":
        return replace(found, classes="certainly")
    return replace(found, photograph=colours, classes=found.classes if op.name == "decode_png" else "")


def _in_colours(spec: TensorSpec) -> bool:
    axis = "HWC" if spec.layout is None or "C" not in spec.layout else spec.layout
    return spec.shape is not None and len(spec.shape) == len(axis) and spec.shape[axis.index("C")] == 3


def _of_type(spec: TensorSpec) -> Range | None:
    """The values of an array of bytes; samples of 16 bits seldom use all of them."""
    if spec.dtype != np.uint8:
        return None
    return Range(0.0, 255.0, classes="perhaps" if spec.shape is not None and spec.shape[-1:] == (1,) else "")


def _of_leaf(source: Node, index: int, known: _Known) -> Range | None:
    """The values of a leaf of a step's elements; None where no map made it."""
    while True:
        if source.same_leaves or isinstance(source, (Batch, PaddedBatch, Unbatch)):
            source = source.sources[0]
        elif isinstance(source, Enumerate) and index:
            source, index = source.source, index - 1
        elif isinstance(source, Zip):
            source, index = _of_zip(source, index)
        elif source.made is not None:
            source = source.made
        else:
            break
    if not isinstance(source, OneStream):
        return _of(source.outputs[index], source.sources[0], known) if source.outputs else None
    key = index, id(source)
    if key not in known:
        found = [_of_leaf(node, index, known) for node in source.inputs]
        known[key] = _union([one for one in found if one is not None]) if None not in found else None
    return known[key]


def _of_zip(source: Zip, index: int) -> tuple[Node, int]:
    """The input of a zip that a leaf comes from, and the leaf's index in it."""
    for node in source.inputs:
        count = (node.element.structure or LEAF).count
        if index < count:
            break
        index -= count
    return node, index
