"""Arrow: the types of columns in Parquet and IPC files, nulls and defaults, images, and what IPC has of its own."""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import PlanError, PlanTypeError, RecordError
from gpupipe.extract.tables import arrow as arrow_module
from gpupipe.extract.tables import ipc
from gpupipe.extract.tables.arrow import column_of, columns_of
from gpupipe.spec import TensorSpec, spec_of
from tests.extract.tables.formats import columns, plain, rows_of
from tests.extract.tables.test_every_format import elements, skipping
from tests.reliability.resume import goes_on
from tests.reliability.test_hostile_files import memory_below

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write(path: Path, table: Any, rows: int = 3) -> str:
    parquet.write_table(pa.table(table), path, row_group_size=rows)
    return str(path)


def test_the_name_of_a_field_begins_no_line_in_an_error(tmp_path: Path) -> None:
    name = "a: int64>\nWARNING root: \x1b[31m"
    path = write(tmp_path / "a", {"x": pa.array([{name: 1}])})

    with pytest.raises(PlanError, match=r"int64>\\nWARNING root: \\x1b\[31m") as caught:
        gp.ParquetDataset(path)
    assert str(caught.value).isprintable()


NUMBERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
ONE, MANY, SOME = [b"a\0", b"b" * 50, b""], [[0, 1], [2, 3], [4, 5]], [[], [1, 2], [3]]
PAIRS, IMAGE = [[], [[1, 2]], [[3, 4], [5, 6]]], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
NESTED = [[[0], [1]], [[2], [3]], [[4], [5]]]
TYPES: dict[str, tuple[Any, list[Any], TensorSpec]] = {
    **{name: (getattr(pa, name)(), [0, 1, 7], TensorSpec((), name)) for name in NUMBERS},
    "half": (pa.float16(), [np.float16(0.5)] * 3, TensorSpec((), "float16")),
    "bool": (pa.bool_(), [True, False, True], TensorSpec((), bool)),
    "string": (pa.string(), ["", "a", "ü"], TensorSpec((), bytes)),
    "large string": (pa.large_string(), ["", "a", "b"], TensorSpec((), bytes)),
    "binary": (pa.binary(), ONE, TensorSpec((), bytes)),
    "large binary": (pa.large_binary(), ONE, TensorSpec((), bytes)),
    "binary view": (pa.binary_view(), ONE, TensorSpec((), bytes)),
    "fixed binary": (pa.binary(2), [b"ab", b"cd", b"\0\0"], TensorSpec((), bytes)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], TensorSpec((), bytes)),
    "array": (pa.list_(pa.float32(), 2), MANY, TensorSpec((2,), "float32")),
    "array of arrays": (pa.list_(pa.list_(pa.int8(), 1), 2), NESTED, TensorSpec((2, 1), "int8")),
    "array of texts": (pa.list_(pa.string(), 1), [["a"], ["b"], ["c"]], TensorSpec((1,), bytes)),
    "list": (pa.list_(pa.int32()), SOME, TensorSpec((None,), "int32")),
    "large list": (pa.large_list(pa.bool_()), [[True], [], []], TensorSpec((None,), bool)),
    "list of arrays": (pa.list_(pa.list_(pa.int8(), 2)), PAIRS, TensorSpec((None, 2), "int8")),
    "list of texts": (pa.list_(pa.string()), [["a", "bc"], [], [""]], TensorSpec((None,), bytes)),
    "image": (IMAGE, [{"bytes": data, "path": path} for data, path in zip(ONE, ("x", None, "y"), strict=True)],
              TensorSpec((), bytes)),
}  # fmt: skip


def stored(value: Any) -> Any:
    """What a value of Arrow is as an element: texts are bytes, of an image its bytes."""
    if isinstance(value, list):
        return [stored(one) for one in value]
    return value["bytes"] if isinstance(value, dict) else value.encode() if isinstance(value, str) else value


def _parquet(path: Path, table: Any) -> Any:
    return gp.ParquetDataset(write(path, table, rows=2), "x")


def _ipc(path: Path, table: Any) -> Any:
    with pa.ipc.new_file(path, pa.table(table).schema) as writer:
        writer.write_table(pa.table(table), max_chunksize=2)
    return gp.ArrowDataset(str(path), "x")


