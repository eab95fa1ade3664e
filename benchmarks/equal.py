"""equal: whether contestants did equal work, and if not, why.

The compared figures are read off their batches (`benchmarks.probe`), never taken from what they say about themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from benchmarks.job import Audit

__all__ = ["UnequalWork", "check", "expected_counts", "refusals"]

# How much two contestants may differ: (relative, absolute), with the reason for each.
_LIMITS = {
    "share": (0.02, 0.0),  # 2 % of the mean share of the image inside the windows
    "contrast": (
        0.15,
        0.0,
    ),  # antialiasing leaves half of what plain bilinear leaves; rounding moves it by a few per cent
    "flipped": (0.0, 0.03),  # half of them; the standard error of 20,000 coins is 0.0035
    "mirrored": (0.0, 0.08),  # half of them; the standard error of 1,280 coins is 0.014
    "shift": (0.0, 1.0),  # uniform up to 18 pixels, in whole ones or not: 9.0 to 9.24; the standard error is 0.1
    "level": (0.0, 2.0),  # JPEG decoders and rounding move a mean by less than 1 of 255
    "top": (0.0, 0.4),  # 4 pixels; the standard error of 4,096 windows is 0.04
    "left": (0.0, 0.4),
    "farthest": (0.0, 0.0),  # every place down and to the right comes up
    "error": (0.0, 1e-6),  # of values up to 2.1: float32 rounds by 1.2e-7, quotients and products differ by as much
    "bytes": (0.0, 0.0),
    "digest": (0.0, 0.0),
}


class UnequalWork(Exception):
    """Contestants whose figures must not be compared; the text lists every difference."""


def expected_counts(labels: int, times: int) -> dict[str, int]:
    """Return what `Audit.counts` is if each label came `times` times."""
    return {str(times): labels}


def refusals(
    audits: Sequence[Audit], counts: dict[str, int], apart: Mapping[str, Collection[str]] | None = None
) -> list[str]:
    """List why these contestants cannot be compared; empty if their work is equal.

    Args:
        audits: one for each contestant.
        counts: how often the labels must have been delivered, as returned by `expected_counts`.
        apart: the figures in which a contestant, by name, is known to differ (`Contestant.apart`).
    """
    known = apart or {}
    found = [
        f"{one.contestant} delivered labels {_times(one.counts)}, needed {_times(counts)}"
        for one in audits
        if one.counts != counts
    ]
    for a, b in combinations(audits, 2):
        for what in ("shape", "dtype", "layout"):
            if getattr(a, what) != getattr(b, what):
                found.append(f"{what}: {a.contestant} {getattr(a, what)}, {b.contestant} {getattr(b, what)}")
        for name in sorted(a.figures.keys() | b.figures.keys()):
            if name in known.get(a.contestant, ()) or name in known.get(b.contestant, ()):
                continue
            if name not in a.figures or name not in b.figures:
                found.append(f"{name}: measured for one of {a.contestant}, {b.contestant} only")
            elif differs(name, a.figures[name], b.figures[name]):
                found.append(f"{name}: {a.contestant} {a.figures[name]:.4g}, {b.contestant} {b.figures[name]:.4g}")
    return found


def differs(name: str, a: float, b: float) -> bool:
    """Whether two contestants' figures differ by more than allowed for this figure."""
    relative, absolute = _LIMITS[name]
    return abs(a - b) > max(relative * min(abs(a), abs(b)), absolute)


def check(audits: Sequence[Audit], counts: dict[str, int], apart: Mapping[str, Collection[str]] | None = None) -> None:
    """Refuse unequal work.

    Raises:
        UnequalWork: with one line for each difference.
    """
    if found := refusals(audits, counts, apart):
        lines = "\n  ".join(found)
        raise UnequalWork(
            f"a benchmark needs contestants that do equal work, got\n  {lines}\n"
            "make them equal, or leave one out with --contestants"
        )


def _times(counts: dict[str, int]) -> str:
    return ", ".join(f"{labels} of them {times}x" for times, labels in counts.items()) or "never"
