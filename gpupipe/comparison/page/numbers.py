"""numbers: figures as a reader of the page wants them, three digits and a unit that fits."""

from __future__ import annotations

import math

from ..result import PixelGap, Spread, StepGap

__all__ = ["ABSENT", "filters", "number", "of_tolerance"]

ABSENT = "–"
"""What a cell shows that has no figure."""


def number(value: float | None) -> str:
    """Three digits: ``1,024``, ``53.1``, ``0.012``, ``3e-06``, ``∞`` for images of another shape."""
    if value is None:
        return ABSENT
    if math.isinf(value):
        return "∞"
    size = abs(value)
    if size == 0 or size >= 99.95:
        return f"{value:,.0f}"
    if size >= 0.0995:
        return f"{value:.{1 if size >= 9.995 else 2}f}"
    return f"{value:.2g}"


def mebibytes(value: int | None) -> str:
    """Memory: ``412 MiB``, ``2.31 GiB``."""
    if value is None:
        return ABSENT
    return f"{number(value / 2**20)} MiB" if value < 1000 * 2**20 else f"{number(value / 2**30)} GiB"


def percent(value: float | None, digits: int = 1) -> str:
    """A share from 0 to 1: ``4.2 %``."""
    return ABSENT if value is None else f"{100 * value:,.{digits}f} %"


def count(value: int) -> str:
    """An integer: ``1,200``."""
    return f"{value:,}"


def seconds(value: float | None) -> str:
    """A time: ``0.34 s``."""
    return ABSENT if value is None else f"{number(value)} s"


def between(spread: Spread) -> str:
    """The rounds of a figure: ``2.03 to 2.31``."""
    return f"{number(spread.least)} to {number(spread.most)}"


def decibels(gap: PixelGap, absent: str = ABSENT) -> str:
    """The peak signal-to-noise ratio, which images without a difference and those of other shapes do not have."""
    if gap.psnr is not None:
        return f"{gap.psnr:.1f} dB"
    return absent if gap.maximum or gap.ring else "equal"


def tick(value: float) -> str:
    """A round number on an axis."""
    return f"{value:,.6g}"


def allowed(gap: StepGap) -> str:
    """The tolerance of a step on an executor; behind a stroke that of the outermost ring, if it is another."""
    return f"{gap.allowed:.3g}" + (f" / {gap.ring_allowed:.3g}" if gap.ring_allowed > gap.allowed else "")


def of_tolerance(gap: StepGap) -> float | None:
    """The larger of the two differences of a step, on the ring and elsewhere, as a multiple of its tolerance.

    Returns:
        None where there is no difference to relate, infinity for a difference where none is expected.
    """
    if gap.own is None:
        return None
    pairs = ((gap.own.maximum, gap.allowed), (gap.own.ring, max(gap.ring_allowed, gap.allowed)))
    return max(found / allowed if allowed else float("inf") if found else 0.0 for found, allowed in pairs)


filters = {
    "number": number,
    "mebibytes": mebibytes,
    "count": count,
    "percent": percent,
    "seconds": seconds,
    "between": between,
    "decibels": decibels,
    "tick": tick,
    "allowed": allowed,
}
"""For the template, by name."""
