"""looks: what a difference between images looks like: exchanged channels, a missed flip, a shift, another scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..pixels import upright

__all__ = ["looks_like"]

Array = npt.NDArray[Any]

EXPLAINED = 0.25
"""A change explains a difference if it leaves at most this share of it."""

DETAIL = 1.2
"""The fine detail of two images differs if one has so many times that of the other."""

SHIFT = 2
"""Pixels of the largest shift that is tried."""

NO_OFFSET = 0.01
"""A share of the difference below which an offset is none."""

MOST = 8
"""Images that are looked at."""


def looks_like(images: Sequence[Array], others: Sequence[Array], scale: Any = None) -> str:
    """What images look like beside those of the reference, in words; "" if like nothing known.

    Args:
        images: that differ, of one executor.
        others: of the reference.
        scale: see `gap_of`.
    """
    factor = 1.0 if scale is None else np.asarray(scale, np.float64)
    pairs = [
        (upright(a).astype(np.float64) * factor, upright(b).astype(np.float64) * factor)
        for a, b in zip(images[:MOST], others[:MOST], strict=True)
        if a.shape == b.shape and min(upright(a).shape[:2]) > 2 * SHIFT
    ]
    if not pairs:
        return "images of another size" if any(a.shape != b.shape for a, b in zip(images, others, strict=True)) else ""
    for text, change in _CHANGES:
        if _explains(change, pairs):
            return text
    return _shift(pairs) or _linear(pairs, scale is not None) or _detail(pairs)


def _exchanged(image: Array) -> Array:
    return image[:, :, ::-1] if image.shape[2] == 3 else image


_CHANGES: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("red and blue exchanged", _exchanged),
    ("mirrored left-right: a flip that is missing, or one too many", lambda image: image[:, ::-1]),
    ("mirrored upside down: a flip that is missing, or one too many", lambda image: image[::-1]),
    ("rotated by 180 degrees", lambda image: image[::-1, ::-1]),
)


def _explains(change: Callable[[Array], Array], pairs: Sequence[tuple[Array, Array]]) -> bool:
    left = sum(float(np.abs(change(a) - b).sum()) for a, b in pairs)
    return left <= EXPLAINED * sum(float(np.abs(a - b).sum()) for a, b in pairs)


def _shift(pairs: Sequence[tuple[Array, Array]]) -> str:
    """The shift by whole pixels that explains the difference, if one does."""
    best, found = EXPLAINED, (0, 0)
    present = sum(float(np.abs(_inner(a, 0, 0) - _inner(b, 0, 0)).sum()) for a, b in pairs)
    for down in range(-SHIFT, SHIFT + 1):
        for right in range(-SHIFT, SHIFT + 1):
            left = sum(float(np.abs(_inner(a, down, right) - _inner(b, 0, 0)).sum()) for a, b in pairs)
            if present and left / present < best:
                best, found = left / present, (down, right)
    words = [f"{abs(n)} pixel{'s' * (abs(n) > 1)} {way[n < 0]}" for n, way in zip(found, _WAYS, strict=True) if n]
    return f"shifted by {' and '.join(words)}" if words else ""


_WAYS = (("down", "up"), ("to the right", "to the left"))


def _inner(image: Array, down: int, right: int) -> Array:
    """The image without a margin of `SHIFT` pixels, moved back by a shift."""
    height, width, _ = image.shape
    return image[SHIFT + down : height - SHIFT + down, SHIFT + right : width - SHIFT + right]


def _linear(pairs: Sequence[tuple[Array, Array]], normalised: bool) -> str:
    """The change of each channel's brightness that explains the difference: an offset, or a factor and an offset."""
    mean, both = (
        (": another mean", ": another mean or deviation") if normalised else ("", ": other brightness or contrast")
    )
    if len({a.shape[2] for a, _ in pairs}) > 1:
        return ""
    a = np.concatenate([one.reshape(-1, one.shape[2]) for one, _ in pairs])
    b = np.concatenate([one.reshape(-1, one.shape[2]) for _, one in pairs])
    present, offset = np.abs(a - b).mean(), (a - b).mean(axis=0)
    if np.abs(a - b - offset).mean() <= EXPLAINED * present:
        return f"offset by {_numbers(offset)}{mean}"
    spread = b.std(axis=0)
    slope = a.std(axis=0) / np.where(spread, spread, 1.0)
    moved = a.mean(axis=0) - slope * b.mean(axis=0)
    if np.abs(a - slope * b - moved).mean() <= EXPLAINED * present:
        offset_by = f" and offset by {_numbers(moved)}" if np.abs(moved).max() > NO_OFFSET * present else ""
        return f"scaled by {_numbers(slope, 5)}{offset_by}{both}"
    return ""


def _numbers(values: Array, digits: int = 3) -> str:
    same = np.ptp(values) < 0.02 * np.abs(values).max()
    return f"{values.mean():+.{digits}g}" if same else "(" + ", ".join(f"{one:+.{digits}g}" for one in values) + ")"


def _detail(pairs: Sequence[tuple[Array, Array]]) -> str:
    """Whether there is more or less fine detail: as a resize with or without antialiasing leaves."""
    ours, theirs = (sum(map(_fine, side)) for side in zip(*pairs, strict=True))
    if ours > DETAIL * theirs:
        return "more fine detail, as a resize without antialiasing leaves"
    return "less fine detail, as smoothing or a resize with antialiasing leaves" if theirs > DETAIL * ours else ""


def _fine(image: Array) -> float:
    return float(np.abs(np.diff(image, 2, axis=0)).mean() + np.abs(np.diff(image, 2, axis=1)).mean())
