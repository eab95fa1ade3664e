"""Manifests of files: what is written is read again; bytes of a stranger are refused before they cost anything."""

from __future__ import annotations

import contextlib
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c

import gpupipe as gp
from gpupipe.errors import DataError, MissingFileError, PlanError, RecordError
from gpupipe.extract.records import manifest_writer
from gpupipe.extract.records.index import build_index
from gpupipe.extract.records.manifest import BLOCK, END, MAGIC, Manifest, folder_of, read_manifest
from gpupipe.extract.records.manifest_offsets import Offsets
from gpupipe.extract.records.manifest_writer import default_place, write_manifest
from gpupipe.extract.storage import retry
from tests.behaviour.manifests import pretended, written
from tests.tools.damage import broken


def changed(path: str, change: Callable[[bytearray], None]) -> str:
    """Change the bytes of a manifest."""
    data = bytearray(Path(path).read_bytes())
    change(data)
    Path(path).write_bytes(data)
    return path


def with_tail(path: str, names: bytes, numbers: list[list[int]], **end: int) -> str:
    """Write another end: names and numbers of the files, with the right checksum."""
    data = Path(path).read_bytes()
    scheme, version, _, files, letters, magic = END.unpack(data[-END.size :])
    body = data[: len(data) - END.size - letters - 24 * files]
    tail = np.array(numbers, "<u8").tobytes() + names
    last = END.pack(
        scheme, version, crc32c(tail), end.get("files", len(numbers[0])), end.get("letters", len(names)), magic
    )
    Path(path).write_bytes(body + tail + last)
    return path


def test_a_manifest_of_a_url_hides_its_secrets() -> None:
    none = np.zeros(0, np.int64)
    manifest = Manifest("https://u:p@h/f?sig=s", (), none, none, none.astype(np.uint64), "https", "", "")

    assert repr(manifest) == "<manifest 'https://u:***@h/f?…' of 0 files>"


@pytest.mark.parametrize("counts", [[], [0], [1], [3, 0, BLOCK, 2 * BLOCK + 1, 5]])
def test_what_is_written_is_read_again(tmp_path: Path, counts: list[int]) -> None:
    if not counts:
        with pytest.raises(PlanError, match="index needs files, got none"):
            write_manifest([], str(tmp_path / "m"), 1)
        return
    path, paths, _ = written(tmp_path, counts)

    found = read_manifest(path)

    assert found.paths == tuple(paths)
    assert (found.counts == counts).all()
    assert found.sizes.tolist() == [os.path.getsize(one) for one in paths]
    assert len(found) == sum(counts)
    offsets = Offsets(found, None)
    for file, count in enumerate(counts):
        index, every = build_index(paths[file]), np.arange(count)
        starts, stops, errors = offsets.spans(np.full(count, file), every)
        assert (starts == index.offsets[:-1]).all()
        assert (stops == index.offsets[1:]).all()
        assert errors == {}
        found.check(file)


def test_names_are_relative_to_the_folder_of_the_manifest_or_that_of_all_files(tmp_path: Path) -> None:
    _, paths, _ = written(tmp_path / "data" / "a", [1, 1])
    _, more, _ = written(tmp_path / "data" / "b", [1])

    assert write_manifest([*paths, *more], str(tmp_path / "m"), 1).folder == f"{tmp_path}/"
    assert read_manifest(str(tmp_path / "m")).paths == (*paths, *more)
    (tmp_path / "other").mkdir()
    listed = write_manifest([*paths, *more], str(tmp_path / "other" / "m"), 1)
    assert listed.folder == f"{tmp_path}/data/"
    assert read_manifest(str(tmp_path / "other" / "m"), listed.folder).paths == (*paths, *more)
    assert default_place([*paths, *more]) == f"{tmp_path}/data/files.gpindex"


def test_the_folder_of_a_path() -> None:
    paths = ("s3://bucket/a/b.x", "memory://b.x", "filecache::https://host/b.x", "/a/b", "b")

    assert [folder_of(path) for path in paths] == ["s3://bucket/a/", "memory://", "filecache::https://host/", "/a/", ""]


def test_files_that_have_no_folder_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="files below one folder, got 's3://a/x' and 's3://b/y'"):
        write_manifest(["s3://a/x", "s3://b/y"], str(tmp_path / "m"), 1)
    with pytest.raises(PlanError, match="all reached in the same way"):
        write_manifest(["s3://a/x", "/b/y"], str(tmp_path / "m"), 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"no records at all, but a text of some length", "index needs uncompressed TFRecord files"),
        (b"\x1f\x8b\x08" + bytes(40), "compression_type"),
    ],
)
def test_a_file_without_records_is_refused_and_leaves_no_manifest(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "x").write_bytes(content)

    with pytest.raises(RecordError, match=text):
        write_manifest([str(tmp_path / "x")], str(tmp_path / "m"), 1)

    with pytest.raises(MissingFileError, match="nothing"):
        write_manifest([str(tmp_path / "nothing")], str(tmp_path / "m"), 1)
    assert os.listdir(tmp_path) == ["x"]