@pytest.mark.parametrize("make", [_parquet, _ipc])
@pytest.mark.parametrize("name", TYPES)
def test_a_column_has_the_type_and_the_values_of_its_file(name: str, make: Any, tmp_path: Path) -> None:
    kind, given, spec = TYPES[name]
    expected = stored(given)
    ds = make(tmp_path / "one", {"x": pa.array(given, kind)})

    assert ds.element_spec == spec
    assert elements(ds) == expected
    assert elements(ds[1:]) == expected[1:]
    for value in ds:
        assert spec.accepts(spec_of(value))


def _tensors(shape: tuple[int, ...], permutation: list[int] | None = None, number: Any = None) -> Any:
    """Three tensors, a null, and three tensors, of Arrow's type of tensors."""
    size, number = int(np.prod(shape)), number or pa.int8()
    numbers = np.arange(7 * size).astype(number.to_pandas_dtype()).tolist()
    storage = pa.array(
        [None if i == 3 else numbers[i * size : (i + 1) * size] for i in range(7)], pa.list_(number, size)
    )
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(number, shape, permutation=permutation), storage)


TENSORS = [
    ((2, 3), None),
    ((2, 3), [1, 0]),
    ((2, 3, 4), [2, 1, 0]),
    ((2, 3, 4), [0, 2, 1]),
    ((5,), None),
    ((5,), [0]),
    ((1, 1, 1), [0, 2, 1]),
]


@pytest.mark.parametrize("make", [_parquet, _ipc])
@pytest.mark.parametrize(("shape", "permutation"), TENSORS)
@pytest.mark.parametrize("number", [pa.float32(), pa.uint8(), pa.float16()], ids=str)
def test_tensors_of_one_shape_have_it_in_arrows_order(
    number: Any, shape: tuple[int, ...], permutation: list[int] | None, make: Any, tmp_path: Path
) -> None:
    whole = _tensors(shape, permutation, number)
    right = [*whole[:3].to_numpy_ndarray().tolist(), *whole[4:].to_numpy_ndarray().tolist()]
    ds = make(tmp_path / "one", {"x": whole})

    assert ds.element_spec.shape == whole[:3].to_numpy_ndarray().shape[1:]
    with iter(skipping(ds)) as items:
        found = list(items)
        assert [record.offset for record in items.errors] == [3]
    assert elements(found) == right
    assert all(ds.element_spec == spec_of(value) and value.flags.c_contiguous and value.base is None for value in found)
    assert elements([ds[i] for i in (6, 4, 0)]) == [right[i] for i in (5, 3, 0)]
    for start in range(7):
        column, nulls = column_of(whole.slice(start))
        rows = [i for i in range(len(column)) if nulls.whole is None or not nulls.whole[i]]
        assert (
            elements([column.one(i) for i in rows])
            == right[min(start, 6 - len(rows) + 0) if start < 4 else start - 1 :]
        )


def test_lists_of_tensors_and_a_default_for_one(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.int8(), (2, 2), permutation=[1, 0])
    pairs = pa.ExtensionArray.from_storage(kind, pa.array([[0, 1, 2, 3], [4, 5, 6, 7]], pa.list_(pa.int8(), 4)))
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 2], pa.int32()), pairs)
    path = tmp_path / "one"
    _ipc(
        path, {"x": lists, "y": pa.ExtensionArray.from_storage(kind, pa.array([None, [1, 2, 3, 4]], kind.storage_type))}
    )

    ds = gp.ArrowDataset(str(path), defaults={"y": np.full((2, 2), 9, np.int8)})
    assert ds.element_spec == {"x": TensorSpec((None, 2, 2), "int8"), "y": TensorSpec((2, 2), "int8")}
    assert elements(ds) == [
        {"x": [], "y": [[9, 9], [9, 9]]},
        {"x": [[[0, 2], [1, 3]], [[4, 6], [5, 7]]], "y": [[1, 3], [2, 4]]},
    ]


