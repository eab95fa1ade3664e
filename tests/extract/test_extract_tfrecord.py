"""Records of good files: every way of reading gives what was written; what threads hand over without the GIL."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DataError, PlanError, PlanTypeError
from gpupipe.extract.examples import example
from gpupipe.extract.examples.encode import encode_example
from gpupipe.extract.examples.example import ExampleParser
from gpupipe.extract.examples.features import FixedLenFeature
from gpupipe.extract.records import crc, reading
from gpupipe.extract.records.crc import masked_crc32c
from gpupipe.extract.records.fixed import FixedReader
from gpupipe.extract.records.reference import HeaderWalker, Reference, read_many
from gpupipe.extract.records.tfrecord import RecordReader
from gpupipe.extract.records.writer import TFRecordWriter
from gpupipe.extract.storage import blocks as blocks_module
from gpupipe.extract.storage import sharing
from gpupipe.extract.storage.blocks import Blocks
from gpupipe.extract.storage.sharing import gil_is_on, handed_over
from gpupipe.serial.columns import Cursor, add_column, read_column

SIZES = [0, 1, 5, 12, 63, 64, 100, 1000, 5000, 0, 0, 70_000, 3, 200_000, 16, 2_500_000, 9, 1_200_000, 1_100_000, 7]
RECORDS = [bytes([k]) * n for k, n in enumerate(SIZES)]
OFFSETS = [sum(n + 16 for n in SIZES[:k]) for k in range(len(SIZES))]


def write(path: Path, records: list[bytes], compression: str | None = None) -> str:
    with TFRecordWriter(path, compression) as out:
        for record in records:
            out.write(record)
    return str(path)


def read(path: str, **options: Any) -> list[tuple[int, bytes]]:
    items = []
    for offset, record in RecordReader(path, **options):
        assert not isinstance(record, Exception), record
        items.append((offset, bytes(record)))
    return items


LOADED = """
import sys
from gpupipe.extract.records.crc import crc32c, masked_crc32c
loaded = sorted({"crc32c", "argparse", "importlib.metadata"} & set(sys.modules))
print(loaded, type(crc32c).__name__, crc32c(b"123456789"))
"""


def test_the_extension_of_crc32c_is_where_it_is_loaded_from_without_its_package() -> None:
    """It fails where a new version has another layout: then the package is imported, which is right but slow."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == f"[] builtin_function_or_method {0xE3069283}"


def test_of_another_layout_the_package_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "crc32c", raising=False)
    monkeypatch.setattr(crc, "PathFinder", SimpleNamespace(find_spec=lambda *_: None))

    function = crc._of_the_library()

    assert function is sys.modules["crc32c"].crc32c
    assert function(b"123456789") == 0xE3069283


def test_crc_of_large_data_is_the_same_with_the_gil_released() -> None:
    from crc32c import crc32c

    from gpupipe.extract.records.crc import HELD, mask

    data = os.urandom(HELD + 1)

    assert masked_crc32c(data) == mask(crc32c(data[5:], crc32c(data[:5])))


@pytest.mark.parametrize(
    ("record", "written"),
    [
        (b"", "000000000000000029039807d8ea82a2"),
        (b"hello", "0500000000000000eab2043e68656c6c6fbb1f1c19"),
        (bytes(3), "0300000000000000b099490e000000a1ab77e9"),
    ],
)
def test_writer_gives_the_known_answers(tmp_path: Path, record: bytes, written: str) -> None:
    path = write(tmp_path / "one", [record])

    assert Path(path).read_bytes().hex() == written


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("readers", [0, 3])
def test_every_way_of_reading_gives_what_was_written(
    tmp_path: Path, compression: Any, block: int, readers: int
) -> None:
    path = write(tmp_path / "many", RECORDS, compression)

    with ThreadPoolExecutor(max(readers, 1)) as pool:
        items = read(path, compression=compression, block=block, readers=pool if readers else None)

    assert items == list(zip(OFFSETS, RECORDS, strict=True))


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("first", [1, 15, len(SIZES) - 1])
def test_reading_may_begin_at_any_record(tmp_path: Path, compression: str, first: int) -> None:
    path = write(tmp_path / "many", RECORDS, compression)

    items = read(path, compression=compression, start=OFFSETS[first])

    assert items == list(zip(OFFSETS, RECORDS, strict=True))[first:]


