"""The page on many ranks: its numbers are those of the committed result, and its chain can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from benchmarks.suites.far import tables
from benchmarks.suites.far_store import MANIFEST, Store, stored

PAGE = (Path(gp.__file__).parent / "guide" / "scale.md").read_text(encoding="utf-8")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def result() -> Any:
    """The result that the page names."""
    (name,) = {word.strip("`,.") for word in PAGE.split() if "results/far-" in word}
    return json.loads((RESULTS / Path(name).with_suffix(".json").name).read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_committed_result(result: Any) -> None:
    for name, text in tables(result).items():
        assert text in PAGE, name


def test_numbers_in_the_text_are_those_of_the_committed_result(result: Any) -> None:
    given, workers = result["settings"], result["stragglers"]["workers"]
    everything = given["records_per_s"] * given["ranks"]
    for text in (
        f"of {given['bytes']:,} bytes each",
        f"{result['cases']['1 billion']['start_bytes_of_all']:,} bytes of one object",
        f"{everything:,} requests a second",
        f"{everything * given['bytes'] / 1e9:.1f} GB a second",
        f"A range of 4 MiB has {(4 << 20) // given['bytes']} records",
        f"fixed stripes reach {workers['0']:.2f}",
        f"{workers['1']:.2f}, {workers['2']:.2f} and {workers['4']:.2f}",
        f"a step takes {given['batch'] / given['ranks'] / given['records_per_s'] * 1e3:.0f} ms",
    ):
        assert text in PAGE, text
    assert given["late"] == [[0.01, 0.5], [0.0001, 10.0]]


def test_the_goals_are_met_in_the_committed_result(result: Any) -> None:
    for case in result["cases"].values():
        assert case["files_a_rank"] <= 12
        assert case["order_and_offsets_bytes"] <= 1_000_000
        assert case["start_requests"] <= 3
        assert case["start_s"] <= 1.0


def test_the_chain_of_the_page_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    (code,) = [block.partition("\n")[2] for block in PAGE.split("```")[1::2] if block.startswith("python")]
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "1024"), ("LOCAL_RANK", "3"), ("LOCAL_WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    with stored(Store(100, 1000, 100)):
        names: dict[str, Any] = {"train_example": lambda record: record}
        exec(code.replace("s3://bucket/train/files.gpindex", MANIFEST), names)

        assert len(names["ds"]) == 100_000 // 8192
        assert len(names["ds"].first()) == 8
