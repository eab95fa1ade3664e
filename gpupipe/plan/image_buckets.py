"""image_buckets: batches of images by their size, and the sizes that such batches may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np

from ..classes import dataclass
from ..errors import PlanError, PlanTypeError
from ..graph.classify import name_of
from ..integers import is_integer, plain
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec
from .node import INFINITE, UNKNOWN_CARDINALITY, Buffer, ElementType, Facts, Step
from .order import WHOLE

__all__ = ["ImageBuckets", "Size", "aspect_ratio_buckets", "checked_buckets", "image_leaf", "nearest_bucket", "patches"]

Size = tuple[int, int]
"""(height, width) in pixels."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageBuckets(Step):
    """Batches of images of about one shape, or of a bounded number of pixels.

    Attributes:
        buckets: the sizes, one of which each image is to have; without any, all images meet.
        rows: of a batch, at most; `WHOLE` for no limit.
        budget: pixels of a batch, or patches, at most; 0 for no limit.
        patch: height and width of a patch; 1 counts pixels.
        size: computes height and width of an element; None reads them from the header of its only encoded image.
        oriented: whether that is the size of the upright image.
        drop: leave out what is not a full batch at the end.
    """

    facts = Facts(name="bucket_by_image_size", gathers=True)

    buckets: tuple[Size, ...]
    rows: int = WHOLE
    budget: int = 0
    patch: int = 1
    size: Callable[..., Any] | None = None
    oriented: bool = False
    drop: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of rows of a full batch of each bucket."""
        if not self.budget:
            return (self.rows,) * len(self.buckets)
        return tuple(min(self.rows, self.budget // patches(*size, self.patch)) for size in self.buckets)

    def infer(self, *inputs: ElementType) -> ElementType:
        inner = inputs[0]
        if self.size is None:
            image_leaf(inner)
        sizes = set(self.sizes)
        rows = sizes.pop() if self.drop and len(sizes) == 1 else None
        specs = (*inner.specs, *[TensorSpec((), np.int32)] * 2)
        return ElementType(_with_size(inner.structure or LEAF), tuple(spec.batched(rows) for spec in specs), True)

    def _cardinality(self) -> int:
        return INFINITE if self.source.cardinality == INFINITE else UNKNOWN_CARDINALITY

    def buffer(self, settings: Settings) -> Buffer:
        most = sum(self.sizes) if self.buckets else self.rows
        return Buffer(self.name, None if most >= WHOLE else most)

    def describe(self) -> str:
        parts = [f"{len(self.buckets)} sizes"] if self.buckets else []
        parts += [f"batch_size={self.rows}"] if self.rows != WHOLE else []
        if self.budget:
            limit = "max_pixels={}" if self.patch == 1 else f"max_tokens={{}}, patch_size={self.patch}"
            parts.append(limit.format(self.budget))
        parts += [f"size_func={name_of(self.size)}"] if self.size is not None else []
        parts += ["drop_remainder=True"] if self.drop else []
        return f"{self.name}({', '.join(parts)})"


def patches(height: int, width: int, patch: int) -> int:
    """How many square patches cover an image; its pixels for patches of 1 x 1."""
    return -(-height // patch) * -(-width // patch)


def _with_size(structure: Structure) -> Structure:
    """The structure of an element that gains (height, width) as its last part."""
    size, count = Structure(tuple, (), (LEAF, LEAF), 2), structure.count + 2
    if structure.kind is tuple:
        return Structure(tuple, (), (*structure.children, size), count)
    if structure.kind is not dict:
        return Structure(tuple, (), (structure, size), count)
    if "size" in structure.keys:
        raise PlanError("bucket_by_image_size adds the key 'size' to elements, which have it already; rename theirs")
    return Structure(dict, (*structure.keys, "size"), (*structure.children, size), count)


def image_leaf(element: ElementType) -> int:
    """The number of the only leaf that may be an encoded image; -1 if that is known only at run time.

    Raises:
        PlanError: there are several, or none.
    """
    found = [i for i, spec in enumerate(element.specs) if spec.dtype is bytes and spec.shape == ()]
    if len(found) == 1:
        return found[0]
    if not found and any(not spec.known for spec in element.specs):
        return -1
    raise PlanError(
        f"bucket_by_image_size needs elements with one encoded image (bytes), got {element.nested}; say with "
        f"size_func=lambda ...: ops.extract_jpeg_shape(...)[:2] which of their leaves it is"
    )


@lru_cache(maxsize=4096)  # the images of a data set have few sizes
def nearest_bucket(buckets: tuple[Size, ...], height: int, width: int) -> int:
    """The number of the bucket whose aspect ratio is nearest to that of an image.

    The distance is the ratio of the two ratios, at least 1, which treats portraits like landscapes. Of several that
    are as near, the one nearest in area, then the first.
    """

    def distance(i: int) -> tuple[float, float]:
        h, w = buckets[i]
        a, b = height * w, width * h
        area, own = h * w, height * width
        # The quotient of two integers is rounded correctly, so it is the same on every machine.
        return max(a, b) / min(a, b), max(area, own) / min(area, own)

    return min(range(len(buckets)), key=distance)


def aspect_ratio_buckets(
    max_pixels: int = 1024 * 1024, *, step: int = 64, min_size: int = 512, max_size: int = 2048
) -> list[Size]:
    """The sizes of images that diffusion models are trained on, for `Dataset.bucket_by_image_size`.

    For each width from `min_size` to `max_size`, a multiple of `step`, the largest height that keeps the area, and the
    same turned, as NovelAI's aspect ratio bucketing and kohya's `make_bucket_resolutions` choose them. The defaults
    are the limits of SDXL's sizes; those of Stable Diffusion 1.5 are 512 * 512 pixels, and sides of 256 to 1024.

    Args:
        max_pixels: the largest area, in pixels.
        step: heights and widths are multiples of it; 64 for latents of 8 x 8 pixels and 3 halvings.
        min_size: the smallest height and width, in pixels.
        max_size: the largest.

    Returns:
        (height, width) of each bucket, in ascending order.

    Raises:
        PlanError: an argument is below 1, or no size fits.

    Example:
        >>> gp.aspect_ratio_buckets(256 * 256, min_size=192, max_size=320)
        [(192, 320), (256, 256), (320, 192)]
    """
    for name, value in (("max_pixels", max_pixels), ("step", step), ("min_size", min_size), ("max_size", max_size)):
        if not is_integer(plain(value)):
            raise PlanTypeError(f"aspect_ratio_buckets needs an integer for {name}, got {value!r}")
        if value < 1:
            raise PlanError(f"aspect_ratio_buckets needs {name} >= 1, got {value}")
    most, step, least, largest = (int(plain(value)) for value in (max_pixels, step, min_size, max_size))
    side = isqrt(most) // step * step
    found = {(side, side)} if least <= side <= largest else set()
    for width in range(-(-least // step) * step, largest + 1, step):
        height = min(largest, most // width) // step * step
        if height >= least:
            found |= {(height, width), (width, height)}
    if not found:
        raise PlanError(
            f"aspect_ratio_buckets needs sizes from {least} to {largest} in steps of {step} with at most {most} "
            f"pixels, and there are none"
        )
    return sorted(found)


def checked_buckets(who: str, given: Any) -> tuple[Size, ...]:
    """Check the sizes that a user gave.

    Raises:
        PlanError: a size is not two integers from 1 to 2**24, or there are two that are equal.
    """
    wanted = f"{who} needs buckets as a list of (height, width)"
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
        raise PlanTypeError(f"{wanted}, got {type(given).__name__}")
    sizes = []
    for size in given:
        pair = [plain(n) for n in size] if isinstance(size, tuple | list | np.ndarray) and np.ndim(size) == 1 else []
        if len(pair) != 2 or not all(is_integer(n) and 1 <= n <= 1 << 24 for n in pair):
            raise PlanError(f"{wanted}, two integers from 1 to 2**24, got {size!r}")
        sizes.append((int(pair[0]), int(pair[1])))
    if len(set(sizes)) < len(sizes):
        raise PlanError(f"{wanted}, each once, got {sizes}")
    if not sizes:
        raise PlanError(f"{wanted}, got an empty list")
    return tuple(sizes)
