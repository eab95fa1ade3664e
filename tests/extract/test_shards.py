"""Samples of sound tar archives: what Python's tarfile and the webdataset library read in them."""

from __future__ import annotations

import gc
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpupipe.extract.records.index import record_index
from gpupipe.extract.shards.header import read_header
from gpupipe.extract.shards.names import split_name
from gpupipe.extract.shards.samples import SAMPLES, SampleReader
from gpupipe.extract.storage.files import LocalStorage
from tests.extract.archives import JPG_CLS, archive, good, items, member, pairs

KINDS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]

LONG = "p" * 90 + "/" + "q" * 60

NAMES = ["a", "d/b", "./c", "/abs", "../up", "sp ace", "d.ir/e", LONG, "d/" * 40 + "deep", "__x"]

ODD = ["ü/ö", "x\udcff", "n" * 300, "tab\there"]


def various(kind: int) -> list[tuple[str, bytes]]:
    names = NAMES + (ODD if kind != tarfile.USTAR_FORMAT else [])
    sizes = [0, 1, 511, 512, 513, 5000, 70_000, 1_200_000]
    return [
        (f"{name}.{extension}", bytes([i + j]) * sizes[(i + j) % len(sizes)])
        for i, name in enumerate(names)
        for j, extension in enumerate(("JPG", "seg.png", "cls"))
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves its files open
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1024, 1 << 20])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_samples_are_those_of_the_webdataset_library(tmp_path: Path, kind: int, block: int, mode: str) -> None:
    webdataset = pytest.importorskip("webdataset")
    members = [("__meta__/x.jpg", b"no"), *various(kind), ("note", b"no")]
    path = archive(tmp_path / "x.tar", members, mode, kind)
    names = ("cls", "seg.png", "jpg", "__key__")

    found = items(path, tuple((x.encode(),) for x in names), block=block, compression="GZIP" if mode == "w:gz" else "")

    expected = [
        tuple(x[name].encode(errors="surrogateescape") if name == "__key__" else x[name] for name in names)
        for x in webdataset.WebDataset(path, shardshuffle=False)
    ]
    assert [value for _, value in found] == expected
    assert len(expected) == len(various(kind)) // 3
    gc.collect()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (b"a.", (b"a", b"")),
        (b"a..jpg", (b"a", b".jpg")),
        (b"d.x/a", None),
        (b"d/.hidden", None),
        (b"._a.jpg", None),
        (b"d/", None),
        (b"", None),
        (b"__meta__.jpg", (b"__meta__", b"jpg")),
        (b"__a/b.jpg", (b"__a/b", b"jpg")),
    ],
)
def test_a_name_is_cut_at_the_first_dot_of_its_base(name: bytes, found: Any) -> None:
    assert split_name(name) == found


def test_members_that_belong_to_no_sample_do_not_part_one(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "x.tar", [("a.jpg", b"1"), ("d", member(tarfile.DIRTYPE)), ("note", b"x"), ("a.cls", b"2")]
    )
    assert items(path) == [(0, (b"1", b"2"))]


def test_a_key_that_comes_back_is_another_sample(tmp_path: Path) -> None:
    members = [("a.jpg", b"1"), ("a.cls", b"2"), ("b.jpg", b"3"), ("b.cls", b"4"), ("a.jpg", b"5"), ("a.cls", b"6")]
    assert items(archive(tmp_path / "x.tar", members)) == [
        (0, (b"1", b"2")),
        (2048, (b"3", b"4")),
        (4096, (b"5", b"6")),
    ]


def test_the_first_of_several_extensions_wins(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", [("a.png", b"1"), ("a.jpg", b"2"), ("b.jpeg", b"3")])
    assert good(items(path, ((b"jpg", b"png", b"jpeg"),))) == [(b"2",), (b"3",)]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.FIFOTYPE, "a FIFO"),
        (tarfile.CHRTYPE, "a character device"),
        (tarfile.BLKTYPE, "a block device"),
    ],
)
def test_what_is_no_file_is_refused_by_name_where_it_is_wanted(tmp_path: Path, kind: bytes, what: str) -> None:
    path = archive(tmp_path / "x.tar", [("a.cls", b"1"), ("a.jpg", member(kind, "/etc/passwd")), ("b.cls", b"2")])

    ((offset, error), _) = items(path)

    assert offset == 0
    assert error[1] == f"its member a.jpg is {what}; store the bytes of files in archives"
    assert good(items(path, ((b"cls",),))) == [(b"1",), (b"2",)]


