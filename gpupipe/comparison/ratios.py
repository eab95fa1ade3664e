"""ratios: medians of repetitions and ratios of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from statistics import median

from ..classes import dataclass

__all__ = ["Spread", "pair_order", "ratios"]


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure that was measured several times.

    Attributes:
        least: of the values.
        median: of them.
        most: of them.
        count: how many there are.
        values: in the order in which they were measured.
    """

    least: float
    median: float
    most: float
    count: int
    values: tuple[float, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise `values`.

        Raises:
            ValueError: if there are none.
        """
        if not values:
            raise ValueError("a median needs at least one value, got none; run at least one pair")
        return cls(min(values), median(values), max(values), len(values), tuple(values))

    @property
    def half_width(self) -> float:
        """Half the distance of the least from the most, relative to the median; 0 if the median is."""
        return (self.most - self.least) / 2 / self.median if self.median else 0.0

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.least:.3f}-{self.most:.3f})"


def ratios(first: Sequence[float], second: Sequence[float]) -> Spread:
    """Divide pair by pair, then summarise: what affects both runs of a pair cancels out.

    Raises:
        ValueError: if the two differ in length, or a divisor is not positive.
    """
    if len(first) != len(second):
        raise ValueError(f"ratios need pairs, got {len(first)} and {len(second)} values; drop the incomplete pair")
    if any(value <= 0 for value in second):
        raise ValueError("ratios need positive divisors, got a run without time or images; look at its raw figures")
    return Spread.of([a / b for a, b in zip(first, second, strict=True)])


def pair_order(index: int) -> tuple[int, int]:
    """Return which of a pair runs first: (0, 1) in even pairs, (1, 0) in odd ones."""
    return (0, 1) if index % 2 == 0 else (1, 0)
