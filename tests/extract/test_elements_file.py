"""Files of elements: everything comes back as it was, and no damage gives anything but an error or the truth."""

from __future__ import annotations

import dataclasses
import gzip
import json
import struct
import sys
import tracemalloc
import types
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gpupipe.errors import DataError, DecodeError, MissingFileError, PlanError, PlanTypeError, RecordError
from gpupipe.ragged import Ragged, RaggedSpec
from gpupipe.serial import elements_file, elements_writer
from gpupipe.serial.columns import Cursor, add_column, read_column
from gpupipe.serial.elements_file import ElementsReader
from gpupipe.serial.elements_writer import ElementsWriter
from gpupipe.serial.structures import Malformed, spec_from_json, spec_to_json, structure_from_json, structure_to_json
from gpupipe.spec import DatasetSpec, Structure, TensorSpec, flatten
from tests.fuzz.building import frame
from tests.fuzz.columns import same
from tests.tools.damage import broken


class Owner(NamedTuple):
    """Stands for a stream."""

    key: int
    name: str
    unit: str


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


ONE, TWO = Owner(2**64 - 1, "a\udc80.tfrecord", "offset"), Owner(0, "", "index")
COLUMNS = (
    b"",
    b"bytes\0with\0NUL\0",
    np.bool_(True),
    np.float16(0.5),
    np.uint64(2**64 - 1),
    np.int8(-1),
    np.arange(6, dtype=np.int32).reshape(2, 3),
    np.arange(6, dtype=np.float64).reshape(2, 3).T,
    np.zeros((0, 5, 2), np.uint8),
    np.array(3.5, np.float32),
    np.array([b"a\0", b"", b"ccc"], object),
    np.array([[b"x"], [b"y"]], object),
    np.zeros((0,), object),
    Ragged([1, 2, 3], [0, 2, 2, 3]),
    Ragged(Ragged([b"a", b"b"], [0, 1, 2]), [0, 2]),
)


def write_all(path: Path, items: Iterable[tuple[Any, ...]], compression: str = "", head: str = "head") -> None:
    """Write elements: columns or an error, the stream, the place, and the rows of a batch."""
    writer = ElementsWriter(str(path), {"some": head}, compression)
    writer.begin()
    for columns, owner, place, *rows in items:
        writer.write(columns, owner, place, *rows)
    writer.finish()


def write(path: Path, compression: str = "", count: int = 2) -> None:
    error = DecodeError("no image", file="f", offset=9, stage="decode_jpeg", unit="index")
    batches = [((np.arange(3),), ONE, i, [(ONE, i), (TWO, 1), (ONE, 2**63)]) for i in range(count)]
    write_all(path, [(COLUMNS, ONE, 7), (error, TWO, 2**40), *batches], compression)


def read(path: Path, compression: str = "") -> list[Any]:
    reader = ElementsReader(str(path), compression)
    try:
        return list(reader.elements(Owner))
    finally:
        reader.close()


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_everything_comes_back(tmp_path: Path, compression: str) -> None:
    write(tmp_path / "a", compression)

    reader = ElementsReader(str(tmp_path / "a"), compression)
    reader.check_end()
    (columns, stream, position), (error, owner, place), *batches = reader.elements(Owner)

    assert reader.head == {"some": "head"}
    assert isinstance(columns, tuple)
    assert [i for i, (a, b) in enumerate(zip(COLUMNS, columns, strict=True)) if not same(a, b)] == []
    for column in (column for column in columns if type(column) is np.ndarray):
        assert column.flags.writeable
        assert column.flags.owndata or (column.base is not None and column.base.flags.owndata)
    assert (stream, position, owner, place) == (ONE, 7, TWO, 2**40)
    assert type(error) is DecodeError
    assert (str(error), error.unit) == ("f at index 9: decode_jpeg: no image", "index")
    assert [(rows, where) for _, rows, where in batches] == [([(ONE, i), (TWO, 1), (ONE, 2**63)], i) for i in range(2)]