@pytest.mark.parametrize("make", [_parquet, _ipc])
def test_a_boolean_of_eight_bits_is_one(make: Any, tmp_path: Path) -> None:
    flags = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 5, None, -1], pa.int8()))
    ds = make(tmp_path / "one", {"x": flags})

    assert ds.element_spec == TensorSpec((), bool)
    with iter(skipping(ds)) as items:
        found = list(items)
    assert [type(value) for value in found] == [np.bool_] * 4
    assert elements(found) == [False, True, True, True]


class _Period(pa.ExtensionType):  # type: ignore[name-defined, misc]
    """A type of a user's own: months since 1970, and any storage."""

    def __init__(self, storage: Any) -> None:
        super().__init__(storage, "tests.period")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Any:
        return cls(storage)


ID = bytes(range(16))
EXTENSIONS: list[tuple[Any, Any, Any]] = [
    (pa.uuid(), pa.array([ID], pa.binary(16)), ID),
    (pa.json_(), pa.array(['{"a": 1}']), b'{"a": 1}'),
    (pa.opaque(pa.binary(), "geometry", "postgis"), pa.array([b"\0\1"], pa.binary()), b"\0\1"),
    (_Period(pa.string()), pa.array(["May"]), b"May"),
    (_Period(pa.int32()), pa.array([600], pa.int32()), "'tests.period', of which .* stored as int32"),
    (_Period(pa.list_(pa.int8(), 4)), pa.array([[1, 2, 3, 4]], pa.list_(pa.int8(), 4)), "'tests.period', of which"),
    (_Period(IMAGE), pa.array([{"bytes": b"x"}], IMAGE), "'tests.period', of which"),
    (pa.opaque(pa.int64(), "money", "postgis"), pa.array([5]), "'arrow.opaque', of which"),
]
"""An extension type, values of its storage, and the one element; or what the error says."""


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("make", [_parquet, _ipc])
@pytest.mark.parametrize(
    ("kind", "storage", "expected"), EXTENSIONS, ids=lambda value: str(getattr(value, "type", ""))[:30]
)
def test_other_extension_types_are_their_bytes_or_refused(
    kind: Any, storage: Any, expected: Any, make: Any, registered: bool, tmp_path: Path
) -> None:
    """Whether or not the program that reads has the class: it is the same column."""
    table = {"x": pa.ExtensionArray.from_storage(kind, storage)}
    own = isinstance(kind, _Period) and registered
    if own:
        pa.register_extension_type(kind)
    try:
        if isinstance(expected, bytes):
            assert elements(make(tmp_path / "one", table)) == [expected]
            return
        with pytest.raises(
            PlanError, match=rf"got 'x' in .* of the extension type {expected}.*leave it out with columns="
        ):
            make(tmp_path / "one", table)
    finally:
        if own:
            pa.unregister_extension_type("tests.period")


def _viewing(data: bytes, *sizes: int) -> Any:
    """Byte strings of some sizes, each the same bytes from their start on."""
    views = b"".join(struct.pack("<i4sii", n, data[:4], 0, 0) for n in sizes)
    return pa.Array.from_buffers(pa.binary_view(), len(sizes), [None, pa.py_buffer(views), pa.py_buffer(data)])


