"""How many rows files of Arrow and Parquet say they have: one error where it is too many."""

from __future__ import annotations

import decimal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DataError, RecordError
from gpupipe.extract.tables import ipc, ipc_rows
from gpupipe.extract.tables.parquet import Parquet
from gpupipe.extract.tables.sound import SOUND
from tests.extract.tables.test_arrow import IMAGE, TYPES, _ipc, write
from tests.extract.tables.test_every_format import elements, skipping

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS, MANY = 777, 1 << 27
CLAIMS: dict[str, Any] = {
    "int16": pa.array(range(ROWS), pa.int16()),
    "bool": pa.array([i % 3 == 0 for i in range(ROWS)]),
    "text": pa.array([f"row {i}" for i in range(ROWS)]),
    "view": pa.array([f"row {i} of some" for i in range(ROWS)], pa.string_view()),
    "list": pa.array([[i] for i in range(ROWS)], pa.list_(pa.int64())),
    "array": pa.array([[i, i] for i in range(ROWS)], pa.list_(pa.int64(), 2)),
    "dictionary": pa.array([f"{i % 9}" for i in range(ROWS)]).dictionary_encode(),
    "image": pa.array([{"bytes": b"%d" % i, "path": None} for i in range(ROWS)], IMAGE),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), (2,)), pa.array([[i % 99, 0] for i in range(ROWS)], pa.list_(pa.int8(), 2))
    ),
}