def test_payloads_stay_valid_and_read_only_while_the_file_is_read_on(tmp_path: Path) -> None:
    records = [bytes([k]) * 400_000 for k in range(40)]  # twenty blocks, all of them held

    items = list(RecordReader(write(tmp_path / "many", records)))

    assert [bytes(record) for _, record in items if not isinstance(record, DataError)] == records
    assert all(isinstance(record, bytes) or memoryview(cast("bytes", record)).readonly for _, record in items)


def test_closing_ends_the_iteration(tmp_path: Path) -> None:
    path = write(tmp_path / "many", [bytes(600_000)] * 20)
    with ThreadPoolExecutor(1) as pool, closing(RecordReader(path, readers=pool)) as reader:
        items = iter(reader)
        next(items)
        reader.close()
        left = list(items)

    assert len(left) < 2


def test_a_pool_that_was_shut_down_costs_nothing_but_its_help(tmp_path: Path) -> None:
    path = write(tmp_path / "many", [bytes(600_000)] * 20)
    pool = ThreadPoolExecutor(1)
    held = threading.Event()
    pool.submit(held.wait, 10)  # the only thread is busy: what the reader submits stays queued
    items = iter(RecordReader(path, readers=pool))
    next(items)
    pool.shutdown(wait=False, cancel_futures=True)
    left = list(items)
    held.set()

    assert len(left) == 19


def test_a_reader_in_the_last_thread_of_its_pool_does_not_wait_for_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "many", [bytes(600_000)] * 20)
    with ThreadPoolExecutor(1) as pool:
        count = pool.submit(lambda: sum(1 for _ in RecordReader(path, readers=pool))).result(timeout=30)

    assert count == 20


def test_readers_run_ahead_in_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "many", [bytes(600_000)] * 4)
    submitted: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        submit = pool.submit

        def noted(fn: Any, /) -> Future[Any]:
            submitted.append(fn)
            done = submit(fn)
            done.exception()  # waits for it
            return done

        monkeypatch.setattr(pool, "submit", noted)

        assert len(list(RecordReader(path, readers=pool))) == 4
        assert len(submitted) == 4


def test_an_unknown_compression_is_refused_and_the_legal_ones_listed(tmp_path: Path) -> None:
    for name in ("LZ4", "gzip", "none"):
        with pytest.raises(PlanError, match=r"None, .*GZIP.*ZLIB"):
            RecordReader(str(tmp_path / "x"), compression=name)
        with pytest.raises(PlanError, match="GZIP"):
            TFRecordWriter(tmp_path / "x", name)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_writing_a_dataset_finishes_the_file(tmp_path: Path, compression: str | None) -> None:
    records = [b"", b"one", b"two" * 1000]
    ds = gp.Dataset.from_tensor_slices(records)
    out = TFRecordWriter(tmp_path / "x", compression)

    out.write(ds.map(lambda record: bytes(record) + b"!", traced=False))

    found = [record for _, record in read(str(tmp_path / "x"), compression=compression)]
    assert found == [record + b"!" for record in records]
    out.close()
    for more in (ds, b""):
        with pytest.raises(PlanError, match="this one is closed"):
            out.write(more)
    with TFRecordWriter(tmp_path / "x") as out, pytest.raises(PlanTypeError, match="bytes, got str"):
        out.write("text")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ds", "got"),
    [
        (lambda: gp.Dataset.range(3), "int64"),
        (lambda: gp.Dataset.from_tensor_slices([b"a"]).batch(1), r"bytes\[\?\]"),
        (lambda: gp.Dataset.from_tensor_slices({"x": [b"a"]}), "'x'"),
    ],
)
def test_writer_refuses_a_dataset_of_what_is_no_record(tmp_path: Path, ds: Any, got: str) -> None:
    needs = f"TFRecordWriter.write needs a dataset of bytes, one record each, got .*{got}.*encode_example"

    with TFRecordWriter(tmp_path / "x") as out, pytest.raises(PlanTypeError, match=needs):
        out.write(ds())