@pytest.mark.parametrize("bad", [None, 3, "text", np.array([1 + 2j]), np.zeros(1, "datetime64[s]")], ids=repr)
def test_what_is_no_leaf_is_refused(bad: Any) -> None:
    with pytest.raises(PlanTypeError, match="elements in files and worker processes need"):
        add_column(bad, [])


def test_numbers_are_written_in_the_order_of_bytes_of_this_machine() -> None:
    parts: list[Any] = []
    add_column(np.array([1, 2], ">u2"), parts)

    column = read_column(Cursor(memoryview(b"".join(parts))))

    assert (column.dtype, column.tolist()) == ("=u2", [1, 2])


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="a long double is a float64 here")
def test_numbers_of_more_than_64_bits_are_read_from_memory_only() -> None:
    parts: list[Any] = []
    add_column(np.arange(3, dtype=np.longdouble), parts, wide=True)
    data = memoryview(b"".join(parts))

    assert read_column(Cursor(data, wide=True)).dtype == np.longdouble
    with pytest.raises(Malformed, match="no dtype"):
        read_column(Cursor(data))
    with pytest.raises(PlanTypeError, match="at most 64 bits"):
        add_column(np.zeros(1, np.longdouble), [])


def test_more_streams_than_the_table_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (elements_file, elements_writer):
        monkeypatch.setattr(module, "NAMED", 5)
    owners = [Owner(i, f"number {i}", "offset") for i in range(23)]
    order = [0, 1, 2, 3, 4, 0, 5, 1, 6, 7, 8, 9, 10, 0, *range(11, 23), 4]
    rows = [(owners[i], i) for i in (0, 21, 22, 4)], [(owners[i], i) for i in range(6)]  # one name is forgotten, no key
    items = [((b"x",), owners[i], i) for i in order]
    write_all(tmp_path / "a", [*items, *(((b"x",), owners[0], 0, some) for some in rows)])

    *single, (_, few, _), (_, many, _) = read(tmp_path / "a")

    assert [(where, place) for _, where, place in single] == [(owners[i], i) for i in order]
    assert few == rows[0]
    assert [(owner.key, place) for owner, place in many] == [(i, i) for i in range(6)]


def test_a_stream_may_have_another_name_later(tmp_path: Path) -> None:
    owners = [Owner(1, "a", "offset"), Owner(1, "b", "offset"), Owner(1, "a", "index"), Owner(1, "a", "index")]
    write_all(tmp_path / "a", [((b"x",), owner, 0) for owner in owners])

    assert [where for _, where, _ in read(tmp_path / "a")] == owners


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"mine")

    with pytest.raises(FileExistsError):
        ElementsWriter(str(tmp_path / "a"), {}).begin()
    assert (tmp_path / "a").read_bytes() == b"mine"


def test_a_file_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    writer = ElementsWriter(str(tmp_path / "a"), {})
    writer.begin()
    writer.write(COLUMNS, ONE, 0)
    writer.discard()
    writer.discard()

    with pytest.raises(FileNotFoundError):
        writer.finish()
    assert not (tmp_path / "a").exists()


def test_memory_follows_the_block_not_the_file(tmp_path: Path) -> None:
    write_all(tmp_path / "a", [((np.zeros(1 << 20, np.uint8),), ONE, i) for i in range(40)])
    reader = ElementsReader(str(tmp_path / "a"))

    tracemalloc.start()
    try:
        count = sum(1 for _ in reader.elements(Owner))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        reader.close()

    assert count == 40
    assert peak < 12 << 20


# ---- damage


def damaged(path: Path, compression: str = "") -> RecordError:
    with pytest.raises(RecordError) as caught:
        read(path, compression)
    assert caught.value.file == str(path)
    assert "a file of elements is needed, this one is damaged or is not one" in str(caught.value)
    return caught.value


