"""frequencies: whether what was drawn is as frequent as a law says, within 3 standard deviations.

Two questions, since each bin alone does not see what many of them have in common, and all together do not see one bin:
each share within 3 standard deviations, and chi-square over all bins within 3 of its own, in units of the normal
distribution (E. B. Wilson and M. M. Hilferty, "The distribution of chi-square", 1931), so neither too far off nor
closer than chance allows.

Tests draw with one seed, which was there before the bound, so each gives the same answer every time. A bin is beyond 3
with one seed in 370. Of ops, strengths and signs of policies, chi-square over the joint law of all layers says both how
often each is drawn, and that layers are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpupipe.graph.op import Array

__all__ = ["SIGMAS", "assert_joint_law", "assert_shares", "chi_square", "deviations"]

SIGMAS = 3.0
RARE = 5.0
"""Bins of which fewer are expected are one bin for chi-square, which needs sums that are nearly normal."""


def deviations(counts: Array, shares: Array) -> Array:
    """How many standard deviations each count is off."""
    total = counts.sum()
    found: Array = (counts - total * shares) / np.sqrt(total * shares * (1 - shares))
    return found


def chi_square(counts: Array, shares: Array) -> float:
    """How many standard deviations chi-square over all bins is off; of two bins that of each of them."""
    expected = counts.sum() * shares
    rare = expected < RARE
    if rare.any():
        counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    freedom = len(counts) - 1
    square = float(((counts - expected) ** 2 / expected).sum())
    if freedom == 1:
        return math.sqrt(square)
    spread = 2 / (9 * freedom)
    return float(((square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def assert_shares(counts: Any, shares: Any) -> None:
    """Assert that each bin, and all of them together, are within `SIGMAS`.

    Args:
        counts: of each bin.
        shares: the probability of each bin, or one number for all of them.
    """
    counts = np.asarray(counts, np.float64)
    shares = np.broadcast_to(np.asarray(shares, np.float64), counts.shape)
    assert abs(shares.sum() - 1) < 1e-9, "the shares of a law are one together"
    assert (counts[shares == 0] == 0).all(), "what cannot be drawn was drawn"
    counts, shares = counts[shares > 0], shares[shares > 0]
    off = deviations(counts, shares)
    assert np.abs(off).max() <= SIGMAS, f"of {len(off)} bins, one is {np.abs(off).max():.2f} standard deviations off"
    assert_together(counts, shares)


def assert_together(counts: Array, shares: Array) -> None:
    whole = chi_square(counts, shares)
    assert abs(whole) <= SIGMAS, f"chi-square over {len(counts)} bins is {whole:.2f} standard deviations off"


def assert_joint_law(drawn: Array, law: Mapping[tuple[float, ...], float]) -> None:
    """Assert that nothing but what has a probability was drawn, and that all of it together is within `SIGMAS`.

    Args:
        drawn: [N,k], what was drawn.
        law: the probability of each row.
    """
    rows, counts = np.unique(drawn + 0.0, axis=0, return_counts=True)  # -0.0 is 0.0
    found = dict(zip(map(tuple, rows.tolist()), counts.tolist(), strict=True))
    assert set(found) <= set(law), f"{sorted(set(found) - set(law))[:3]} cannot be drawn"
    shares = np.array(list(law.values()))
    assert abs(shares.sum() - 1) < 1e-9, "the shares of a law are one together"
    assert_together(np.array([found.get(row, 0) for row in law], np.float64), shares)


def independent(laws: Sequence[Mapping[tuple[float, ...], float]]) -> dict[tuple[float, ...], float]:
    """The law of a row of independent draws."""
    joint: dict[tuple[float, ...], float] = {(): 1.0}
    for law in laws:
        joint = {(*a, *b): p * q for a, p in joint.items() for b, q in law.items()}
    return joint