def _varint(n: int) -> bytes:
    """A number as the footer of a Parquet file has it."""
    n, out = 2 * n, b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def _claiming_parquet(path: Path, table: Any, **options: Any) -> None:
    """Write 777 rows, and say in the footer that there are 134 million."""
    parquet.write_table(table, path, **options)
    data = path.read_bytes()
    n = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - n : -8].replace(_varint(ROWS), _varint(MANY))
    path.write_bytes(data[: -8 - n] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _claiming_ipc(path: Path, table: Any, compression: str | None = None) -> None:
    """Write 777 rows, and say in each length that there are 134 million."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(struct.pack("<q", ROWS), struct.pack("<q", MANY)))


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize(
    ("claiming", "options", "complaint"),
    [
        (_claiming_ipc, {}, "says it has 134217728 rows, and whose bytes have room for"),
        (_claiming_ipc, {"compression": "lz4"}, "says it has 134217728 rows, and whose bytes have room for"),
        (_claiming_ipc, {"compression": "zstd"}, "says it has 134217728 rows, and whose bytes have room for"),
        (_claiming_parquet, {}, "says it has 134217728 rows, and of which 777 can be read"),
        (_claiming_parquet, {"use_dictionary": False, "compression": "none"}, "and of which 777 can be read"),
        (_claiming_parquet, {"data_page_version": "2.0", "compression": "zstd"}, "and of which 777 can be read"),
    ],
)
def test_more_rows_than_the_bytes_of_a_block_hold_are_one_error_of_the_file(
    claiming: Any, options: Any, complaint: str, name: str, tmp_path: Path
) -> None:
    table = pa.table({"x": CLAIMS[name]})
    claiming(tmp_path / "one", table, **options)
    make, plain_ipc = (gp.ParquetDataset, False) if claiming is _claiming_parquet else (gp.ArrowDataset, True)
    sound = tmp_path / "two"
    if plain_ipc:
        _ipc(sound, table[:3])
    else:
        write(sound, table[:3])

    with pytest.raises(RecordError, match=complaint):
        make(str(tmp_path / "one"))
    ds = make([str(sound), str(tmp_path / "one")], "x")
    for policy in ("skip", "replace"):
        with iter(ds.with_options(gp.Options(on_error=policy))) as items:
            assert len([next(items) for _ in range(3)]) == 3
            with pytest.raises(RecordError, match=f"{complaint}.*cannot be counted"):
                next(items)
    assert len(elements(skipping(ds, lost_files="skip"))) == 3
    assert len(ds.with_options(gp.Options(lost_files="skip"))) == 3
    with pytest.raises(DataError, match=complaint):
        len(ds)


def test_a_row_group_that_cannot_be_decoded_does_not_count(tmp_path: Path) -> None:
    """As where the header of a page says as many rows as the footer."""
    _claiming_parquet(tmp_path / "one", pa.table({"x": CLAIMS["int16"]}), use_dictionary=False, compression="none")
    data = (tmp_path / "one").read_bytes()
    (tmp_path / "one").write_bytes(data.replace(_varint(ROWS), _varint(MANY), 1))

    with pytest.raises(RecordError, match=r"one with more rows than can be read|of which 0 can be read"):
        gp.ParquetDataset(str(tmp_path / "one"))


VALID: dict[str, Any] = {
    **{name: pa.array([*given, None], kind) for name, (kind, given, _) in TYPES.items()},
    **CLAIMS,
    "nulls": pa.nulls(5),
    "nulls of integers": pa.nulls(5000, pa.int32()),
    "lists of nulls": pa.array([[None], []], pa.list_(pa.null())),
    "arrays of nothing": pa.array([[], []], pa.list_(pa.int8(), 0)),
    "struct": pa.array([{"a": 1, "b": "x"}, None]),
    "struct of nothing": pa.array([{}, {}], pa.struct([])),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
    "list view": pa.array([[1], []], pa.list_view(pa.int8())),
    "large list view": pa.array([[1], []], pa.large_list_view(pa.int8())),
    "empty binary": pa.array([b"", b""], pa.binary(0)),
    "decimal": pa.array([decimal.Decimal("1.5")] * 3, pa.decimal128(5, 2)),
    "time": pa.array([1, None], pa.time64("us")),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 5000], pa.int32()), pa.array(["a", "b"])),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    ),
    "sparse union": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    "equal": pa.array([7] * 300_000, pa.int64()),
}
"""Columns of every layout that Arrow has."""


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("name", VALID)
def test_no_valid_batch_is_refused_for_its_rows(
    name: str, compression: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, beside another column, and where every buffer is asked for its bytes."""
    values = VALID[name]
    n = len(values)
    for columns_of in ({"x": values}, {"x": values, "y": values.slice(0, n)}, {}):
        table = pa.table(columns_of)
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(tmp_path / "one", table.schema, options=options) as writer:
            writer.write_table(table)
        for likely in (64, 0):  # 0: each buffer says how many bytes it has
            monkeypatch.setattr(ipc, "_LIKELY", likely)
            opened = ipc.Ipc().open(str(tmp_path / "one"))
            assert opened.size == (n if columns_of else 0)


@pytest.mark.parametrize("name", [name for name in VALID if name != "runs"])
def test_the_buffers_of_a_column_are_followed_by_those_of_the_next(name: str, tmp_path: Path) -> None:
    """The column behind it is found to have room for its rows and no more, and no buffer is left."""
    values = VALID[name]
    nothing = pa.nulls(10_000)
    filled = pa.concat_arrays([values] * (10_000 // len(values) + 1))[:10_000] if "union" not in name else values
    n = len(filled)
    batch = pa.record_batch({"x": filled, "none": nothing[:n], "y": pa.array(np.arange(n, dtype=np.int64))})
    data = batch.serialize().to_pybytes()
    flat = ipc._Flat(data[8:])
    header = flat.table(flat.root(), 2)
    sizes = [size for _, size in ipc._buffers(flat, header, len(data))]
    counts = list(flat.longs(header, 4))

    buffers = iter(sizes)
    walk = ipc_rows._Walk(buffers, iter(counts), False)
    room = [walk.most(field.type) for field in batch.schema]

    assert room[0] >= n
    assert room[1:] == [np.inf, n]
    assert list(buffers) == []


EQUAL: dict[str, Any] = {
    "number": pa.array([0], pa.int8()),
    "text": pa.array(["x" * 10_000]),
    "null": pa.nulls(1, pa.int64()),
    "list of texts": pa.array([["x" * 10_000]]),
    "array": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    "image": pa.array([{"bytes": b"x" * 10_000, "path": None}], IMAGE),
    "category": pa.array(["x" * 10_000]).dictionary_encode(),
    "time": pa.array([1], pa.timestamp("us")),
    "decimal": pa.array([decimal.Decimal("1.5")], pa.decimal128(30, 2)),
    "a.b": pa.array([1]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_many_equal_rows_of_parquet_take_few_bytes_and_are_all_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = EQUAL[name].type
    with parquet.ParquetWriter(tmp_path / "one", pa.schema([(name, kind)])) as writer:
        writer.write_table(pa.table({name: EQUAL[name].take(pa.array([0] * 1000))}))
    path = str(tmp_path / "one")
    monkeypatch.setattr("gpupipe.extract.tables.parquet._ROWS", 0)  # as if they were too many
    counted: list[int] = []
    count = Parquet._count

    def seen(self: Any, table: Any, file: Any, opened: Any) -> None:
        before = len(SOUND)
        count(self, table, file, opened)
        counted.extend([table.size] * (len(SOUND) - before))

    monkeypatch.setattr(Parquet, "_count", seen)

    for _ in range(2):
        assert Parquet().open(path).size == 1000
    assert counted == [1000]  # once for each version of a file


def test_more_rows_than_eight_for_each_byte_are_read_where_they_are_there(tmp_path: Path) -> None:
    n = 3_000_000
    table = pa.table({"x": pa.array(np.zeros(n, np.int8)), "n": pa.nulls(n, pa.int64())})
    parquet.write_table(table, tmp_path / "one", row_group_size=n)
    assert (tmp_path / "one").stat().st_size * 8 < n

    ds = gp.ParquetDataset(str(tmp_path / "one"), "x")
    assert len(ds) == n
    assert elements([ds[0], ds[n - 1]]) == [0, 0]
    assert len(gp.ParquetDataset(str(tmp_path / "one"), "n", defaults={"n": 5})) == n


@pytest.mark.parametrize("said", [0, 7, 11, 1 << 40])
@pytest.mark.parametrize("names", ["a", "s"])
def test_another_number_of_rows_than_the_columns_have_is_one_error_of_the_file(
    names: Any, said: int, tmp_path: Path
) -> None:
    """No row of a batch that says it has none is given, nor missed."""
    table = pa.table({"a": range(30), "s": [[str(i)] for i in range(30)], "n": pa.nulls(30)})
    with pa.ipc.new_file(tmp_path / "one", table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    data = (tmp_path / "one").read_bytes()
    first = data.index(struct.pack("<q", 10))
    (tmp_path / "one").write_bytes(data[:first] + struct.pack("<q", said) + data[first + 8 :])

    with pytest.raises(RecordError, match=f"says it has {said} rows, and whose columns say they have 10; copy"):
        len(gp.ArrowDataset(str(tmp_path / "one"), names))


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.int8(), 0), pa.struct([])], ids=str)
def test_rows_that_no_byte_stands_for_have_a_bound_in_a_file(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another column has a byte for each row there may be any number, and in as many batches."""
    values = (
        pa.nulls(60)
        if kind == pa.null()
        else pa.Array.from_buffers(
            kind, 60, [None], children=[pa.array([], kind.value_type)] if kind.num_fields else None
        )
    )
    monkeypatch.setattr(ipc, "MOST_ROWS", 100)
    for name, table in (("one", pa.table({"x": values})), ("two", pa.table({"x": values, "y": range(60)}))):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
            writer.write_table(table)

    with pytest.raises(RecordError, match="one of 120 rows without bytes, more than 100"):
        ipc.Ipc().open(str(tmp_path / "one"))
    assert ipc.Ipc().open(str(tmp_path / "two")).size == 120


@pytest.mark.parametrize("listed", [0, 1, 2])
def test_a_footer_that_lists_fewer_batches_than_there_are_is_one_error_of_the_file(listed: int, tmp_path: Path) -> None:
    table = pa.table({"a": range(30)})
    with pa.ipc.new_file(tmp_path / "one", table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    data = bytearray((tmp_path / "one").read_bytes())
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    start = len(data) - 10 - length
    footer = ipc._Flat(bytes(data[start:-10]))
    struct.pack_into("<I", data, start + footer.table(footer.root(), 3), listed)
    (tmp_path / "one").write_bytes(data)

    with pytest.raises(RecordError, match="whose footer does not list all of its record batches"):
        gp.ArrowDataset(str(tmp_path / "one"))
