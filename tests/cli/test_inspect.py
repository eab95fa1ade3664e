"""`gpupipe inspect`: what is in records and images, a dict to paste, a picture, and where files are broken."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe.comparison.photographs import encode, take, write_shards
from gpupipe.ops._shared.samples import encoded
from gpupipe.tools.thumbnails import SIDE
from tests.cli.commands import Cli
from tests.tools.damage import write


@pytest.fixture
def photographs(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "photographs"
    folder.mkdir()
    return write_shards(folder, count=6, shards=2)


def test_a_file_of_records_is_described_with_a_dict_to_paste(photographs: list[Path], cli: Cli) -> None:
    status, out, err = cli("inspect", photographs[0])

    assert (status, err) == (0, "")
    for words in (
        f"{photographs[0]}: 3 readable records", "not compressed", "checksums: all lengths match, all payloads match",
        "3 records: each is a tf.train.Example", "images in image/encoded: ", "x JPEG baseline",
    ):  # fmt: skip
        assert words in out
    scope: dict[str, Any] = {"gp": gp}
    exec(out[out.index("features = {") :], scope)
    (first, *_) = gp.TFRecordDataset(str(photographs[0]))
    parsed = gp.io.parse_single_example(first, scope["features"])
    assert parsed["image/encoded"][:2] == b"\xff\xd8"
    assert parsed["image/format"] == b"JPEG"


def test_several_files_have_a_row_each_and_one_for_all(photographs: list[Path], cli: Cli) -> None:
    folder, data = photographs[1].parent, photographs[1].read_bytes()
    (folder / "x.tfrecord.gz").write_bytes(gzip.compress(data))
    (folder / "y.tfrecord").write_bytes(zlib.compress(data))

    status, out, _ = cli("inspect", folder)

    rows = {Path(line.split()[0]).name: line for line in out.splitlines() if line.startswith("/")}
    assert [rows[name].split()[3:5] for name in ("x.tfrecord.gz", "y.tfrecord")] == [["gzip", "3"], ["zlib", "3"]]
    assert all(row.endswith("good") for row in rows.values())
    assert (status, len(rows)) == (0, 4)


def test_json_says_the_same(photographs: list[Path], tmp_path: Path, cli: Cli) -> None:
    pixels = take(3)[1]
    (tmp_path / "photo.jpg").write_bytes(encode(pixels, subsampling="4:2:0", progressive=True))

    status, out, _ = cli("inspect", *photographs, tmp_path / "photo.jpg", "--json")

    said = json.loads(out)
    (image,), records = said["images"], said["records"]
    assert status == 0
    assert (image["format"], image["height"], image["width"]) == ("jpeg", *pixels.shape[:2])
    assert (image["process"], image["subsampling"], image["error"]) == ("progressive", "4:2:0", None)
    assert records["readable_records"] == 6
    assert [one["readable_records"] for one in records["files"]] == [3, 3]
    assert records["sample"] == {"records": 6, "examples": 6, "other": None}
    names = [one["name"] for one in records["features"]]
    assert names == sorted(names) and "image/encoded" in names
    assert records["parse_single_example"].startswith("features = {")


def test_broken_files_say_where_and_what_can_be_read(tmp_path: Path, cli: Cli) -> None:
    data = bytearray(write(tmp_path / "a.tfrecord", [b"record %02d" % n for n in range(20)]))
    data[3 * 25 + 15] ^= 1
    data[5 * 25] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data[:-5])

    status, said, _ = cli("inspect", tmp_path / "a.tfrecord")

    assert status == 1
    assert "17 readable records" in said
    assert "checksums: 2 other damaged places, 1 wrong payload" in said
    assert "  at offset 75: record 3: the CRC of the payload does not match" in said
    assert "  at offset 125: record 5: the length of a record and its CRC do not match; 25 bytes are skipped" in said
    assert "  at offset 475: record 19: its length exceeds the file, it needs 25 bytes, 20 are left" in said
    assert "  17 records can be read" in said
    assert "17 records: no tf.train.Example; the first other: a tf.train.Example is needed, got 9 bytes" in said
    assert "features = {" not in said


def test_a_photograph_is_described(tmp_path: Path, cli: Cli) -> None:
    path, pixels = tmp_path / "photo.jpg", take(3)[1]
    path.write_bytes(encoded(pixels, orientation=6, subsampling=2, restart_marker_blocks=5))
    size = f"{pixels.shape[0]} x {pixels.shape[1]} pixels (height x width), as stored"

    status, out, _ = cli("inspect", path)

    assert status == 0
    for words in (
        f"{path}: JPEG baseline 4:2:0", size, "YCbCr, 8 bits in 3 channels", "every 5 blocks (MCUs)",
        "6, to be rotated by 90 degrees clockwise", "succeeds; by DALI",
    ):  # fmt: skip
        assert words in out


def test_a_contact_sheet_shows_the_images_of_the_sample(photographs: list[Path], tmp_path: Path, cli: Cli) -> None:
    sheet = tmp_path / "sheet.png"

    status, _, err = cli("inspect", *photographs, "--thumbnails", sheet)

    assert status == 0 and "contact sheet of 6 of 6 images: " in err
    with Image.open(sheet) as image:
        assert (image.format, image.size) == ("PNG", (6 * (SIDE + 4) + 4, SIDE + 8))
        first = np.asarray(image)[4 : 4 + SIDE, 4 : 4 + SIDE]
    wanted = Image.fromarray(np.asarray(take(0)[1])).convert("RGB")
    wanted.thumbnail((SIDE, SIDE))
    top, left = (SIDE - wanted.height) // 2, (SIDE - wanted.width) // 2
    found = first[top : top + wanted.height, left : left + wanted.width]
    assert np.abs(found.astype(int) - np.asarray(wanted)).mean() < 8  # of 255: the photograph is a JPEG here


def test_a_contact_sheet_of_records_without_images_is_refused(tmp_path: Path, cli: Cli) -> None:
    write(tmp_path / "plain.tfrecord", [b"no image"])

    status, _, err = cli("inspect", tmp_path / "plain.tfrecord", "--thumbnails", tmp_path / "sheet.png")

    assert status == 2 and "--thumbnails needs images, and the sample has none" in err
    assert not (tmp_path / "sheet.png").exists()


def test_an_empty_file_has_no_records(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty.tfrecord").touch()

    status, out, _ = cli("inspect", tmp_path / "empty.tfrecord")

    assert status == 0 and "0 readable records, 0 B" in out


def test_a_file_that_may_not_be_read_says_so(photographs: list[Path], cli: Cli, forbid: Callable[[Path], None]) -> None:
    forbid(photographs[1])

    status, out, _ = cli("inspect", *photographs)

    assert status == 1 and "Permission denied" in out
    assert f"{photographs[1]} is not read to its end: " in out
    assert "3 records: each is a tf.train.Example" in out