FIFTY = pa.list_(pa.int64(), 50)
LONG, TINY = "x" * 400, [[0] * 400, *[[0]] * 99]
SHARED: dict[str, Callable[[int], Any]] = {  # arrays of some rows that name 400 bytes each, or 8
    "texts": lambda n: pa.DictionaryArray.from_arrays(pa.array([0, 1] * (n // 2)), pa.array([LONG, "y", None])),
    "numbers": lambda n: pa.DictionaryArray.from_arrays(pa.array([0, 1] * n * 25), pa.array([1.5, 2.5])),
    "one long list": lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n), pa.array(TINY, pa.list_(pa.int8()))),
    "arrays": lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n), pa.array([[0] * 50], FIFTY)),
    "structs": lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n), pa.array([{"bytes": LONG.encode()}], IMAGE)),
    "inside of lists": lambda n: pa.array([[LONG] * n], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "inside of arrays": lambda n: pa.array([[LONG] * n], pa.list_(pa.dictionary(pa.int8(), pa.string()), n)),
    "views": lambda n: _viewing(LONG.encode(), *[400] * n),
    "views inside of lists": lambda n: pa.ListArray.from_arrays([0, n], _viewing(LONG.encode(), *[400] * n)),
    "parts": lambda n: pa.chunked_array([_viewing(LONG.encode(), *[400] * (n // 2))] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_rows_that_share_values_have_no_more_bytes_than_a_block_may_have(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All columns together, and what counts is what the rows name; no copy was made when it is too much."""
    monkeypatch.setattr(arrow_module, "MOST_BYTES", 4000)
    few, many = SHARED[name](8), SHARED[name](40)
    columns_of([few, pa.array(["z" * 5000])])
    before = pa.total_allocated_bytes()

    for arrays in ([many], [few] * 4):
        with pytest.raises(RecordError, match=r"at most 4000 bytes is needed, got .* name the same values many times"):
            columns_of(arrays)

    assert pa.total_allocated_bytes() - before < 4000


@pytest.mark.parametrize("kind", [pa.null(), pa.list_(pa.null()), pa.list_(pa.null(), 1 << 22)], ids=str)
@pytest.mark.parametrize("given", [pa.int64(), pa.string()], ids=str)
def test_many_nulls_that_take_no_bytes_of_a_file_take_no_memory(kind: Any, given: Any, tmp_path: Path) -> None:
    n = 1 << 22
    values = pa.nulls(n)
    if kind.num_fields:
        values = pa.Array.from_buffers(
            kind, 1, [None, pa.py_buffer(struct.pack("<ii", 0, n))][: kind.num_buffers], children=[values]
        )
    sound = given if kind == pa.null() else pa.list_(given)
    for name, table in (("one", pa.table({"x": pa.array([], sound)})), ("two", pa.table({"x": values}))):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    assert (tmp_path / "two").stat().st_size < 1000

    files = gp.ArrowDataset([str(tmp_path / name) for name in ("one", "two")])
    with memory_below(5 << 20), pytest.raises(RecordError, match=r"got null; give one|got a null in its list"):
        next(iter(files))


def test_an_extension_type_inside_of_a_list_is_refused_too(tmp_path: Path) -> None:
    periods = pa.ExtensionArray.from_storage(_Period(pa.int32()), pa.array([600, 601], pa.int32()))

    with pytest.raises(PlanError, match=r"got 'x' in .* of lists of the extension type 'tests.period', .*int32"):
        _ipc(tmp_path / "one", {"x": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), periods)})


@pytest.mark.parametrize("name", TYPES)
def test_parts_of_an_array_and_nulls_in_it_have_the_right_values(name: str) -> None:
    kind, given, _ = TYPES[name]
    expected = stored(given)
    whole = pa.array([*given, None, *given], kind)

    for start in range(7):
        column, nulls = column_of(whole.slice(start, 7 - start))
        found = [plain(column.one(i)) for i in range(len(column))]
        wanted = [*expected, None, *expected][start:]
        assert [None if value is None else one for value, one in zip(wanted, found, strict=True)] == wanted
        assert list(np.flatnonzero(nulls.whole) if nulls.whole is not None else []) == (
            [3 - start] if start < 4 else []
        )
        assert nulls.inner is None or not nulls.inner.any()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us"), datetime.datetime(2020, 1, 1)),
        (pa.date32(), datetime.date(2020, 1, 1)),
        (pa.decimal128(5, 2), decimal.Decimal("1.25")),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        (pa.struct([("a", pa.int32())]), {"a": 1}),
        (pa.list_(pa.list_(pa.int32())), [[1]]),
        (pa.null(), None),
    ],
    ids=str,
)
def test_a_type_without_leaves_is_refused_by_the_name_of_its_column(kind: Any, value: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "one", {"a": [1], "odd": pa.array([value], kind)})

    with pytest.raises(PlanError, match=r"got 'odd' in .*leave it out with columns="):
        gp.ParquetDataset(path)
    assert elements(gp.ParquetDataset(path, ["a"])) == [{"a": 1}]


def test_a_null_makes_its_row_bad_and_a_default_takes_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "one", {"a": [1, None, 3, 4], "s": ["x", "y", None, "z"], "l": [[1], [2], [3], [4, None]]})

    with iter(skipping(gp.ParquetDataset(path))) as items:
        assert elements(items) == [{"a": 1, "s": b"x", "l": [1]}]
        assert [(record.offset, record.reason) for record in items.errors] == [
            (1, "a value is needed in column 'a', got null; give one with defaults="),
            (2, "a value is needed in column 's', got null; give one with defaults="),
            (3, "values are needed in column 'l', got a null in its list"),
        ]
    filled = gp.ParquetDataset(path, ["a", "s"], defaults={"a": -1, "s": "?"})
    assert filled.element_spec["a"] == TensorSpec((), "int64")
    assert elements(filled)[1:3] == [{"a": -1, "s": b"y"}, {"a": 3, "s": b"?"}]
    assert elements(filled[1:3]) == elements(filled)[1:3]
    assert elements(gp.ParquetDataset(path, "a", defaults={"a": 7.0})) == [1, 7, 3, 4]


