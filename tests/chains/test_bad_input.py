"""Bad input: a clear error that names file, offset and feature or stage. Nothing hangs, no thread is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import (
    DataError,
    DecodeError,
    ParseError,
    RecordError,
    ShapeError,
    SpecError,
)
from gpupipe.graph.host_values import header_size
from tests.chains import damage
from tests.chains.damage import decoded, events, example, jpeg, labels_of, no_thread_left, write
from tests.chains.data import on

COUNT, BAD = 10, 5

pytestmark = pytest.mark.timeout(30)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    with no_thread_left():
        yield


def shard(folder: Path, bad: bytes | None = None) -> tuple[Path, list[int]]:
    """Ten records of which number 5 is `bad`."""
    records = [example(i) if i != BAD or bad is None else bad for i in range(COUNT)]
    path = folder / "shard.tfrecord"
    return path, write(path, records)


Make = Callable[[Path], tuple[Path, int]]


def flipped(at: int) -> Make:
    """A shard with a wrong byte in its record number 5."""

    def make(folder: Path) -> tuple[Path, int]:
        path, offsets = shard(folder)
        data = bytearray(path.read_bytes())
        data[offsets[BAD] + at] ^= 1
        path.write_bytes(data)
        return path, offsets[BAD]

    return make


def with_bytes(record: bytes) -> Make:
    def make(folder: Path) -> tuple[Path, int]:
        path, offsets = shard(folder, record)
        return path, offsets[BAD]

    return make


def with_record(**changed: Any) -> Make:
    return with_bytes(example(BAD, **changed))


def with_image(change: Callable[[bytes], bytes]) -> Make:
    return with_record(data=change(jpeg(BAD)))


KINDS: dict[str, tuple[Make, type[DataError], list[str]]] = {
    "wrong CRC": (flipped(40), RecordError, ["read", "CRC"]),
    "wrong CRC of the length": (flipped(9), RecordError, ["read"]),
    "not an Example": (with_bytes(b"\xff" * 50), ParseError, ["parse_single_example"]),
    "missing feature": (with_record(encoded=None), ParseError, ["parse_single_example", "image/encoded"]),
    "wrong dtype": (with_record(class_label=1.5), ParseError, ["parse_single_example", "image/class/label", "int64"]),
    "wrong count": (with_record(class_label=[1, 2]), ParseError, ["parse_single_example", "image/class/label"]),
    "not a JPEG": (with_record(data=b"hello, this is no image"), DecodeError, ["decode_jpeg"]),
    "empty image": (with_record(data=b""), DecodeError, ["decode_jpeg"]),
    "truncated JPEG": (with_image(damage.cut), DecodeError, ["decode_jpeg"]),
    "bomb": (with_image(damage.bomb), DecodeError, ["30000x30000", "max_pixels"]),
    "bad scan": (with_image(damage.bad_scan), DecodeError, ["decode_jpeg"]),
    "bad tables": (with_image(damage.bad_tables), DecodeError, ["decode_jpeg"]),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_an_error_names_file_offset_and_stage_and_is_left_out_or_replaced(
    tmp_path: Path, backend: str, kind: tuple[Any, type[DataError], list[str]]
) -> None:
    make, expected, words = kind
    path, offset = make(tmp_path)
    records = gp.TFRecordDataset(path)

    def labels(ds: gp.Dataset, on_error: str) -> list[Any]:
        return labels_of(events(ds.map(decoded).batch(4).with_options(on(backend, on_error=on_error))))

    for ds in (records, records.shuffle(100)):  # which shuffles references, and reads payloads behind them
        found = labels(ds, "raise")
        (error,) = (item for item in found if isinstance(item, DataError))
        assert type(error) is expected
        assert error.file == str(path) and error.offset == offset
        text = str(error)
        assert text.startswith(f"{path} at offset {offset}: ")
        assert [word for word in words if word not in text] == []
        assert len(text) < 400 and text.isprintable()
        # Raised once; the iterator goes on with everything else.
        good = sorted(label for item in found if not isinstance(item, DataError) for label in item)
        assert good == [i for i in range(COUNT) if i != BAD]
    assert labels(records, "skip") == [[0, 1, 2, 3], [4, 6, 7, 8], [9]]
    assert labels(records, "replace") == [[0, 1, 2, 3], [4, 4, 6, 7], [8, 9]]


def test_decoder_only_damage_has_a_good_header() -> None:
    for change in (damage.bad_scan, damage.bad_tables):
        assert header_size(change(jpeg(1)), oriented=False, max_pixels=10_000) == (24, 32)


def test_errors_without_a_batch_keep_their_places(tmp_path: Path, backend: str) -> None:
    path, offset = with_image(damage.bad_scan)(tmp_path)
    ds = gp.TFRecordDataset(path).map(decoded).with_options(on(backend))

    found = [item.offset if isinstance(item, DataError) else int(item[1]) for item in events(ds)]

    assert found == [0, 1, 2, 3, 4, offset, 6, 7, 8, 9]


# ---- files


# ---- batches and ops


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_unequal_shapes_in_a_batch_name_both_elements(tmp_path: Path, backend: str, on_error: str) -> None:
    records = [example(i, jpeg(i, 24 + 8 * (i == 2), 32)) for i in range(8)]
    path = tmp_path / "shard.tfrecord"
    offsets = write(path, records)
    ds = gp.TFRecordDataset(path).map(decoded).batch(4).with_options(on(backend, on_error=on_error))

    found = labels_of(events(ds))

    assert found[-1] == [4, 5, 6, 7]
    if on_error == "skip":
        assert len(found) == 1
        return
    error = found[0]
    assert type(error) is ShapeError and error.file == str(path)
    text = str(error)
    assert str(offsets[2]) in text and "24" in text and "32" in text and "batch" in text


def test_an_op_of_the_wrong_rank_behind_a_python_function_names_the_line(backend: str) -> None:
    def unknown(x: Any) -> Any:
        return np.zeros(int(x) + 3, np.uint8)

    ds = gp.Dataset.range(4).map(unknown).map(lambda x: ops.flip_left_right(x)).batch(2).with_options(on(backend))

    with pytest.raises(SpecError, match=r"flip_left_right needs an image.*test_bad_input\.py"), ds.iterator() as items:
        next(items)


# ---- bombs and budgets


def test_max_pixels_can_be_lowered(tmp_path: Path, backend: str) -> None:
    path, offset = with_record(data=jpeg(BAD, 200, 200))(tmp_path)
    ds = gp.TFRecordDataset(path).map(decoded).batch(3).with_options(on(backend, max_pixels=24 * 32))

    errors = [item for item in events(ds) if isinstance(item, DataError)]

    assert [type(error) for error in errors] == [DecodeError]
    assert errors[0].offset == offset
    assert "768" in str(errors[0]) and "200x200" in str(errors[0])


# ---- threads


@pytest.mark.parametrize("change", [damage.bad_scan, damage.cut])
@pytest.mark.parametrize("cached", [False, True])
def test_an_iterator_that_raised_leaves_no_thread_even_if_a_cache_keeps_the_error(
    tmp_path: Path, backend: str, cached: bool, change: Callable[[bytes], bytes]
) -> None:
    path, _ = with_image(change)(tmp_path)
    ds = gp.TFRecordDataset(path).map(decoded)
    ds = (ds.cache() if cached else ds).repeat().batch(3).prefetch(4).with_options(on(backend))

    def fail() -> str:
        try:
            for _ in ds:
                pass
        except DecodeError as error:
            return str(error)
        return ""

    with no_thread_left():
        assert [str(path) in fail() for _ in range(3)] == [True] * 3


def test_an_error_is_raised_as_often_as_it_is_met_and_equal_each_time(tmp_path: Path, backend: str) -> None:
    path, offset = with_image(damage.cut)(tmp_path)
    ds = gp.TFRecordDataset(path).map(decoded).cache().repeat(3).batch(3).with_options(on(backend))

    errors = [item for item in events(ds) if isinstance(item, DataError)]

    assert [(type(e), e.file, e.offset, e.stage) for e in errors] == [
        (DecodeError, str(path), offset, "decode_jpeg")
    ] * 3
    assert len({str(error) for error in errors}) == 1