def _raises(folder: Path) -> None:
    with TFRecordWriter(folder / "x") as out:
        out.write(b"new")
        out.flush()
        raise KeyError


def _of_a_bad_dataset(folder: Path) -> None:
    def second(x: Any) -> bytes:
        return {0: b"new"}[int(x)]

    TFRecordWriter(folder / "x", "GZIP").write(gp.Dataset.range(2).map(second, traced=False))


@pytest.mark.parametrize("fails", [_raises, _of_a_bad_dataset])
def test_a_writer_that_is_left_with_an_error_leaves_the_older_file(
    tmp_path: Path, fails: Callable[[Path], None]
) -> None:
    write(tmp_path / "x", [b"old"])
    with pytest.raises((KeyError, gp.DataError)):
        fails(tmp_path)

    assert read(str(tmp_path / "x")) == [(0, b"old")]
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_a_file_may_be_written_anew_from_its_own_records(tmp_path: Path, compression: str | None) -> None:
    path = write(tmp_path / "x", [b"a", b"b", b"c"], compression)
    TFRecordWriter(path, compression).write(
        gp.TFRecordDataset(path, compression).filter(lambda record: bytes(record) != b"b")
    )

    assert [record for _, record in read(path, compression=compression)] == [b"a", b"c"]


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_what_is_written_has_the_name_from_close_on(tmp_path: Path, compression: str | None) -> None:
    path = write(tmp_path / "x", [b"old"], compression)
    out = TFRecordWriter(path, compression)
    out.write(b"hello")
    out.flush()
    before = read(path, compression=compression)
    out.close()

    assert before == [(0, b"old")]
    assert read(path, compression=compression) == [(0, b"hello")]


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_a_writer_that_nobody_closes_is_logged(
    tmp_path: Path, compression: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    out = TFRecordWriter(tmp_path / "x", compression)
    out.write(b"lost")
    del out
    gc.collect()

    assert f"{str(tmp_path / 'x')!r} was not closed: its records are gone" in caplog.text
    assert os.listdir(tmp_path) == []


def test_a_writer_follows_no_link_at_the_name(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "x").symlink_to("mine")
    write(tmp_path / "x", [b"new"])

    assert (tmp_path / "mine").read_text() == "precious"
    assert not (tmp_path / "x").is_symlink()


def test_a_writer_refuses_what_cannot_be_replaced(tmp_path: Path) -> None:
    """Replacing /dev/null by a file would break the machine; a FIFO waits for a reader."""
    os.mkfifo(tmp_path / "fifo")
    os.mkdir(tmp_path / "folder")
    (tmp_path / "null").symlink_to(os.devnull)
    for name in ("folder", "null", "fifo"):
        with pytest.raises(PlanError, match=rf"needs the name of a file.*{name}', which is none"):
            TFRecordWriter(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"none/x'$"):
        TFRecordWriter(tmp_path / "none" / "x")


reused = pytest.mark.skipif(not gil_is_on(), reason="without the GIL no block is used again")


@reused
def test_blocks_are_used_again_only_when_no_view_lives() -> None:
    blocks = Blocks(100, limit=300)
    first = blocks.take()
    name = id(first.obj)
    view = first[10:20].toreadonly()
    del first

    assert id(blocks.take().obj) != name
    del view
    assert name in {id(blocks.take().obj) for _ in range(2)}


@reused
def test_a_large_block_is_free_while_others_of_its_allocation_are_held() -> None:
    blocks = Blocks(1 << 20)
    views = [blocks.take() for _ in range(20)]
    free = id(views[3].obj)
    part = np.frombuffer(views[5][7:9], np.uint8)  # still holds its block
    del views[5], views[3]

    again = [blocks.take() for _ in range(3)]

    assert [id(block.obj) for block in again].count(free) == 1
    assert not any(np.shares_memory(part, np.asarray(block)) for block in again)
    starts = sorted(np.asarray(block).ctypes.data for block in [*again, *views])
    assert np.diff(starts).min() >= 1 << 20


@pytest.mark.parametrize(("size", "most"), [(700, 2_900), (100_000, 1 << 20)])
def test_records_that_wait_hold_little_more_than_their_bytes(tmp_path: Path, size: int, most: int) -> None:
    path = write(tmp_path / "x", [bytes([n]) * size for n in range(4)])

    views: list[Any] = read_many([Reference(path, n * (size + 16), size) for n in range(4)])

    assert [bytes(view) for view in views] == [bytes([n]) * size for n in range(4)]
    owners: list[Any] = [view.obj if isinstance(view, memoryview) else view for view in views]
    held = {id(owner): len(owner) for owner in owners}
    assert sum(held.values()) <= most


def test_blocks_that_are_held_for_ever_are_forgotten() -> None:
    blocks = Blocks(100, limit=300)

    held = [blocks.take() for _ in range(50)]

    assert len({id(block.obj) for block in held}) == 50
    assert len(blocks._ring) == (3 if gil_is_on() else 0)


# ---- TensorFlow


VALUES: dict[str, list[Any]] = {
    "image/encoded": [bytes(100_000)],
    "image/class/label": [7],
    "image/class/text": ["fish, é".encode()],
    "boxes": [0.5, 1.0, -3.25, 1e-30],
    "numbers": [0, 1, -1, 127, 128, 2**63 - 1, -(2**63)] * 30,
    "z": [b"", b"a", b"\0"],
    "é": [1],
}


@pytest.mark.tf
@pytest.mark.filterwarnings("ignore")
def test_encoding_equals_tensorflows_deterministic_form() -> None:
    tf = pytest.importorskip("tensorflow")
    kinds = {bytes: ("bytes_list", "BytesList"), float: ("float_list", "FloatList"), int: ("int64_list", "Int64List")}
    features = {}
    for name, values in VALUES.items():
        field, kind = kinds[type(values[0])]
        features[name] = tf.train.Feature(**{field: getattr(tf.train, kind)(value=values)})
    example = tf.train.Example(features=tf.train.Features(feature=features))

    assert encode_example(VALUES) == example.SerializeToString(deterministic=True)


# ---- with and without the GIL


SHORT = [bytes([k]) * (k + 1) for k in range(200)]


@pytest.fixture
def gil(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the code believe that there is a GIL, or that there is none."""
    for module in (sharing, blocks_module, reading, example):
        monkeypatch.setattr(module, "gil_is_on", lambda: request.param)
    return bool(request.param)


both = pytest.mark.parametrize("gil", [True, False], indirect=True, ids=["GIL", "no GIL"])


def from_records(folder: Path) -> list[Any]:
    return [value for _, value in RecordReader(write(folder / "x", SHORT))]


def from_compressed_records(folder: Path) -> list[Any]:
    return [value for _, value in RecordReader(write(folder / "x", SHORT, "GZIP"), compression="GZIP")]


def from_references(folder: Path) -> list[Any]:
    return list(
        read_many([value for _, value in HeaderWalker(write(folder / "x", SHORT)) if isinstance(value, Reference)])
    )


def from_fixed_length(folder: Path) -> list[Any]:
    (folder / "x").write_bytes(b"".join(record[:1] * 8 for record in SHORT))
    return [value for _, value in FixedReader(str(folder / "x"), record_bytes=8)]


def from_examples(folder: Path) -> list[Any]:
    parse = ExampleParser({"x": FixedLenFeature((), bytes)}).parse
    return [parse(encode_example({"x": record}))[0] for record in SHORT]


def from_saved_columns(folder: Path) -> list[Any]:
    out: list[Any] = []
    for record in SHORT:
        add_column(record, out)
    cursor = Cursor(memoryview(b"".join(out)))
    return [read_column(cursor) for _ in SHORT]


@both
@pytest.mark.parametrize(
    "source",
    [from_records, from_compressed_records, from_references, from_fixed_length, from_examples, from_saved_columns],
    ids=lambda source: source.__name__,
)
def test_views_go_to_other_threads_only_under_the_gil(source: Any, tmp_path: Path, gil: bool) -> None:
    values = source(tmp_path)

    assert {type(value) for value in values} == {memoryview if gil else bytes}
    expected = [record[:1] * 8 for record in SHORT] if source is from_fixed_length else SHORT
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
