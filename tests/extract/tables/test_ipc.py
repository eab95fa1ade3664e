"""Arrow IPC files: compressed batches, dictionaries, streams, and what their own metadata claims."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import RecordError
from gpupipe.extract.tables import ipc
from tests.extract.tables.formats import columns, rows_of
from tests.extract.tables.test_every_format import elements

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")


@pytest.mark.parametrize("codec", ["uncompressed", "lz4", "zstd"])
def test_feather_files(tmp_path: Path, codec: str) -> None:
    feather.write_feather(pa.table(columns(1000)), tmp_path / "one", compression=codec, chunksize=300)
    ds = gp.ArrowDataset(str(tmp_path / "one"))

    assert elements(ds) == rows_of(columns(1000))
    assert elements(ds[700:]) == rows_of(columns(1000))[700:]


def test_the_first_version_of_feather_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"FEA1" + bytes(40) + b"FEA1")

    with pytest.raises(RecordError, match="does not start with ARROW1"):
        gp.ArrowDataset(str(tmp_path / "one"))


def test_a_stream_is_refused_with_the_way_to_a_file(tmp_path: Path) -> None:
    with pa.ipc.new_stream(tmp_path / "one", pa.schema([("a", pa.int64())])) as writer:
        writer.write_table(pa.table({"a": [1, 2]}))

    with pytest.raises(RecordError, match=r"an IPC stream, which has no index of its batches; write it with"):
        gp.ArrowDataset(str(tmp_path / "one"))


def test_a_dictionary_that_grows_between_batches(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("d", kind)])
    parts: list[list[str]] = [["a", "b"], ["b", "c", "a"], ["d"]]
    seen: list[str] = []
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_file(tmp_path / "one", schema, options=options) as writer:
        for part in parts:
            seen += [text for text in part if text not in seen]
            codes = pa.array([seen.index(text) for text in part], pa.int8())
            array = pa.DictionaryArray.from_arrays(codes, pa.array(seen))
            writer.write_batch(pa.record_batch([array], schema=schema))
    ds = gp.ArrowDataset(str(tmp_path / "one"), "d")

    assert elements(ds) == [b"a", b"b", b"b", b"c", b"a", b"d"]
    assert [ds[i] for i in (5, 0, 3)] == [b"d", b"a", b"c"]


def test_a_batch_that_claims_more_rows_than_it_has_is_bad(tmp_path: Path) -> None:
    with pa.ipc.new_file(tmp_path / "one", pa.schema([("a", pa.int64())])) as writer:
        for _ in range(2):
            writer.write_table(pa.table({"a": np.arange(77)}))
    data = (tmp_path / "one").read_bytes()
    count = (77).to_bytes(8, "little")
    assert data.count(count) >= 2
    (tmp_path / "one").write_bytes(data.replace(count, (7_000).to_bytes(8, "little"), 1))

    ds: Any = gp.ArrowDataset(str(tmp_path / "one")).with_options(gp.Options(on_error="skip"))
    with iter(ds) as items:
        assert [row["a"] for row in elements(items)][-77:] == list(range(77))
        assert "block 0 of 2" in items.errors[0].reason


def test_a_footer_that_names_one_batch_many_times_is_not_followed(tmp_path: Path) -> None:
    with pa.ipc.new_file(tmp_path / "one", pa.schema([("a", pa.int64())])) as writer:
        for rows in (1000, *[1] * 40):
            writer.write_batch(pa.record_batch({"a": np.arange(rows)}))
    data = bytearray((tmp_path / "one").read_bytes())
    (length,) = struct.unpack_from("<i", data, len(data) - 10)
    footer = ipc._Flat(bytes(data[-10 - length : -10]))
    blocks = footer.structs(footer.root(), 3, 24)
    assert len(blocks) == 41
    for at in blocks:
        start = len(data) - 10 - length + at
        data[start : start + 24] = footer.data[blocks[0] : blocks[0] + 24]
    (tmp_path / "one").write_bytes(data)

    with pytest.raises(RecordError, match="a record batch outside of it"):
        gp.ArrowDataset(str(tmp_path / "one"))
