"""Files that a command writes: never over an input, never over what gpupipe did not write, known before any work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PIL import Image

import gpupipe as gp
from gpupipe.comparison.photographs import encode, take, write_shards
from gpupipe.errors import PlanError
from gpupipe.extract.storage.output import check_output
from tests.cli.commands import Cli

TRAIN = "raise SystemExit('the file ran')\n"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with shards, class folders, a Python file and other names of a shard; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    (shard,) = write_shards(tmp_path / "shards", 3, 1)
    shard.rename(tmp_path / "shards" / "a.tfrecord")
    for name in "ab":
        (tmp_path / "classes" / name).mkdir(parents=True)
        (tmp_path / "classes" / name / f"{name}.jpg").write_bytes(encode(take(1)[1]))
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "link.jsonl").symlink_to("train.py")
    (tmp_path / "hard.png").hardlink_to(tmp_path / "shards" / "a.tfrecord")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


REFUSED = {
    "verify": "verify shards --manifest shards/a.tfrecord",
    "verify a hard link": "verify shards --manifest hard.png",
    "verify a link": "verify shards --manifest link.jsonl",
    "inspect": "inspect shards --thumbnails shards/a.tfrecord",
    "inspect a hard link": "inspect shards --thumbnails hard.png",
    "preview": "preview shards/*.tfrecord --out shards/a.tfrecord",
    "preview of classes": "preview classes --out classes/a/a.jpg",
    "preview of a dataset": "preview train.py:ds --out train.py",
    "demo": "demo --data shards --out shards/a.tfrecord",
    "compare": "compare shards --html train.py",
    "compare and an input": "compare shards --html shards/a.tfrecord",
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_input_or_a_file_of_another_kind_is_not_replaced(name: str, data: Path, cli: Cli) -> None:
    before = contents(data)

    status, out, err = cli(*REFUSED[name].split())

    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert contents(data) == before


def test_a_file_without_content_is_replaced_unless_it_is_an_input(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    (tmp_path / "same").hardlink_to(tmp_path / "new")

    check_output("--out", tmp_path / "new", "PNG")

    with pytest.raises(PlanError, match=r"--out needs a file that is not an input, got '.*new', which is .*same'"):
        check_output("--out", tmp_path / "new", "PNG", ["s3://bucket/new", str(tmp_path / "same")])


def test_what_a_command_wrote_it_replaces(data: Path, cli: Cli) -> None:
    for command in (
        "inspect shards --thumbnails out.png",
        "preview classes --rows 1 --draws 1 --out out.png",
        "verify shards hard.png --manifest out.jsonl",
    ):
        assert [cli(*command.split())[0] for _ in range(2)] == [0, 0]

    (data / "shards" / "a.tfrecord").write_bytes((data / "shards" / "a.tfrecord").read_bytes()[:-5])
    assert [cli("verify", "shards", "--manifest", "out.jsonl")[0] for _ in range(2)] == [1, 1]
    assert (data / "out.jsonl").read_text().count("\n") == 1


def test_a_sheet_is_not_written_over_a_picture_of_another_program_or_under_the_name_of_another_kind(
    data: Path, cli: Cli
) -> None:
    Image.new("RGB", (9, 9)).save("photo.png")
    before = (data / "photo.png").read_bytes()

    status, _, err = cli("inspect", "shards", "--thumbnails", "photo.png")
    assert status == 2 and "an older PNG of gpupipe to replace, got 'photo.png', which is something else" in err
    assert (data / "photo.png").read_bytes() == before

    status, _, err = cli("preview", "shards", "--out", "new.jpg")
    assert status == 2 and "--out writes a PNG file, got 'new.jpg'" in err


def test_an_output_that_cannot_be_written_is_found_before_any_work(
    data: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("inspect", "shards", "--thumbnails", "out.png")[0] == 0
    os.chmod("out.png", 0o444)

    expected = "gpupipe inspect: --thumbnails needs a file that can be written, got 'out.png': permission denied\n"
    assert cli("inspect", "shards", "--thumbnails", "out.png") == (2, "", expected)

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    status, _, err = cli("demo", "--out", "new.png")
    assert status == 2 and "got 'new.png': the disk is full" in err


def test_an_error_manifest_is_not_appended_to_a_file_of_records(data: Path) -> None:
    shard = data / "shards" / "a.tfrecord"
    before = shard.read_bytes()
    options = gp.Options(on_error="skip", error_manifest=shard)

    with pytest.raises(PlanError, match=r"Options\.error_manifest needs a new file, or a manifest to append to, got"):
        list(gp.TFRecordDataset(str(shard)).with_options(options))

    assert shard.read_bytes() == before
