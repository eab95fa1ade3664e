"""Damaged tar archives: every way of reading them agrees on what is left, and nothing else is raised."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe.errors import HIDES
from gpupipe.extract.records.index import record_index
from gpupipe.extract.shards import members as walk
from gpupipe.extract.shards.names import KEY
from gpupipe.extract.shards.samples import SAMPLES
from tests.extract.archives import JPG_CLS, archive, bad, good, items, member, pairs
from tests.fuzz.bounds import lowered
from tests.tools.damage import broken

COLUMNS = (*JPG_CLS, (KEY,))


def agreed(path: str) -> list[tuple[int, Any]]:
    """The items of a file, which are the same in blocks of any size, compressed, as references and by index."""
    found = items(path, COLUMNS)
    assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    for block in (1024, 5000):
        assert items(path, COLUMNS, block=block) == found
    assert items(path, COLUMNS, extents=True) == found
    index = record_index(path, kind=SAMPLES)
    assert index.offsets[:-1].tolist() == [offset for offset, _ in found]
    for i, item in enumerate(found):
        start, stop = index.span(i)
        if i in index.faults:
            assert index.faults[i].reason == item[1][1]
        else:
            assert items(path, COLUMNS, start=start, stop=stop) == [item]
        if i % 5 == 0:
            assert items(path, COLUMNS, start=start) == found[i:]
    return found


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage: a block of zeros, missing, there twice, or with another size and the checksum that fits; or any bytes."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    at, how = int(rng.integers(len(blocks))), int(rng.integers(5))
    if how == 4:
        return broken(data, rng) or data
    raw = bytearray(blocks[at])
    resize(raw, 0, int(rng.choice([0, 1, 5000, 1 << 33, (1 << 33) - 1])))
    blocks[at : at + 1] = ([bytes(512)], [], [blocks[at]] * 2, [bytes(raw)])[how]
    return b"".join(blocks) or data


def resize(raw: bytearray, at: int, size: int) -> None:
    """Give the header at an offset another size, and the checksum that fits."""
    head = raw[at : at + 512]
    if len(head) < 512:
        return
    head[124:136] = b"%011o\0" % size if size < 1 << 33 else b"\x80" + size.to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    raw[at : at + 512] = head


def sound(found: list[tuple[int, Any]], end: float) -> list[tuple[int, Any]]:
    """The samples before an offset."""
    return [(offset, value) for offset, value in found if offset < end and not isinstance(value[-1], bool)]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_way_of_reading_agrees_on_a_damaged_archive(tmp_path: Path, kind: int) -> None:
    names = ["d/", "e" * 90 + "/"] if kind == tarfile.USTAR_FORMAT else ["d/", "e" * 120 + "/"]
    members = [(f"{names[i // 2 % 2]}{name}", data) for i, (name, data) in enumerate(pairs(6, 600))]
    intact = Path(archive(tmp_path / "intact", [*members[:6], ("d", member(tarfile.DIRTYPE)), *members[6:]], kind=kind))
    data = intact.read_bytes()[: -9 * 512]
    for seed in range(40):
        rng, damaged = np.random.default_rng(seed), data
        for _ in range(rng.integers(1, 4)):
            damaged = changed(damaged, rng)
        path = tmp_path / f"{seed}.tar"
        path.write_bytes(damaged)
        found = agreed(str(path))
        packed = tmp_path / f"{seed}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes(), 0))
        whole = items(str(packed), COLUMNS, compression="GZIP", block=1024)
        # The length of a compressed archive is known at its end only: what claims more takes the rest with it.
        end = whole[-1][0] if bad(whole[-1:]) else 1 << 60
        assert sound(whole, end) == sound(found, end)


# ---- one damage


def three(folder: Path) -> tuple[Path, bytearray]:
    """Three samples of two members: headers at 0, 1536, 2560, 4096, 5120, 6656."""
    path = Path(archive(folder / "x.tar", pairs(3)))
    return path, bytearray(path.read_bytes())


def reasons(found: list[tuple[int, Any]]) -> list[tuple[int, str]]:
    return [(offset, value[1]) for offset, value in bad(found)]


def flipped(raw: bytearray) -> None:
    raw[2560 + 5] ^= 1


def zeroed(raw: bytearray) -> None:
    raw[2560 : 2560 + 512] = bytes(512)


CHECKSUM = "the header of a member and its checksum do not match; 1536 bytes are skipped"
LACKS = "a sample needs a member 'jpg', d/0001 has cls"
SIZE = f"'d/0000.cls' needs {1 << 40} bytes, the archive has at most "


@pytest.mark.parametrize(
    ("change", "kept", "told"),
    [
        (flipped, [b"d/0000", b"d/0002"], [(2560, CHECKSUM), (4096, LACKS)]),
        (zeroed, [b"d/0000", b"d/0002"], [(3072, ""), (4096, LACKS)]),
        (lambda raw: resize(raw, 1536, 1 << 40), [b"d/0001", b"d/0002"], [(0, ""), (1536, SIZE)]),
    ],
    ids=["a header", "zeros where a header was", "a size that is too large"],
)
def test_damage_costs_its_sample_and_no_other(tmp_path: Path, change: Any, kept: list[bytes], told: Any) -> None:
    path, raw = three(tmp_path)
    change(raw)
    path.write_bytes(raw)

    found = agreed(str(path))

    assert [value[2] for value in good(found)] == kept
    assert [offset for offset, _ in reasons(found)] == [offset for offset, _ in told]
    for (_, reason), (_, words) in zip(reasons(found), told, strict=True):
        assert reason.startswith(words)
    assert all(value[2:] == (str(path), offset, "read", False) for offset, value in bad(found))


@pytest.mark.parametrize("size", [2000, 1 << 31, (1 << 33) - 1, 1 << 60])
def test_a_size_beyond_the_end_is_one_error_and_costs_no_memory(tmp_path: Path, size: int) -> None:
    path, raw = three(tmp_path)
    resize(raw, 6656, size)
    path.write_bytes(raw[:8000])

    found = agreed(str(path))

    assert [value[2] for value in good(found)] == [b"d/0000", b"d/0001"]
    assert reasons(found)[1] == (
        6656,
        f"'d/0002.cls' needs {size} bytes, the archive has at most 832 after its header; no further member follows",
    )


@pytest.mark.parametrize("how", ["", "GZIP"])
def test_what_is_cut_off_at_any_byte_gives_what_lies_before_it(tmp_path: Path, how: str) -> None:
    _, raw = three(tmp_path)
    whole = [b"d/0000", b"d/0001", b"d/0002"]
    ends = [2560, 5120, 7680]  # of the labels, with the zeros after them
    for end in [*range(0, 7300, 61), 512, 1536, 2048, 2560, 4096, 6656, 7168, 7169, 7679, 7680]:
        path = tmp_path / f"{end}.tar"
        path.write_bytes(gzip.compress(raw[:end], 1) if how else raw[:end])

        found = items(str(path), COLUMNS, compression=how)

        assert [value[2] for value in good(found)] == [
            key for key, last in zip(whole, ends, strict=True) if last <= end
        ]
        assert bool(bad(found)) == (end not in (0, *ends)), end
        if end == 7679:
            assert reasons(found) == [
                (5120, "the archive is truncated, 1 bytes of the last member and its padding are missing")
            ]


@pytest.mark.parametrize("name", ["b.txt", "note"])
def test_a_compressed_archive_that_ends_inside_a_member_that_nobody_takes_says_so(tmp_path: Path, name: str) -> None:
    path = Path(archive(tmp_path / "x.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), (name, b"x" * 3000)]))
    path.write_bytes(gzip.compress(path.read_bytes()[: 2048 + 512 + 1000]))

    found = items(str(path), ((b"jpg",),), compression="GZIP")

    reason = "the archive is truncated, 2072 bytes of the last member and its padding are missing"
    assert reasons(found) == [(1024, reason)]
    assert good(found) == [(b"1",)]


def test_what_has_no_payload_has_none_whatever_its_size_says(tmp_path: Path) -> None:
    path = Path(archive(tmp_path / "x.tar", [("a.jpg", member(tarfile.LNKTYPE, "b")), ("d", member(tarfile.DIRTYPE))]))
    raw = bytearray(path.read_bytes()[:1024])
    resize(raw, 0, 5000)
    resize(raw, 512, 5000)
    path.write_bytes(raw + Path(archive(tmp_path / "y.tar", pairs(1))).read_bytes())

    assert good(items(str(path))) == [(bytes(700), b"0")]


def test_a_damaged_long_name_is_not_taken_for_a_short_one(tmp_path: Path) -> None:
    path = Path(archive(tmp_path / "x.tar", [("a" * 150 + ".jpg", b"1"), ("a" * 150 + ".cls", b"2"), ("b.jpg", b"3")]))
    raw = bytearray(path.read_bytes())
    raw[1] ^= 1
    path.write_bytes(raw)

    found = items(str(path), ((b"jpg",), (KEY,)))

    assert good(found) == [(b"3", b"b")]
    assert [offset for offset, _ in bad(found)] == [0, 2048]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x1f\x8b" + bytes(600), 'a tar archive is needed, this is gzip data: pass compression_type="GZIP"'),
        (b"\x1f\x8b" + bytes(60), 'a tar archive is needed, this is gzip data: pass compression_type="GZIP"'),
        (b"PK\x03\x04" + bytes(600), "a tar archive is needed, this is a zip archive"),
        (lzma.compress(bytes(600)), "a tar archive is needed, this is xz data: decompress the file"),
        (bz2.compress(bytes(600)), "a tar archive is needed, this is bzip2 data: decompress the file"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "a tar archive is needed, this is zstd data: decompress the file"),
        (b"what" * 300, "do not match; no further member follows (is this a tar archive?)"),
        (b"what", "the archive ends inside the header of a member, 508 bytes are missing"),
    ],
)
def test_a_file_of_another_kind_is_one_error_that_names_it(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)

    ((offset, error),) = agreed(str(path))

    assert offset == 0
    assert error[1].partition(HIDES)[0].endswith(reason)
    assert (HIDES in error[1]) == (", this is " in reason)


def test_a_hole_of_a_terabyte_is_searched_for_a_while_only(tmp_path: Path) -> None:
    path, raw = three(tmp_path)
    with path.open("wb") as file:
        file.write(raw[:7680])
        file.truncate(1 << 40)
    with lowered(walk, SEARCHED=1 << 20):
        found = items(str(path), COLUMNS)
    assert len(good(found)) == 3
    ((offset, error),) = bad(found)
    assert (offset, error[1]) == (
        7680,
        "only zeros follow; no member starts within 1048576 bytes, what follows is left unread",
    )
