"""Which folders `pack` writes to, and what it leaves alone there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpupipe.errors import PlanError
from gpupipe.extract.storage.temporary import temporary
from gpupipe.tools.pack import pack
from tests.tools.packing import digests, folder_of

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files without more rights")

NOTES = '{"my": "notes"}\n{"more": "of th'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "photos", 6)


def written(out: Path, **files: str) -> Path:
    """Write a user's own files to a folder; an underscore in their names stands for a dot."""
    out.mkdir()
    for name, text in files.items():
        (out / name.replace("_", ".")).write_text(text)
    return out


def elsewhere(name: str, pid: int) -> str:
    """A temporary name as a process of another machine makes it."""
    return f"{name}.00000000-{pid}-{'0' * 16}.tmp"


def test_a_folder_with_something_else_keeps_the_temporary_files_of_its_writers(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "saved"
    out.mkdir()
    names = {temporary(".saved.json-" + "0" * 16), elsewhere(".images.txt", 1), elsewhere(".data.tfrecord", 1)}
    for name in names:
        (out / name).touch()

    with pytest.raises(PlanError, match=r"needs a new or an empty folder.* with 3 other files"):
        pack(source, out, 2)

    assert set(os.listdir(out)) == names


@posix
def test_of_temporary_files_in_its_own_folder_those_that_it_wrote_are_removed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / elsewhere(".pack.jsonl", 1)).touch()  # a run was killed as it began
    pack(source, out, 2)
    shards = ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord")
    assert sorted(os.listdir(out)) == ["pack.jsonl", *shards]
    for name in (".pack.jsonl", ".images", f".{shards[0]}"):
        (out / elsewhere(name, 1)).touch()
    others = {elsewhere(name, 1) for name in (f".{shards[0]}.gpindex", ".saved.json", ".notes")}
    for name in others:
        (out / name).touch()

    assert pack(source, out, 2).found == 2

    assert set(os.listdir(out)) == {"pack.jsonl", *shards, *others}


@pytest.mark.parametrize("line", [NOTES, '{"gpupipe": "pack"}\n', '{"gpupipe": "pack", "options": []}\n'])
def test_a_file_of_the_name_of_the_journal_is_not_taken_for_one(source: Path, tmp_path: Path, line: str) -> None:
    files = {"pack_jsonl": line, "other_txt": "mine", "_images": "mine"}
    out = written(tmp_path / "out", **files)

    with pytest.raises(PlanError, match=r"pack\.jsonl' is not a journal of pack.*use another folder"):
        pack(source, out, 2)

    assert {path.name.replace(".", "_"): path.read_text() for path in out.iterdir()} == files


def test_a_refused_call_leaves_the_journal_as_it_is(source: Path, tmp_path: Path) -> None:
    journal = pack(source, tmp_path / "out", 2).files[0].with_name("pack.jsonl")
    journal.write_bytes(torn := journal.read_bytes()[:-5])

    with pytest.raises(PlanError, match="was begun with something else: --shards"):
        pack(source, tmp_path / "out", 3)

    assert journal.read_bytes() == torn


@posix
@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["link", "dangling link", "FIFO", "folder"])
def test_a_journal_is_a_file_and_no_link(source: Path, tmp_path: Path, kind: str) -> None:
    journal = pack(source, tmp_path / "out", 2).files[0].with_name("pack.jsonl")
    moved = journal.rename(tmp_path / "moved.jsonl")
    moved.write_bytes(torn := moved.read_bytes()[:-5])
    make: dict[str, Callable[[], None]] = {
        "link": lambda: journal.symlink_to(moved),
        "dangling link": lambda: journal.symlink_to(tmp_path / "nothing"),
        "FIFO": lambda: os.mkfifo(journal),
        "folder": journal.mkdir,
    }
    make[kind]()
    before = sorted(os.listdir(tmp_path / "out"))

    with pytest.raises(PlanError, match=r"pack\.jsonl' is not a journal of pack but (a link|no regular file); remove"):
        pack(source, tmp_path / "out", 2)

    assert sorted(os.listdir(tmp_path / "out")) == before
    assert moved.read_bytes() == torn
    assert not (tmp_path / "nothing").exists()


@posix
@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["link", "FIFO"])
def test_what_lies_at_the_name_of_a_shard_is_replaced(source: Path, tmp_path: Path, kind: str) -> None:
    shard = pack(source, tmp_path / "out", 2).files[1]
    whole = digests(tmp_path / "out")
    shard.unlink()
    (tmp_path / "mine").write_text("precious")
    if kind == "link":
        shard.symlink_to(tmp_path / "mine")
    else:
        os.mkfifo(shard)

    assert pack(source, tmp_path / "out", 2).found == 1

    assert not shard.is_symlink()
    assert digests(tmp_path / "out") == whole
    assert (tmp_path / "mine").read_text() == "precious"
