"""check_images: checks for mistakes with the range and the axes of images; see `checks`."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations

from ...graph.op import Op
from ...graph.values import Apply, Draw, Input, topological
from ...plan import mistakes
from ...plan.node import Node
from ...spec import TensorSpec

__all__ = [
    "channels_first",
    "classes_blended",
    "image_like",
    "images_moved_apart",
    "normalize_of_another_range",
    "scales_of_values",
    "values_of_another_range",
]

_CHANNELS = (1, 3, 4)


def _first(found: mistakes.Found) -> str | None:
    return next((text for text, _ in found), None)


def normalize_of_another_range(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a mean and standard deviation for 0..1 on values of 0..255, or the other way round."""
    return _first(mistakes.normalizations(node))


def values_of_another_range(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find floats of 0..255, or normalized ones, in an op whose floats are 0..1: the images become white or black."""
    return _first(mistakes.beyond_one(node))


def classes_blended(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a mask that an op resizes or turns by blending its numbers of classes."""
    return _first(mistakes.blended(node))


def channels_first(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find an array {CHW} that an op takes for an image {HWC}."""
    return _first(mistakes.channels_first(node))


def scales_of_values(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find a cast or a brightness that is meant for values of another range."""
    return _first(mistakes.scales(node))


def images_moved_apart(node: Node, above: tuple[Node, ...]) -> str | None:
    """Find an image and its mask, or another image of the element, that two random calls move in different ways."""
    moves = [
        value for value in mistakes.applications(node) if value.op.random and value.op.drawn in ("window", "flag", "")
    ]
    moves = [value for value in moves if not value.op.still and value.op.domain == "image" and value.op.rows == "each"]
    for first, second in combinations(moves, 2):
        alike = type(first.op) is type(second.op) and _how(first.op) == _how(second.op)
        if not alike or _sites(first) == _sites(second) or _leaves(first) & _leaves(second):
            continue
        name = first.op.name
        kernels = ', interpolation=("bilinear", "nearest")' if hasattr(first.op, "interpolation") else ""
        return (
            f"{name} {mistakes.line_of(first, node)} and {name} {mistakes.line_of(second, node)} draw on "
            "their own, for two images of one element: an "
            f"image and its mask no longer fit; write ops.{name}((image, mask), ...{kernels}), which draws once for "
            "both, or give both one seed"
        )
    return None


_OF_EACH = {"interpolation", "fill", "widened", "images", "dtype", "antialias"}
"""Fields of an op that may differ between an image and its mask."""


def _how(op: Op) -> list[object]:
    return [getattr(op, field.name) for field in fields(op) if field.name not in _OF_EACH]


def _sites(value: Apply) -> set[str]:
    return {x.site for x in topological(value.params) if isinstance(x, Draw)}


def _leaves(value: Apply) -> set[int]:
    return {x.index for x in topological(value.x) if isinstance(x, Input)}


def image_like(spec: TensorSpec) -> bool:
    """Whether a leaf looks like an image, by its spec."""
    if type(spec) is not TensorSpec or spec.dtype is None or spec.dtype is bytes or spec.shape is None:
        return False
    return spec.layout is not None or (
        len(spec.shape) == 3 and (spec.shape[0] in _CHANNELS or spec.shape[2] in _CHANNELS)
    )
