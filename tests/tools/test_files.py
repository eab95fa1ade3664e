"""Which files a command takes, and what they are by their first bytes."""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe.extract import finder, kinds
from gpupipe.extract.finder import find
from gpupipe.extract.kinds import kind_at
from gpupipe.load.table import table
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.tools.text import byte_count, counted
from tests.tools.damage import write


def names(*given: str) -> list[str]:
    return [Path(path).name for path in find(given, "test").paths]


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
        encoded(picture(6, 8)): ("a JPEG image", ""),
        encoded(picture(6, 8), "PNG"): ("a PNG image", ""),
        **{encoded(picture(6, 8), kind): ("an image", "") for kind in ("BMP", "WEBP", "TIFF", "GIF")},
    }
    for data, kind in wanted.items():
        (tmp_path / "one").write_bytes(data)
        found = kind_at(str(tmp_path / "one"))

        assert (found, found.is_image) == (kind, kind[0].endswith("image")), data[:20]


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
    several = names(str(named / "train-*"), str(named / "notes.txt"), str(named / "train-00000*"))
    assert several == ["notes.txt", "train-00000-of-00002", "train-00001-of-00002"]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[str]]:
    """Notes the paths that a function of a module is called with from now on."""

    def note(module: Any, name: str) -> list[str]:
        asked: list[str] = []
        call = getattr(module, name)

        def noting(path: Any, *given: Any, **named: Any) -> Any:
            asked.append(os.fspath(path))
            return call(path, *given, **named)

        monkeypatch.setattr(module, name, noting)
        return asked

    return note


def _filled(folder: Path, count: int, name: str, data: bytes = b"") -> None:
    for i in range(count):
        (folder / name.format(i)).write_bytes(data)


def test_of_many_files_of_another_kind_few_are_opened_and_the_rest_not_even_looked_at(
    tmp_path: Path, noted: Callable[[Any, str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "LOOKED_AT", 10)
    for name in ("{}.xml", "{}", "{}.5d41"):
        _filled(tmp_path, 95, name)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    opened = noted(kinds, "first_bytes")
    asked = [noted(module, call) for module, call in ((os, "stat"), (os, "lstat"), (os.path, "isdir"))]

    with pytest.raises(gp.PlanError, match=r"xml files \(95\).*; up to 10 files with each suffix were looked into"):
        find([str(tmp_path)], "test")

    names = [Path(path).name for path in opened]
    assert len(names) == 10 + 10  # of .xml, and of those whose suffix says nothing
    assert [name for name in names if name.endswith("xml")][:3] == ["0.xml", "17.xml", "26.xml"]  # from all of them
    inside = {path.name for path in map(Path, itertools.chain(*asked)) if path.parent == tmp_path}
    assert inside - set(names) <= {"folder", "link"}


def test_images_are_not_opened_to_find_records(tmp_path: Path, noted: Callable[[Any, str], list[str]]) -> None:
    _filled(tmp_path, 20, "{}.JPG", b"\xff\xd8\xff")
    opened = noted(kinds, "first_bytes")

    assert len(names(str(tmp_path))) == 20
    assert opened == []


def test_the_names_of_files_are_those_of_list_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.tfrecord").write_bytes(b"")

    assert [file.name for file in find(str(tmp_path / "*" / "1.tfrecord"), "test").files] == [
        "a/1.tfrecord",
        "b/1.tfrecord",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", r"^test needs TFRecord files, .* got '.*none': it does not exist; check the path$"),
        ("*.x", r"got '.*/\*\.x': no file matches it; check the path, and quote wildcards"),
        ("empty", r"the folder '.*empty' has no such files in it, and no images below it: it has nothing; for"),
        ("e*", "only folders match"),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(gp.PlanError, match=words):
        find(str(tmp_path / name), "test")


def test_numbers_are_short() -> None:
    sizes = [0, 999, 1000, 9994, 9996, 123_456, 999_600, 12_300_000, 5 * 10**15]
    wanted = ["0 B", "999 B", "1.00 kB", "9.99 kB", "10.0 kB", "123 kB", "1.00 MB", "12.3 MB", "5000 TB"]
    assert list(map(byte_count, sizes)) == wanted
    assert [counted(1, "file"), counted(0, "file"), counted(1234, "file")] == ["1 file", "0 files", "1,234 files"]
    assert table(("a", "n"), [("bb", "1"), ("c", "22")], (1,)) == "a    n\nbb   1\nc   22"
