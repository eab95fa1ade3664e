"""`gpupipe pack`: what it prints, its exit status, and that an interrupted run goes on."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from gpupipe.cli import main
from gpupipe.extract.records.writer import framed
from gpupipe.extract.storage import replacing
from gpupipe.tools.pack import run
from tests.cli.commands import Cli, signalled, started
from tests.tools.packing import digests, folder_of, packed_records

pytest.importorskip("simplejpeg", reason="pack shrinks and decodes with simplejpeg")

DECODED = ["--shards", 1, "--resize-shorter", 40, "--decoded", "--budget"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "photos", 10)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_folder_becomes_shards_and_a_sentence(photos: Path, out: Path, cli: Cli) -> None:
    (photos / "class0/notes.txt").touch()

    found = cli("pack", photos, out, "--shards", 2, "--resize-shorter", 24)

    megabytes = sum(path.stat().st_size for path in out.glob("*.tfrecord")) / 1e6
    said = f"10 images of 3 classes in 2 shards, {megabytes:.1f} MB; left out: .txt files (1)\n"
    assert found == (0, f"{said}{out}/train-00000-of-00002.tfrecord ...\n", "")  # stderr is not a terminal
    assert {(r["image/height"], r["image/width"]) for r in packed_records(out)} == {(24, 32)}


@pytest.mark.parametrize(("text", "size"), [("40000", 40_000), ("0.04 MB", 40_000), ("40KiB", 40_960)])
def test_a_budget_is_a_number_of_bytes(photos: Path, out: Path, cli: Cli, text: str, size: int) -> None:
    status, said, _ = cli("pack", photos, out, *DECODED, text)

    decoded = sum(bytes(r["image/format"]) == b"BMP" for r in packed_records(out))
    assert status == 0 and f" MB, {decoded} of them decoded\n" in said
    assert 0 < decoded < 10
    assert json.loads((out / "pack.jsonl").read_text().splitlines()[0])["options"]["--budget"] == size


def test_what_takes_more_than_the_budget_is_told(
    photos: Path, out: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "decoded_within", lambda budget, sizes, count: count)  # images that no sample foresaw

    status, _, err = cli("pack", photos, out / "1", *DECODED, "10kB")
    assert status == 0 and "over the budget: by 0.1 MB" in err
    status, said, err = cli("pack", photos, out / "2", *DECODED, "10kB", "--json")
    assert status == 0 and "over the budget" in err
    assert json.loads(said)["budget"] == 10_000


@pytest.mark.parametrize("text", ["", "-1", "1e9", "5 PB", "9" * 5000])
def test_anything_else_is_no_budget(photos: Path, out: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pack", str(photos), str(out), "--shards", "1", "--decoded", f"--budget={text}"])

    assert f"needs bytes, such as 200GB, 1.5TiB or 4096, got {text!r}" in capsys.readouterr().err


def test_the_summary_as_json(photos: Path, out: Path, cli: Cli) -> None:
    (photos / "class1/x.jpg").write_bytes(b"no image")
    words = ["--shards", 2, "--name", "val", "--json", "--on-error", "skip", "--seed", 3, "--workers", 1]

    status, said, _ = cli("pack", photos, out, *words)

    summary, files = json.loads(said), sorted(str(path) for path in out.glob("val-*.tfrecord"))
    (skipped,) = summary.pop("skipped")
    assert (status, skipped["image"]) == (0, str(photos / "class1/x.jpg"))
    assert skipped["reason"].startswith("not an image but the text 'no image'")
    assert (summary.pop("files"), summary.pop("class_names")) == (files, ["class0", "class1", "class2"])
    numbers = {
        "shards": 2,
        "records": 10,
        "decoded": 0,
        "classes": 3,
        "ignored": 0,
        "left_out": {},
        "found": 0,
        "budget": None,
    }
    assert summary == {**numbers, "bytes": sum(os.path.getsize(file) for file in files)}


def test_images_that_were_left_out_are_listed(photos: Path, out: Path, cli: Cli) -> None:
    for number in range(12):
        (photos / f"class0/bad{number:02d}.jpg").write_bytes(b"\xff\xd8")

    status, said, err = cli("pack", photos, out, "--shards", 1, "--on-error", "skip")

    assert status == 0 and "10 images of 3 classes in 1 shard" in said and "12 images were left out" in said
    assert err.count("left out: ") == 10
    assert f"... and 2 more, in {out}/pack.jsonl" in err


def test_what_is_wrong_is_one_line_and_a_status(photos: Path, out: Path, tmp_path: Path, cli: Cli) -> None:
    assert cli("pack", photos, out, "--shards", 2)[0] == 0
    bad = folder_of(tmp_path / "bad", 3)
    (bad / "class0/000.jpg").write_bytes(b"no image")
    for wanted, words, source, folder, shards in (
        (2, "--shards was 2, now 3", photos, out, 3),
        (2, "pack needs a folder for its shards, got ''", photos, "", 1),
        (1, "000.jpg: not an image", bad, tmp_path / "o", 1),
    ):
        status, said, err = cli("pack", source, folder, "--shards", shards)

        assert (status, said, err.count("\n")) == (wanted, "", 1)
        assert err.startswith("gpupipe pack: ") and words in err


def test_a_full_disk_says_so_and_the_command_can_be_repeated(
    photos: Path, out: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []

    def full(record: bytes) -> bytes:
        written.append(record)
        if len(written) == 5:  # in the second shard
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return framed(record)

    monkeypatch.setattr("gpupipe.tools.pack.shard.framed", full)
    status, _, err = cli("pack", photos, out, "--shards", 3)

    assert status == 1 and "the disk is full; 1 of 3 shards are finished: make room, and repeat" in err
    assert sorted(digests(out)) == ["train-00000-of-00003.tfrecord"]
    monkeypatch.undo()
    status, said, _ = cli("pack", photos, out, "--shards", 3)
    assert status == 0 and "1 shard was finished before" in said
    assert len(packed_records(out)) == 10


@pytest.mark.alone
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
def test_an_interrupted_run_goes_on(tmp_path: Path, out: Path, cli: Cli) -> None:
    """After Ctrl-C; SIGKILL is that of tests/tools/test_pack_resume.py."""
    source = folder_of(tmp_path / "photos", 48, size=(480, 640))
    words = ["--shards", "12", "--resize-shorter", "240"]
    process = started("pack", str(source), str(out), *words, "--workers", "1", cwd=tmp_path)

    status, _, err = signalled(process, signal.SIGINT, (out / "train-00001-of-00012.tfrecord").exists)

    assert status == 130, err
    assert "Traceback" not in err and "the same command goes on from here" in err
    assert 2 <= len(list(out.glob("train-*.tfrecord"))) < 12
    assert not list(out.glob(".*"))
    assert [cli("pack", source, folder, *words)[0] for folder in (out, tmp_path / "whole")] == [0, 0]
    assert digests(out) == digests(tmp_path / "whole")


def test_a_disk_that_is_full_at_the_start_is_named(
    photos: Path, out: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(replacing, "create", full)

    said = f"gpupipe pack: the disk is full: '{out}/pack.jsonl'\n"
    assert cli("pack", photos, out, "--shards", 1) == (1, "", said)
