"""A rank of many over far files: the computed storage is a real one, and what is simulated behaves as it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from benchmarks import __main__ as command
from benchmarks.suites import far
from benchmarks.suites.far_steps import answers, handed_out, in_step
from benchmarks.suites.far_store import MANIFEST, Store, stored

pytest.importorskip("fsspec")
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="benchmarks need /proc")


def test_a_computed_file_is_the_one_that_a_writer_writes(tmp_path: Path) -> None:
    with gp.io.TFRecordWriter(tmp_path / "a") as out:
        for _ in range(30):
            out.write(bytes(84))
    store, data = Store(3, 30, 100), (tmp_path / "a").read_bytes()

    assert store.size("set/photos-00001-of-00003.tfrecord") == len(data) == 3000
    for start, stop in ((0, 3000), (5, 7), (99, 301), (100, 200), (2999, 3000)):
        assert store.bytes_of("set/x.tfrecord", start, stop) == data[start:stop]
    whole = store.bytes_of("set/files.gpindex", 0, store.size("set/files.gpindex"))
    for start, stop in ((0, 5), (3, 700), (250, 260), (len(whole) - 60, len(whole))):
        assert store.bytes_of("set/files.gpindex", start, stop) == whole[start:stop]


def test_its_records_are_read_by_a_chain_and_counted() -> None:
    with stored(Store(5, 1500, 100)) as store:
        ds = gp.TFRecordDataset.from_manifest(MANIFEST).shuffle(gp.ALL, seed=1, streams=4, window=100)

        assert [bytes(x) for x in ds] == [bytes(84)] * 7500
        assert len(store.opened) == 5
        assert store.requests == 2 + 5 + 5 + 2  # the manifest; each file: its size, one range; offsets, twice
    assert store.sent >= 5 * 1500 * 100


def test_ranks_wait_for_their_slowest() -> None:
    how: dict[str, Any] = {"window": 400, "ranges": 10, "rows": 8, "rate": 300.0, "windows": 20}

    alone, many = in_step(1, 8, **how), in_step(256, 8, **how)
    assert 0 < many < alone <= 1
    assert in_step(256, 400, **how) > many
    assert in_step(256, 400, timeout=1.0, **how) > 0.97


def test_a_request_that_is_given_up_is_made_again() -> None:
    seconds = answers(np.random.default_rng(1), (200_000,), 0.4)

    assert 0.004 < (seconds > 0.4).mean() < 0.02
    assert answers(np.random.default_rng(1), (200_000,), None).max() == 10.0
    assert seconds.max() < 3


def test_segments_for_whoever_is_free_are_better_than_stripes() -> None:
    shares = [handed_out(16, 4.0, ahead, segment=4, batches=4000) for ahead in (0, 1, 2, 4)]

    assert shares == sorted(shares)
    assert shares[0] < 0.35
    assert shares[-1] > 0.9
    assert handed_out(16, 1.0, 2, segment=4, batches=4000) > 0.85


@needs_proc
def test_the_result_has_everything_that_the_tables_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(far, "FILES", 200)
    monkeypatch.setattr(far, "RANKS", 16)
    monkeypatch.setattr(far, "STREAMS", 16)
    monkeypatch.setattr(far, "RANK", 5)
    monkeypatch.setattr(far, "BATCH", 128)
    monkeypatch.setattr(far, "LENGTH", 20_016)
    monkeypatch.setattr(far, "CASES", {"few": (8, 60), "some": (2000, 200)})

    assert command.main(["far", "--records", "600", "--windows", "2", "--out", str(tmp_path)]) == 0

    (path,) = tmp_path.glob("far-*.json")
    found = json.loads(path.read_text())
    printed = capsys.readouterr().out
    assert all(text in printed for text in far.tables(found).values())
    for case in found["cases"].values():
        assert case["start_requests"] == 2
        assert case["files_a_rank"] <= 200 // 16 + 2
        assert case["order_and_offsets_bytes"] < case["index_bytes"] + (1 << 18)
    assert found["cases"]["some"]["read_ratio"] < 1.2
    assert set(found["stragglers"]["computing"]) == {"1", "64", "1024"}
