"""Committed results have one schema, pages name what is there, and README.md's table of ratios has their figures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_day.ledger import Ledger
from benchmarks.report import SCHEMA

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
HEADER = {"benchmark", "date", "commit", "machine", "versions"}
OTHER = {"compare-2026-11-24.json"}
"""Results with a format of their own: `Comparison.to_dict`."""


PREPARED = "prepared-2026-11-28-2"
ROWS: Mapping[str, tuple[str, ...]] = {
    'the README chain, "fast", against a pipeline written by hand for DALI': ("chain-2026-11-28-10", "gpupipe-fast"),
    "the same against torch's DataLoader with Pillow and no workers": ("chain-2026-11-28-8", "gpupipe-fast"),
    "the same against that DataLoader with 2 workers": ("chain-2026-11-28-8", "gpupipe-fast", "torch"),
    'the README chain without antialias, "fast"': ("chain-plain-2026-11-29", "plain-gpupipe-fast"),
    "the README chain on DALI-CPU": ("chain-2026-11-29", "gpupipe-dali"),
    "interleave and parse, checksums verified": ("extract-2026-11-28", "gpupipe-extract"),
    "the same as a loop over the dataset sees it": ("extract-2026-11-28", "gpupipe-elements"),
    "the same in batches of 256": ("extract-2026-11-28", "gpupipe-batches"),
    "photographs of 3 megapixels": ("approximate-2026-11-29", "gpupipe-fast-smaller"),
    "50,000 images of 32 x 32": ("cifar-2026-11-28-3", "", "cifar-tfdata"),
    "the same against torch's DataLoader without workers": ("cifar-2026-11-28-3", "", "cifar-torch"),
    "the same against it with 2 workers": ("cifar-2026-11-28-3", "", "cifar-torch-workers"),
    "the same against tf.data with whole batches": ("cifar-2026-11-28-2", "", "cifar-tfdata-batched"),
    "the same against torch with whole batches": ("cifar-2026-11-28-2", "", "cifar-torch-batched"),
    "later epochs over prepared shards": (PREPARED, "prepared-decoded"),
    "the same against TurboLoader's decoded images": (PREPARED, "prepared-decoded", "prepared-turboloader"),
    '"fast" on one thread, from files': ("overhead-2026-11-29", "fast-chain"),
    "the same with records from memory": ("overhead-2026-11-29", "fast-memory"),
    "the README chain on an NVIDIA H200": ("chain-gpu-2026-11-27", "gpupipe-gpu"),
}
"""What a row of the table starts with: the file, the contestant (none: the reference), and what it is divided by."""


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def rows() -> list[list[str]]:
    """The cells of the table of CPU and rate ratios."""
    _, _, text = README.partition("| | CPU ratio | rate ratio |")
    lines = text.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in lines]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_a_committed_result_says_what_measured_what_where_and_when(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))

    if path.name in OTHER:
        assert found["format"] == 1
        return
    assert found["schema"] == SCHEMA
    assert found.keys() >= HEADER
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", found["commit"])
    assert found["date"][:10] in path.name
    assert path.name.startswith(found["benchmark"])


@pytest.mark.parametrize("path", sorted(RESULTS.glob("gpu-day-*.jsonl")), ids=lambda path: path.name)
def test_a_committed_day_has_only_lines_that_are_results(path: Path) -> None:
    ledger = Ledger(path)

    assert ledger.calls and ledger.skipped == []


def spread(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['median']:.2f} ({ratio['least']:.2f}-{ratio['most']:.2f})"


def inverse(ratio: Mapping[str, Any]) -> dict[str, float]:
    return {"median": 1 / ratio["median"], "least": 1 / ratio["most"], "most": 1 / ratio["least"]}


def expected(file: str, contestant: str, other: str = "") -> list[str]:
    """The two ratios of a row: of a contestant to the reference, of that to another, or of two to each other."""
    summary = result(file)["summary"]
    ratios = ("cpu_ratio", "rate_ratio")
    if not other:
        return [spread(summary[contestant][ratio]) for ratio in ratios]
    if not contestant:
        return [spread(inverse(summary[other][ratio])) for ratio in ratios]
    return [f"{summary[contestant][ratio]['median'] / summary[other][ratio]['median']:.2f}" for ratio in ratios]


def test_the_ratios_of_the_readme_are_those_of_the_committed_results() -> None:
    found = rows()
    assert len(found) == len(ROWS)
    last = ""
    for (start, source), (what, cpu, rate, noise) in zip(ROWS.items(), found, strict=True):
        assert what.startswith(start)
        assert [cpu, rate.replace("*", "")] == expected(*source), what
        itself = result(source[0])
        itself = itself["summary"][itself["reference"]]
        noises = ", ".join(spread(itself[ratio]) for ratio in ("cpu_ratio", "rate_ratio"))
        assert noise == noises or (noise == "as above" and last == source[0]), what
        last = source[0]


def test_the_files_that_pages_name_are_there() -> None:
    places = ("*.md", "gpupipe/**/*.md", "gpupipe/**/*.py", "benchmarks/*.md")
    text = "".join(page.read_text("utf-8") for place in places for page in ROOT.glob(place))
    named = set(re.findall(r"[\w-]+-20\d\d-\d\d-\d\d[\w-]*\.jsonl?", text))

    assert len(named) > 10
    assert sorted(name for name in named if not (RESULTS / name).is_file()) == []
