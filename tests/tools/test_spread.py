"""Several processes find what one finds, and none of them is left behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe.extract.finder import find
from gpupipe.tools import spread
from gpupipe.tools.check import Job, Part
from gpupipe.tools.verify import verify
from tests.tools.damage import write


def jobs(folder: Path, count: int = 6, records: int = 50) -> list[Job]:
    for number in range(count):
        path = folder / f"{number}.tfrecord"
        data = bytearray(write(path, [b"%d" % n for n in range(records)]))
        for record in range(number):
            data[20 * record + 12] ^= 1  # of records of one byte each: 17 bytes, then of 18; some payload or length
        path.write_bytes(data)
    return [Job(str(path), path.name) for path in sorted(folder.glob("*.tfrecord"))]


def test_several_processes_write_the_manifest_that_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.tools.verify.WORTH", 1)
    jobs(tmp_path)
    files = find([str(tmp_path / "*.tfrecord")], "test").files

    one = verify(files, manifest=str(tmp_path / "one.jsonl"), workers=1)
    three = verify(files, manifest=str(tmp_path / "three.jsonl"), workers=3)

    assert one.json() == three.json()
    assert one.bad > 5
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "three.jsonl").read_bytes()


def test_a_name_that_is_not_text_reaches_a_process(tmp_path: Path) -> None:
    good, odd = tmp_path / "a.tfrecord", tmp_path / os.fsdecode(b"\xff.tfrecord")
    odd.write_bytes(write(good, [b"x"])[:-1])

    parts = list(spread.check_all([Job(str(odd), "x"), Job(str(good), "y")], 2))

    assert {index: part.bad for index, part in parts} == {0: 1, 1: 0}


def test_processes_end_when_nobody_asks_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = [spread._start() for _ in range(2)]
    monkeypatch.setattr(spread, "_start", iter(started).__next__)
    found = spread.check_all(jobs(tmp_path), 2)
    next(found)

    found.close()  # type: ignore[attr-defined]  # a generator

    assert None not in [process.returncode for process in started]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_process_that_is_killed_is_an_error_that_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = [spread._start() for _ in range(2)]
    for process in doomed:
        process.kill()
    monkeypatch.setattr(spread, "_start", iter(doomed).__next__)

    with pytest.raises(gp.GpupipeError, match=r"the process that checked .*\.tfrecord ended with -9"):
        list(spread.check_all(jobs(tmp_path), 2))


def test_a_process_ends_when_its_parent_is_gone(tmp_path: Path) -> None:
    (job, *_) = jobs(tmp_path, 1)
    process = spread._start()
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()  # as when the parent was killed

    process.stdin.write(b'{"path": "%s", "name": "x"}\n' % job.path.encode())
    process.stdin.close()

    assert process.wait(timeout=30) == 0


def test_long_files_are_reported_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.tools.check.INTERVAL", -1.0)
    (job, *_) = jobs(tmp_path, 1, 40_000)  # several blocks

    parts: list[Part] = [part for _, part in spread.check_all([job], 1)]

    assert len(parts) > 1
    assert [part.ended for part in parts] == [False] * (len(parts) - 1) + [True]
    assert sum(part.records for part in parts) == 40_000
