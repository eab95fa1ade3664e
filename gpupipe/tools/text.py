"""text: numbers and tables as people read them in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["byte_count", "counted", "table"]


def byte_count(n: float) -> str:
    """Bytes in three digits: ``812 B``, ``110 kB``, ``1.28 GB``."""
    if n < 1000:
        return f"{n:.0f} B"
    power = 1
    while n >= 999.5 * 1000**power and power < 4:
        power += 1
    n /= 1000**power
    return f"{n:.{2 if n < 9.995 else 1 if n < 99.95 else 0}f} {'kB MB GB TB'.split()[power - 1]}"


def counted(n: int, what: str) -> str:
    """A number with its noun: ``1 record``, ``1,024 records``."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lay out rows below their heads, two spaces between columns.

    Args:
        head: the titles.
        rows: as many cells each.
        right: the columns that are aligned to the right.
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        placed = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return "  ".join(placed).rstrip()

    return "\n".join([line(head), *map(line, rows)])
