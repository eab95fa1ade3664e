"""ranges: the values that images may have, as far as a plan tells: 0..255 of bytes, and what ops make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import PlanError
from ..graph.arithmetic import Arithmetic
from ..graph.op import Op
from ..graph.values import Apply, Input, Item, Value, topological
from ..log import logger
from ..ops.convert_image_dtype import LARGEST, ConvertImageDtype
from ..ops.normalize import Normalize
from ..ops.per_image_standardization import PerImageStandardization
from ..spec import TensorSpec
from .batches import Batch, PaddedBatch, Unbatch
from .node import Node, walk

__all__ = ["Range", "beyond_one", "log_ranges", "normalizations", "range_of", "refuse_certain_ranges"]


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
    """The values of an image; None where it is not certain, and in chains too deep to follow.

    Args:
        value: in the graph of a map.
        source: the input of that map.
    """
    try:
        return _of(value, source, {})
    except RecursionError:  # running such a chain says what to do
        return None


def _of(value: Value, source: Node, known: dict[int, Range | None]) -> Range | None:
    """The values of an image; `known` has those of others of the graph, by their id."""
    if id(value) not in known:
        known[id(value)] = _found(value, source, known)
    return known[id(value)]


def _found(value: Value, source: Node, known: dict[int, Range | None]) -> Range | None:
    if isinstance(value, Input):
        below = _leaf(source, value.index)
        return _of_type(value.spec) if below is None else _of(*below, {})
    whole = value.value if isinstance(value, Item) else value
    if not isinstance(whole, Apply):
        return _of_type(value.spec)
    op, inputs = whole.op, whole.x
    if op.decodes:
        return _decoded(op, value.spec)
    if isinstance(value, Item) and value.index < len(inputs):
        inputs = inputs[value.index : value.index + 1]  # an image for each of the images
    found = [one for one in (_of(x, source, known) for x in inputs) if one is not None]
    whole_known = found and len(found) == len(inputs)
    made = _after(op, _union(found), value.spec, len(inputs)) if whole_known else None
    return made or _of_type(value.spec)


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
    if found is None:
        return Range(0.0, 1.0, True) if made.dtype == np.float32 else None
    channels = None if made.shape is None else made.shape[-1]
    mask = channels == 1 or op.name == "decode_png" or getattr(op, "palette", "colors") != "colors"
    return replace(found, photograph=not mask)


def _of_type(spec: TensorSpec) -> Range | None:
    """The values of an array of bytes; samples of 16 bits seldom use all of them."""
    return Range(0.0, 255.0) if spec.dtype == np.uint8 else None


def _leaf(source: Node, index: int) -> tuple[Value, Node] | None:
    """A leaf of a step's elements as a value in the graph of the map that made it, and that map's input."""
    while source.same_leaves or isinstance(source, (Batch, PaddedBatch, Unbatch)):
        source = source.sources[0]
    return (source.outputs[index], source.sources[0]) if source.outputs else None


def refuse_certain_ranges(node: Node) -> None:
    """Refuse a map that spoils photographs: what the checks of ranges find, where the values come from a decoder.

    Raises:
        PlanError: with the line of the op, and what to write instead.
    """
    for text, certain in (*normalizations(node), *beyond_one(node)):
        if certain:
            raise PlanError(text)


def log_ranges(root: Node) -> None:
    """Log what the checks of ranges find in a chain that is about to run, each once in a process."""
    for node in walk(root):
        for text, _ in (*normalizations(node), *beyond_one(node)):
            logger.warning_once("%s", text)


def normalizations(node: Node) -> Iterator[tuple[str, bool]]:
    """What is wrong with each normalize, and whether its input is a photograph."""
    for value in _applications(node):
        op = value.op
        if not isinstance(op, Normalize) or (values := range_of(value.x[0], node.sources[0])) is None:
            continue
        mean, std = np.atleast_1d(op.mean).astype(float), np.atleast_1d(op.std).astype(float)
        of_bytes, of_unit = (values.low, values.high) == (0, 255), abs(values.high - 1) < 0.01
        if of_bytes and abs(mean).max() <= 1 and std.max() <= 1 and mean.any():
            wrong, right, factor = "0..255", "0..1", 255.0
            instead = "or scale the values to 0..1 first, with ops.convert_image_dtype(x, 'float32')"
        elif of_unit and mean.min() > 1 and std.min() > 1:
            wrong, right, factor = "0..1", "0..255", 1 / 255
            instead = "or keep the values at 0..255"
        else:
            continue
        yield (
            f"normalize at {value.line} gets values of {wrong}, and mean {_shown(mean)} and std {_shown(std)} are for "
            f"{right}; write mean={_shown(mean * factor)}, std={_shown(std * factor)}, {instead}",
            values.photograph,
        )


def beyond_one(node: Node) -> Iterator[tuple[str, bool]]:
    """What is wrong with each op whose floats are 0..1 and that gets others, and whether that is certain."""
    for value in _applications(node):
        op = value.op
        converts = isinstance(op, ConvertImageDtype) and np.dtype(op.dtype).kind == "u"
        if (op.levels != "unit" and not converts) or value.x[0].spec.dtype not in (np.float16, np.float32):
            continue
        values = range_of(value.x[0], node.sources[0])
        if values is None or getattr(op, "clip", True) is False:
            continue
        bytes_, negative = values.high >= _OF_BYTES, values.low < _LEAST
        if not bytes_ and (converts or (values.high <= _MOST and not negative)):
            continue
        if (values.low, values.high) == (0, 255):
            instead = "write ops.cast(x, 'uint8') before it" if not converts else "write ops.cast(x, 'uint8') instead"
        else:
            instead = "write it before what changes the values, or ops.clip(x, 0, 1) before it"
        text = f"{op.name} at {value.line} needs floats of 0..1, got values of {values}; {instead}"
        yield text, values.photograph and (bytes_ or negative)


_LEAST, _MOST = -0.5, 1.5
"""What floats of 0..1 may become on their way: bicubic resizing and sharpening exceed it."""

_OF_BYTES = 100.0
"""A largest value that no brightening of 0..1 gives."""


def _applications(node: Node) -> Iterator[Apply]:
    yield from (value for value in topological(node.outputs) if isinstance(value, Apply))


def _shown(numbers: Iterable[float]) -> str:
    texts = [f"{number:.6g}" for number in numbers]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
