"""The command from start to end: who is missing, what is refused, what the result file holds."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import compare, report
from benchmarks.contestants import CONTESTANTS, Contestant, dali_chain, missing
from benchmarks.equal import differs
from benchmarks.job import Audit, Job, Run
from benchmarks.memory import shuffle_memory
from benchmarks.pairs import ContestantFailed, Pair, audit, notices_damage, spawn
from benchmarks.probe import audit_images, write_damaged, write_probes
from benchmarks.process import resident_parts, tree_cpu_seconds
from benchmarks.tfrecord import entries

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

ABSENT = Contestant("absent", "chain", "nowhere", "somebody else", ("no_such_module.at_all",))
FIGURES = {"share": 0.43, "contrast": 0.28, "flipped": 0.5, "level": 128.0}


def made(job: Job) -> Run:
    return Run(job.contestant, 100, 1.0, 2.0, 0.1, 0.2, 50.0, (64, 224, 224, 3), "float32")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> dict[str, Audit]:
    """Two contestants that run nowhere, whose audits a test may change; one more is not installed."""
    names = {name: Contestant(name, "chain", "nowhere", f"the {name} one", ("sys",)) for name in ("dali", "other")}
    audits = {name: Audit(name, (64, 224, 224, 3), "float32", "NHWC", {"1": 512}, FIGURES) for name in names}
    for place in ("benchmarks.compare.CONTESTANTS", "benchmarks.report.CONTESTANTS"):
        monkeypatch.setattr(place, {**names, "absent": ABSENT})

    def pairs(
        job: Job, contestants: list[str], reference: str, count: int, one_seed: bool, on_failure: Any, until: float
    ) -> Iterator[Pair]:
        assert not one_seed and until == math.inf
        for name in contestants:
            for i in range(count):
                yield Pair(name, made(Job(name, ())), made(Job(reference, ())), i % 2 == 1)

    monkeypatch.setattr(compare, "audit", lambda job: audits[job.contestant])
    monkeypatch.setattr(compare, "notices_damage", lambda job: True)
    monkeypatch.setattr(compare, "run_pairs", pairs)
    return audits


def run(tmp_path: Path, *words: str) -> int:
    shards = tmp_path / "shards"
    shards.mkdir(exist_ok=True)
    write_probes(shards, 64, 8)
    usual = ("--out", str(tmp_path / "results"), "--probes", "1", "--pairs", "3", "--data", f"{shards}/*.tfrecord")
    return command.main(["chain", *usual, *words])


def test_a_missing_contestant_is_reported(
    two: dict[str, Audit], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 0

    assert "somebody else: not installed: no_such_module.at_all" in capsys.readouterr().out


def test_what_is_needed_is_looked_up_without_an_import() -> None:
    assert missing(Contestant("x", "chain", "x", "x", ("json",))) == ""
    assert missing(ABSENT) == "not installed: no_such_module.at_all"
    assert missing(Contestant("x", "chain", "x", "x", ("json.nothing",))) == "not installed: json.nothing"


def test_unequal_work_is_refused_before_anything_is_timed(
    two: dict[str, Audit], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two["other"] = Audit("other", (64, 224, 224, 3), "float32", "NHWC", {"1": 512}, {**FIGURES, "share": 0.37})

    assert run(tmp_path) == 2

    text = capsys.readouterr()
    assert "needs contestants that do equal work" in text.err
    assert "share: dali 0.43, other 0.37" in text.err
    assert "pair 1" not in text.err
    assert text.out == ""
    assert not (tmp_path / "results").exists()


def test_extract_refuses_who_does_not_verify_checksums(
    two: dict[str, Audit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    careless = {name: Contestant(name, "extract", "nowhere", name, ("sys",)) for name in two}
    monkeypatch.setattr(compare, "CONTESTANTS", careless)
    monkeypatch.setattr(compare, "notices_damage", lambda job: job.contestant == "dali")
    shards = write_probes(tmp_path, 64, 1)

    words = ["extract", "--against", "dali", "--data", str(shards[0]), "--batch", "64", "--out", str(tmp_path)]
    assert command.main(words) == 2

    assert "got other that did not notice a wrong one" in capsys.readouterr().err


def test_a_reference_that_is_missing_or_unknown_is_refused(
    two: dict[str, Audit], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--against", "absent") == 2
    assert "needs its reference absent, got not installed" in capsys.readouterr().err
    assert run(tmp_path, "--contestants", "nobody") == 2
    assert "out of dali, other, absent, got nobody" in capsys.readouterr().err


def test_no_data_is_refused(two: dict[str, Audit], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["chain", "--data", str(tmp_path / "*.tfrecord"), "--out", str(tmp_path)]) == 2
    assert "needs TFRecord shards, got none" in capsys.readouterr().err


def test_the_result_file_holds_everything_and_nothing_private(two: dict[str, Audit], tmp_path: Path) -> None:
    assert run(tmp_path) == 0

    (path,) = (tmp_path / "results").iterdir()
    text = path.read_text()
    found = json.loads(text)
    assert path.name == f"chain-{found['date'][:10]}.json"
    assert found["schema"] == report.SCHEMA
    assert {"cores", "cpu", "memory_gb", "gpus", "python", "system"} <= found["machine"].keys()
    assert found["versions"]["numpy"]
    assert found["settings"]["pairs"] == 3
    assert found["settings"]["verifies_checksums"] == {"dali": True, "other": True}
    assert found["not_measured"] == {"absent": "not installed: no_such_module.at_all"}
    assert [one["contestant"] for one in found["audits"]] == ["dali", "other"]
    assert len(found["pairs"]) == 6
    assert found["pairs"][1]["reference_first"] is True
    assert found["pairs"][0]["run"]["cpu_ms_per_item"] == 20.0
    ratio = found["summary"]["other"]["cpu_ratio"]
    assert ratio == {"least": 1.0, "median": 1.0, "most": 1.0, "count": 3, "values": [1.0] * 3}
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text
    assert platform.node() not in text


def test_a_second_result_of_a_day_overwrites_none(two: dict[str, Audit], tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path)

    names = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert len(names) == 2
    assert names[0].endswith("-2.json")


def test_without_a_gpu_the_gpu_benchmark_says_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "gpus", list)

    for words in (["bench-gpu"], ["--device", "gpu"]):
        assert command.main([*words, "--out", str(tmp_path)]) == 0
        assert capsys.readouterr().out.startswith("not measured: no NVIDIA GPU")
    assert list(tmp_path.iterdir()) == []


def test_every_contestant_has_its_file() -> None:
    folder = Path(compare.__file__).parent / "contestants"

    assert all((folder / f"{one.module.replace('.', '/')}.py").is_file() for one in CONTESTANTS.values())


def test_the_time_of_a_worker_that_ended_is_counted_once() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True); input()"
    before = tree_cpu_seconds()
    worker = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdout is not None and worker.stdin is not None
    worker.stdout.readline()
    alive = tree_cpu_seconds() - before
    worker.communicate(b"\n")
    ended = tree_cpu_seconds() - before

    assert alive >= 0.4
    assert alive <= ended < alive + 0.4  # counted while it lived and still counted, not twice


def test_resident_memory_is_split_by_kind() -> None:
    before = resident_parts()
    block = bytearray(os.urandom(1 << 20) * 32)
    after = resident_parts()

    assert set(before) == {"anonymous_mb", "file_mb", "shared_mb"}
    assert after["anonymous_mb"] - before["anonymous_mb"] > 16
    assert len(block) == 32 << 20


def test_what_a_shuffle_buffer_adds_is_measured_and_its_shards_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch, names = tmp_path / "scratch", ("gpupipe-before", "gpupipe-after")
    scratch.mkdir()

    path = shuffle_memory(scratch, tmp_path, contestants=names, records=1200, shuffle=500, threads=2, size=2000)

    found = json.loads(path.read_text())
    assert {name: one["items"] for name, one in found["runs"].items()} == dict.fromkeys(names, 1200)
    for one in found["runs"].values():
        assert one["rise_mb"] == pytest.approx(one["anonymous_mb"] + one["file_mb"] + one["shared_mb"], abs=0.1)
    assert list(scratch.iterdir()) == []
    assert "rise of VmRSS through shuffle(500)" in capsys.readouterr().out


def test_gpupipe_and_the_extract_audit_agree_from_start_to_end(tmp_path: Path) -> None:
    job = Job("gpupipe-extract", tuple(map(str, write_probes(tmp_path, 128, 4))), batch=32)
    jpegs = [Path(one.file).read_bytes()[one.offset :][: one.length] for name in job.files for one in entries(name)]

    found = audit(job)

    assert found.counts == {"1": 128}
    assert found.figures == {"bytes": sum(map(len, jpegs)), "digest": sum(map(zlib.crc32, jpegs))}
    assert not notices_damage(job)
    assert notices_damage(replace(job, files=(str(write_damaged(tmp_path)),)))


def test_gpupipe_on_numpy_passes_the_audit_of_the_chain(tmp_path: Path) -> None:
    files = tuple(map(str, write_probes(tmp_path, 512, 8)))

    found = audit(Job("gpupipe-numpy", files * 4))

    assert (found.shape, found.dtype, found.layout) == ((64, 224, 224, 3), "float32", "NHWC")
    assert found.counts == {"4": 512}
    assert found.figures["share"] == pytest.approx(0.43, abs=4 * found.errors["share"])
    assert found.figures["level"] == pytest.approx(128, abs=1)


@pytest.mark.skipif(bool(missing(CONTESTANTS["dali"])), reason="DALI is not installed")
def test_whole_images_by_hand_are_cropped_by_the_law_of_the_others(tmp_path: Path) -> None:
    """What the contestants on a GPU do, done on the CPU."""
    job = Job("dali-gpu-fancy", tuple(map(str, write_probes(tmp_path, 512, 8))), batch=64)

    whole = audit_images("whole", dali_chain.batches(job, "cpu", "whole", fancy=True))
    region = audit_images("region", dali_chain.batches(job, "cpu", "region"))

    assert (whole.shape, whole.dtype, whole.counts) == (region.shape, region.dtype, region.counts)
    assert whole.figures["share"] == pytest.approx(0.43, abs=4 * whole.errors["share"])
    assert not any(differs(name, whole.figures[name], region.figures[name]) for name in ("contrast", "level"))


def test_the_pipeline_by_hand_that_upsamples_as_gpupipe_does_is_the_reference_on_a_gpu() -> None:
    by_hand = CONTESTANTS[compare.Comparison("chain-gpu").reference]

    assert by_hand.options == {"device": "gpu", "decode": "whole", "fancy": True}


@pytest.mark.skipif(bool(missing(CONTESTANTS["dali"])), reason="DALI is not installed")
def test_the_hand_written_pipeline_runs_from_start_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--contestants", "dali", "--pairs", "1", "--batches", "2", "--warmup", "1", "--shuffle", "16")

    assert run(tmp_path, *small) == 0

    found: dict[str, Any] = json.loads(next((tmp_path / "results").iterdir()).read_text())
    assert [pair["contestant"] for pair in found["pairs"]] == ["dali"]
    one = found["pairs"][0]["run"]
    assert one["items"] == 128
    assert one["cpu_seconds"] > 0
    assert one["peak_rss_mb"] > 10
    assert found["audits"][0]["counts"] == {"1": 512}
    assert found["settings"]["verifies_checksums"] == {"dali": False}
    assert "with itself: the noise" in capsys.readouterr().out


@pytest.mark.skipif(bool(missing(CONTESTANTS["dali"])), reason="DALI is not installed")
def test_a_contestant_that_fails_is_named_with_its_text(tmp_path: Path) -> None:
    damaged = write_damaged(tmp_path, 16)

    with pytest.raises(ContestantFailed, match=r"(?s)dali ended with 1 .*needs files for 12 batches of 64, got fewer"):
        spawn(Job("dali", (str(damaged),), warmup=2, batches=10))


def test_the_memory_benchmark_refuses_a_name_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = command.main(["shuffle-memory", "--contestants", "gpupipe-dali", "--out", str(tmp_path)])

    assert status == 2
    assert "shuffle-memory needs contestants out of gpupipe-before" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
