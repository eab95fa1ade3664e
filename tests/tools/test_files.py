"""Which files a command takes, and what they are by their first bytes."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import pytest
from PIL import Image

import gpupipe as gp
from gpupipe.load.table import table
from gpupipe.tools.files import find_files, kind_at
from gpupipe.tools.text import byte_count, counted
from tests.tools.damage import write


def image(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 10, 10)).save(stream, kind)
    return stream.getvalue()


def names(*given: str) -> list[str]:
    return [Path(file.path).name for file in find_files(given)]


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    plain = write(tmp_path / "records", [b"a record", b"another one"])
    wanted = {
        plain: ("TFRecord", ""),
        gzip.compress(plain): ("TFRecord", "GZIP"),
        zlib.compress(plain, 0): ("TFRecord", "ZLIB"),
        zlib.compress(plain, 9): ("TFRecord", "ZLIB"),
        b"": ("TFRecord", ""),
        b"\0" + plain[1:]: ("TFRecord", ""),  # a damaged length
        b"x\x9c" + bytes(40): ("TFRecord", ""),  # looks like zlib, is none: the reader will say so
        b"PK\x03\x04" + bytes(40): ("a zip archive", ""),
        b"PAR1" + bytes(40): ("a Parquet file", ""),
        image("JPEG"): ("a JPEG image", ""),
        image("PNG"): ("a PNG image", ""),
        **{image(kind): ("an image", "") for kind in ("BMP", "WEBP", "TIFF", "GIF")},
    }
    for data, kind in wanted.items():
        path = tmp_path / "one"
        path.write_bytes(data)

        assert kind_at(str(path)) == kind, data[:20]
        assert kind_at(str(path)).is_image == kind[0].endswith("image")


def test_a_folder_means_the_record_files_in_it(tmp_path: Path) -> None:
    data = write(tmp_path / "x", [b"a record"])
    shards, named = tmp_path / "shards", tmp_path / "named"
    for folder in (shards, named):
        (folder / "below").mkdir(parents=True)
        (folder / "train-00000-of-00002").write_bytes(data)
        (folder / "train-00001-of-00002").write_bytes(zlib.compress(data))
        (folder / "notes.txt").write_text("some words, and no records")
        (folder / ".hidden").write_bytes(data)
    (named / "a.TFRecord.gz").write_bytes(b"damaged")
    (named / ".a.tfrecord.gpindex").write_bytes(data)

    assert names(str(shards)) == ["train-00000-of-00002", "train-00001-of-00002"]
    assert names(str(named)) == ["a.TFRecord.gz"]
    assert names(str(named / "train-*"), str(named / "notes.txt"), str(named / "train-00000*")) == [
        "notes.txt",
        "train-00000-of-00002",
        "train-00001-of-00002",
    ]


def test_the_names_of_files_are_those_of_list_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.tfrecord").write_bytes(b"")
    pattern = str(tmp_path / "*" / "1.tfrecord")

    found = find_files([pattern])

    assert [file.name for file in found] == ["a/1.tfrecord", "b/1.tfrecord"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(gp.PlanError, match=r"^files are needed, got '.*none': it does not exist; check the path$"):
        find_files([str(tmp_path / "none")])
    with pytest.raises(gp.PlanError, match=r"got '.*/\*\.x': no file matches it; check the path, and quote wildcards"):
        find_files([str(tmp_path / "*.x")])
    with pytest.raises(gp.PlanError, match=r"the folder '.*empty' has no TFRecord .* \(0 other files\)"):
        find_files([str(tmp_path / "empty")])
    with pytest.raises(gp.PlanError, match="only folders match"):
        find_files([str(tmp_path / "e*")])


def test_numbers_are_short() -> None:
    sizes = [0, 999, 1000, 9994, 9996, 123_456, 999_600, 12_300_000, 5 * 10**15]
    wanted = ["0 B", "999 B", "1.00 kB", "9.99 kB", "10.0 kB", "123 kB", "1.00 MB", "12.3 MB", "5000 TB"]
    assert list(map(byte_count, sizes)) == wanted
    assert [counted(1, "file"), counted(0, "file"), counted(1234, "file")] == ["1 file", "0 files", "1,234 files"]
    assert table(("a", "n"), [("bb", "1"), ("c", "22")], (1,)) == "a    n\nbb   1\nc   22"
