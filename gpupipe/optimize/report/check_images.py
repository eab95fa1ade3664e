"""check_images: checks for mistakes with the range and the axes of images; see `checks`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...graph.arithmetic import Arithmetic
from ...graph.values import Apply, Const, Input, Item, Value, topological
from ...ops.convert_image_dtype import ConvertImageDtype
from ...ops.normalize import Normalize
from ...ops.transpose import Transpose
from ...plan.batches import Batch
from ...plan.node import Node
from ...spec import TensorSpec

__all__ = ["channels_first", "image_like", "normalize_of_another_range"]

_CHANNELS = (1, 3, 4)


_KEEP = {
    "cast", "resize", "resize_area", "resize_shorter", "resize_with_crop_or_pad", "random_resized_crop", "random_crop",
    "center_crop", "central_crop", "crop_to_bounding_box", "pad_to_bounding_box", "flip_left_right", "flip_up_down",
    "random_flip_left_right", "random_flip_up_down", "rot90", "slice", "transpose", "rgb_to_grayscale",
    "grayscale_to_rgb", "affine", "random_affine", "rotate", "random_rotation", "perspective",
    "random_perspective", "pad", "resize_with_pad", "random_transform",
    "random_channel_shift",
}  # fmt: skip
"""Ops that keep the range of values; with bicubic or lanczos slightly exceeded."""


_ANY_AXES = {
    "adjust_brightness",
    "adjust_gamma",
    "convert_image_dtype",
    "per_image_standardization",
    "random_brightness",
}
"""Ops on images for which the position of the channel axis does not matter."""


def normalize_of_another_range(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a mean and standard deviation for 0..1 on values of 0..255, or the other way round."""
    for value in _applications(node):
        op = value.op
        if not isinstance(op, Normalize):
            continue
        largest = _largest(value.x[0], node.sources[0])
        mean, std = np.atleast_1d(op.mean).astype(float), np.atleast_1d(op.std).astype(float)
        if largest == 255 and abs(mean).max() <= 1 and std.max() <= 1 and not ((mean == 0).all() and (std == 1).all()):
            wrong, right, factor = "0..255", "0..1", 255.0
            instead = "or scale the values to 0..1 first, with ops.convert_image_dtype(x, 'float32')"
        elif largest == 1 and mean.min() > 1 and std.min() > 1:
            wrong, right, factor = "0..1", "0..255", 1 / 255
            instead = "or keep the values at 0..255"
        else:
            continue
        return (
            f"normalize at {value.line} gets values of {wrong}, and mean {_shown(mean)} and std {_shown(std)} are for "
            f"{right}; write mean={_shown(mean * factor)}, std={_shown(std * factor)}, {instead}"
        )
    return None


def _applications(node: Node) -> Iterator[Apply]:
    yield from (value for value in topological(node.outputs) if isinstance(value, Apply))


def _shown(numbers: Iterable[float]) -> str:
    texts = [f"{number:.6g}" for number in numbers]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _largest(value: Value, source: Node) -> int | None:
    """The upper end of an image's range of values, 255 or 1; None where it is not certain.

    Args:
        value: in the graph of a map.
        source: the input of that map.
    """
    scale = 1.0  # the product of the factors so far
    while value.spec.dtype != np.uint8:
        if isinstance(value, Input):
            below = _leaf(source, value.index)
            if below is None:
                return None
            value, source = below
            continue
        whole = value.value if isinstance(value, Item) else value
        if not isinstance(whole, Apply):
            return None
        op = whole.op
        if isinstance(op, ConvertImageDtype):
            return 1 if np.dtype(op.dtype).kind == "f" and np.dtype(op.source).kind == "u" and scale == 1 else None
        if isinstance(op, Arithmetic):
            factor = _factor(op) if len(whole.x) == 1 else None
            if factor is None:
                return None
            scale *= factor
        elif op.name not in _KEEP:
            return None
        value = whole.x[value.index if isinstance(value, Item) and value.index < len(whole.x) else 0]
    return 255 if scale == 1 else 1 if abs(scale * 255 - 1) < 0.01 else None


def _factor(op: Arithmetic) -> float | None:
    """The number that an image is multiplied by; None for any other arithmetic."""
    number = op.right if op.right is not None else op.left
    if not isinstance(number, (int, float, np.number)) or not number:
        return None
    if op.operator == "truediv":
        return None if op.left is not None else 1 / float(number)
    return float(number) if op.operator == "mul" else None


def _leaf(source: Node, index: int) -> tuple[Value, Node] | None:
    """A leaf of a step's elements as a value in the graph of the map that made it, and that map's input."""
    while source.same_leaves or isinstance(source, Batch):
        source = source.sources[0]
    return (source.outputs[index], source.sources[0]) if source.outputs else None


def channels_first(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find an array {CHW} that an op takes for an image {HWC}."""
    for value in _applications(node):
        op = value.op
        if op.domain != "image" or op.rows == "batch" or op.decodes or op.foreign or op.name in _ANY_AXES:
            continue
        if isinstance(op, Normalize) and not isinstance(op.mean, tuple) and not isinstance(op.std, tuple):
            continue
        if op.takes != "HWC":
            continue
        for x in value.x:
            shape = x.spec.shape
            if x.spec.layout is not None or isinstance(x, Const) or shape is None or len(shape) != 3:
                continue
            first, _, last = shape
            if first in _CHANNELS and last is not None and last not in _CHANNELS:
                needed = "drop it" if isinstance(op, Transpose) else "write x = ops.transpose(x, 'HWC') before it"
                return (
                    f"{op.name} at {value.line} takes an array of shape {list(shape)} for an image {{HWC}} of height "
                    f"{first} with {last} channels, and it looks like {{CHW}}; {needed}, or keep arrays as {{HWC}}"
                )
    return None


def image_like(spec: TensorSpec) -> bool:
    """Whether a leaf looks like an image, by its spec."""
    if type(spec) is not TensorSpec or spec.dtype is None or spec.dtype is bytes or spec.shape is None:
        return False
    return spec.layout is not None or (
        len(spec.shape) == 3 and (spec.shape[0] in _CHANNELS or spec.shape[2] in _CHANNELS)
    )
