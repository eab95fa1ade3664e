"""CSV: records over any number of lines and blocks, bad ones, states, identities, and Python's own reader."""

from __future__ import annotations

import csv as python_csv
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DataError, PlanError, PlanTypeError
from gpupipe.extract.records import reading
from gpupipe.extract.tables import csv
from gpupipe.extract.tables.csv import CsvReader
from gpupipe.extract.tables.csv_layout import CsvLayout
from tests.extract.tables.test_every_format import skipping
from tests.reliability.resume import goes_on
from tests.reliability.test_hostile_files import memory_below

TEXTS = CsvLayout((bytes, bytes), (b"", b""))


def read(path: Path, data: bytes, layout: CsvLayout = TEXTS, **options: Any) -> list[Any]:
    path.write_bytes(data)
    return list(CsvReader(str(path), layout=layout, **options))


def written(rows: list[list[str]], **options: Any) -> bytes:
    out = io.StringIO()
    python_csv.writer(out, **options).writerows(rows)
    return out.getvalue().encode()


@pytest.mark.parametrize("seed", range(6))
def test_what_pythons_writer_writes_is_read_in_blocks_of_any_size(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = [["".join(rng.choices('ab,"\n', k=rng.randrange(6))) for _ in range(2)] for _ in range(60)]
    data = written(rows, lineterminator=rng.choice(["\n", "\r\n"]), quoting=rng.choice([0, 1]))

    found = read(tmp_path / "a", data, block=rng.randrange(1, 40))

    assert [[value.decode() for value in values] for _, values in found] == rows
    offsets = [at for at, _ in found]
    assert offsets == sorted(set(offsets))
    for at, values in found[::7]:
        assert read(tmp_path / "a", data, start=at)[0] == (at, values)


def test_line_ends_of_both_kinds_stay_in_quotes(tmp_path: Path) -> None:
    data = b'"a\r\nb","c\nd"\r\n"\r\n\n\r\n",e\n'

    for block in (3, 1000):
        found = [values for _, values in read(tmp_path / "a", data, block=block)]
        assert found == [(b"a\r\nb", b"c\nd"), (b"\r\n\n\r\n", b"e")]


def test_a_quote_without_an_end_costs_its_own_line(tmp_path: Path) -> None:
    (at, error), *rest = read(tmp_path / "a", b'a,"open\nb,c\nd,"e"\nf,"g\nh"\n')

    assert isinstance(error, DataError)
    assert (at, error.offset) == (0, 0)
    assert "a quoted value needs an end" in str(error)
    assert [values for _, values in rest] == [(b"b", b"c"), (b"d", b"e"), (b"f", b"g\nh")]


def test_an_open_quote_is_given_up_after_the_longest_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "LONGEST", 100)
    data = b'a,"open\n' + b"b,c\n" * 1000 + b'd,"e"\n'

    (at, error), *rest = read(tmp_path / "a", data, block=64)

    assert at == 0
    assert "within 100 bytes" in str(error)
    assert [values for _, values in rest] == [(b"b", b"c")] * 1000 + [(b"d", b"e")]

    source = CsvReader(str(tmp_path / "a"), layout=TEXTS, block=64).source()
    assert source.block()[0][0] == 0
    last, values = source.block()[-1]
    assert (last < 400, values) == (True, (b"b", b"c"))  # long before the end of the file, at 4,000


def test_quotes_in_every_line_take_no_quadratic_time(tmp_path: Path) -> None:
    data = b'a,"open\n' + b'"",""\n' * 30_000

    found = read(tmp_path / "a", data)

    assert isinstance(found[0][1], DataError)
    assert len(found) == 30_001


def test_bad_records_name_their_place_and_the_others_follow(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"h,i\n1,a\n2\nx,b\n,c\n5,d\n")
    ds = gp.CsvDataset(str(tmp_path / "a"), ["int32", "string"], header=True)

    with iter(skipping(ds)) as items:
        assert list(items) == [(1, b"a"), (5, b"d")]
        found = [(record.offset, record.unit, record.stage, record.reason) for record in items.errors]
    assert found == [
        (8, "offset", "read", "a record of 2 values is needed, got 1"),
        (10, "offset", "read", "value 0 of int32 is needed, got b'x'"),
        (14, "offset", "read", "value 0 is required and missing; give its column a default in record_defaults"),
    ]