def sparse(path: Path) -> str:
    """An archive with an old GNU sparse file of 3 parts, whose list has one more block, between two files."""
    header = bytearray(tarfile.TarInfo("a.jpg").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[124:136] = b"%011o\0" % 1000
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    before = archive(path, [("a.cls", b"1")])
    after = archive(path.with_suffix(".2"), [("b.cls", b"2")])
    path.write_bytes(Path(before).read_bytes()[:1024] + header + bytes(512) + b"x" * 1024 + Path(after).read_bytes())
    return str(path)


def test_a_sparse_file_is_refused_by_name_and_skipped_as_it_is_stored(tmp_path: Path) -> None:
    path = sparse(tmp_path / "x.tar")
    assert "its member a.jpg is a sparse file" in items(path)[0][1][1]
    assert items(path, ((b"cls",),)) == [(0, (b"1",)), (3072, (b"2",))]


def test_a_sparse_file_of_pax_is_refused_by_the_name_it_has_there(tmp_path: Path) -> None:
    info = tarfile.TarInfo("GNUSparseFile.0/a.jpg")
    info.size = 600
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "a.jpg", "GNU.sparse.realsize": "90000"}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"x" * 600))
    assert "its member a.jpg is a sparse file" in items(str(tmp_path / "x.tar"), ((b"jpg",),))[0][1][1]


def test_a_member_that_is_there_twice_is_bad_where_it_is_wanted(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", [("a.jpg", b"1"), ("a.cls", b"2"), ("a.JPG", b"3"), ("b.jpg", b"4")])
    assert items(path, ((b"jpg",),))[0][1][1] == "its member a.JPG is there twice"
    assert good(items(path, ((b"jpg",),))) == [(b"4",)]


@pytest.mark.parametrize("data", [b"", bytes(512), bytes(1024), bytes(10240)])
def test_an_archive_without_members_is_empty(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    assert items(str(path)) == []
    assert len(record_index(str(path), kind=SAMPLES)) == 0


def test_checksums_of_signed_bytes_and_sizes_of_base_256_are_read() -> None:
    info = tarfile.TarInfo("ü.jpg")
    info.size = 12 << 30
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    found = read_header(memoryview(head))
    assert found is not None and found.size == 12 << 30
    head[148:156] = b" " * 8
    signed = sum(byte - 256 if byte > 127 else byte for byte in head)
    head[148:156] = b"%06o\0 " % signed
    assert read_header(memoryview(head)) == found
    head[148:156] = b"%06o\0 " % (signed + 1)
    assert read_header(memoryview(head)) is None


class Watched(LocalStorage):
    """A disk that remembers how much was read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def readinto(self, name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        self.read_bytes += len(out)
        super().readinto(name, offset, out, tag)


def test_members_that_no_column_takes_are_not_read(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", pairs(50, 200_000))
    for columns, most in ((((b"cls",),), 50 * 5000), ((), 50 * 5000), (JPG_CLS, 50 * 250_000)):
        disk = Watched()
        assert len(list(SampleReader(path, columns=columns, storage=disk))) == 50
        assert disk.read_bytes < most + (1 << 20)


def test_an_index_is_kept_by_reading_and_found_again(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", [("d", member(tarfile.DIRTYPE)), *pairs(5)])
    items(path, keep="beside")
    saved = (tmp_path / ".x.tar.gpindex").read_bytes()
    SAMPLES.indexes.clear()

    index = record_index(path, "beside", kind=SAMPLES)

    assert index.saved
    assert index.offsets.tolist() == [512 + 2560 * i for i in range(5)] + [Path(path).stat().st_size]
    assert index.nbytes == 8 * 6 + 8 * 5  # offsets, and digests of keys
    assert len(record_index(path)) == 1  # as TFRecords it is damaged: another kind of index
    (tmp_path / ".x.tar.gpindex").write_bytes(saved[:-1])
    SAMPLES.indexes.clear()
    assert len(record_index(path, "beside", kind=SAMPLES)) == 5
