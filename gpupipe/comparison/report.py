"""report: the measurements as a table of plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpupipe.comparison.contestants import Executor
from gpupipe.comparison.measure import Figures
from gpupipe.comparison.pixels import Difference

__all__ = ["Row", "table"]

HEAD = ("executor", "CPU-ms/image", "images/s", "first batch", "peak memory", "mean", "max inside", "max at edge")
PIXEL_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One executor's row of the table.

    Attributes:
        executor: the executor.
        figures: its measurements; None if it was not measured.
        reason: why it was not measured.
        failed: whether it was run, and failed.
        difference: between its pixels and those of the reference; None for the reference itself.
    """

    executor: Executor
    figures: Figures | None = None
    reason: str = ""
    failed: bool = False
    difference: Difference | None = None


def table(rows: Sequence[Row], reference: str) -> str:
    """Lay out the rows; an executor that was not measured shows its reason instead of figures.

    Args:
        rows: one per executor.
        reference: title of the executor with whose pixels the others are compared.
    """
    measured = [HEAD, *(_cells(row, row.figures) for row in rows if row.figures is not None)]
    widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
    widths[0] = max(len(HEAD[0]), *(len(row.executor.title) for row in rows))
    width = sum(widths) + 2 * (len(widths) - 1)
    lines = [f"difference to {reference} (0..255)".rjust(width)] if len(measured) > 2 else []
    lines += [_line(HEAD, widths), "-" * width]
    for row in rows:
        if row.figures is None:
            lines.append(f"{row.executor.title.ljust(widths[0])}  not measured: {row.reason.splitlines()[0]}")
        else:
            lines.append(_line(_cells(row, row.figures), widths))
    return "\n".join(lines)


def _cells(row: Row, figures: Figures) -> tuple[str, ...]:
    peak, gap = figures.peak_bytes, row.difference
    return (
        row.executor.title,
        f"{figures.cpu_ms:.2f}",
        f"{figures.images_per_second:.0f}",
        f"{figures.first_batch_s:.2f} s",
        "unknown" if peak is None else f"{peak / 2**20:.0f} MiB",
        *(("-",) * PIXEL_COLUMNS if gap is None else (f"{gap.mean:.3f}", f"{gap.inside:.1f}", f"{gap.ring:.1f}")),
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = cells
    return "  ".join((first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(others, widths[1:], strict=True))))
