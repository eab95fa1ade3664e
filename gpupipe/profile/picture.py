"""picture: the timeline of a profile, drawn with matplotlib."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..brief import brief
from ..errors import MissingDependencyError, PlanError
from ..extract.storage.replacing import replacing
from ..missing import LIBRARIES
from ..timing import Span
from .trace import rows_of

__all__ = ["plot"]

COLOURS = {
    "loop": "#4477aa",
    "storage": "#228833",
    "host": "#66ccee",
    "executor": "#ee6677",
    "python": "#aa3377",
    "workers": "#aa3377",
    "queue": "#cccccc",
}
OTHER = "#ccbb44"

FEW = 3
"""Threads of a pool that have rows of their own. Those of a larger one share as many as work at the same time."""


def plot(spans: Sequence[Span], title: str, path: str | os.PathLike[str], seconds: float | None) -> None:
    """Draw spans under a title; see `Profile.plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            f"Profile.plot needs matplotlib, which is not installed; install it with: pip install {LIBRARIES['plot']}"
        ) from error
    if seconds is not None and (not isinstance(seconds, int | float | np.number) or not seconds > 0):
        raise PlanError(f"Profile.plot needs seconds > 0, got {brief(seconds)}")
    kind = Path(path).suffix[1:].lower() or "png"
    if kind not in (kinds := Figure().canvas.get_supported_filetypes()):
        raise PlanError(
            f"Profile.plot needs a file name with the suffix of a format ({', '.join(kinds)}), got {path!r}"
        )
    end = max((span.end for span in spans), default=0.0)
    start = 0.0 if seconds is None else max(0.0, end - seconds)
    pixel = (end - start) / 1000  # a shorter span would leave no trace
    rows = rows_of(_in_pools([span for span in spans if span.end >= start]))
    figure: Any = Figure(figsize=(12, 1.5 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for number, ((thread, _), of_row) in enumerate(rows.items()):
        begins = [max(span.start, start) for span in of_row]
        bars = [(begin, max(span.end - begin, pixel)) for begin, span in zip(begins, of_row, strict=True)]
        axes.broken_barh(bars, (number - 0.4, 0.8), facecolors=COLOURS.get(of_row[0].kind, OTHER))
        if number and thread != list(rows)[number - 1][0]:
            axes.axhline(number - 0.5, color="#888888", linewidth=0.5)
    axes.set_yticks(range(len(rows)), [f"{step[:48]}  [{thread}]" for thread, step in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(start, end or 1.0)
    axes.set_xlabel("seconds")
    axes.set_title(title, fontsize=9, loc="left")
    with replacing(path) as file:
        figure.savefig(file, dpi=120, format=kind)


def _in_pools(spans: Sequence[Span]) -> list[Span]:
    """Spans with the name of a pool, ``reader`` of ``reader-1`` and so on, where it has many threads."""
    threads: defaultdict[str, set[str]] = defaultdict(set)
    for span in spans:
        threads[_pool(span.thread)].add(span.thread)
    many = {pool for pool, names in threads.items() if len(names) > FEW}
    return [span._replace(thread=pool) if (pool := _pool(span.thread)) in many else span for span in spans]


def _pool(thread: str) -> str:
    return re.sub(r"-\d+$", "", thread)
