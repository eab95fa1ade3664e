"""budget: how many images are stored decoded, where all together may take so many bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpupipe.errors import PlanError

__all__ = ["SAMPLE", "decoded_within"]

SAMPLE = 256
"""Images whose two forms are measured: their mean size is known to about 3 %."""

_MARGIN = 2.0
"""Standard errors of the mean."""


def decoded_within(budget: int, sizes: Sequence[tuple[int, int]], count: int) -> int:
    """How many of `count` images are decoded, at most, so that all take no more than the budget.

    What all take is estimated by the mean of a sample without replacement, and two standard errors: with n of N images
    sqrt((1 - n/N) / n) times the standard deviation of a size, for each of the N (Cochran, Sampling Techniques, 2.5),
    and sqrt(K (1 - K/N)) times that of the difference of both forms, as K of them are decoded. A few images that are
    far larger than all of a sample are not foreseen.

    Args:
        budget: in bytes.
        sizes: of the sample, at least one image: bytes of its encoded and of its decoded form.
        count: of all images.

    Raises:
        PlanError: encoded, all images may take more already.
    """
    encoded, decoded = np.array(sizes, float).T

    more = decoded - encoded

    def needed(chosen: int) -> float:
        each = encoded + chosen / count * more
        unseen = count * np.sqrt(max(1 - len(each) / count, 0) / len(each)) * _deviation(each)
        unequal = np.sqrt(chosen * (1 - chosen / count)) * _deviation(more)
        return float(count * each.mean() + _MARGIN * np.hypot(unseen, unequal))

    if needed(count) <= budget:
        return count
    if needed(0) > budget:
        raise PlanError(
            f"pack needs a --budget for {count:,} images that may take {needed(0):,.0f} bytes without --decoded, got "
            f"{budget:,} bytes; shrink them more with --resize-shorter, or give more"
        )
    fits, least_too_many = 0, count
    while least_too_many - fits > 1:
        middle = (fits + least_too_many) // 2
        if needed(middle) <= budget:
            fits = middle
        else:
            least_too_many = middle
    return fits


def _deviation(sizes: npt.NDArray[np.float64]) -> float:
    """The standard deviation that a sample tells; 0 of a single one."""
    return float(sizes.std(ddof=1)) if len(sizes) > 1 else 0.0