def test_nulls_behind_a_state_inside_a_block_stay_in_their_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "one", {"a": [0, 1, 2, None, 4, 5, None, 7]}, rows=6)

    def build() -> Any:
        return skipping(gp.ParquetDataset(path, "a"))

    assert len(goes_on(build, range(7))) == 6


WIDE = pa.array([0, -1, 2**40, 2**53 + 1], pa.int64())
VALUES: list[tuple[Any, Any, list[Any]]] = [
    (pa.int64(), pa.array([1, -2], pa.int32()), [1, -2]),
    (pa.int32(), WIDE, [0, -1, "int64", "int64"]),
    (pa.uint8(), WIDE, [0, "int64", "int64", "int64"]),
    (pa.uint64(), WIDE, [0, "int64", 2**40, 2**53 + 1]),
    (pa.int64(), pa.array([2**63, 5], pa.uint64()), ["uint64", 5]),
    (pa.float64(), WIDE, [0.0, -1.0, 2.0**40, "int64"]),
    (pa.float64(), pa.array([0.5, 1.5], pa.float32()), [0.5, 1.5]),
    (pa.list_(pa.int32()), pa.array([[1, 2**40], [], [3]], pa.list_(pa.int64())), ["int64", [], [3]]),
    (pa.list_(pa.int32(), 2), pa.array([[1, 2**40], [3, 4]], pa.list_(pa.int64(), 2)), ["int64", [3, 4]]),
    (pa.list_(pa.int64(), 2), pa.array([[1], [1, 2], None]), ["a list of 1", [1, 2], "got null"]),
    (pa.list_(pa.int64(), 2), pa.array([[], [None]], pa.list_(pa.null())), ["a list of 0", "null in its list"]),
    (pa.list_(pa.string(), 1), pa.array([["a", "b"], ["c"]]), ["a list of 2", [b"c"]]),
    (pa.list_(pa.float32()), pa.array([[], []], pa.list_(pa.null())), [[], []]),
    (pa.list_(pa.string()), pa.array([[], [None]], pa.list_(pa.null())), [[], "null in its list"]),
    (pa.list_(pa.int32()), pa.nulls(2), ["got null", "got null"]),
    (pa.string(), pa.nulls(2), ["got null", "got null"]),
    (pa.int64(), pa.array([1.0, 2.0]), ["got float64", "got float64"]),
    (pa.float32(), pa.array([1.0, 2.0]), ["got float64", "got float64"]),
    (pa.int64(), pa.array([True, False]), ["got bool", "got bool"]),
]  # fmt: skip
"""The type of a column in the first file, its values in another, and what becomes of these: words are of an error."""