def test_missing_and_empty_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        read(tmp_path / "none")
    for data in (b"", b"\xff\xd8\xff" + bytes(50), b"text\n" * 30):
        (tmp_path / "a").write_bytes(data)
        damaged(tmp_path / "a")
    (tmp_path / "b").write_bytes(frame(b"a record of somebody else"))
    assert "does not start like one" in str(damaged(tmp_path / "b"))


def test_a_later_version_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(frame(b"GPUPIPE elements\0" + struct.pack("<I", 99) + b"{}"))

    with pytest.raises(RecordError, match="a file of elements needs version 2 or 3, got version 99"):
        read(tmp_path / "a")


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_file_cut_anywhere_is_damaged(tmp_path: Path, compression: str) -> None:
    write(tmp_path / "a", compression)
    data = (tmp_path / "a").read_bytes()

    for cut in range(0, len(data), 3 if compression else 11):
        (tmp_path / "b").write_bytes(data[:cut])
        damaged(tmp_path / "b", compression)
        if not compression and cut > 80:
            with pytest.raises(RecordError, match="ends without its last record"):
                ElementsReader(str(tmp_path / "b")).check_end()


def placed(data: bytes) -> list[tuple[bytes, tuple[int, int]]]:
    """Every record with where it begins and ends."""
    out: list[tuple[bytes, tuple[int, int]]] = []
    at = 0
    while at < len(data):
        end = at + struct.unpack_from("<Q", data, at)[0] + 16
        out.append((data[at:end], (at, end)))
        at = end
    return out


def records_of(data: bytes) -> list[bytes]:
    return [record for record, _ in placed(data)]


def shown(items: list[Any]) -> list[Any]:
    """Positions, and "lost" for what is damaged."""
    return ["lost" if where is None else place for _, where, place in items]


