"""The index of an archive: where each sample starts, and its key; one that belongs to another archive is noticed."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

import gpupipe as gp
from gpupipe.errors import DataError, RecordError
from gpupipe.extract.records.index import record_index
from gpupipe.extract.shards.names import key_digest
from gpupipe.extract.shards.samples import SAMPLES
from tests.extract.archives import archive

EACH = 1536  # bytes of a member: a header, and 700 bytes in two blocks
CHANGED = "the archive was changed after its headers were read, but its size and time were not"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    SAMPLES.indexes.clear()
    yield
    SAMPLES.indexes.clear()


def write(path: Path, names: Sequence[str]) -> Path:
    """An archive of these members; its size depends on their number alone, and its time is that of the others."""
    archive(path, [(name, name.encode().ljust(700, b".")) for name in names])
    os.utime(path, ns=(0, 0))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.tar", ["a.bin", "a.txt", "b.bin", "b.txt", "c.bin", "c.txt"])


def rewritten(path: Path, names: Sequence[str]) -> None:
    """In place, with its size and time."""
    before = path.stat()
    data = write(path.with_suffix(".new"), names).read_bytes()
    assert len(data) == before.st_size
    with path.open("r+b") as out:
        out.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def samples(path: Path, index: str = "memory") -> gp.Dataset:
    return gp.WebDataset(str(path), ("__key__", "bin"), index=index)


def keys(items: Any) -> tuple[list[bytes], list[DataError]]:
    """The keys that come, and the errors in between; the payloads are those of the keys."""
    good, bad = list[bytes](), list[DataError]()
    items = iter(items)
    while True:
        try:
            key, payload = next(items)
            assert bytes(payload).startswith(bytes(key) + b".bin")
            good.append(bytes(key))
        except StopIteration:
            return good, bad
        except DataError as error:
            bad.append(error)


def test_an_index_has_a_digest_of_each_key(path: Path) -> None:
    index = record_index(str(path), kind=SAMPLES)

    assert index.digests is not None
    assert index.digests.tolist() == [key_digest(key) for key in (b"a", b"b", b"c")]
    assert key_digest(b"a") == 3405396810240292928  # saved indexes have it
    SAMPLES.indexes.clear()
    list(samples(path))  # reading leaves the same
    (kept,) = (one for _, one in SAMPLES.indexes._known.values())
    assert (kept.offsets.tolist(), kept.digests) == (index.offsets.tolist(), index.digests)


ARCHIVES = {  # of the size of "a a b b c c", by samples
    "more samples": (["a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "f.bin"], b"abcdef"),
    "fewer samples": (["a.bin", "a.txt", "a.cls", "b.bin", "b.txt", "b.cls"], b"ab"),
    "in another order": (["c.bin", "c.txt", "b.bin", "b.txt", "a.bin", "a.txt"], b"cba"),
    "of other keys": (["x.bin", "x.txt", "y.bin", "y.txt", "z.bin", "z.txt"], b"xyz"),
    "one is longer": (["a.bin", "a.txt", "a.cls", "b.bin", "c.bin", "c.txt"], b"abc"),
}
WHERE = ["memory", "beside", "folder", "spilled"]


def place(where: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if where == "spilled":
        monkeypatch.setattr(SAMPLES.indexes, "limit", 10)
        return "memory"
    return str(folder / "indexes") if where == "folder" else where


@pytest.mark.parametrize("what", ARCHIVES)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("again", [False, True], ids=["", "loaded"])
def test_another_archive_of_the_same_size_and_time_is_an_error_and_is_indexed_anew(
    what: str, where: str, again: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = place(where, path.parent, monkeypatch)
    assert len(samples(path, index)) == 3
    names, found = ARCHIVES[what]
    if again and where in ("beside", "folder"):
        SAMPLES.indexes.clear()
        write(path, names)  # another inode, as a copy has it
    else:
        rewritten(path, names)

    good, bad = keys(samples(path, index).shuffle(gp.ALL, seed=1))

    assert len(good) + len(bad) == 3
    assert set(good) <= {bytes([key]) for key in found}
    assert bad
    assert all(isinstance(error, RecordError) and CHANGED in str(error) for error in bad)
    assert {error.offset for error in bad} <= {0, 2 * EACH, 4 * EACH}
    assert keys(samples(path, index).shuffle(gp.ALL, seed=1))[1] == []
    assert keys(samples(path, index)[i] for i in range(len(found))) == ([bytes([key]) for key in found], [])
    SAMPLES.indexes.clear()  # what was saved is that of this archive
    assert len(samples(path, index)) == len(found)


@pytest.mark.parametrize("what", ARCHIVES)
def test_what_is_skipped_to_by_an_index_is_compared_too(what: str, path: Path) -> None:
    assert len(samples(path)) == 3
    names, found = ARCHIVES[what]
    rewritten(path, names)

    good, bad = keys(samples(path).skip(1))

    assert bad
    assert all(CHANGED in str(error) for error in bad)
    assert len(good) + len([error for error in bad if not error.lost]) == 2
    assert keys(samples(path).skip(1)) == ([bytes([key]) for key in found[1:]], [])


TEXTS = {
    "more samples": r"offset 0: .*another sample 'b' starts at 1536, which the index does not list: ",
    "of other keys": r"offset 0: .*the sample 'x' starts here in place of the one that the index lists: ",
}


@pytest.mark.parametrize("what", TEXTS)
def test_the_error_says_what_differs(what: str, path: Path) -> None:
    assert len(samples(path)) == 3
    rewritten(path, ARCHIVES[what][0])

    with pytest.raises(RecordError, match=TEXTS[what] + CHANGED):
        samples(path)[0]


def test_an_archive_that_ends_within_a_sample_is_noticed(path: Path) -> None:
    assert len(samples(path)) == 3
    with path.open("r+b") as out:
        out.seek(4 * EACH)
        out.write(bytes(2 * EACH))
    os.utime(path, ns=(0, 0))

    with pytest.raises(RecordError, match=f"offset {4 * EACH}: .*no sample starts here any more: {CHANGED}"):
        samples(path)[2]
    assert len(samples(path)) == 2


# ---- as it is saved


def body(size: int, offsets: Sequence[int], digests: Sequence[int]) -> bytes:
    numbers = [*offsets, *digests]
    return struct.pack(f"<QqQ{len(numbers)}Q", size, 0, len(digests), *numbers)


def planted(path: Path, magic: bytes, layout: int, content: bytes) -> None:
    """A saved index whose checksum is right."""
    path.with_name(f".{path.name}.gpindex").write_bytes(struct.pack("<8sII", magic, layout, crc32c(content)) + content)


def test_the_layout_of_a_saved_index(path: Path) -> None:
    samples(path, "beside").cardinality()
    assert len(samples(path, "beside")) == 3

    saved = path.with_name(".a.tar.gpindex").read_bytes()

    size = path.stat().st_size
    content = body(size, [0, 2 * EACH, 4 * EACH, size], [key_digest(key) for key in (b"a", b"b", b"c")])
    assert saved == struct.pack("<8sII", b"gptarix\n", 2, crc32c(content)) + content


A, B, C = (key_digest(key) for key in (b"a", b"b", b"c"))
REFUSED: dict[str, tuple[int, list[int], list[int], str]] = {
    "of an older version": (1, [0, 2, 4], [], "it is not an index, or of another version"),
    "that splits a sample": (2, [0, 1, 2, 4], [A, A, B, C], "it splits a sample"),
    "without a digest": (2, [0, 2, 4], [A, B], "it is damaged"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_index_that_cannot_be_that_of_an_archive_is_built_anew(
    what: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout, offsets, digests, why = REFUSED[what]
    size = path.stat().st_size
    numbers = [*(EACH * n for n in offsets), size, *digests]
    content = struct.pack(f"<QqQ{len(numbers)}Q", size, 0, len(offsets), *numbers)
    planted(path, b"gptarix\n", layout, content)

    with caplog.at_level(logging.INFO, "gpupipe"):
        assert len(samples(path, "beside")) == 3

    assert f"is rebuilt from {path}: {why}" in caplog.text
    assert keys(samples(path, "beside").shuffle(gp.ALL, seed=1))[1] == []


@pytest.mark.parametrize("left", [[0], [0, 4], [2, 4], [4]])
def test_an_index_that_skips_samples_is_noticed(left: list[int], path: Path) -> None:
    """Its checksum is right, and every offset is that of a sample."""
    size = path.stat().st_size
    content = body(size, [*(EACH * n for n in left), size], [(A, B, C)[n // 2] for n in left])
    planted(path, b"gptarix\n", 2, content)
    assert len(samples(path, "beside")) == len(left)

    good, bad = keys(samples(path, "beside").shuffle(gp.ALL, seed=1))

    assert len(good) + len(bad) == len(left)
    assert bad
    assert all(CHANGED in str(error) for error in bad)
    assert keys(samples(path, "beside").shuffle(gp.ALL, seed=1))[1] == []
    assert len(samples(path, "beside")) == 3


def test_digests_of_many_samples_go_with_the_offsets_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path / f"{i}.tar", [f"{i}/{j:03}.bin" for j in range(40)]) for i in range(6)]
    monkeypatch.setattr(SAMPLES.indexes, "limit", 1400)  # two of them
    ds = gp.WebDataset(list(map(str, paths)), ("__key__", "bin"))

    for _ in range(2):
        good, bad = keys(ds.shuffle(gp.ALL, seed=1))
        assert (sorted(good), bad) == ([b"%d/%03d" % (i, j) for i in range(6) for j in range(40)], [])
    assert SAMPLES.indexes.nbytes <= 1400
    rewritten(paths[0], [f"x/{j:03}.bin" for j in range(40)])
    assert len(keys(ds.shuffle(gp.ALL, seed=1))[1]) == 40


def test_damage_has_its_place_among_the_samples(path: Path) -> None:
    with path.open("r+b") as out:
        out.seek(2 * EACH)
        out.write(b"?")

    good, bad = keys(samples(path).shuffle(gp.ALL, seed=1))

    assert sorted(good) == [b"a", b"c"]
    assert sorted(str(error.offset) for error in bad) == sorted(map(str, (2 * EACH, 3 * EACH)))
