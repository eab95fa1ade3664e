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
from gpupipe.extract.records.writer import TFRecordWriter
from gpupipe.tools.pack import run
from tests.cli.commands import signalled, started
from tests.tools.packing import digests, folder_of, packed_records

pytest.importorskip("simplejpeg", reason="pack shrinks and decodes with simplejpeg")


def test_a_folder_becomes_shards_and_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folder_of(tmp_path / "photos", 10)
    (source / "class0/notes.txt").touch()

    status = main(["pack", str(source), str(tmp_path / "out"), "--shards", "2", "--resize-shorter", "24"])

    said = capsys.readouterr()
    megabytes = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.tfrecord")) / 1e6
    assert status == 0
    assert said.out == (
        f"10 images of 3 classes in 2 shards, {megabytes:.1f} MB; 1 other file was ignored\n"
        f"{tmp_path}/out/train-00000-of-00002.tfrecord ...\n"
    )
    assert said.err == ""  # not a terminal
    assert {(r["image/height"], r["image/width"]) for r in packed_records(tmp_path / "out")} == {(24, 32)}


@pytest.mark.parametrize(("text", "size"), [("40000", 40_000), ("0.04 MB", 40_000), ("40KiB", 40_960)])
def test_a_budget_is_a_number_of_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str, size: int
) -> None:
    source, out = folder_of(tmp_path / "photos", 10), tmp_path / "out"

    words = ["--shards", "1", "--resize-shorter", "40", "--decoded"]
    assert main(["pack", str(source), str(out), *words, "--budget", text]) == 0

    decoded = sum(bytes(r["image/format"]) == b"BMP" for r in packed_records(out))
    assert f" MB, {decoded} of them decoded\n" in capsys.readouterr().out
    assert 0 < decoded < 10
    assert json.loads((out / "pack.jsonl").read_text().splitlines()[0])["options"]["--budget"] == size


def test_what_takes_more_than_the_budget_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "decoded_within", lambda budget, sizes, count: count)  # images that no sample foresaw
    source = str(folder_of(tmp_path / "photos", 10))
    words = ["--shards", "1", "--resize-shorter", "40", "--decoded", "--budget", "10kB"]

    assert main(["pack", source, str(tmp_path / "1"), *words]) == 0
    assert "over the budget: by 0.1 MB" in capsys.readouterr().err
    assert main(["pack", source, str(tmp_path / "2"), *words, "--json"]) == 0
    said = capsys.readouterr()
    assert "over the budget" in said.err
    assert json.loads(said.out)["budget"] == 10_000


@pytest.mark.parametrize("text", ["", "-1", "1e9", "5 PB", "9" * 5000])
def test_anything_else_is_no_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    words = ["pack", str(folder_of(tmp_path / "photos", 1)), str(tmp_path / "out"), "--shards", "1", "--decoded"]
    with pytest.raises(SystemExit, match="2"):
        main([*words, f"--budget={text}"])

    assert f"needs bytes, such as 200GB, 1.5TiB or 4096, got {text!r}" in capsys.readouterr().err


def test_the_summary_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folder_of(tmp_path / "photos", 10)
    (source / "class1/x.jpg").write_bytes(b"no image")
    arguments = ["pack", str(source), str(tmp_path / "out"), "--shards", "2", "--name", "val", "--json"]

    assert main([*arguments, "--on-error", "skip", "--seed", "3", "--workers", "1"]) == 0

    summary = json.loads(capsys.readouterr().out)
    files = sorted(str(path) for path in (tmp_path / "out").glob("val-*.tfrecord"))
    (skipped,) = summary.pop("skipped")
    assert skipped["image"] == str(source / "class1/x.jpg")
    assert skipped["reason"].startswith("not an image: starts with 6e 6f 20 69")
    assert (summary.pop("files"), summary.pop("class_names")) == (files, ["class0", "class1", "class2"])
    numbers = {"shards": 2, "records": 10, "decoded": 0, "classes": 3, "ignored": 0, "found": 0, "budget": None}
    assert summary == {**numbers, "bytes": sum(os.path.getsize(file) for file in files)}


