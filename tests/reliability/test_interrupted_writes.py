"""Whatever ends a writer, before or after any call that changes a file: the old or the new is there, and no rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpupipe import Dataset
from gpupipe.extract.storage.replacing import replacing
from gpupipe.extract.storage.temporary import temporary
from tests.reliability.interrupted_writes import SIGNALS, WRITERS
from tests.selection import FULL, QUICK

ROOT = Path(__file__).resolve().parents[2]
STEP = 7 if QUICK else 1
"""Every so many points."""

NEEDS = {"pack-parquet": "pyarrow", "page": "jinja2", "plot": "matplotlib"}
"""The libraries of writers."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes that are forked")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by", SIGNALS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_that_is_ended_anywhere_leaves_the_old_or_the_new(name: str, by: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    command = [sys.executable, "-m", "tests.reliability.interrupted_writes", name, by, str(STEP)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["points"] >= 8 // STEP  # a writer makes, syncs and renames at least


def test_links_at_names_of_files_being_written_are_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone who may write in the folder guesses every temporary name."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda n: "0" * (2 * n))
    os.symlink(victim, temporary(str(tmp_path / ".a.txt")))
    with pytest.raises(FileExistsError), replacing(tmp_path / "a.txt") as file:
        file.write(b"new")

    assert victim.read_text() == "precious"


@pytest.mark.timeout(3600)
def test_saves_that_a_signal_ends_at_any_time_break_no_folder(tmp_path: Path) -> None:
    """Real signals by a timer, not at chosen points."""
    count = 10_000 if FULL else 50 if QUICK else 300
    program = (
        "import random, signal, sys, gpupipe as gp\n"
        "from pathlib import Path\n"
        "folder, count = Path(sys.argv[1]), int(sys.argv[2])\n"
        "rng, struck = random.Random(1), 0\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "gp.Dataset.range(3).save(folder)\n"
        "for i in range(count):\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 6e-3))\n"
        "        gp.Dataset.range(3 + i % 3).save(folder, shard_func=lambda x: x)\n"
        "        signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "    except KeyboardInterrupt:\n"
        "        struck += 1\n"
        "    found = list(map(int, gp.Dataset.load(folder)))\n"
        "    assert sorted(found) in ([0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]), (i, found)\n"
        "print(struck)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "s"), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000 if FULL else 300)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > count // 10
    Dataset.range(3).save(tmp_path / "s")
    assert len(os.listdir(tmp_path / "s")) == 2


def test_a_save_removes_what_killed_ones_left_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "00000-0123456789abcdef.elements").write_bytes(b"half of it")
    (folder / "00001-0123456789abcdef.elements.gz").write_bytes(b"")
    (folder / "train-00000.tfrecord").write_bytes(b"somebody's")
    list(Dataset.range(3).cache(str(folder / "00000")))  # its file is named as those of `save` are
    cached = [name for name in os.listdir(folder) if "0123" not in name and name.endswith(".elements")]
    assert len(cached) == 1
    Dataset.range(3).save(folder)

    left = sorted(os.listdir(folder))
    assert len(left) == 4
    assert {*cached, "saved.json", "train-00000.tfrecord"} < set(left)


@pytest.mark.parametrize("named", ["train-00000.tfrecord", "saved.json"])
def test_a_save_removes_nothing_because_a_manifest_names_it(tmp_path: Path, named: str) -> None:
    folder = tmp_path / "s"
    Dataset.range(3).save(folder)
    (folder / "train-00000.tfrecord").write_bytes(b"somebody's")
    manifest = json.loads((folder / "saved.json").read_text())
    manifest["shards"][0]["file"] = named
    (folder / "saved.json").write_text(json.dumps(manifest))
    Dataset.range(4).save(folder)

    assert (folder / "train-00000.tfrecord").read_bytes() == b"somebody's"
    assert list(map(int, Dataset.load(folder))) == [0, 1, 2, 3]
    assert len(os.listdir(folder)) == 3


def test_two_saves_at_once_leave_one_dataset_whole(tmp_path: Path) -> None:
    """The other one is over when this one has written its elements."""
    folder = tmp_path / "s"
    other = Dataset.range(5)

    def function(x: int) -> int:
        if x == 2:
            other.save(folder)
        return x

    Dataset.range(3).map(function, traced=False).save(folder)

    assert list(map(int, Dataset.load(folder))) == [0, 1, 2]
    assert len(os.listdir(folder)) == 2


def test_a_save_that_goes_on_keeps_its_files_from_another(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    kept: list[str] = []

    def number(x: int) -> int:
        if x == 2:
            kept.extend(name for name in os.listdir(folder) if name.endswith(".elements"))
            Dataset.range(5).save(folder)
            assert set(kept) <= set(os.listdir(folder))
        return int(x)

    Dataset.range(3).save(folder, shard_func=number)

    assert len(kept) == 2
    assert list(map(int, Dataset.load(folder))) == [0, 1, 2]
