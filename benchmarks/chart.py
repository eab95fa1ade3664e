"""chart: committed measurements as one picture: what each costs against what it replaces.

    python -m benchmarks.chart gpupipe/guide/pictures/measured.svg

Nothing is measured here: every bar is the summary of one file in `results/`. README.md shows the picture;
tests/guide/test_pictures.py holds it to the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SHOWN", "Bar", "bars", "draw"]

RESULTS = Path(__file__).parent / "results"

SHOWN = (
    ("README chain, fast", "chain-2026-11-28-10", "gpupipe-fast"),
    ("README chain, DALI on CPU", "chain-2026-11-29", "gpupipe-dali"),
    ("... without antialias, fast", "chain-plain-2026-11-29", "plain-gpupipe-fast"),
    ("interleave and parse, in a stage", "extract-2026-11-28", "gpupipe-extract"),
    ("... in a loop over elements", "extract-2026-11-28", "gpupipe-elements"),
    ("... in batches of 256", "extract-2026-11-28", "gpupipe-batches"),
    ("later epochs, prepared shards", "prepared-2026-11-28-2", "prepared-decoded"),
    ("later epochs, cache(file)", "prepared-2026-11-28-2", "prepared-cache"),
)
"""What a bar shows, the file it is from, and which contestant of it."""

REFERENCES = {
    "dali": "DALI by hand",
    "tfdata-extract": "tf.data",
    "plain-tfdata": "tf.data",
    "prepared-whole": "decoding",
}


@dataclass(frozen=True)
class Bar:
    """One ratio of CPU time to what a contestant is compared with; below 1 is less.

    Attributes:
        name: what was measured.
        against: the reference.
        least, median, most: of the pairs of runs.
        noise: least and most of the reference against itself.
        source: the file.
    """

    name: str
    against: str
    least: float
    median: float
    most: float
    noise: tuple[float, float]
    source: str


def bars() -> list[Bar]:
    """The bars of the picture."""
    return [_bar(name, file, contestant) for name, file, contestant in SHOWN]


def _bar(name: str, file: str, contestant: str) -> Bar:
    found: dict[str, Any] = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    ratio = found["summary"][contestant]["cpu_ratio"]
    itself = found["summary"][found["reference"]]["cpu_ratio"]
    return Bar(
        name, REFERENCES[found["reference"]], ratio["least"], ratio["median"], ratio["most"],
        (itself["least"], itself["most"]), f"{file}.json",
    )  # fmt: skip


def draw(path: Path, shown: Sequence[Bar]) -> None:
    """Write the picture, in the format that the name says. An SVG has its text as text, and depends on nothing else."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.75 * len(shown) + 1.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, bar in enumerate(reversed(shown)):
        error = [[bar.median - bar.least], [bar.most - bar.median]]
        axes.barh(place, bar.median, xerr=error, height=0.55, color="#4c78a8", ecolor="#222222", capsize=4)
        axes.fill_betweenx([place - 0.4, place + 0.4], *bar.noise, color="#bbbbbb", alpha=0.7)
        axes.text(0.02, place, f"{bar.median:.2f}", va="center", color="white")
    axes.axvline(1.0, color="#222222", linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{bar.name}\nagainst {bar.against}" for bar in reversed(shown)])
    axes.set_xlabel("CPU time, as a share of the reference's\nline: least and most; gray: the reference against itself")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpupipe"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), bars())