def test_whole_records_may_not_be_lost_repeated_or_added(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a", count=3)
    data = (tmp_path / "a").read_bytes()
    records = records_of(data)
    elements = [i for i, record in enumerate(records) if record[12:13] in b"EH"]
    expected = [7, 2**40, 0, 1, 2]
    assert len(elements) == 5

    for number, i in enumerate(elements):
        (tmp_path / "b").write_bytes(b"".join(records[:i] + records[i + 1 :]))
        got = read(tmp_path / "b")
        assert shown(got) == [*expected[:number], "lost", *expected[number + 1 :]]
        assert "another number of elements, 1 are missing" in str(got[number][0])
        (tmp_path / "b").write_bytes(b"".join([*records[:i], records[i], *records[i:]]))
        caplog.clear()
        assert shown(read(tmp_path / "b")) == expected
        assert "was expected, this is number " in caplog.text
    (tmp_path / "b").write_bytes(data + records[-2])
    assert "data follows its last record" in str(damaged(tmp_path / "b"))


def test_a_changed_byte_is_found_and_costs_no_more_than_its_element(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(2), str(tmp_path / "a")
    write(tmp_path / "a")
    sound, expected = (tmp_path / "a").read_bytes(), shown(read(tmp_path / "a"))
    found: list[int] = []
    for at in rng.choice(len(sound), 200, replace=False).tolist():
        content = bytearray(sound)
        content[at] ^= int(rng.integers(1, 256))
        (tmp_path / "a").write_bytes(content)
        found.clear()
        items: list[Any] = []
        with closing(ElementsReader(path, head_needed=False)) as reader:
            try:
                items += reader.elements(Owner, lambda: found.append(1))
                ended = True
            except RecordError as error:
                ended = False
                assert (error.file, error.offset is None) == (path, False)

        (kind,) = {record[12:13] for record, (a, b) in placed(sound) if a <= at < b}
        errors = {i: value for i, (value, where, _) in enumerate(items) if where is None}
        assert found
        assert (len(errors), ended) == (kind in b"EH", kind != b"Z")
        assert shown(items) == ["lost" if i in errors else place for i, place in enumerate(expected)]
        for lost in errors.values():
            assert lost.file == path and lost.offset <= at < lost.offset + 2000


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("what", ["a length", "payloads", "zeros", "the end"])
def test_behind_damage_everything_is_read(tmp_path: Path, what: str, compression: str) -> None:
    write_all(tmp_path / "a", [((np.full(i % 50, i),), ONE, i) for i in range(2000)], compression)
    data = bytearray((gzip.decompress if compression else bytes)((tmp_path / "a").read_bytes()))
    where = [span for record, span in placed(bytes(data)) if record[12:13] == b"E"]
    if what == "zeros":
        hit, start, stop = [*range(1000, 1301)], where[1000][0] + 20, where[1300][1] - 3
        data[start:stop] = bytes(stop - start)
    elif what == "the end":
        hit, start, stop = [*range(1990, 2000)], where[1990][0], where[1999][1]
        data[start:stop] = b"\xff" * (stop - start)
    else:
        hit = [1000] if what == "a length" else [1000, 1001, 1500, 1999]
        for i in hit:
            data[where[i][0] + (2 if what == "a length" else 30)] ^= 1
    (tmp_path / "a").write_bytes((gzip.compress if compression else bytes)(data))

    got = read(tmp_path / "a", compression)

    assert shown(got) == ["lost" if i in hit else i for i in range(2000)]
    assert all(owner == ONE and value[0].tolist() == [i] * (i % 50) for value, owner, i in got if owner is not None)
    errors = [value for value, owner, _ in got if owner is None]
    assert {(type(error), error.file) for error in errors} == {(RecordError, str(tmp_path / "a"))}
    assert what in ("zeros", "the end") or [error.offset for error in errors] == [where[i][0] for i in hit]


def test_the_records_of_a_file_inside_an_element_are_not_taken_for_its_own(tmp_path: Path) -> None:
    write(tmp_path / "inner", count=20)
    write_all(tmp_path / "a", [(((tmp_path / "inner").read_bytes(),), TWO, i) for i in range(3)], head="another")
    data = bytearray((tmp_path / "a").read_bytes())
    (start, _) = [span for record, span in placed(bytes(data)) if record[12:13] == b"E"][1]
    data[start] ^= 1  # its length: the search finds the records inside first
    (tmp_path / "a").write_bytes(data)

    assert shown(read(tmp_path / "a")) == [0, "lost", 2]


def test_a_forged_number_of_elements_and_bytes_that_are_left_over_are_not_believed(tmp_path: Path) -> None:
    write(tmp_path / "a")
    *records, end = records_of((tmp_path / "a").read_bytes())
    payload = end[12:17] + struct.pack("<Q", 2**63)
    (tmp_path / "a").write_bytes(b"".join(records) + frame(payload))

    assert shown(read(tmp_path / "a")) == [7, 2**40, 0, 1, "lost"]
    last = max(i for i, record in enumerate(records) if record[12:13] == b"E")
    records[last] = frame(records[last][12:-4] + b"left over")
    (tmp_path / "a").write_bytes(b"".join([*records, end]))
    assert shown(read(tmp_path / "a")) == [7, 2**40, 0, "lost"]


def test_what_a_forger_writes_with_right_checksums_is_an_error_or_an_element(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    write(tmp_path / "a")
    sound = [record[12:-4] for record in records_of((tmp_path / "a").read_bytes())]
    for _ in range(300):
        payloads = list(sound)
        for i in rng.integers(len(payloads), size=rng.integers(1, 4)).tolist():
            payloads[i] = broken(payloads[i], rng)
        (tmp_path / "a").write_bytes(b"".join(map(frame, payloads)))

        try:
            for value, _, _ in read(tmp_path / "a"):
                assert isinstance(value, (tuple, DataError))
        except RecordError as error:
            assert error.file == str(tmp_path / "a")


# ---- the type of an element


NESTED = {"a": (1, None), 3: Pair(Sample(1, {"x": 2}), [1, 2]), None: 1.5, b"\xff": 1, (1, (b"x",)): 2}


def test_structures_come_back() -> None:
    _, structure = flatten(NESTED)

    assert structure_from_json(json.loads(json.dumps(structure_to_json(structure)))) == structure


@pytest.mark.parametrize("name", ["nowhere:Thing.Part", "os:system", f"{__name__}:Pair", "subprocess:Popen"])
def test_a_class_of_another_kind_is_never_used_but_a_named_tuple_like_it(name: str) -> None:
    made = structure_from_json({"class": name, "fields": ["x", "y"], "children": ["leaf", "leaf"]}).unflatten([1, 2])

    assert type(made).__name__ == name.split(":")[1].split(".")[-1]
    assert made == (1, 2)
    assert made._fields == ("x", "y")
    assert "nowhere" not in sys.modules


@pytest.mark.parametrize("name", ["lazy:Made", "lazy:Made.Inner", "lazy:Plain.Made", "lazy:made.Made"])
def test_what_a_file_names_makes_a_module_do_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some modules import what is asked of them."""
    asked: list[str] = []

    class Lazy(type):
        def __getattr__(cls, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    module = types.ModuleType("lazy")
    held = {"__getattr__": asked.append, "Plain": Lazy("Plain", (), {}), "made": Lazy("made", (), {})()}
    vars(module).update(held)
    monkeypatch.setitem(sys.modules, "lazy", module)

    made = structure_from_json({"class": name, "fields": ["x", "y"], "children": ["leaf", "leaf"]}).unflatten([1, 2])

    assert made == (1, 2)
    assert asked == []


@pytest.mark.parametrize(
    "given",
    [
        1,
        [],
        {},
        {"tuple": "leaf"},
        {"dict": ["leaf"], "keys": []},
        {"dict": ["leaf"], "keys": [{"bytes": "no"}]},
        {"dict": ["leaf"], "keys": [{"tuple": [{"set": []}]}]},
        {"class": "a:b", "fields": ["x", "y"], "children": ["leaf"]},
        {"class": "a:b", "fields": ["import"], "children": ["leaf"]},
    ],
    ids=str,
)
def test_malformed_structures(given: Any) -> None:
    deep: Any = "leaf"
    for _ in range(500):
        deep = {"tuple": [deep]}
    for one in (given, deep):
        with pytest.raises(Malformed):
            structure_from_json(one)


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec((), "int64"),
        TensorSpec((None, 3), "float32"),
        TensorSpec(None, None),
        TensorSpec((2, None, None, 3), "uint8", "NHWC"),
        TensorSpec((), bytes),
        RaggedSpec((2, None), "int32", ragged_rank=1, row_splits_dtype="int32"),
        RaggedSpec(None, bytes),
    ],
    ids=str,
)
def test_specs_come_back(spec: TensorSpec) -> None:
    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


@pytest.mark.parametrize(
    "given",
    [
        None,
        {"shape": 3},
        {"shape": [-1], "dtype": "int64"},
        {"dtype": 3},
        {"dtype": "no dtype"},
        *({"dtype": text} for text in ("(1,2", "(1000,1000,1000)i8", "i\ud800", "i4,f4")),
        {"shape": [1, None], "dtype": "int64", "ragged": 1, "splits": "(1,2"},
        {"shape": [1, None], "dtype": "int64", "ragged": "1", "splits": "int64"},
        {"shape": [1], "dtype": "int64", "layout": "HWC"},
        {"shape": [1, None], "dtype": "int64", "ragged": 5, "splits": "int64"},
        {"shape": [1, None], "dtype": "int64", "ragged": 1, "splits": "float32"},
    ],
    ids=str,
)
def test_malformed_specs(given: Any) -> None:
    with pytest.raises(Malformed):
        spec_from_json(given)


def test_what_does_not_go_into_a_file_says_so() -> None:
    with pytest.raises(PlanTypeError, match="got a dataset of"):
        spec_to_json(DatasetSpec(TensorSpec((), "int64")))
    with pytest.raises(PlanError, match=r"dict keys of text, numbers, bytes or tuples .* got frozenset"):
        structure_to_json(Structure(dict, ((1, frozenset()),), (Structure(),), 1))
