"""What threads hand to one another where CPython runs without the GIL, and what they do not use again there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.extract.examples import example
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import FixedLenFeature
from gpupipe.extract.records import reading
from gpupipe.extract.records.fixed import FixedReader
from gpupipe.extract.records.reference import HeaderWalker, Reference, read_many
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.storage import blocks, sharing
from gpupipe.extract.storage.blocks import Blocks
from gpupipe.extract.storage.sharing import handed_over
from gpupipe.serial.columns import Cursor, add_column, read_column

RECORDS = [bytes([k]) * (k + 1) for k in range(200)]


@pytest.fixture
def gil(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the code believe that there is a GIL, or that there is none."""
    for module in (sharing, blocks, reading, example):
        monkeypatch.setattr(module, "gil_is_on", lambda: request.param)
    return bool(request.param)


both = pytest.mark.parametrize("gil", [True, False], indirect=True, ids=["GIL", "no GIL"])


def written(path: Path, compression: str = "") -> str:
    with gp.io.TFRecordWriter(path, compression) as out:
        for record in RECORDS:
            out.write(record)
    return str(path)


def from_records(folder: Path) -> list[Any]:
    return [value for _, value in RecordReader(written(folder / "x"))]


def from_compressed_records(folder: Path) -> list[Any]:
    return [value for _, value in RecordReader(written(folder / "x", "GZIP"), compression="GZIP")]


def from_references(folder: Path) -> list[Any]:
    return list(read_many([value for _, value in HeaderWalker(written(folder / "x")) if isinstance(value, Reference)]))


def from_fixed_length(folder: Path) -> list[Any]:
    (folder / "x").write_bytes(b"".join(record[:1] * 8 for record in RECORDS))
    return [value for _, value in FixedReader(str(folder / "x"), record_bytes=8)]


def from_examples(folder: Path) -> list[Any]:
    parse = ExampleParser({"x": FixedLenFeature((), bytes)}).parse
    return [parse(encode_example({"x": record}))[0] for record in RECORDS]


def from_saved_columns(folder: Path) -> list[Any]:
    out: list[Any] = []
    for record in RECORDS:
        add_column(record, out)
    cursor = Cursor(memoryview(b"".join(out)))
    return [read_column(cursor) for _ in RECORDS]


@both
@pytest.mark.parametrize(
    "source",
    [from_records, from_compressed_records, from_references, from_fixed_length, from_examples, from_saved_columns],
    ids=lambda source: source.__name__,
)
def test_views_go_to_other_threads_only_under_the_gil(source: Any, tmp_path: Path, gil: bool) -> None:
    values = source(tmp_path)

    assert {type(value) for value in values} == {memoryview if gil else bytes}
    expected = [record[:1] * 8 for record in RECORDS] if source is from_fixed_length else RECORDS
    assert [bytes(value) for value in values] == expected


@both
def test_the_columns_of_a_sample_are_handed_over_one_by_one(gil: bool) -> None:
    row = memoryview(b"image"), b"key", np.int64(3)

    given = handed_over(row)

    assert type(given[0]) is (memoryview if gil else bytes)
    assert (bytes(given[0]), *given[1:]) == (b"image", b"key", 3)


@pytest.mark.parametrize("gil", [False], indirect=True)
def test_without_the_gil_no_block_is_used_again(gil: bool) -> None:
    found = Blocks(100)
    held = [found.take() for _ in range(50)]
    addresses = {np.asarray(block).ctypes.data for block in held}
    del held

    again = found.take()

    assert len(addresses) == 50
    assert not found._ring
    assert again.nbytes == 100
