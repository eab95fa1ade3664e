"""python -m benchmarks prepared: its forms of the images, what the contestants deliver, and what is kept."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare, prepared
from benchmarks.__main__ import main
from benchmarks.contestants import CONTESTANTS, batches, missing
from benchmarks.job import Audit, Job
from benchmarks.probe import write_probes
from benchmarks.tfrecord import entries
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.headers import read_header

NAMES = [name for name, one in CONTESTANTS.items() if one.work == "prepared"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The forms of 16 probes in two shards."""
    path = tmp_path_factory.mktemp("probes")
    return prepared.forms([str(one) for one in write_probes(path, 16, 2)], path / "forms")


def test_every_form_has_each_image_once_with_its_label(folder: str) -> None:
    kinds = {
        "whole": ({"jpeg"}, 375),
        "small": ({"jpeg"}, 256),
        "decoded": ({"bmp"}, 256),
        "half": ({"bmp", "jpeg"}, 256),
    }
    for form, (kind, shorter) in kinds.items():
        formats = set()
        found = []
        for path in sorted(Path(folder, form).glob("*.tfrecord")):
            for entry in entries(path):
                data = path.read_bytes()[entry.offset : entry.offset + entry.length]
                header = read_header(data)
                formats.add(header.format)
                assert min(header.size) == shorter
                assert decode(data).shape == (*header.size, 3)
                found.append(entry.label)
        assert sorted(found) == list(range(16)), form
        assert formats == kind


def test_sizes_are_those_of_the_forms_alone(folder: str) -> None:
    found = prepared.sizes(folder)

    assert list(found) == sorted(
        ["decoded", "half", "small", "whole", *(name for name in found if name.endswith(".tbl"))]
    )
    assert found["decoded"] > 16 * 3 * 256 * 341


def test_the_warm_up_is_longer_than_an_epoch() -> None:
    assert prepared.warmup(400, 64, 3) * 64 > 400 + 64
    assert prepared.warmup(10, 64, 5) == 5


@pytest.mark.parametrize("name", NAMES)
def test_contestants_deliver_every_image_in_each_epoch(name: str, folder: str) -> None:
    if why := missing(CONTESTANTS[name]):
        pytest.skip(why)

    found = list(batches(Job(name, (folder,) * 3, batch=8)))

    assert Counter(np.concatenate([labels for _, labels in found]).tolist()) == dict.fromkeys(range(16), 3)
    for images, _ in found:
        assert (images.shape, images.dtype) == ((8, 224, 224, 3), np.float32)
    assert not np.array_equal(found[0][0], found[2][0])  # every epoch has crops of its own
    assert not list(Path(folder).glob("cache-*"))


def test_the_command_measures_and_says_which_goals_are_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def audit(job: Job) -> Audit:
        asked.append((len(job.files), Path(job.files[0], "decoded").is_dir()))
        contrast = 0.3 if job.contestant == "prepared-whole" else 0.6
        return Audit(job.contestant, (32, 224, 224, 3), "float32", "NHWC", {"2": 32}, {"contrast": contrast})

    monkeypatch.setattr(compare, "audit", audit)
    monkeypatch.setattr(compare, "_PROBES", 32)
    shards = tmp_path / "shards"
    shards.mkdir()
    write_probes(shards, 64, 2)
    words = ["--data", f"{shards}/*.tfrecord", "--pairs", "1", "--batches", "2", "--warmup", "1", "--probes", "2"]
    names = ["--contestants", "prepared-decoded", "--scratch", str(tmp_path), "--out", str(tmp_path / "out")]

    assert main(["prepared", *words, *names, "--batch", "32", "--shuffle", "32"]) == 0

    assert asked == [(2, True)] * 2
    said = capsys.readouterr().out
    assert "gpupipe, JPEGs as they are (with itself: the noise)" in said
    assert "goal: prepared-decoded against prepared-whole: CPU ratio <= 0.4: " in said
    assert "goal: prepared-cache against prepared-whole was not measured" in said
    (path,) = (tmp_path / "out").glob("prepared-*.json")
    found = json.loads(path.read_text())
    assert found["settings"]["warmup"] == 5
    assert set(found["settings"]["bytes_of_forms"]) == {"decoded", "half", "small", "whole"}
    assert all("contrast" not in audit["figures"] for audit in found["audits"])
