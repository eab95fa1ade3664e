"""budget: how many images are stored decoded, where all together may take so many bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from gpupipe.errors import PlanError

__all__ = ["SAMPLE", "decoded_within", "is_decoded"]

SAMPLE = 256
"""Images whose two forms are measured: their mean size is known to about 3 %."""

_MARGIN = 2.0
"""Standard errors of the mean."""


def is_decoded(place: int, decoded: int, count: int) -> bool:
    """Whether the image at a place is one of so many that are decoded, at equal distances in the order of all."""
    return (place + 1) * decoded // count > place * decoded // count


def decoded_within(budget: int, sizes: Sequence[tuple[int, int]], count: int) -> int:
    """How many of `count` images are decoded, at most, so that all take no more than the budget.

    Of all images the sizes are added. Of a sample without replacement the mean tells what all take, and two standard
    errors: with n of N images sqrt((1 - n/N) / n) times the standard deviation of a size, for each of the N (Cochran,
    Sampling Techniques, 2.5), and sqrt(K (1 - K/N)) times that of the difference of both forms, as K of them are
    decoded. A few images that are far larger than all of a sample are not foreseen.

    Args:
        budget: in bytes.
        sizes: of the first images in the order, at least one: bytes of the encoded and of the decoded form.
        count: of all images.

    Raises:
        PlanError: encoded, all images may take more already.
    """
    needed = _exact(sizes) if len(sizes) == count else _estimated(sizes, count)
    if needed(count) <= budget:
        return count
    if needed(0) > budget:
        images = f"{count:,} image{'s' * (count > 1)}"
        raise PlanError(
            f"pack needs a --budget for {images} that may take {needed(0):,} bytes without --decoded, got "
            f"{budget:,} bytes; shrink them more with --resize-shorter, or give more"
        )
    fits, too_many = 0, count
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if needed(middle) <= budget:
            fits = middle
        else:
            too_many = middle
    return fits


def _exact(sizes: Sequence[tuple[int, int]]) -> Callable[[int], int]:
    """The bytes of all images, by how many of them are decoded."""

    def needed(decoded: int) -> int:
        return sum(forms[is_decoded(place, decoded, len(sizes))] for place, forms in enumerate(sizes))

    return needed


def _estimated(sizes: Sequence[tuple[int, int]], count: int) -> Callable[[int], int]:
    """The bytes that all images may take, by how many of them are decoded."""
    encoded, decoded = np.array(sizes, float).T
    more = decoded - encoded

    def needed(chosen: int) -> int:
        each = encoded + chosen / count * more
        unseen = count * np.sqrt((1 - len(each) / count) / len(each)) * _deviation(each)
        unequal = np.sqrt(chosen * (1 - chosen / count)) * _deviation(more)
        return math.ceil(float(count * each.mean() + _MARGIN * np.hypot(unseen, unequal)))

    return needed


def _deviation(sizes: npt.NDArray[np.float64]) -> float:
    """The standard deviation that a sample tells; 0 of a single one."""
    return float(sizes.std(ddof=1)) if len(sizes) > 1 else 0.0