@pytest.mark.parametrize(
    ("kind", "values", "expected"), VALUES, ids=lambda value: str(getattr(value, "type", value))[:30]
)
@pytest.mark.parametrize("make", [gp.ParquetDataset, gp.ArrowDataset])
def test_a_file_whose_type_is_another_gives_the_values_that_the_first_ones_holds(
    make: Any, kind: Any, values: Any, expected: list[Any], tmp_path: Path
) -> None:
    paths = []
    for name, column in (("0", pa.array([], kind)), ("1", values)):
        table = pa.table({"n": np.arange(len(column)), "x": column})
        paths.append(str(tmp_path / name))
        if make is gp.ParquetDataset:
            parquet.write_table(table, paths[-1])
        else:
            with pa.ipc.new_file(paths[-1], table.schema) as writer:
                writer.write_table(table)

    rows = make(paths)
    spec = rows.element_spec["x"]
    with iter(skipping(rows)) as items:
        found = {row["n"]: row["x"] for row in elements(items)}
        found.update({record.offset: record.reason for record in items.errors})
    for i, value in enumerate(expected):
        assert value in found[i] if isinstance(value, str) else found[i] == value
    for row in make(paths[1:], spec={"n": TensorSpec((), "int64"), "x": spec}).ignore_errors():
        assert spec.accepts(spec_of(row["x"]))


def test_a_default_stands_for_a_column_that_a_file_lacks_or_has_without_values(tmp_path: Path) -> None:
    whole = write(tmp_path / "0", {"a": [1, None], "s": ["x", "y"], "l": [[1], []]})
    lacks = write(tmp_path / "1", {"a": [2]})
    nulls = write(tmp_path / "2", {"a": pa.nulls(1), "s": pa.nulls(1), "l": pa.nulls(1)})
    none = write(tmp_path / "3", {"other": [1, 2, 3, 4]}, rows=2)
    defaults = {"a": -1, "s": "?", "l": np.array([7, 7])}
    nothing = {"a": -1, "s": b"?", "l": [7, 7]}

    rows = gp.ParquetDataset([whole, lacks, nulls, none], defaults=defaults)
    assert elements(rows) == [
        {"a": 1, "s": b"x", "l": [1]}, {"a": -1, "s": b"y", "l": []}, {**nothing, "a": 2}, *[nothing] * 5
    ]  # fmt: skip
    assert elements(rows[2:5]) == elements(rows)[2:5]
    with iter(skipping(gp.ParquetDataset([whole, lacks], defaults={"a": 0, "s": ""}))) as items:
        assert len(elements(items)) == 2
        assert items.errors[0].reason.endswith(
            "column 'l' of int64[?] is needed, got none; all files need the columns of the first one, or a value in "
            "defaults="
        )
    with pytest.raises(PlanError, match=r"got 'a' in .* with none; leave it out with columns=, or list a file with"):
        gp.ParquetDataset([nulls, whole])


def test_each_row_has_its_own_copy_of_a_default(tmp_path: Path) -> None:
    path = write(
        tmp_path / "one", {"l": pa.array([[1, 2], None, None], pa.list_(pa.int64())), "s": [None, ["a"], None]}
    )
    ds = gp.ParquetDataset(path, defaults={"l": np.array([0, 0]), "s": ["b"]})

    def changed(row: Any) -> list[Any]:
        row["l"] += 10
        row["s"][0] += b"!"
        return [*row["l"].tolist(), *row["s"].tolist()]

    right = [[11, 12, b"b!"], [10, 10, b"a!"], [10, 10, b"b!"]]
    for _ in range(2):
        assert [changed(row) for row in ds] == right
    assert [changed(ds[i]) for i in (2, 2, 1, 0)] == [right[i] for i in (2, 2, 1, 0)]


def test_a_default_of_booleans_stands_for_a_column_that_a_file_lacks_or_has_without_values(tmp_path: Path) -> None:
    whole = write(tmp_path / "0", {"a": [True, False], "l": [[True], [False, False]]})
    lacks = write(tmp_path / "1", {"other": [1, 2]})
    nulls = write(tmp_path / "2", {"a": pa.nulls(1), "l": pa.nulls(1)})

    rows = elements(gp.ParquetDataset([whole, lacks, nulls], defaults={"a": True, "l": [True, False]}))

    assert rows == [{"a": True, "l": [True]}, {"a": False, "l": [False, False]}, *[{"a": True, "l": [True, False]}] * 3]


