"""fill: the values that ops put where an image has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import check_number
from gpupipe.graph.symbols import Symbol
from gpupipe.integers import plain
from gpupipe.ops._shared.geometry import images_of
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec

__all__ = ["Fill", "check_fill", "fills_of", "parts_of"]

Fill = tuple[float, ...]
"""One number, or one per channel."""


def check_fill(who: str, fill: Fill, x: TensorSpec) -> None:
    """Check that an image can hold a fill.

    Raises:
        SpecError: there are other numbers of values and channels, or an integer image cannot hold a value.
    """
    channels = x.shape[2] if x.shape else None
    if len(fill) > 1 and channels not in (len(fill), None):
        raise SpecError(f"{who} needs one fill or one per channel, got {len(fill)} for {x}")
    if isinstance(x.dtype, np.dtype) and x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        if any(number != int(number) or not limits.min <= number <= limits.max for number in fill):
            raise SpecError(f"{who} needs a fill that fits the image, got {fill} for {x}")


def fills_of(who: str, image: Any, fill: Any) -> tuple[Fill, ...]:
    """The fill of each image from what users write.

    Args:
        who: the op, for messages.
        image: one image, a tuple of images, or a `Sample`.
        fill: for one image a number or one per channel; for several one number, or such a fill per image. For a Sample
            that of its image, with 0 for masks, or a dict of "image" and "masks".

    Raises:
        PlanTypeError: a fill is no number.
        SpecError: there are fills for another number of images, or a dict has other keys.
    """
    images, (fill, masks) = images_of(image), parts_of(who, image, fill)
    if isinstance(image, Sample):
        return (_fill(who, fill), *(_fill(who, masks),) * (len(images) - 1))
    one = len(images) == 1 or not isinstance(fill, (tuple, list, np.ndarray))
    each = [fill] * len(images) if one else list(fill)
    if len(each) != len(images):
        raise SpecError(f"{who} needs one fill, or one per image, got {fill!r}")
    return tuple(_fill(who, item) for item in each)


def parts_of(who: str, image: Any, fill: Any) -> tuple[Any, Any]:
    """The fill of an image, or of several, and that of the masks of a `Sample`, each as users write it.

    Raises:
        PlanTypeError: it is a dict, and the image no Sample.
        SpecError: a dict has other keys than "image" and "masks".
    """
    if not isinstance(fill, dict):
        return plain(fill), 0
    if not isinstance(image, Sample):
        raise PlanTypeError(f"{who} needs numbers for fill, got a dict, which is for a Sample")
    if not set(fill) <= {"image", "masks"}:
        raise SpecError(f"{who} needs fill as a number or a dict of 'image' and 'masks', got {fill!r}")
    return plain(fill.get("image", 0)), plain(fill.get("masks", 0))


def _fill(who: str, fill: Any) -> Fill:
    numbers = tuple(fill) if isinstance(fill, (tuple, list, np.ndarray)) else (0 if fill is None else fill,)
    if not numbers:
        raise SpecError(f"{who} needs a number for fill, or one per channel, got none")
    for number in numbers:
        if isinstance(number, Symbol):
            raise PlanTypeError(f"{who} needs plain numbers for fill, got a traced value")
        check_number(who, "fill", plain(number))
    return tuple(float(number) for number in numbers)
