"""`gpupipe verify`: which records are bad, and plain words when something is wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe.comparison.photographs import encode, take, write_shards
from tests.cli.commands import Cli, settled, started
from tests.tools.damage import OLD_MANIFEST, write


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Four shards of records of 9 bytes; in the second one, record 3 has a damaged payload, and the end is missing."""
    folder = tmp_path / "data"
    folder.mkdir()
    paths = [folder / f"{number}.tfrecord" for number in range(4)]
    for path in paths:
        write(path, [b"record %02d" % n for n in range(20)])
    data = bytearray(paths[1].read_bytes())
    data[3 * 25 + 15] ^= 1
    paths[1].write_bytes(data[:-5])
    return paths


def test_good_files_are_one_line_and_status_0(shards: list[Path], tmp_path: Path, cli: Cli) -> None:
    shards[1].unlink()

    found = cli("verify", tmp_path / "data" / "*", "--manifest", tmp_path / "bad.jsonl")

    assert found == (0, "3 files, 60 records, 1.50 kB: all good (lengths and payloads match their checksums)\n", "")
    assert (tmp_path / "bad.jsonl").read_bytes() == b""


def test_bad_records_are_listed_or_json_and_status_1(
    shards: list[Path], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpupipe.tools.verify.WORTH", 1)
    path = tmp_path / "bad.jsonl"

    status, out, err = cli("verify", tmp_path / "data", "--manifest", path, "--workers", 2)

    assert (status, err) == (1, "")
    (row,) = (line for line in out.splitlines() if line.startswith(str(shards[1])))
    assert row.split()[1:3] == ["20", "2"]
    assert "at offset 75: record 3: the CRC of the payload does not match" in row
    assert "4 files, 80 records, 2.00 kB: 2 bad in 1 file" in out
    assert "1 x read: record N: its length exceeds the file" in out
    assert f"Options(bad_records={str(path)!r})" in out
    chain = gp.TFRecordDataset(list(map(str, shards))).with_options(gp.Options(on_error="skip", bad_records=path))
    with chain.iterator(0) as items:
        assert len(list(items)) == 78
        assert [(one.file, one.offset) for one in items.errors] == [(str(shards[1]), 75), (str(shards[1]), 475)]

    status, out, _ = cli("verify", *shards, "--json")
    found = json.loads(out)
    assert [found[name] for name in ("good", "records", "bad", "decoded", "manifest")] == [False, 80, 2, [], None]
    assert [(one["records"], one["bad"]) for one in found["files"]] == [(20, 0), (20, 2), (20, 0), (20, 0)]
    assert [one["offset"] for one in found["bad_records"]] == [75, 475]
    assert (status, sum(found["causes"].values())) == (1, 2)


def test_images_are_decoded_on_request(tmp_path: Path, cli: Cli) -> None:
    (path,) = write_shards(tmp_path, count=3, shards=1)
    whole = path.read_bytes()
    status, out, _ = cli("verify", path, "--decode")
    assert status == 0 and "images in image/encoded decoded" in out

    with gp.io.TFRecordWriter(str(path)) as writer:
        writer.write(gp.io.encode_example({"image/encoded": whole[whole.index(b"\xff\xd8") :][:900]}))
    assert cli("verify", path)[0] == 0
    status, out, _ = cli("verify", path, "--decode", "--feature", "image/encoded")
    assert status == 1 and "without the end marker" in out


def test_an_empty_file_is_said_to_have_no_records_and_text_is_bad(tmp_path: Path, cli: Cli) -> None:
    empty, full, text = (tmp_path / f"{name}.tfrecord" for name in ("empty", "full", "text"))
    empty.touch()
    write(full, [b"one"])
    text.write_text("this is no record file, only some text\n" * 9)

    assert cli("verify", empty)[:2] == (0, "1 file, 0 records, 0 B: there is nothing to check\n")
    status, out, _ = cli("verify", empty, full)
    assert status == 0 and out.endswith("; 1 file without records\n")
    status, out, _ = cli("verify", text)
    assert status == 1 and "(is this a TFRecord file?)" in out


def test_a_file_that_may_not_be_read_is_bad(
    shards: list[Path], tmp_path: Path, cli: Cli, forbid: Callable[[Path], None]
) -> None:
    forbid(shards[2])

    status, out, _ = cli("verify", shards[0], shards[2], "--workers", 1, "--manifest", tmp_path / "bad.jsonl")

    assert status == 1 and "Permission denied" in out and "2 files, 20 records" in out
    assert json.loads((tmp_path / "bad.jsonl").read_bytes())["unit"] == "file"  # which a chain tries to read again


def test_one_image_that_cannot_be_read_makes_no_records_of_the_others(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "0.jpg").write_bytes(encode(take(0)[1]))
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "nowhere")

    status, out, err = cli("verify", tmp_path)

    assert status == 1 and "broken.jpg" in out
    assert "TFRecord" not in out + err and "0.jpg" not in out


# ---- processes and signals


@pytest.fixture
def many(tmp_path: Path) -> str:
    """A pattern of files that take minutes to check."""
    folder = tmp_path / "many"
    folder.mkdir()
    write(folder / "0.tfrecord", [b"a short record"] * 100_000)
    for number in range(1, 2000):
        os.link(folder / "0.tfrecord", folder / f"{number}.tfrecord")
    return str(folder / "*.tfrecord")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["ctrl-c", "kill"])
def test_an_end_before_the_end_leaves_no_process_and_no_manifest(
    tmp_path: Path, many: str, number: signal.Signals, status: int
) -> None:
    mark, out = uuid.uuid4().hex, tmp_path / "out"
    out.mkdir()
    (out / "bad.jsonl").write_text(OLD_MANIFEST)
    words = ["--workers", "2", "--manifest", str(out / "bad.jsonl")]
    process = started("verify", many, *words, cwd=tmp_path, GPUPIPE_MARK=mark)
    assert settled(mark, 3)

    process.send_signal(number)
    said = process.communicate(timeout=60)  # the rest takes minutes, the end a fraction of a second

    assert process.returncode == status, said
    assert said == ("", "gpupipe: interrupted\n" if number == signal.SIGINT else "")
    assert settled(mark, 0)
    assert (out / "bad.jsonl").read_text() == OLD_MANIFEST
    assert number == signal.SIGKILL or os.listdir(out) == ["bad.jsonl"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipe of a shell")
def test_a_closed_pipe_is_no_traceback(shards: list[Path], tmp_path: Path) -> None:
    process = started("verify", *map(str, shards), "--json", "--workers", "1", cwd=tmp_path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # `| head -0`

    said = process.stderr.read()

    assert process.wait(timeout=30) == 1
    assert said == ""
    process.stderr.close()


def test_a_file_that_is_not_there_is_said_without_what_only_chains_need(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "gone.tfrecord").symlink_to(tmp_path / "nowhere")

    code, text, _ = cli("verify", tmp_path / "gone.tfrecord")

    assert code == 1
    assert "1  no such file\n" in text
    assert "1 x read: no such file\n" in text