def test_a_remote_file_is_read_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    from tests.reliability.faulty import Faulty

    monkeypatch.setattr(retry, "PAUSE", 0.001)
    monkeypatch.setattr(manifest_writer, "_RANGE", 4096)
    monkeypatch.setattr(manifest_writer, "_JUMP", 128)
    path, paths, _ = written(tmp_path, [300, 10])
    with gp.io.TFRecordWriter(paths[1]) as out:
        for i in range(10):
            out.write(bytes(20_000 + i))
    write_manifest(paths, path, 1)
    with Faulty(tmp_path, keeps=True).serving() as server:
        urls = [server.url(os.path.basename(one)) for one in paths]

        listed = write_manifest(urls, str(tmp_path / "far"), 1)

        assert listed[:2] == (2, 310)
        assert server.gets <= 3 + 11
        assert server.sent < 80_000  # of 208 kB
    near, far = read_manifest(path), read_manifest(str(tmp_path / "far"), server.url(""))
    assert (near.counts == far.counts).all()
    assert far.paths == tuple(urls)
    assert near.read(*near.where(1, 0)) == far.read(*far.where(1, 0))


HOSTILE: dict[str, tuple[Callable[[bytearray], None], str]] = {
    "empty": (lambda data: data.clear(), "too short"),
    "cut": (lambda data: data.__delitem__(slice(-3, None)), "something else, or was not written to its end"),
    "version": (lambda data: data.__setitem__(len(data) - END.size + 16, 9), "it has version 9 of the layout"),
    "checksum": (lambda data: data.__setitem__(len(data) - END.size - 1, 0), "its checksum does not match"),
    "files": (lambda data: data.__setitem__(len(data) - 20, 255), "its lengths exceed its size"),
    "letters": (lambda data: data.__setitem__(len(data) - 12, 255), "its lengths exceed its size"),
    "a few more files": (lambda data: data.__setitem__(len(data) - 23, 1), "its lengths exceed its size"),
    "a few more letters": (lambda data: data.__setitem__(len(data) - 15, 1), "its lengths exceed its size"),
    "longer": (lambda data: data.__setitem__(slice(8, 8), bytes(8)), "do not fit its size"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lengths_are_bounded_before_they_are_used(tmp_path: Path, name: str) -> None:
    path, _, _ = written(tmp_path, [3, 4])
    change, text = HOSTILE[name]
    changed(path, change)

    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match=f"{re.escape(path)}.*a manifest is needed, as gpupipe index.*{text}"):
            read_manifest(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../b", "file:///x", "C:\\x", "\\\\host\\x", "", "a\0b"])
def test_a_name_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    path, _, _ = written(tmp_path, [3])
    with_tail(path, name.encode() + b"\n", [[57], [3], [0]])

    with pytest.raises(RecordError, match=r"is no name of a file|leads out of the folder"):
        read_manifest(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("%2e%2e/secret", "leads out of the folder"),
        (".%2E/secret", "leads out of the folder"),
        ("%2fetc/passwd", "is no name of a file in the folder"),
        ("x?y=1", "is no name of a file on a web server"),
        ("x#z", "is no name of a file on a web server"),
    ],
)
def test_a_name_that_a_client_of_http_decodes_leads_to_no_other_folder(tmp_path: Path, name: str, text: str) -> None:
    path, _, _ = written(tmp_path, [3])
    with_tail(path, name.encode() + b"\n", [[57], [3], [0]])

    assert read_manifest(path).paths[0].endswith(name)  # of a folder on a disk
    with pytest.raises(RecordError, match=text):
        read_manifest(path, "http://127.0.0.1:1/data")


def test_names_that_no_manifest_may_have_are_refused_when_it_is_written(tmp_path: Path) -> None:
    _, paths, _ = written(tmp_path, [3])
    odd = tmp_path / "x:.tfrecord"
    odd.write_bytes(Path(paths[0]).read_bytes())

    with pytest.raises(PlanError, match=r"index needs each file once, got '.*tfrecord' twice"):
        write_manifest([paths[0], paths[0].replace("/000", "/./000")], str(tmp_path / "m"), 1)
    with pytest.raises(PlanError, match=r"index needs names of files: 'x:\.tfrecord' is no name of a file"):
        write_manifest([str(odd)], str(tmp_path / "m"), 1)


COUNTS, NAMES = "its numbers of records", "another number of names than of files"


@pytest.mark.parametrize(
    ("names", "numbers", "text"),
    [
        (b"000.tfrecord\n", [[57], [1 << 63], [0]], COUNTS),
        (b"000.tfrecord\n", [[57], [58], [0]], COUNTS),
        (b"000.tfrecord\n", [[1 << 63], [3], [0]], COUNTS),
        (b"000.tfrecord\n", [[57], [2], [0]], COUNTS),
        (b"000.tfrecord\n", [[57], [4], [0]], COUNTS),
        *((names, [[57], [3], [0]], NAMES) for names in (b"a", b"a\nb\n", b"")),
        (b"a\na\n", [[57, 57], [1, 2], [0, 0]], "names a file twice|numbers of records"),
    ],
)
def test_numbers_and_names_that_cannot_be_are_refused(tmp_path: Path, names: bytes, numbers: Any, text: str) -> None:
    path, _, _ = written(tmp_path, [3])
    with_tail(path, names, numbers)

    with pytest.raises(RecordError, match=text):
        read_manifest(path)


@pytest.mark.parametrize("offsets", [[0, 19, 19, 57], [0, 38, 19, 57], [0, 19, 38, 58], [1, 19, 38, 57]])
def test_offsets_ascend_within_the_file_even_with_the_right_checksum(tmp_path: Path, offsets: list[int]) -> None:
    path, _, _ = written(tmp_path, [3])
    data = np.array(offsets, "<u8").tobytes()
    block = data + crc32c(data).to_bytes(8, "little")
    changed(path, lambda whole: whole.__setitem__(slice(len(MAGIC), len(MAGIC) + len(block)), block))

    with pytest.raises(RecordError, match=r"its offsets in .*000\.tfrecord make no sense"):
        list(gp.TFRecordDataset.from_manifest(path))


def test_offsets_with_a_wrong_checksum_are_an_error_of_their_records(tmp_path: Path) -> None:
    path, _, _ = written(tmp_path, [3, 4])
    changed(path, lambda data: data.__setitem__(len(MAGIC) + 8, 20))  # for 19: it still ascends

    with pytest.raises(RecordError, match=r"files\.gpindex at offset 8.*its checksum does not match there"):
        list(gp.TFRecordDataset.from_manifest(path))
    ds = gp.TFRecordDataset.from_manifest(path).with_options(gp.Options(on_error="skip"))

    assert list(map(bytes, ds)) == [b"1:0", b"1:1", b"1:2", b"1:3"]


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_is_an_error_or_does_not_matter(tmp_path: Path, seed: int) -> None:
    path, _, values = written(tmp_path, [3, 0, 40, 2])
    Path(path).write_bytes(broken(Path(path).read_bytes(), np.random.default_rng(seed)))

    found: set[bytes] = set()
    with contextlib.suppress(DataError):
        ds = gp.TFRecordDataset.from_manifest(path).with_options(gp.Options(on_error="skip"))
        found.update(map(bytes, ds))
    assert found <= {value for file in values for value in file}


def test_a_long_list_takes_three_requests(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    from tests.reliability.faulty import Faulty

    pretended(tmp_path / "m", [1] * 30_000)
    with Faulty(tmp_path, keeps=True).serving() as server:
        found = read_manifest(server.url("m"))

        assert (server.heads, server.gets) == (1, 2)
    assert len(found.paths) == 30_000


def test_offsets_that_are_near_to_each_other_are_one_request(tmp_path: Path) -> None:
    found = read_manifest(str(pretended(tmp_path / "m", [3 * BLOCK] * 50)))
    offsets = Offsets(found, None)

    offsets.spans(np.arange(0, 50, 2), np.zeros(25, np.int64))
    assert offsets.requests == 1
    offsets.spans(np.array([0, 49]), np.array([2 * BLOCK, 0]))
    assert offsets.requests == 3


def test_a_storage_that_cannot_be_written_is_a_plan_error(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    from tests.reliability.faulty import Faulty

    _, paths, _ = written(tmp_path, [1])
    with (
        Faulty(tmp_path).serving() as server,
        pytest.raises(PlanError, match=r"index needs a place where it may write.*--out"),
    ):
        write_manifest(paths, server.url("m"), 1)


def test_a_manifest_is_written_to_a_url_as_a_whole_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    _, paths, _ = written(tmp_path, [2])
    files = fsspec.filesystem("memory")
    files.pipe_file("/d/000.tfrecord", Path(paths[0]).read_bytes())

    write_manifest(["memory://d/000.tfrecord"], "memory://d/files.gpindex", 1)

    assert list(map(bytes, gp.TFRecordDataset.from_manifest("memory://d/files.gpindex"))) == [b"0:0", b"0:1"]
    monkeypatch.setattr(type(files), "put_file", lambda self, near, far: self.pipe_file(far, b"half"))
    with pytest.raises(PlanError, match="OSError: 4 bytes are there, not"):
        write_manifest(["memory://d/000.tfrecord"], "memory://d/files.gpindex", 1)
