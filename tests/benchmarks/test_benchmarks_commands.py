"""python -m benchmarks commands: what pack and verify cost, and that what they are compared with does the same work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpupipe as gp
from benchmarks.__main__ import main
from benchmarks.command_runs import RUNS
from benchmarks.commands import commands, draw
from benchmarks.pairs import ContestantFailed
from gpupipe.extract.images.headers import read_header
from gpupipe.io import parse_single_example

FEATURES = {"image/encoded": gp.io.FixedLenFeature([], "string")}


def sizes(folder: Path) -> list[tuple[int, int, int]]:
    """The height, width and channels of every image in a folder of TFRecord files."""
    records = gp.TFRecordDataset([str(path) for path in sorted(folder.glob("*tfrecord*"))])
    parsed = records.map(lambda record: parse_single_example(record, FEATURES)["image/encoded"])
    headers = [read_header(image) for image in parsed.as_numpy_iterator()]
    return sorted((header.height, header.width, header.channels) for header in headers)


def test_the_bare_calls_store_images_of_the_sizes_that_pack_stores(tmp_path: Path) -> None:
    source = tmp_path / "images"
    source.mkdir()
    draw(source, 12)
    for name in ("pack", "bare"):
        (tmp_path / name).mkdir()
        RUNS[name]()(source, tmp_path / name)

    found = sizes(tmp_path / "pack")
    assert found == sizes(tmp_path / "bare")
    assert {min(height, width) for height, width, _ in found} <= {
        240,
        256,
    }  # the photographs' shorter sides: 240 to 480


def test_the_command_measures_and_writes_everything_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--images", "8", "--records", "400", "--pairs", "1", "--out", str(tmp_path)]

    assert main(["commands", *arguments]) == 0

    assert "verify, us a record" in capsys.readouterr().out
    (path,) = tmp_path.glob("commands-*.json")
    found = json.loads(path.read_text())
    assert found["goals"] == {"pack over bare calls": 1.1, "verify, us a record": 5.0}
    assert found["summary"]["pack over bare calls"]["median"] > 0
    assert {name: len(values) for name, values in found["cpu_seconds"].items()} == dict.fromkeys(RUNS, 1)


def test_a_run_that_fails_ends_the_benchmark_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ContestantFailed, match=r"pack failed:\n(.|\n)*needs 1 to 2 shards"):
        commands(tmp_path / "out", tmp_path, images=2, records=8, pairs=1)