def _files(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(3):
        rows = [[str(100 * i + j), f'text "{j}"\nof {i}'] for j in range(7)]
        (folder / f"{i}.csv").write_bytes(b"number,text\r\n" + written(rows) + b"bad\n")
    return [str(folder / f"{i}.csv") for i in range(3)]


@pytest.mark.parametrize("block", [16, 1 << 18])
@pytest.mark.parametrize("reads", [None, 2])
def test_a_state_behind_any_record_goes_on_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Any, block: int
) -> None:
    monkeypatch.setattr("gpupipe.flow.sources.readers.LOCAL_BLOCK", block)
    files = _files(tmp_path)

    def build() -> Any:
        return gp.CsvDataset(files, ["int32", "string"], header=True, num_parallel_reads=reads)

    assert len(goes_on(build, (0, 1, *range(6, 12), 23, 24))) == 24
    assert reading.BLOCK == 1 << 18


@pytest.mark.parametrize("damage", [b"", b"\0" * 500, b"\xff" * 300, b'"' * 301])
def test_a_file_of_something_else_has_bad_records_only(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a").write_bytes(damage)
    (tmp_path / "b").write_bytes(b"1,2\n")

    ds = gp.CsvDataset([str(tmp_path / "a"), str(tmp_path / "b")], ["int32", "int32"])

    assert list(skipping(ds)) == [(1, 2)]


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"record_defaults": []}, PlanTypeError, "a list of a dtype or a default"),
        ({"record_defaults": [np.uint8]}, PlanTypeError, "needs int32, int64"),
        ({"record_defaults": [True]}, PlanTypeError, "needs int32, int64"),
        ({"record_defaults": [2**63]}, PlanError, "a default of at most 64 bits"),
        ({"record_defaults": [-(10**5000)]}, PlanError, "a default of at most 64 bits"),
        ({"record_defaults": [1e39]}, PlanError, r"a default that float32 holds, got 1e\+39; np.float64"),
        ({"record_defaults": ["int32"], "field_delim": "ab"}, PlanError, "one character"),
        ({"record_defaults": ["int32"], "field_delim": '"'}, PlanError, "one character"),
        ({"record_defaults": ["int32"] * 2, "select_cols": [1, 0]}, PlanError, "growing numbers"),
        ({"record_defaults": ["int32"], "select_cols": [0, 1]}, PlanError, "growing numbers"),
        ({"record_defaults": ["int32"], "na_value": 3}, PlanTypeError, "a text for na_value"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments: Any, error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        gp.CsvDataset("a.csv", **arguments)


def test_defaults_have_tensorflows_types() -> None:
    ds = gp.CsvDataset("a.csv", [0, 1.5, "x", [2], np.float64(3), np.array([4]), "int64", 2**31, [-(2**31)], -np.inf])

    kinds = [spec.dtype for spec in ds.element_spec]
    assert kinds == [np.int32, np.float32, bytes, np.int32, np.float64, *[np.int64] * 3, np.int32, np.float32]


def test_a_float_beyond_its_type_is_infinite_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1e39,1e39\n-1e400,-1e400\n")

    found = list(gp.CsvDataset(str(tmp_path / "a"), ["float32", "float64"]))

    assert found == [(np.inf, 1e39), (-np.inf, -np.inf)]
    assert {type(row[0]) for row in found} == {np.float32}


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("select", [None, [0], [1]])
def test_a_line_of_many_values_is_not_made_into_as_many_objects(tmp_path: Path, select: Any, quoted: bool) -> None:
    value = b'"10"' if quoted else b"10"
    (tmp_path / "one.csv").write_bytes(b",".join([value] * 20_000) + b"\n1,2\n")
    defaults = ["int64"] * (2 if select is None else 1)
    ds = gp.CsvDataset(str(tmp_path / "one.csv"), defaults, select_cols=select)
    complaint = "a record of 2 values is needed, got 20000"
    assert len(list(ds.ignore_errors())) in (1, 2)  # what is made once is made

    with memory_below(600 << 10):
        found = [tuple(map(int, row)) for row in ds.ignore_errors()]

    assert found == ([(1, 2)] if select is None else [(10,), (1 + select[0],)])
    if select is None:
        with pytest.raises(DataError, match=complaint):
            next(iter(ds))
