"""`pack` repeated: after a kill anywhere nothing is lost or doubled, and what does not fit is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpupipe
from gpupipe.errors import PlanError
from gpupipe.tools.pack import pack
from tests.tools.packing import digests, folder_of, packed_records

pytest.importorskip("simplejpeg", reason="pack shrinks and decodes with simplejpeg")

ROOT = Path(gpupipe.__file__).parents[1]

# Runs `pack` in forks, which takes milliseconds where a new process takes half a second. A fork counts what it does to
# the disk and ends itself with SIGKILL before event number `at`; without `at` it prints how many events there are.
_KILLED = """
import os, signal, sys
from gpupipe.tools.pack import pack
from gpupipe.tools.pack import shard as files
import PIL.Image, simplejpeg
source, out, places = sys.argv[1], sys.argv[2], int(sys.argv[3])
def run(folder, at):
    count = 0
    def event():
        nonlocal count
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
    def counted(function):
        def inner(*given):
            event()
            return function(*given)
        return inner
    framed = files.framed
    def torn(record):
        event()
        return framed(record)
    files.framed = torn
    os.fsync, os.replace, os.truncate = counted(os.fsync), counted(os.replace), counted(os.truncate)
    pack(source, folder, 5, resize_shorter=24, workers=2)
    return count
def forked(folder, at):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, b"%d" % run(folder, at))
        os._exit(0)
    os.close(writing)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reading, "rb") as pipe:
        return os.waitstatus_to_exitcode(status), pipe.read().decode()
def ended(folder, at, wanted):
    status, said = forked(folder, at)
    assert status == wanted, (folder, at, status)
    return said
events = int(ended(out + "/whole", -1, 0))
print(events)
for k in range(places):
    ended(f"{out}/killed-{k}", k * events // places, -signal.SIGKILL)
    if k % 3 == 0:  # and once more, on the way
        ended(f"{out}/killed-{k}", 3, -signal.SIGKILL)
    ended(f"{out}/killed-{k}", -1, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither fork nor SIGKILL")
def test_after_a_kill_at_twenty_places_the_same_command_ends_with_the_same_bytes(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "photos", 23)
    (tmp_path / "out").mkdir()

    command = [sys.executable, "-c", _KILLED, str(source), str(tmp_path / "out"), "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 23 + 5 * 4  # a record each; a shard is synced, renamed, its folder and its line synced
    whole = digests(tmp_path / "out/whole")
    assert len(whole) == 5
    for k in range(20):
        assert digests(tmp_path / f"out/killed-{k}") == whole, k
    names = {bytes(record["image/filename"]) for record in packed_records(tmp_path / "out/killed-10")}
    assert len(names) == len(packed_records(tmp_path / "out/killed-10")) == 23


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "photos", 12)


def test_finished_shards_are_not_written_again(source: Path, tmp_path: Path) -> None:
    first = pack(source, tmp_path / "out", 3)
    times = [path.stat().st_mtime_ns for path in first.files]

    again = pack(source, tmp_path / "out", 3)

    assert [path.stat().st_mtime_ns for path in again.files] == times
    assert (first.found, again.found, again.records, again.bytes) == (0, 3, 12, first.bytes)


@pytest.mark.parametrize("damage", ["removed", "cut", "overwritten"])
def test_a_shard_that_is_not_as_it_was_is_written_again(source: Path, tmp_path: Path, damage: str) -> None:
    path = pack(source, tmp_path / "out", 3).files[1]
    whole = digests(tmp_path / "out")
    data = path.read_bytes()
    path.write_bytes({"removed": data, "cut": data[:-1], "overwritten": bytes(len(data))}[damage])
    if damage == "removed":
        path.unlink()

    again = pack(source, tmp_path / "out", 3)

    assert again.found == 2
    assert digests(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shards": 4}, "--shards was 3, now 4"),
        ({"seed": 1}, "--seed was 0, now 1"),
        ({"resize_shorter": 30}, "--resize-shorter was 20, now 30"),
        ({"resize_shorter": None}, "--resize-shorter was 20, now not given"),
        ({"quality": 80}, "--quality was 90, now 80"),
        ({"name": "val"}, "--name was train, now val"),
        ({"decoded": True, "budget": 10**6}, "else: --budget was not given, now 1000000; --decoded was not given, now"),
    ],
)
def test_other_options_are_refused(source: Path, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    pack(source, tmp_path / "out", 3, resize_shorter=20)
    before = digests(tmp_path / "out")

    with pytest.raises(PlanError, match=words):
        pack(source, tmp_path / "out", **{"shards": 3, "resize_shorter": 20, **options})
    assert digests(tmp_path / "out") == before
    assert pack(source, tmp_path / "out", 3, resize_shorter=20, workers=1, on_error="skip").found == 3


def test_other_images_are_refused(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", 3)

    os.utime(source / "class0/000.jpg", ns=(1, 1))
    with pytest.raises(PlanError, match="names, sizes, times or labels have changed"):
        pack(source, tmp_path / "out", 3)
    folder_of(source, 13)
    with pytest.raises(PlanError, match="there were 12 images, now 13"):
        pack(source, tmp_path / "out", 3)


def test_a_folder_with_something_else_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").write_text("all of it")

    refused = {
        "out": r"1 other files \(thesis\.txt",
        "out/thesis.txt": "got the file",
        "photos/packed": "outside of its",
    }
    for place, words in refused.items():
        with pytest.raises(PlanError, match=words):
            pack(source, tmp_path / place, 1)
    assert os.listdir(tmp_path / "out") == ["thesis.txt"]


def test_a_journal_that_is_none_is_refused_and_one_that_was_cut_off_is_mended(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", 3)
    whole, journal = digests(tmp_path / "out"), tmp_path / "out/pack.jsonl"
    lines = journal.read_bytes()

    shard = b'{"shard": %s, "records": 1, "bytes": 1, "skipped": []}\n'
    counts = [lines + shard % number for number in (b'"x"', b"-1", b"1e999", b"NaN", b"1.0", b"true")]
    for wrong in (b"[]\n", b"text\n", *counts, b"", b"\xff\n", lines + b"[" * 100_000 + b"\n"):
        journal.write_bytes(wrong)
        with pytest.raises(PlanError, match=r"pack\.jsonl' is not a journal of pack, or damaged"):
            pack(source, tmp_path / "out", 3)
    journal.write_bytes(lines[:-10])
    assert pack(source, tmp_path / "out", 3).found == 2
    assert journal.read_bytes() == lines
    assert digests(tmp_path / "out") == whole


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no lock of folders")
def test_two_at_a_time_are_refused(source: Path, tmp_path: Path) -> None:
    refused: list[str] = []

    def meanwhile(task: str, done: int, total: int) -> None:
        if task == "packing":
            with pytest.raises(PlanError, match="another process packs into"):
                pack(source, tmp_path / "out", 3)
            refused.append(task)

    assert pack(source, tmp_path / "out", 3, progress=meanwhile).records == 12
    assert refused
