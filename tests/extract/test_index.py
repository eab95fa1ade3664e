"""The index of a TFRecord file: what it holds, when it is used, and what is made of one damaged or without room."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

import gpupipe as gp
from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records import index as module
from gpupipe.extract.records.crc import mask
from gpupipe.extract.records.index import (
    BESIDE,
    INDEXES,
    MEMORY,
    Indexes,
    RecordIndex,
    Version,
    build_index,
    offset_after,
    record_index,
    saved_path,
    version_of,
)
from gpupipe.extract.records.reference import HeaderWalker, Reference
from gpupipe.extract.records.spilled import Spilled
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.records.walk import walk_headers
from gpupipe.extract.storage.files import LOCAL, LocalStorage, OpenFile
from tests.behaviour.manifests import written
from tests.fuzz.building import frame


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    INDEXES.clear()
    yield
    INDEXES.clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Records of 0, 5 and 20,000 bytes and some more small ones: they begin at 0, 16, 37, 20,053, 20,074, 20,095."""
    target = tmp_path / "a.tfrecord"
    target.write_bytes(b"".join(frame(p) for p in (b"", b"hello", bytes(20_000), b"three", b"four!", b"five?")))
    return str(target)


OFFSETS = [0, 16, 37, 20_053, 20_074, 20_095, 20_116]


