"""mistakes: maps that spoil images without an error, found by the values and layouts that a plan knows.

What is certain is refused on the user's line. What is probable is logged once when the chain runs, and `Dataset.check`
finds it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ..errors import PlanError
from ..graph.arithmetic import Arithmetic
from ..graph.values import Apply, Const, Value, topological
from ..log import logger
from ..ops.convert_image_dtype import ConvertImageDtype
from ..ops.normalize import Normalize
from ..ops.transpose import Transpose
from .node import Node, walk
from .ranges import kernel_of, range_of

__all__ = [
    "applications",
    "beyond_one",
    "blended",
    "channels_first",
    "line_of",
    "log_mistakes",
    "normalizations",
    "refuse_certain_mistakes",
    "scales",
]

Found = Iterator[tuple[str, bool]]
"""What is wrong, in words, and whether that is certain."""


def refuse_certain_mistakes(node: Node) -> None:
    """Refuse a map that certainly spoils its images.

    Raises:
        PlanError: with the line of the op, and what to write instead.
    """
    for text, certain in _of(node):
        if certain:
            raise PlanError(text)


def log_mistakes(root: Node) -> None:
    """Log what is found in a chain that is about to run, each once in a process."""
    for node in walk(root):
        for text, _ in _of(node):
            logger.warning_once("%s", text)


def _of(node: Node) -> Found:
    for find in _ALL:
        yield from find(node)


def normalizations(node: Node) -> Found:
    """What is wrong with each normalize, and whether its input is a photograph."""
    for value in applications(node):
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
        elif values.low < 0 and values.high <= _FEW and mean.min() >= 0 < mean.max():
            yield (
                f"normalize {line_of(value, node)} gets values of {values}, which are normalized already; drop it",
                False,
            )
            continue
        else:
            continue
        yield (
            f"normalize {line_of(value, node)} gets values of {wrong}, and mean {_shown(mean)} and std {_shown(std)} "
            f"are for {right}; write mean={_shown(mean * factor)}, std={_shown(std * factor)}, {instead}",
            values.photograph and (of_unit or (std.max() < 1 and mean.min() > 0 and mean.max() < 1)),
        )


def beyond_one(node: Node) -> Found:
    """What is wrong with each op whose floats are 0..1 and that gets others, and whether that is certain."""
    for value in applications(node):
        op = value.op
        converts = isinstance(op, ConvertImageDtype) and np.dtype(op.dtype).kind == "u"
        if (op.levels != "unit" and not converts) or value.x[0].spec.dtype not in (np.float16, np.float32):
            continue
        values = range_of(value.x[0], node.sources[0])
        if values is None or getattr(op, "clip", True) is False:
            continue
        bytes_, negative = values.high >= _OF_BYTES, values.low <= _LEAST
        if not (bytes_ or negative or (values.high > _MOST and not converts)):
            continue
        if (values.low, values.high) == (0, 255):
            instead = "write ops.cast(x, 'uint8') before it" if not converts else "write ops.cast(x, 'uint8') instead"
        else:
            instead = "write it before what changes the values, or ops.clip(x, 0, 1) before it"
        text = f"{op.name} {line_of(value, node)} needs floats of 0..1, got values of {values}; {instead}"
        yield text, values.photograph and (bytes_ or values.low < -0.5)


def channels_first(node: Node) -> Found:
    """Arrays {CHW} that an op takes for images {HWC}: it is probable, but images may have any number of channels."""
    for value in applications(node):
        op = value.op
        if op.ignores_layout or op.takes != "HWC":
            continue
        for x in value.x:
            shape = x.spec.shape
            if x.spec.layout is not None or isinstance(x, Const) or shape is None or len(shape) != 3:
                continue
            first, _, last = shape
            if first in _CHANNELS and last is not None and last not in _CHANNELS:
                needed = "drop it" if isinstance(op, Transpose) else "write x = ops.transpose(x, 'HWC') before it"
                text = (
                    f"{op.name} {line_of(value, node)} takes an array of shape {list(shape)} for an image {{HWC}} of "
                    f"height {first} with {last} channels, and it looks like {{CHW}}; {needed}, or keep arrays as "
                    "{HWC}"
                )
                yield text, False


def scales(node: Node) -> Found:
    """Integers made of floats of 0..1, values of 0..255 that a conversion leaves so, and parts of 1 added to them."""
    for value in applications(node):
        op = value.op
        given = value.x[0].spec.dtype if value.x else None
        if given not in (np.float16, np.float32) or (values := range_of(value.x[0], node.sources[0])) is None:
            continue
        of_bytes = (values.low, values.high) == (0, 255)
        if op.name == "cast" and value.spec.dtype is not None and np.dtype(value.spec.dtype).kind in "iu":
            if values.high <= _FEW and values.low >= -_FEW:
                instead = "write ops.convert_image_dtype(x, 'uint8')" if values.low >= 0 else "keep them as floats"
                text = f"cast {line_of(value, node)} makes integers of values of {values}, which loses the image; "
                yield text + instead, values.photograph and (values.low, values.high) == (0, 1) and _scales(value.x[0])
        elif isinstance(op, ConvertImageDtype) and np.dtype(op.dtype).kind == "f" and of_bytes:
            yield (
                f"convert_image_dtype {line_of(value, node)} leaves values of 0..255 as they are: it scales integers "
                "alone; write it before what makes floats of them, or x / 255",
                False,
            )
        elif of_bytes and 0 < abs(number := _number(getattr(op, _ADDS.get(op.name, ""), None))) <= 1:
            yield (
                f"{op.name} {line_of(value, node)} adds at most {number:g} to floats of 0..255, "
                "which nobody sees; write it before what makes floats of integers, of which 1 is the whole range",
                False,
            )


def _scales(value: Value) -> bool:
    """Whether a value is a number times another one: what else makes 0..1 may leave only a few numbers to be cast."""
    op = value.op if isinstance(value, Apply) else None
    return isinstance(op, ConvertImageDtype) or (isinstance(op, Arithmetic) and op.operator in ("truediv", "mul"))


def _number(value: object) -> float:
    """A plain number; 0 for a traced one."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def blended(node: Node) -> Found:
    """What is wrong with each op that blends numbers of classes, and whether that is certain.

    Without a palette it is a guess, which is made for an image of one channel beside one of three alone.
    """
    for value in applications(node):
        op, count = value.op, getattr(value.op, "images", 1)
        images = value.x[:count]
        for n, image in enumerate(images):
            kernel = kernel_of(op, n)
            if kernel == "nearest" or (found := range_of(image, node.sources[0])) is None or not found.classes:
                continue
            if found.classes != "certainly" and not any(x.spec.shape and x.spec.shape[-1] == 3 for x in images):
                continue
            name, which = ("method" if hasattr(op, "method") else "interpolation"), '"nearest"'
            if count > 1:
                which = f"({', '.join(repr('nearest' if i == n else kernel_of(op, i)) for i in range(count))})"
            what = f"image {n + 1} of {count}" if count > 1 else "an image"
            what += ", the indices of a palette" if found.classes == "certainly" else ", of one channel"
            certain = found.classes == "certainly"
            text = f"{op.stage} {line_of(value, node)} blends {what}, by {kernel!r}: numbers of classes would become "
            yield text + f"others; write {name}={which}" + ("" if certain else ", if it is a mask"), certain


_LEAST, _MOST = -0.4, 1.5
"""What floats of 0..1 may become on their way: bicubic resizing and sharpening exceed it, and so does brightness."""

_OF_BYTES = 100.0
"""A largest value that no brightening of 0..1 gives."""


def line_of(value: Apply, node: Node) -> str:
    """Where the call of an op is, in words; an op that is handed to the map itself has the line of the map."""
    return f"at {value.line or node.line}"


def applications(node: Node) -> Iterator[Apply]:
    """The calls of ops in the graph of a map."""
    yield from (value for value in topological(node.outputs) if isinstance(value, Apply))


def _shown(numbers: Iterable[float]) -> str:
    texts = [f"{number:.6g}" for number in numbers]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


_CHANNELS = (1, 3, 4)

_ADDS = {"adjust_brightness": "delta", "random_brightness": "max_delta"}
"""Ops that add a number to each value, and the names of their fields with it."""

_FEW = 4.0
"""A largest value of images as floats of 0..1 and normalized ones."""

_ALL: tuple[Callable[[Node], Found], ...] = (normalizations, beyond_one, blended, channels_first, scales)
