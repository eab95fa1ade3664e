"""Behind damage the rest of a file is read: through every way a chain reads records, and with every treatment."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, TFRecordDataset
from gpupipe.extract.records.reference import HeaderWalker
from gpupipe.extract.records.tfrecord import BLOCK, RecordReader
from tests.behaviour.model import outcomes
from tests.fuzz.building import frame

RECORDS = [b"%d" % i * (3 * i + 1) for i in range(12)]


STARTS = [sum(len(record) + 16 for record in RECORDS[:i]) for i in range(13)]


def flipped(*places: int) -> bytes:
    data = bytearray(b"".join(map(frame, RECORDS)))
    for place in places:
        data[place] ^= 0x10
    return bytes(data)


HEADERS = flipped(STARTS[2], STARTS[7] + 9, STARTS[8] + 1)  # two of them next to each other
PAYLOADS = flipped(STARTS[2] + 12, STARTS[7] + 20, STARTS[8] + 12)
LAST = flipped(STARTS[11] + 3)

CHAINS: dict[str, Any] = {
    "plain": lambda path: TFRecordDataset(path),
    "reads ahead": lambda path: TFRecordDataset([path], num_parallel_reads=2),
    "interleave": lambda path: Dataset.list_files(path).interleave(TFRecordDataset, num_parallel_calls=2),
    "references": lambda path: TFRecordDataset(path).skip(0).shuffle(1),
    "shuffle": lambda path: TFRecordDataset(path).shuffle(5),
    "batches": lambda path: TFRecordDataset(path).batch(1).unbatch(),
}


@pytest.mark.parametrize("make", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize(("data", "bad"), [(HEADERS, [2, 7, 8]), (PAYLOADS, [2, 7, 8]), (LAST, [11])])
def test_the_rest_of_the_file_is_read(tmp_path: Path, make: Any, data: bytes, bad: list[int]) -> None:
    (tmp_path / "a").write_bytes(data)
    dataset = make(str(tmp_path / "a"))
    good = sorted(record for i, record in enumerate(RECORDS) if i not in bad)

    skipped = dataset.with_options(Options(on_error="skip")).iterator()
    assert sorted(skipped) == good

    seen = outcomes(dataset)
    errors = seen.count("error")
    assert sorted(record for record in seen if record != "error") == good
    # One error for each bad record; two damaged headers in a row are passed over at once.
    assert errors == (len(bad) - 1 if data is HEADERS else len(bad))
    assert skipped.left_out == errors


@pytest.mark.parametrize(
    "edge",
    [17 + 256, 64 << 10, BLOCK - BLOCK // 4, BLOCK],
    ids=["first step", "first search", "first part of a block", "block"],
)
def test_a_header_is_found_wherever_a_part_of_the_search_ends(tmp_path: Path, edge: int) -> None:
    """Every way of reading searches in parts, the first of which ends here: a header may lie in two of them."""
    path = tmp_path / "a"
    for start in range(edge - 14, edge + 20):
        data = bytearray(frame(b"a") + frame(bytes(start - 33)) + frame(b"b"))
        data[17] ^= 1  # the second header
        path.write_bytes(data)
        (tmp_path / "gz").write_bytes(gzip.compress(data, 1))

        ways = RecordReader(str(path)), HeaderWalker(str(path)), RecordReader(str(tmp_path / "gz"), compression="GZIP")
        found = [[at for at, item in way if not isinstance(item, gp.DataError)] for way in ways]

        assert found == [[0, start]] * 3


def test_an_endless_run_of_zeros_is_one_error_not_one_for_each_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"x") + bytes(100_000) + frame(b"y"))

    assert outcomes(TFRecordDataset(str(tmp_path / "a"))) == [b"x", "error", b"y"]
