"""pixels: the difference between the images of two executors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .result import PixelGap

__all__ = ["LEVELS", "SAME_CROP_MEAN", "gap_of", "same_images", "upright"]

Array = npt.NDArray[Any]

LEVELS = "levels of 0..255"

# Executors differ by a rounding here and there, and by their edge rule on the outermost ring. Another crop or a missed
# flip changes an image by tens of levels on average; a mean of 2 is far from both.
SAME_CROP_MEAN = 2.0


def gap_of(images: Sequence[Array], others: Sequence[Array], scale: Any = None) -> PixelGap:
    """Compare images with those of the reference, one by one; images of another shape are infinitely far away.

    Args:
        images: of one executor, {HWC} or {CHW}.
        others: of the reference, as many.
        scale: the divisors of the channels that made normalised images, to get levels of 0..255; None for images that
            are not normalised.
    """
    means, insides, rings, squares, values = [], [0.0], [0.0], 0.0, 0
    for image, other in zip(images, others, strict=True):
        if image.shape != other.shape:
            means.append(np.inf)
            insides.append(np.inf)
            continue
        gap = difference(image, other, scale)
        means.append(float(gap.mean()) if gap.size else 0.0)
        insides.append(float(gap[1:-1, 1:-1].max(initial=0)))
        rings += [float(edge.max(initial=0)) for edge in (gap[:1], gap[-1:], gap[:, :1], gap[:, -1:])]
        squares += float(np.square(gap).sum())
        values += gap.size
    peak, unit = _peak(others, scale)
    error = squares / values if values else 0.0
    worst = int(np.argmax(means)) if means else 0
    return PixelGap(
        maximum=max(insides),
        mean=float(np.mean(means)) if means else 0.0,
        psnr=float(10 * np.log10(peak**2 / error)) if error else None,
        ring=max(rings),
        images=len(means),
        worst=worst,
        worst_mean=means[worst] if means else 0.0,
        unit=unit,
        peak=peak,
    )


def same_images(gap: PixelGap) -> bool:
    """Whether every image shows the same part of the same picture, with the same flip."""
    return gap.worst_mean <= SAME_CROP_MEAN * gap.peak / 255


def difference(image: Array, other: Array, scale: Any) -> Array:
    """The absolute difference of two images of one shape, float64[H,W,C]{HWC}."""
    # float64 holds every pixel exactly; the difference of infinities that are equal is 0
    a, b = upright(image).astype(np.float64), upright(other).astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap: Array = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    gap = np.nan_to_num(gap, nan=np.inf, posinf=np.inf)
    return gap if scale is None else gap * np.asarray(scale, np.float64)


def upright(image: Array) -> Array:
    """An image as {HWC}: its channels, of which there are few, go last."""
    if image.ndim == 2:
        return image[:, :, None]
    if image.ndim == 3 and image.shape[0] in (1, 3, 4) and image.shape[2] not in (1, 3, 4):
        return np.moveaxis(image, 0, -1)
    return image


def _peak(others: Sequence[Array], scale: Any) -> tuple[float, str]:
    """The range of values that an image can have, and the unit of a difference."""
    if scale is not None or not others or others[0].dtype == np.uint8:
        return 255.0, LEVELS
    finite = [image[np.isfinite(image)] for image in others if image.size]
    low = min((float(part.min()) for part in finite if part.size), default=0.0)
    high = max((float(part.max()) for part in finite if part.size), default=0.0)
    # A resize may overshoot by an eighth, where there is contrast: small values with negative ones are normalised.
    if others[0].dtype.kind == "f" and low >= -32 and 2 < high <= 287 and (low >= 0 or high > 32):
        return 255.0, LEVELS
    return (high - low) or 1.0, f"units of {others[0].dtype}, values from {low:.3g} to {high:.3g}"
