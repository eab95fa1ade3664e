"""`gpupipe inspect` and `gpupipe verify` of image files: a folder, a wildcard, and files that are no images."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from PIL import Image

from gpupipe.comparison.photographs import encode, take
from gpupipe.tools.image_files import LISTED
from tests.cli.commands import Cli


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Two class folders, one of them with a folder below it; 42 JPEGs, 4 PNGs, and a text."""
    folder = tmp_path / "classes"
    (folder / "cat" / "more").mkdir(parents=True)
    (folder / "dog").mkdir()
    jpeg = encode(take(0)[1][:20, :30])
    for number in range(42):
        (folder / ("cat", "dog")[number % 2] / f"{number}.JPEG").write_bytes(jpeg)
    for number in range(4):
        Image.new("RGB", (8, 6 + number)).save(folder / "cat" / "more" / f"{number}.png")
    (folder / "notes.txt").write_text("no image")
    return folder


def test_a_folder_of_class_folders_is_summarised(classes: Path, cli: Cli) -> None:
    status, out, err = cli("inspect", classes)

    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    for line in (
        "JPEG baseline 4:4:4 42",
        "PNG 4",
        *(f"{classes}/{row}" for row in ("cat 21", "cat/more 4", "dog 21")),
    ):
        assert line.split() in lines
    assert "heights: 6 min, 20 median, 20 max, in pixels" in out
    assert len(lines) < LISTED
    for said in (out, cli("inspect", classes / "*" / "**" / "*.[Jp]*")[1]):
        assert said.startswith("46 images, ")


def test_few_images_of_a_folder_are_described_one_by_one(classes: Path, cli: Cli) -> None:
    assert cli("inspect", classes / "cat" / "more")[1].count("succeeds; by DALI") == 4


def test_verify_lists_bad_images_of_a_folder(classes: Path, cli: Cli) -> None:
    status, out, _ = cli("verify", classes)
    assert status == 0 and "46 images" in out
    assert "all good (headers and ends are complete; --decode checks the pixels)" in out

    damaged, cut = classes / "cat" / "more" / "0.png", classes / "dog" / "1.JPEG"
    data = bytearray(damaged.read_bytes())
    at = data.index(b"IDAT")
    end = at + 4 + int.from_bytes(data[at - 4 : at], "big")
    data[end - 8 : end] = bytes(8)  # what zlib ends with; the checksum of the chunk is right
    data[end : end + 4] = zlib.crc32(data[at:end]).to_bytes(4, "big")
    damaged.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-20])
    for given in (classes, classes / "**" / "*.*[Gg]"):
        status, out, _ = cli("verify", given)
        assert status == 1 and "46 images" in out and ": 1 bad" in out
        assert f"{cut}: " in out and f"{damaged}: " not in out
    status, out, _ = cli("verify", classes, "--decode", "--json")
    found = json.loads(out)
    assert (status, [one["path"] for one in found["bad_images"]]) == (1, [str(damaged), str(cut)])
    assert (found["images"], found["bad"], found["good"], found["decoded"]) == (46, 2, False, True)


@pytest.mark.parametrize("command", ["inspect", "verify"])
@pytest.mark.parametrize(("data", "words"), [(b"", "the file is empty"), (b"words, no image", "")])
def test_an_image_file_without_an_image_is_bad(command: str, data: bytes, words: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "z.jpg").write_bytes(data)

    status, out, err = cli(command, tmp_path / "z.jpg")

    assert (status, err) == (1, "")
    assert out.startswith(f"{tmp_path / 'z.jpg'}: {words}") and "record" not in out