DEFAULTS: list[tuple[Any, Any, Any]] = [
    (pa.float32(), 0.1, np.float32(0.1)),
    (pa.float32(), np.float64(1e-60), 0.0),
    (pa.float32(), float("inf"), float("inf")),
    (pa.float32(), 1e39, None),
    (pa.float32(), 2**24 + 1, None),
    (pa.float16(), 0.1, np.float16(0.1)),
    (pa.float16(), 70000, None),
    (pa.float64(), 2**53, 2.0**53),
    (pa.float64(), 2**53 + 1, None),
    (pa.int64(), 2.0**40, 2**40),
    (pa.int64(), 2.0**63, None),
    (pa.int8(), 128, None),
    (pa.int64(), float("nan"), None),
    (pa.list_(pa.float32()), [0.1, 2], [np.float32(0.1), 2]),
    (pa.list_(pa.string()), [], []),
    (pa.list_(pa.string()), ["a"], [b"a"]),
    (pa.list_(pa.string()), [1], None),
    (pa.string(), [], None),
    (pa.list_(pa.int64()), [], []),
]  # fmt: skip
"""The type of a column, a default for it, and what stands for nulls then; None where it is refused."""


@pytest.mark.parametrize(("kind", "given", "expected"), DEFAULTS, ids=str)
def test_a_default_is_rounded_to_the_floats_of_its_column_and_else_held_exactly(
    kind: Any, given: Any, expected: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "one", {"a": pa.nulls(1, kind)})

    if expected is None:
        with pytest.raises(PlanError, match="defaults needs a value of"):
            gp.ParquetDataset(path, "a", defaults={"a": given})
        return
    rows = gp.ParquetDataset(path, "a", defaults={"a": given})
    assert elements(rows) == [expected]
    assert rows.element_spec.accepts(spec_of(next(iter(rows))))


@pytest.mark.parametrize(
    ("defaults", "error", "complaint"),
    [
        ({"b": 1}, PlanError, "columns that are read, got one for 'b'"),
        ({"a": 0.5}, PlanError, "needs a value of int64"),
        ({"a": "x"}, PlanError, "needs a value of int64"),
        ([1], PlanTypeError, "needs a dict for defaults"),
    ],
)
def test_defaults_that_cannot_be_meant_are_refused(defaults: Any, error: Any, complaint: str, tmp_path: Path) -> None:
    path = write(tmp_path / "one", {"a": [1, None], "b": [1, 2]})

    with pytest.raises(error, match=complaint):
        gp.ParquetDataset(path, ["a"], defaults=defaults)


@pytest.mark.parametrize(
    "spec", [TensorSpec((), "int64"), {"b": TensorSpec((), "int64")}, {"a": TensorSpec(None, "int64")}, {"a": 3}]
)
def test_a_spec_that_is_not_one_of_the_columns_is_refused(spec: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "one", {"a": [1, None], "b": [1, 2]})

    with pytest.raises(PlanError, match="needs a s"):
        gp.ParquetDataset(path, ["a", "b"][: 1 if isinstance(spec, dict) and "a" in spec else 2], spec=spec)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    parquet.write_table(table, tmp_path / "one")

    with pytest.raises(PlanError, match="that several columns are called"):
        gp.ParquetDataset(str(tmp_path / "one"))


def test_what_a_row_group_holds_is_in_the_memory_report(tmp_path: Path) -> None:
    path = write(tmp_path / "one", {"a": np.arange(1000)}, rows=500)
    ds = gp.ParquetDataset(path, "a")

    with iter(ds) as items:
        next(items)
        report = items.memory_report()

    (step,) = [step for step in report.steps if step.step == "ParquetDataset"]
    assert (step.elements, step.bytes) == (499, 4000)
    assert ds.explain()


# ---- IPC


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
    """Of compressed batches, as far as their bytes may have room for the rows."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(tmp_path / "one", pa.schema([("a", pa.int64())]), options=options) as writer:
        for _ in range(2):
            writer.write_table(pa.table({"a": np.arange(77)}))
    data = (tmp_path / "one").read_bytes()
    count = (77).to_bytes(8, "little")
    assert data.count(count) == 4  # each batch says it, and its column again
    (tmp_path / "one").write_bytes(data.replace(count, (500).to_bytes(8, "little"), 2))

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
