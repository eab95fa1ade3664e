"""The host suite: chains that are what they say, equal work, and what the result file holds."""

from __future__ import annotations

import errno
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import host as suite
from benchmarks.child import audit_pass
from benchmarks.contestants import CONTESTANTS, host_passes, missing
from benchmarks.equal import UnequalWork
from benchmarks.host import CHAINS, REFERENCE, host, summary, table
from benchmarks.job import Job, Run
from benchmarks.pairs import Pair, spawn

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")

JOB = Job(REFERENCE, (), "host-audit", batch=32, elements=160)
ROWS = 8 * np.arange(160)[:, None] + np.arange(8)
# What the last leaf of a chain over 160 numbers holds in all: rows, shape of a row, sum.
HOLDS: dict[str, tuple[int, list[int], float]] = {
    "map": (160, [], 160 * 161 / 2),
    "batch": (160, [], 160 * 159 / 2),
    "batch-arrays": (160, [8], float((ROWS % 1024).sum())),
    "shuffle": (160, [], 160 * 159 / 2),
    "shuffle-all": (160, [], 160 * 159 / 2),
    "shuffle-pairs": (160, [], 160 * 159 / 2),
    "shuffle-filtered": (160, [], 160 * 159 / 2),
    "filter": (80, [], 80 * 79.0),
    "filter-python": (80, [], 80 * 79.0),
    "zip": (160, [], 160 * 159 / 2),
    "interleave": (160, [], 16 * 45.0),
}


