"""table: rows as plain text, below the titles of their columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
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