def test_images_that_were_left_out_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = folder_of(tmp_path / "photos", 3)
    for number in range(12):
        (source / f"class0/bad{number:02d}.jpg").write_bytes(b"\xff\xd8")

    status = main(["pack", str(source), str(tmp_path / "out"), "--shards", "1", "--on-error", "skip"])

    said = capsys.readouterr()
    assert status == 0
    assert "3 images of 3 classes in 1 shard" in said.out
    assert "12 images were left out" in said.out
    assert said.err.count("left out: ") == 10
    assert f"... and 2 more, in {tmp_path}/out/pack.jsonl" in said.err


def test_what_is_wrong_is_one_line_and_a_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = folder_of(tmp_path / "photos", 6), tmp_path / "out"
    assert main(["pack", str(source), str(out), "--shards", "2"]) == 0
    bad = folder_of(tmp_path / "bad", 3)
    (bad / "class0/000.jpg").write_bytes(b"no image")
    wrong = [
        (2, "--shards was 2, now 3", [str(source), str(out), "--shards", "3"]),
        (2, "pack needs a folder for its shards, got ''", [str(source), "", "--shards", "1"]),
        (1, "000.jpg: not an image", [str(bad), str(tmp_path / "o"), "--shards", "1"]),
    ]
    capsys.readouterr()
    for status, words, arguments in wrong:
        assert main(["pack", *arguments]) == status, words

        said = capsys.readouterr()
        assert words in said.err
        assert said.err.startswith("gpupipe pack: ")
        assert (said.err.count("\n"), said.out) == (1, "")


def test_a_full_disk_says_so_and_the_command_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["pack", str(folder_of(tmp_path / "photos", 9)), str(tmp_path / "out"), "--shards", "3"]
    written = []
    write = TFRecordWriter.write

    def full(self: TFRecordWriter, record: bytes) -> None:
        written.append(record)
        if len(written) == 5:  # in the second shard
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, record)

    monkeypatch.setattr(TFRecordWriter, "write", full)
    status = main(arguments)

    assert status == 1
    assert "the disk is full; 1 of 3 shards are finished: make room, and repeat" in capsys.readouterr().err
    assert sorted(digests(tmp_path / "out")) == ["train-00000-of-00003.tfrecord"]
    monkeypatch.undo()
    assert main(arguments) == 0
    assert "1 shard was finished before" in capsys.readouterr().out
    assert len(packed_records(tmp_path / "out")) == 9


@pytest.mark.alone
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=["ctrl-c", "kill"]
)
def test_an_interrupted_run_goes_on(tmp_path: Path, number: signal.Signals, status: int) -> None:
    source, out = folder_of(tmp_path / "photos", 48, size=(480, 640)), tmp_path / "out"
    arguments = ["pack", str(source), str(out), "--shards", "12", "--resize-shorter", "240"]
    process = started(*arguments, "--workers", "1", cwd=tmp_path)

    found, _, said = signalled(process, number, (out / "train-00001-of-00012.tfrecord").exists)

    assert found == status, said
    assert "Traceback" not in said
    assert ("the same command goes on from here" in said) == (number == signal.SIGINT)
    assert 2 <= len(list(out.glob("train-*.tfrecord"))) < 12
    if number != signal.SIGKILL:
        assert not list(out.glob(".*"))
    assert main(arguments) == 0
    assert main([*arguments[:2], str(tmp_path / "whole"), *arguments[3:]]) == 0
    assert digests(out) == digests(tmp_path / "whole")


def test_a_disk_that_is_full_at_the_start_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)

    assert main(["pack", str(folder_of(tmp_path / "photos", 3)), str(tmp_path / "out"), "--shards", "1"]) == 1

    assert capsys.readouterr().err == f"gpupipe pack: the disk is full: '{tmp_path}/out/pack.jsonl'\n"
