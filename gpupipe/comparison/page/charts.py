"""charts: bars with their places, which the template draws as SVG.

A chart is as wide as a phone, so that its text has the size of the page's text there, and next to others on a screen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from ...brief import cut
from ...classes import dataclass
from ..result import Cost, Result, Spread
from .numbers import number, of_tolerance

__all__ = ["Bar", "Chart", "charts_of_costs", "charts_of_steps"]

MOST_SHARE = 2.0
"""The largest multiple of a tolerance that has a bar of its own length."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart.

    Attributes:
        label: what it stands for.
        value: its length.
        text: the value in words, with its unit.
        colour: number of its executor, which has one colour all over the page.
        dots: single measurements.
        bad: whether the value is beyond a limit; the text says so as well.
    """

    label: str
    value: float
    text: str
    colour: int
    dots: tuple[float, ...] = ()
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Horizontal bars above an axis from zero.

    Attributes:
        caption: what it shows.
        unit: of its axis.
        bars: at least one.
        limit: a value with a line of its own, or None.
        note: a sentence more.
    """

    caption: str
    unit: str
    bars: tuple[Bar, ...]
    limit: float | None = None
    note: str = ""
    width: ClassVar[int] = 360
    row: ClassVar[int] = 46
    foot: ClassVar[int] = 40
    left: ClassVar[int] = 1
    right: ClassVar[int] = 356  # the rest is room for half a dot

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round numbers from 0 to the end of the axis, three to six of them."""
        most = max([*(max((bar.value, *bar.dots)) for bar in self.bars), self.limit or 0.0]) or 1.0
        power = 10.0 ** math.floor(math.log10(most / 4))
        step = next(step for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power) if step >= most / 4)
        return tuple(i * step for i in range(math.ceil(most / step - 1e-9) + 1))

    @property
    def height(self) -> int:
        """Height of the drawing."""
        return self.row * len(self.bars) + self.foot

    def x(self, value: float) -> float:
        """Where a value is."""
        return round(self.left + (self.right - self.left) * value / self.ticks[-1], 1)

    @property
    def summary(self) -> str:
        """What somebody hears who does not see it."""
        return f"{self.caption}: " + "; ".join(f"{bar.label} {bar.text}" for bar in self.bars)


def charts_of_costs(result: Result) -> list[Chart]:
    """The plots of what executors cost; those of which nothing was measured are left out."""

    def chart(caption: str, unit: str, take: Callable[[Cost], Spread | float | None], scale: float = 1.0) -> Chart:
        bars = []
        for colour, cost in enumerate(result.costs):
            found = take(cost) if cost.measured else None
            if isinstance(found, Spread):
                bars.append(Bar(cost.title, found.median, number(found.median), colour, found.values))
            elif found is not None:
                bars.append(Bar(cost.title, found * scale, number(found * scale), colour))
        return Chart(caption, unit, tuple(bars))

    consumer = f"a consumer of {number(result.rate)} images/s" if result.rate is not None else "the consumer"
    charts = [
        chart("CPU time for an image", "CPU-ms per image; less is better", lambda cost: cost.cpu_ms),
        chart("Throughput", "images per second; more is better", lambda cost: cost.rate),
        chart("Time to the first batch", "seconds; less is better", lambda cost: cost.first_batch_s),
        chart("Peak memory of the host", "MiB; less is better", lambda cost: cost.host_bytes, 2**-20),
        chart(f"Waiting of {consumer}", "% of its time; less is better", lambda cost: cost.waiting, 100),
    ]
    return [one for one in charts if one.bars]


def charts_of_steps(result: Result) -> list[Chart]:
    """For each executor, the differences of its steps as multiples of their tolerances."""
    charts = (_chart_of_steps(result, colour) for colour in range(len(result.costs)))
    return [chart for chart in charts if chart.bars]


def _chart_of_steps(result: Result, colour: int) -> Chart:
    cost = result.costs[colour]
    bars = []
    for step in result.steps:
        for gap in step.gaps:
            share = of_tolerance(gap) if gap.executor == cost.key else None
            if share is None:
                continue
            text = "none is allowed" if math.isinf(share) else f"{number(100 * share)} %"
            length = min(share, MOST_SHARE) * 100
            bars.append(
                Bar(
                    cut(step.name.partition(" (")[0], 28),
                    length,
                    f"beyond: {text}" if gap.beyond else text,
                    colour,
                    bad=gap.beyond,
                )
            )
    note = "A bar that reaches the end of the axis may stand for more."
    cut_off = any(bar.value >= 100 * MOST_SHARE for bar in bars)
    return Chart(f"{cost.title}, step by step", "% of the tolerance", tuple(bars), 100.0, note if cut_off else "")