def made(name: str, cpu: float, items: int = 1000) -> Run:
    return Run(name, items, 2.0, cpu, 0.1, 0.2, 50.0, (32,), "int64")


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_gpupipe_gives_what_it_is_named_after(chain: str, prefetch: int) -> None:
    found = audit_pass(replace(JOB, chain=chain, prefetch=prefetch))

    rows, row, total = HOLDS[chain]
    dtype = "float32" if chain == "batch-arrays" else "int64"
    wanted = {"batches": -(-rows // 32), "rows": rows, "row": tuple(row), "sum": total, "dtype": dtype}
    assert found == wanted


def test_a_shuffle_and_an_interleave_change_the_order() -> None:
    orders = {}
    for chain in ("batch", "shuffle", "interleave"):
        orders[chain] = np.concatenate(list(host_passes(replace(JOB, chain=chain))())).tolist()

    assert orders["batch"] == list(range(160))
    assert sorted(orders["shuffle"]) == list(range(160)) != orders["shuffle"]
    assert orders["interleave"][:17] == [0] * 16 + [1]


def test_a_python_function_is_called_for_every_element(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.contestants import host_gpupipe

    seen: list[int] = []

    def even(x: Any) -> Any:
        seen.append(int(x))
        return x % 2 == 0

    monkeypatch.setattr(host_gpupipe, "_even", even)
    begin = host_passes(replace(JOB, chain="filter-python"))

    for _ in range(2):
        assert sum(len(batch) for batch in begin()) == 80
    assert seen == [*range(160)] * 2


@pytest.mark.parametrize("contestant", [REFERENCE, "tfdata-host"])
def test_a_process_reports_a_whole_pass(contestant: str) -> None:
    if why := missing(CONTESTANTS[contestant]):
        pytest.skip(why)

    report, peak = spawn(replace(JOB, contestant=contestant, mode="host", chain="filter-python"))

    assert report["contestant"] == contestant
    assert report["items"] == 160
    assert report["shape"] == [16]  # the last batch: 80 rows pass
    assert report["cpu_seconds"] > 0
    assert report["seconds"] > 0
    assert 0 < report["first_batch_s"] <= report["start_s"]
    assert max(peak, report["peak_rss_mb"] * 1e6) > 1e6  # the watcher may come too late for so short a process


def test_tf_data_delivers_the_same_in_every_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    for chain in CHAINS:
        ours = audit_pass(replace(JOB, chain=chain))
        for name in ("tfdata-host", "tfdata-numpy"):
            assert audit_pass(replace(JOB, contestant=name, chain=chain)) == ours


def test_contestants_that_deliver_something_else_are_refused() -> None:
    good = {"batches": 5, "rows": 160, "row": [], "sum": 12720.0, "dtype": "int64"}

    suite.check("batch", {REFERENCE: good, "other": dict(good)})
    with pytest.raises(
        UnequalWork, match=r"(?s)batch needs contestants that deliver the same, got .*other.*'rows': 159"
    ):
        suite.check("batch", {REFERENCE: good, "other": {**good, "rows": 159}})


def test_unknown_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnequalWork, match=r"host needs contestants out of gpupipe-host, .* got nobody, sort"):
        host(tmp_path, contestants=["nobody"], chains=["sort"])

    assert command.main(["host", "--chains", "sort", "--out", str(tmp_path)]) == 2
    assert "got sort" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("option", "exists"), [("--out", ""), ("--scratch", "exists and ")])
def test_a_folder_that_cannot_be_written_to_is_said_before_anything_is_measured(
    option: str, exists: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "host", None)

    assert command.main(["host", option, "/proc"]) == 2  # root may write everywhere, but not there
    assert capsys.readouterr().err == f"host: {option} needs a folder that {exists}can be written to, got /proc\n"


def test_a_disk_that_is_full_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(command, "host", full)

    assert command.main(["host", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "host: [Errno 28] No space left on device\n"


def test_figures_are_medians_of_rates_and_ratios_inside_pairs() -> None:
    pairs = [
        Pair(REFERENCE, made(REFERENCE, 0.001), made(REFERENCE, 0.002), False),
        Pair("tfdata-host", made("tfdata-host", 0.01, 50), made(REFERENCE, 0.001), True),
    ]

    found = summary(pairs)

    assert found[REFERENCE]["per_cpu_second"].median == pytest.approx(750_000)
    assert found[REFERENCE]["cpu_ratio"].median == pytest.approx(0.5)
    assert found["tfdata-host"]["per_cpu_second"].median == pytest.approx(5000)
    assert found["tfdata-host"]["cpu_ratio"].median == pytest.approx(200)  # per element, though it had fewer
    text = table({"map": found}, {"tfdata-numpy": "not installed: tensorflow"})
    assert "goal: 800,000 elements/CPU-s: NOT met by map" in text
    assert "tf.data, numpy_function: not installed: tensorflow" in text
    assert "750,000" in text
    quick = [Pair(REFERENCE, made(REFERENCE, 0.001), made(REFERENCE, 0.001), False)]
    assert table({"map": summary(quick)}, {}).endswith("goal: 800,000 elements/CPU-s: met")


def test_the_command_measures_and_writes_everything_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "PREFETCH", (2,))
    words = [
        "--chains",
        "zip",
        "--contestants",
        REFERENCE,
        "--elements",
        "4000",
        "--pairs",
        "1",
        "--out",
        str(tmp_path),
    ]

    assert command.main(["host", *words]) == 0

    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())
    assert path.name == f"host-{found['date'][:10]}.json"
    assert found["settings"]["elements"] == 4000
    assert list(found["summary"]) == ["zip, prefetch(2)"]
    one = found["summary"]["zip, prefetch(2)"]
    assert one["audit"] == {"batches": 4, "rows": 4000, "row": [], "sum": 4000 * 3999 / 2, "dtype": "int64"}
    assert one[REFERENCE]["per_cpu_second"]["count"] == 2
    assert one[REFERENCE]["per_cpu_second"]["median"] > 0
    assert [pair["run"]["items"] for pair in found["pairs"]] == [4000]
    assert {"machine", "versions", "commit", "load"} <= found.keys()
    assert str(tmp_path) not in path.read_text()
    assert platform.node() not in path.read_text()
    out = capsys.readouterr().out
    assert "with itself: the noise" in out
    assert "goal: 800,000" in out


def test_who_is_slow_gets_a_part_of_the_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def run(job: Job) -> Run:
        asked.append((job.contestant, job.elements))
        return made(job.contestant, 1.0)

    monkeypatch.setattr(suite, "run_once", run)
    for name in (REFERENCE, "tfdata-host"):
        for elements in (100_000, 100):
            suite._measure(replace(JOB, contestant=name, elements=elements))

    assert asked == [(REFERENCE, 100_000), (REFERENCE, 100), ("tfdata-host", 5000), ("tfdata-host", 32)]