class Watched(LocalStorage):
    """A storage that counts reads, and does something behind each."""

    def __init__(self, then: Callable[[str, int], Any] = lambda name, offset: None) -> None:
        super().__init__()
        self.reads: list[int] = []
        self.then = then

    def read(self, name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        self.reads.append(n)
        data = super().read(name, offset, n, tag)
        self.then(name, offset)
        return data


def outcome(item: tuple[int, Any]) -> tuple[int, Any]:
    """An offset with what stands there: a payload, or the text of an error."""
    offset, value = item
    if isinstance(value, Reference):
        return offset, value.read(check_crc=False)
    return offset, str(value) if isinstance(value, DataError) else bytes(value)


def items_of(index: RecordIndex, path: str) -> list[tuple[int, Any]]:
    """The same by an index."""
    items: list[tuple[int, Any]] = []
    for i in range(len(index)):
        offset, length = index.extent(i)
        items.append((offset, index.faults.get(i) or Reference(path, offset, length)))
    return [outcome(item) for item in items]


# ---- what it holds


def test_offsets_and_lengths_are_those_of_the_file(path: str) -> None:
    index = build_index(path)

    assert index.offsets.tolist() == OFFSETS
    assert [index.extent(i)[1] for i in range(len(index))] == [0, 5, 20_000, 5, 5, 5]
    assert index.faults == {}


def test_no_payload_is_read(tmp_path: Path) -> None:
    target = tmp_path / "large"
    target.write_bytes(frame(bytes(1_000_000)) * 3)
    storage = Watched()

    index = build_index(str(target), storage=storage)

    assert len(index) == 3
    assert storage.reads == [65_536, 12, 12]  # the first look takes a block: nobody knows yet how large records are


def test_small_records_are_read_in_blocks_and_cost_at_most_16_bytes(tmp_path: Path) -> None:
    target = tmp_path / "small"
    target.write_bytes(frame(b"x" * 16) * 20_000)
    storage = Watched()

    index = build_index(str(target), storage=storage)

    assert len(index) == 20_000
    assert index.nbytes <= 16 * 20_000
    assert len(storage.reads) <= 640_000 // 65_000 + 1


# ---- damage: the same as a reader from the front


DAMAGE = {
    "length": lambda d: d[:16] + b"\x07" + d[17:],
    "crc of the length": lambda d: d[:24] + b"\x00\x00" + d[26:],
    "first length": lambda d: b"\x01" + d[1:],
    "payload": lambda d: d[:30] + b"X" + d[31:],
    "cut in a header": lambda d: d[:-16],
    "cut in a payload": lambda d: d[:-7],
    "bytes in between": lambda d: d[:37] + b"garbage" * 10 + d[37:],
    "zeros": lambda d: d[:37] + bytes(100) + d[37:],
    "length beyond the file": lambda d: d[:37] + frame(b"")[:0] + struct.pack("<Q", 1 << 40) + d[45:],
    "huge length with its crc": lambda d: (
        d[:37] + struct.pack("<QI", 1 << 40, mask(crc32c(struct.pack("<Q", 1 << 40)))) + d[49:]
    ),
    "another format": lambda d: b"\x89PNG\r\n\x1a\n" + d,
    "gzip": lambda d: b"\x1f\x8b\x08" + d,
    "only a header": lambda d: d[:12],
    "five bytes": lambda d: d[:5],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_it_agrees_with_the_reader_about_damage(path: str, damage: Any) -> None:
    data = Path(path).read_bytes()
    Path(path).write_bytes(damage(data))
    expected = [outcome(item) for item in RecordReader(path, check_crc=False)]

    assert items_of(record_index(path), path) == expected
    assert [outcome(item) for item in HeaderWalker(path)] == expected  # by the index
    INDEXES.clear()
    assert [outcome(item) for item in HeaderWalker(path)] == expected  # by walking


def test_a_file_that_is_not_there_is_one_bad_record(tmp_path: Path) -> None:
    index = record_index(str(tmp_path / "none"))

    assert len(index) == 1
    assert isinstance(index.faults[0], FileNotFoundError)
    assert not index.lasting
    assert INDEXES.nbytes == 0


# ---- in memory


@pytest.mark.parametrize("change", ["size", "time", "file"])
def test_an_index_is_used_again_until_the_file_changes(path: str, tmp_path: Path, change: str) -> None:
    first = record_index(path)
    assert record_index(path) is first
    status = os.stat(path)
    if change == "size":
        with open(path, "ab") as file:
            file.write(frame(b"one more"))
    elif change == "time":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    else:
        shutil.copy2(path, tmp_path / "other")
        os.replace(tmp_path / "other", path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    second = record_index(path)

    assert second is not first
    assert len(second) == 6 + (change == "size")


def test_a_complete_walk_leaves_an_index_behind(path: str) -> None:
    walked = list(HeaderWalker(path))

    version = version_of(path)
    assert version is not None
    found = INDEXES.get(path, version)
    assert found is not None
    assert found.offsets.tolist() == OFFSETS
    assert list(HeaderWalker(path)) == walked


@pytest.mark.parametrize("how", ["stopped", "from the middle", "damaged"])
def test_an_incomplete_walk_leaves_none(path: str, how: str) -> None:
    if how == "stopped":
        next(iter(HeaderWalker(path)))
    elif how == "from the middle":
        list(HeaderWalker(path, start=16))
    else:
        with open(path, "ab") as file:
            file.write(b"12345")
        list(HeaderWalker(path))

    assert INDEXES.nbytes == 0


@pytest.mark.parametrize("start", OFFSETS)
def test_a_walk_by_the_index_begins_where_it_is_told_and_reads_no_header(path: str, start: int) -> None:
    record_index(path)
    storage = Watched()

    assert [at for at, _ in HeaderWalker(path, start=start, storage=storage)] == [o for o in OFFSETS[:-1] if o >= start]
    assert storage.reads == []


def test_more_than_the_bound_is_not_kept_and_the_one_used_last_stays() -> None:
    indexes: Indexes[RecordIndex] = Indexes(limit=100)
    version = Version(1, 2, 3)
    a, b, c = (RecordIndex(array("Q", range(5))) for _ in range(3))  # 40 bytes each
    indexes.put("a", version, a)
    indexes.put("b", version, b)
    indexes.get("a", version)
    indexes.put("c", version, c)
    indexes.put("huge", version, RecordIndex(array("Q", range(50))))

    assert [indexes.get(name, version) for name in ("a", "b", "c", "huge")] == [a, None, c, None]
    assert indexes.nbytes == 80


def test_a_file_that_could_not_be_read_to_its_end_is_looked_at_again(tmp_path: Path) -> None:
    target = tmp_path / "large"
    target.write_bytes(frame(bytes(100_000)) * 3)

    def fails(name: str, offset: int) -> None:
        if offset > 150_000:
            raise gp.DataError("the disk does not answer", file=name, offset=offset)

    index = record_index(str(target), storage=Watched(fails))

    assert (len(index), sorted(index.faults), index.lasting) == (3, [2], False)
    assert len(record_index(str(target)).faults) == 0


def test_a_file_that_grew_while_it_was_walked_is_not_kept(path: str) -> None:
    def grows(name: str, offset: int) -> None:
        with open(name, "ab") as file:
            file.write(frame(b"later"))

    before = version_of(path)
    record_index(path, storage=Watched(grows))

    assert before is not None
    assert INDEXES.get(path, before) is None


# ---- saved


@pytest.mark.parametrize("where", [BESIDE, "folder"])
def test_a_saved_index_is_used_later(path: str, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = where if where == BESIDE else str(tmp_path / "cache" / "indexes")
    record_index(path, MEMORY)
    record_index(path, where)  # saved when it is asked for later
    INDEXES.clear()  # as in another process
    monkeypatch.setattr(module, "walk_headers", lambda *a, **b: pytest.fail("the headers were walked"))

    assert record_index(path, where).offsets.tolist() == OFFSETS
    assert os.listdir(os.path.dirname(saved_path(path, where))).count(os.path.basename(saved_path(path, where))) == 1


TIMES = [-1, -5_000_000_000, -2 * 10**18, 1, (1 << 63) + 7]
"""Nanoseconds since 1970: as well before it, and after 2262, which takes more than 63 bits."""


@pytest.fixture(params=TIMES)
def of_another_time(request: pytest.FixtureRequest, path: str) -> str:
    os.utime(path, ns=(0, request.param))
    if os.stat(path).st_mtime_ns != request.param:
        pytest.skip("the file system has no such times")
    return path


def test_a_file_of_any_time_has_a_saved_index(of_another_time: str, caplog: pytest.LogCaptureFixture) -> None:
    path = of_another_time
    record_index(path, BESIDE)
    INDEXES.clear()

    with caplog.at_level(logging.INFO, "gpupipe"):
        assert record_index(path, BESIDE).offsets.tolist() == OFFSETS
    assert caplog.messages == []
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns - 10_000))
    INDEXES.clear()
    with caplog.at_level(logging.INFO, "gpupipe"):
        assert record_index(path, BESIDE).offsets.tolist() == OFFSETS
    assert "the file has changed since" in caplog.text


def test_a_file_of_any_time_has_a_next_record(of_another_time: str) -> None:
    file = OpenFile(LOCAL, of_another_time)
    record_index(of_another_time)

    assert Version.of_tag(file.tag) == version_of(of_another_time)
    assert [offset_after(file, MEMORY, offset) for offset in (0, 16, 17, 20_095)] == [16, 37, None, 20_116]


def test_beside_is_a_hidden_file_that_no_pattern_finds(path: str, tmp_path: Path) -> None:
    record_index(path, BESIDE)

    assert sorted(os.listdir(tmp_path)) == [".a.tfrecord.gpindex", "a.tfrecord"]
    assert list(gp.Dataset.list_files(str(tmp_path / "**"))) == [path.encode()]
    for pattern in (".*", "*index"):
        with pytest.raises(gp.PlanError, match="list_files needs files"):
            gp.Dataset.list_files(str(tmp_path / pattern))


def _flip(at: int) -> Any:
    return lambda d: d[:at] + bytes([d[at] ^ 1]) + d[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        *(_flip(at) for at in (0, 8, 12, 16, 24, 32, 60)),
        *(lambda d, end=end: d[:end] for end in (-8, -3, 0, 20)),
        lambda d: d + bytes(8),
    ],
    ids=lambda d: None,
)
def test_a_damaged_index_is_built_anew(path: str, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    record_index(path, BESIDE)
    saved = Path(saved_path(path, BESIDE))
    good = saved.read_bytes()
    saved.write_bytes(damage(good))
    INDEXES.clear()

    with caplog.at_level(logging.INFO, "gpupipe"):
        index = record_index(path, BESIDE)

    assert index.offsets.tolist() == OFFSETS
    assert "rebuilt" in caplog.text
    assert saved.read_bytes() == good


def _forged(records: int = 6, change: tuple[int, int] = (0, 0)) -> bytes:
    """A number of records, and their offsets but for one."""
    offsets = [change[1] if i == change[0] else offset for i, offset in enumerate(OFFSETS)]
    return struct.pack("<8Q", records, *offsets)


@pytest.mark.parametrize(
    "numbers",
    [
        *(_forged(records) for records in (1 << 61, 1 << 40, 0)),
        *(_forged(change=change) for change in ((6, 20_117), (5, 20_085), (3, 20_080), (0, 1), (3, 1 << 63))),
    ],
)
def test_numbers_that_make_no_sense_are_not_believed(path: str, numbers: bytes) -> None:
    record_index(path, BESIDE)
    saved = Path(saved_path(path, BESIDE))
    data = saved.read_bytes()
    body = data[16:32] + numbers
    saved.write_bytes(data[:12] + struct.pack("<I", crc32c(body)) + body)
    INDEXES.clear()

    assert record_index(path, BESIDE).offsets.tolist() == OFFSETS


def test_a_stale_index_is_built_anew(path: str, caplog: pytest.LogCaptureFixture) -> None:
    record_index(path, BESIDE)
    with open(path, "ab") as file:
        file.write(frame(b"more"))
    INDEXES.clear()

    with caplog.at_level(logging.INFO, "gpupipe"):
        assert len(record_index(path, BESIDE)) == 7
    assert "the file has changed since" in caplog.text
    INDEXES.clear()
    assert len(record_index(path, BESIDE)) == 7


def test_what_cannot_be_saved_costs_one_warning(path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    where = str(tmp_path / "taken" / "in")

    with caplog.at_level(logging.WARNING, "gpupipe"):
        assert [len(record_index(path, where)) for _ in range(3)] == [6, 6, 6]
    assert caplog.text.count("could not be saved") == 1


def test_a_broken_write_leaves_nothing_behind(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*names: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("os.replace", fail)

    assert len(record_index(path, BESIDE)) == 6
    assert os.listdir(tmp_path) == ["a.tfrecord"]


def test_an_index_of_a_damaged_file_is_not_saved(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"12345")

    assert len(record_index(path, BESIDE)) == 7
    assert not os.path.exists(saved_path(path, BESIDE))


def test_build_index_counts_and_saves(path: str, tmp_path: Path) -> None:
    other = str(shutil.copy(path, tmp_path / "b.tfrecord"))

    assert gp.io.build_index([path, other]) == 12
    assert gp.io.build_index(Path(path)) == 6
    assert gp.io.build_index(path, tmp_path / "cache") == 6
    assert os.path.exists(saved_path(other, BESIDE))
    assert len(os.listdir(tmp_path / "cache")) == 1


def test_build_index_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        gp.io.build_index(str(tmp_path / "none"))
    with pytest.raises(IsADirectoryError):
        gp.io.build_index(str(tmp_path))
    with pytest.raises(TypeError, match="build_index needs paths, got 3"):
        gp.io.build_index([3])


def test_a_dataset_saves_its_indexes_where_it_is_told(path: str, tmp_path: Path) -> None:
    len(gp.TFRecordDataset(path, index="beside"))
    list(gp.TFRecordDataset(path, index=tmp_path / "walked").shuffle(2))

    assert os.path.exists(saved_path(path, BESIDE))
    assert len(os.listdir(tmp_path / "walked")) == 1
    with pytest.raises(TypeError, match='needs index="memory", "beside" or a folder, got 3'):
        gp.TFRecordDataset(path, index=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["memory", "beside"])
@pytest.mark.parametrize("together", [False, True])
def test_a_file_rewritten_with_its_size_and_time_is_indexed_anew(tmp_path: Path, where: str, together: bool) -> None:
    file = tmp_path / "records"
    file.write_bytes(frame(b"a" * 10) + frame(b"b" * 30))
    chain = gp.TFRecordDataset(str(file), index=where)
    assert chain[1] == b"b" * 30
    before = os.stat(file)
    with open(file, "r+b") as out:
        out.write(frame(b"c" * 25) + frame(b"d" * 15))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(gp.DataError, match=r"offset 0: .*changed after its headers were read"):
        list(chain.shuffle(2)) if together else chain[0]

    assert (chain[0], chain[1]) == (b"c" * 25, b"d" * 15)
    INDEXES.clear()
    assert gp.TFRecordDataset(str(file), index=where)[1] == b"d" * 15


def test_another_file_with_the_same_size_and_time_is_not_read_through_the_old_descriptor(tmp_path: Path) -> None:
    file, other = tmp_path / "records", tmp_path / "other"
    file.write_bytes(frame(b"a" * 10) + frame(b"b" * 30))
    other.write_bytes(frame(b"c" * 25) + frame(b"d" * 15))
    chain = gp.TFRecordDataset(str(file))
    assert chain[1] == b"b" * 30
    before = os.stat(file)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))

    os.replace(other, file)

    assert (chain[0], chain[1]) == (b"c" * 25, b"d" * 15)


# ---- indexes that have no room in memory


V1, V2 = Version(1, 1, 1), Version(1, 2, 1)


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the headers of each file were walked, where there is room for about two of their indexes."""
    monkeypatch.setattr(INDEXES, "limit", 700)
    found: Counter[str] = Counter()

    def counted(path: str, **how: Any) -> Any:
        found[path] += 1
        return walk_headers(path, **how)

    monkeypatch.setattr(module, "walk_headers", counted)
    return found


def test_no_header_is_walked_twice_in_two_epochs(tmp_path: Path, walked: Counter[str]) -> None:
    _, paths, values = written(tmp_path, [40] * 20)
    walked.clear()
    ds = gp.TFRecordDataset(paths).shuffle(gp.ALL, seed=1)

    for _ in range(2):
        assert sorted(map(bytes, ds)) == sorted(value for file in values for value in file)
    assert len(ds) == 800
    assert bytes(ds.epoch(0)[3]) in values[0] + [value for file in values for value in file]

    assert walked == dict.fromkeys(paths, 1)
    assert INDEXES.nbytes <= 700


def test_damaged_records_are_remembered(tmp_path: Path, walked: Counter[str]) -> None:
    _, paths, _ = written(tmp_path, [40] * 4)
    data = Path(paths[0]).read_bytes()
    Path(paths[0]).write_bytes(data[:-3])
    walked.clear()
    ds = gp.TFRecordDataset(paths).shuffle(gp.ALL, seed=1).with_options(gp.Options(on_error="skip"))

    assert [len(list(ds)) for _ in range(2)] == [159, 159]
    assert walked == dict.fromkeys(paths, 1)
    with pytest.raises(RecordError, match=r"000\.tfrecord"):
        gp.TFRecordDataset(paths)[39]


def test_a_full_disk_is_said_once_and_costs_a_second_walk(
    tmp_path: Path, walked: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _, paths, _ = written(tmp_path, [40] * 6)
    walked.clear()
    monkeypatch.setattr(os, "pwrite", full)

    with caplog.at_level(logging.WARNING):
        assert [len(gp.TFRecordDataset(paths)) for _ in range(2)] == [240, 240]

    assert max(walked.values()) == 2
    assert [record.message for record in caplog.records if "built again when needed" in record.message] == [
        caplog.records[0].message
    ]


def test_what_was_put_comes_back_for_its_version_only() -> None:
    kept: Spilled[Version] = Spilled()
    kept.put("a", V1, [array("Q", range(10))], {})
    kept.put("b", V1, [array("Q", range(5, 9)), array("Q", [1, 2, 3])], {})
    kept.put("c", V1, [array("Q", [512]), array("Q")], {})

    assert kept.get("a", V1) == ([array("Q", range(10))], {})
    assert kept.get("b", V1) == ([array("Q", range(5, 9)), array("Q", [1, 2, 3])], {})
    assert kept.get("c", V1) == ([array("Q", [512]), array("Q")], {})
    assert kept.get("a", V2) is None
    kept.put("a", V2, [array("Q", [7])], {})
    assert kept.get("a", V1) is None
    assert kept.get("a", V2) == ([array("Q", [7])], {})
    kept.drop("a")
    assert kept.get("a", V2) is None
    kept.clear()
    assert kept.get("b", V1) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_to_a_file_of_its_own() -> None:
    kept: Spilled[Version] = Spilled()
    kept.put("a", V1, [array("Q", [1])], {})
    child = os.fork()
    if not child:
        kept.put("b", V1, [array("Q", [2, 2])], {})
        os._exit(kept.get("a", V1) != ([array("Q", [1])], {}) or kept.get("b", V1) != ([array("Q", [2, 2])], {}))
    kept.put("c", V1, [array("Q", [3])], {})

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.get("c", V1) == ([array("Q", [3])], {})
