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

__all__ = ["Fill", "check_fill", "check_single", "filling", "fills_of", "parts_of"]

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
    check_single(who, "a fill", fill, x)


def check_single(who: str, what: str, numbers: Fill, x: TensorSpec) -> None:
    """Check that the numbers that are put into an image are those of float32, which DALI takes.

    Raises:
        SpecError: float32 has another integer in the place of one, or infinity.
    """
    kind = x.dtype.kind if isinstance(x.dtype, np.dtype) else ""
    for number in numbers:
        single = float(np.float32(number)) if abs(number) < 3.5e38 else float("inf")
        if (kind in "iu" and single != number) or (kind == "f" and np.isfinite(number) and not np.isfinite(single)):
            raise SpecError(
                f"{who} needs {what} that float32 holds, as all integers up to 2**24, got {number:.17g} for {x}"
            )


def filling(numbers: Fill, dtype: Any) -> Any:
    """The numbers that are put into an image, T[C] or T[1]: those of float32, also for float64."""
    return np.array(numbers, np.float32).astype(dtype)


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
        if isinstance(plain(number), int) and float(number) != plain(number):
            raise SpecError(f"{who} needs a fill that float32 holds, as all integers up to 2**24, got {number}")
    return tuple(float(number) for number in numbers)
