"""What every tabular format does: rows, identities, states, projection, holes, files that are lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import DataError, MissingFileError, PlanError, RecordError
from gpupipe.extract.storage.files import LOCAL
from gpupipe.extract.tables import hdf5, ipc, numpy, parquet, table
from gpupipe.flow.sources.rows import BLOCKS
from tests.extract.tables.formats import FORMATS, FormatCase, columns, element, every_format, rows_of
from tests.reliability.resume import resumed_after, taken
from tests.tools.damage import broken


@pytest.fixture(autouse=True)
def _no_blocks_kept() -> Iterator[None]:
    BLOCKS.clear()
    yield
    BLOCKS.clear()


def three(case: FormatCase, folder: Path) -> list[Path]:
    """Three files of 10, 7 and 9 rows in blocks of 4."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = (10, 7, 9)
    return [case.file(folder / f"{i}.{case.name}", columns(n, 100 * i)) for i, n in enumerate(sizes)]


def elements(ds: Any) -> list[Any]:
    return [element(value) for value in ds]


def skipping(ds: Any, **options: Any) -> Any:
    return ds.with_options(gp.Options(on_error="skip", **options))


# ---- rows


@every_format
def test_the_rows_are_those_that_the_library_reads(case: FormatCase, tmp_path: Path) -> None:
    path = case.file(tmp_path / "one", columns(30), rows=7)

    assert elements(case.make(str(path))) == rows_of(case.read(path.read_bytes())) == rows_of(columns(30))


@every_format
def test_the_type_is_known_before_anything_runs_and_fits_the_elements(case: FormatCase, tmp_path: Path) -> None:
    three(case, tmp_path)
    ds = gp.Dataset.list_files(f"{tmp_path}/*").interleave(case.make)

    assert ds.element_spec == {
        "a": gp.TensorSpec((), "int64"),
        "name": gp.TensorSpec((), bytes),
        "x": gp.TensorSpec((), "float32"),
    }
    first = next(iter(ds))
    assert (first["a"].dtype, type(first["name"]), first["x"].dtype) == (np.int64, bytes, np.float32)
    assert case.make(str(tmp_path / f"0.{case.name}"), "x").element_spec == gp.TensorSpec((), "float32")


@every_format
def test_files_one_after_the_other_and_in_turn(case: FormatCase, tmp_path: Path) -> None:
    paths = list(map(str, three(case, tmp_path)))
    apart = [elements(case.make(path, "a")) for path in paths]

    whole = [value for one in apart for value in one]
    assert [len(one) for one in apart] == [10, 7, 9]
    assert elements(case.make(paths, "a")) == whole
    assert elements(case.make(paths, "a", num_parallel_reads=3))[:6] == [0, 100, 200, 1, 101, 201]
    assert sorted(elements(case.make(paths, "a", num_parallel_reads=2))) == sorted(whole)


@every_format
def test_a_file_without_rows_has_none(case: FormatCase, tmp_path: Path) -> None:
    path = str(case.file(tmp_path / "one", columns(0)))

    assert elements(case.make(path, ["a", "x"])) == []


@every_format
@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [("none", "needs a column 'none'"), ([], "different names"), (["a", "a"], "different names"), (3, "names for")],
)
def test_columns_that_cannot_be_read_are_refused(case: FormatCase, tmp_path: Path, wanted: Any, complaint: str) -> None:
    path = str(case.file(tmp_path / "one", columns(3)))

    with pytest.raises(PlanError, match=complaint):
        case.make(path, wanted)


@every_format
def test_where_no_file_is_known_yet_the_type_is_given_or_learned(case: FormatCase, tmp_path: Path) -> None:
    paths = list(map(str, three(case, tmp_path)))
    names = gp.Dataset.from_generator(lambda: iter(paths), output_signature=gp.TensorSpec((), bytes))
    spec = {"a": gp.TensorSpec((), "int64"), "name": gp.TensorSpec((), bytes)}

    learned = names.interleave(lambda path: case.make(path, ["a", "name"]), cycle_length=1)
    given = names.interleave(lambda path: case.make(path, ["a", "name"], spec=spec), cycle_length=1)

    assert given.element_spec == spec
    assert learned.element_spec == gp.TensorSpec(None, None)
    assert elements(given) == elements(learned) == elements(case.make(paths, ["a", "name"]))


@every_format
def test_a_url_is_read_as_a_file_of_this_machine(case: FormatCase, tmp_path: Path) -> None:
    system = pytest.importorskip("fsspec").filesystem("memory")
    paths = three(case, tmp_path)
    for path in paths:
        system.pipe_file(f"/tables/{path.name}", path.read_bytes())
    try:
        ds = gp.Dataset.list_files("memory://tables/*", shuffle=False).interleave(case.make, num_parallel_calls=2)
        here = gp.Dataset.list_files(f"{tmp_path}/*", shuffle=False).interleave(case.make)
        assert elements(ds) == elements(here)
        assert elements(ds.skip(15)) == elements(here)[15:]
        with pytest.raises(PlanError, match="cannot be indexed: it reads files named by URLs"):
            ds.shuffle(gp.ALL)
    finally:
        system.rm("/tables", recursive=True)


# ---- identity


def _drawn(row: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    return row["a"], rng.integers(1 << 60)


def _draws(ds: Any) -> dict[int, int]:
    """What each row draws."""
    found = {int(a): int(number) for a, number in ds.map(_drawn, rng=True).iterator(epoch=0)}
    assert len(set(found.values())) == len(found)
    return found


@every_format
def test_a_row_draws_the_same_for_any_number_of_readers_and_in_another_folder(case: FormatCase, tmp_path: Path) -> None:
    three(case, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "else" / "b")

    def read(folder: str, cycle: int, calls: int | None, make: Any = case.make) -> dict[int, int]:
        files = gp.Dataset.list_files(f"{tmp_path}/{folder}/*", seed=cycle)
        return _draws(files.interleave(make, cycle_length=cycle, num_parallel_calls=calls))

    expected = read("a", 1, None)

    assert len(expected) == 26
    assert read("a", 3, 2) == read("else/b", 2, 1) == read("else/b", 3, gp.AUTOTUNE) == expected
    assert read("a", 3, 2, lambda path: case.make(path, ["x", "a"])) == expected


@every_format
def test_a_row_draws_the_same_in_blocks_of_another_size(case: FormatCase, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    one, other = (case.file(tmp_path / name / "same", columns(20), rows) for name, rows in ((".", 3), ("b", 20)))

    assert _draws(case.make(str(one))) == _draws(case.make(str(other)))


# ---- states


CHAINS: dict[str, Any] = {
    "rows": lambda case, files: case.make(files),
    "in turn": lambda case, files: case.make(files, num_parallel_reads=2),
    "shuffled": lambda case, files: case.make(files, "a", num_parallel_reads=3).shuffle(5, seed=1),
    "batches": lambda case, files: case.make(files, num_parallel_reads=2).repeat(2).batch(4),
    "full shuffle": lambda case, files: case.make(files, "a").shuffle(gp.ALL, seed=3),
}


@every_format
@pytest.mark.parametrize(("chain", "on_error"), [*((chain, "raise") for chain in CHAINS), ("in turn", "skip")])
def test_a_state_behind_any_element_goes_on_with_the_next(
    case: FormatCase, chain: str, on_error: Any, tmp_path: Path
) -> None:
    paths = three(case, tmp_path)
    if case.block is not None:
        case.damaged(paths[0], 1)

    def build() -> Any:
        return CHAINS[chain](case, list(map(str, paths))).with_options(gp.Options(on_error=on_error))

    with iter(build()) as items:
        whole = taken(items)
    assert len(whole) > 6
    for count in (0, 1, *range(3, len(whole), 4), len(whole)):
        rest, state = resumed_after(build, count)
        assert rest == whole[count:], (count, state)


# ---- projection, and what is read


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """How many bytes of local files something reads."""
    taken: list[int] = []
    read, readinto = LOCAL.read, LOCAL.readinto

    def counted(name: str, offset: int, n: int, tag: str | None = None) -> bytes:
        taken.append(n)
        return read(name, offset, n, tag)

    def counted_into(name: str, offset: int, out: memoryview, tag: str | None = None) -> None:
        taken.append(len(out))
        readinto(name, offset, out, tag)

    def of(work: Callable[[], Any]) -> int:
        taken.clear()
        work()
        return sum(taken)

    monkeypatch.setattr(LOCAL, "read", counted)
    monkeypatch.setattr(LOCAL, "readinto", counted_into)
    return of


def read_once(ds: Any) -> None:
    """Read a row of the first and the last file: before any row of an .npz file, its checksums are compared, once."""
    elements([ds[0], ds[len(ds) - 1]])
    BLOCKS.clear()


@every_format
def test_columns_not_asked_for_are_not_read(case: FormatCase, tmp_path: Path, reads: Any) -> None:
    rng = np.random.default_rng(0)
    given = {**columns(2000), "name": [rng.bytes(1000) for _ in range(2000)]}
    path = case.file(tmp_path / "one", given, rows=500)
    ds = case.make(str(path), ["a", "x"])

    assert reads(lambda: list(ds)) < 400_000 < 2_000_000 < path.stat().st_size
    if case.block is not None:
        case.damaged(path, 1)
        assert len(elements(case.make(str(path), ["a", "x"]))) == 2000


@every_format
def test_skip_and_an_index_read_what_they_give(case: FormatCase, tmp_path: Path, reads: Any) -> None:
    rng = np.random.default_rng(0)
    given = {"name": [rng.bytes(1000) for _ in range(2000)]}
    paths = [str(case.file(tmp_path / str(i), given, rows=100)) for i in range(2)]
    ds = case.make(paths, "name")
    read_once(ds)

    assert reads(lambda: list(ds.skip(3950))) < 400_000
    assert reads(lambda: list(ds[1990:2010])) < 600_000
    assert reads(lambda: ds[3999]) < 400_000
    with iter(ds) as items:
        taken(items, 3990)
        state = items.state_dict()
    with iter(case.make(paths, "name")) as items:
        items.load_state_dict(state)
        assert reads(lambda: taken(items)) < 400_000


# ---- by index


@every_format
def test_rows_by_index_are_those_of_a_loop(case: FormatCase, tmp_path: Path) -> None:
    paths = list(map(str, three(case, tmp_path)))
    ds = case.make(paths, ["a", "name"], num_parallel_reads=2)
    whole = elements(ds)

    assert len(ds) == 26
    assert [element(ds[i]) for i in range(26)] == whole
    assert elements(ds[3:24:5]) == whole[3:24:5]
    assert elements(ds.skip(8)) == whole[8:]
    assert elements(ds.shard(3, 1)) == whole[1::3]
    shuffled = elements(ds.shuffle(gp.ALL, seed=1))
    assert shuffled != whole
    assert sorted(row["a"] for row in shuffled) == sorted(row["a"] for row in whole)
    assert _draws(ds.shuffle(gp.ALL, seed=1)) == _draws(ds)


@every_format
def test_any_cut_gives_one_full_shuffle(case: FormatCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = list(map(str, three(case, tmp_path)))

    def rows() -> list[Any]:
        return [element(row) for row in case.make(paths, "a").shuffle(gp.ALL, seed=1).iterator(epoch=0)]

    whole = rows()
    for most in (1, 50, 200):  # bytes: of one row, of some, of some more
        monkeypatch.setattr("gpupipe.flow.sources.rows.AT_ONCE", most)
        assert rows() == whole
    assert sorted(whole) == sorted(elements(case.make(paths, "a")))


@every_format
def test_many_rows_have_an_index(case: FormatCase, tmp_path: Path, reads: Any) -> None:
    n = 400_000
    path = case.file(tmp_path / "many", {"a": np.arange(n)}, rows=20_000)
    ds = case.make(str(path), "a")
    read_once(ds)

    assert len(ds) == n
    assert reads(lambda: [ds[i] for i in (0, 99_999, n - 1)]) < path.stat().st_size // 2
    assert [int(ds[i]) for i in (0, 50_000, 123_456, n - 1)] == [0, 50_000, 123_456, n - 1]
    assert elements(ds[99_998:100_002]) == [99_998, 99_999, 100_000, 100_001]
    assert reads(lambda: list(ds.skip(n - 3))) < path.stat().st_size // 2
    assert elements(ds.skip(n - 3)) == [n - 3, n - 2, n - 1]
    assert len({int(a) for a in ds.shuffle(gp.ALL, seed=1).take(1000)}) == 1000


# ---- bad rows and blocks


@every_format
def test_a_damaged_block_makes_each_of_its_rows_bad_and_no_other(case: FormatCase, tmp_path: Path) -> None:
    if case.block is None:
        pytest.skip(f"{case.name} has nothing by which damage of a block is noticed")
    path = case.file(tmp_path / "one", columns(10))
    sound, manifest = path.read_bytes(), str(tmp_path / "bad.jsonl")
    case.damaged(path, 1)

    with iter(skipping(case.make(str(path)), error_manifest=manifest)) as items:
        good = elements(items)
        bad = items.errors

    assert [row["a"] for row in good] == [0, 1, 2, 3, 8, 9]
    assert [(record.file, record.unit, record.offset, record.stage) for record in bad] == [
        (str(path), "row", i, "read") for i in (4, 5, 6, 7)
    ]
    assert all("block 1 of 3" in record.reason for record in bad)
    with pytest.raises(RecordError, match=f"{path} at row 4: read: block 1 of 3"):
        elements(case.make(str(path)))
    assert len(case.make(str(path))) == 10
    assert elements(skipping(case.make(str(path), "a")[3:9])) == [3, 4, 5, 6, 7, 8]
    assert [row["a"] for row in elements(skipping(case.make(str(path), ["a", "name"])[3:9]))] == [3, 8]
    path.write_bytes(sound)  # but the manifest still lists them
    assert elements(skipping(case.make(str(path)), bad_records=manifest)) == good


DAMAGE: dict[str, Any] = {
    "truncated": lambda case, data: data[: len(data) * 2 // 3],
    "without a header": lambda case, data: (
        data[: case.header(data)] + b"\xff\xfe\xfd\xfc" + data[case.header(data) + 4 :]
    ),
    "empty": lambda case, data: b"",
    "of zeros": lambda case, data: bytes(len(data)),
    "of something else": lambda case, data: b"\x89PNG\r\n\x1a\n" + b"no table at all " * 40,
}


@every_format
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_of_unknown_rows_is_lost_and_the_others_follow(case: FormatCase, damage: str, tmp_path: Path) -> None:
    paths = three(case, tmp_path)
    paths[1].write_bytes(DAMAGE[damage](case, paths[1].read_bytes()))
    ds = case.make(list(map(str, paths)), "a")

    with iter(skipping(ds)) as items:
        found = taken(items)
    errors = [item for item in found if item[0] == "error"]
    assert len(errors) == 1
    assert len(found) == 20
    assert f"{paths[1]}" in errors[0][1]
    assert "read: " in errors[0][1]
    assert len(elements(skipping(ds, lost_files="skip"))) == 19
    with pytest.raises(DataError, match=f"{paths[1]}.*cannot be counted"):
        len(ds)
    assert len(ds.with_options(gp.Options(lost_files="skip"))) == 19


@every_format
def test_any_byte_may_be_wrong_and_nothing_else_than_a_data_error_comes_of_it(case: FormatCase, tmp_path: Path) -> None:
    if not case.hostile:
        pytest.skip(f"{case.library} itself crashes on some damaged files, which the dataset's docstring says")
    sound = case.write(columns(10), 4)
    path = tmp_path / "one"
    rng = np.random.default_rng(1)
    spec = {"a": gp.TensorSpec((), "int64"), "name": gp.TensorSpec((), bytes), "x": gp.TensorSpec((), "float32")}
    for _ in range(60):
        path.write_bytes(broken(sound, rng))
        ds = case.make(str(path), ["a", "name", "x"], spec=spec)
        with iter(skipping(ds, lost_files="skip").take(100)) as items:
            assert len(elements(items)) <= 100


@pytest.mark.parametrize(
    ("name", "module", "part"),
    [
        *(("npz", numpy, part) for part in ("Nulls", "_HEADER")),
        *(("parquet", parquet, part) for part in ("columns_of", "_STRINGS")),
        *(("arrow", ipc, part) for part in ("columns_of", "_rows")),
        *(("hdf5", hdf5, part) for part in ("_column", "_found")),
        *((name, table, "Same") for name in ("npz", "hdf5")),
    ],
)
def test_a_mistake_in_gpupipes_own_code_makes_nothing_bad(
    name: str, module: Any, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a name were misspelled where a file is opened, and where a block is read."""
    case = next(case for case in FORMATS if case.name == name)
    path = case.file(tmp_path / "one", columns(5))
    ds = skipping(case.make(str(path), spec={"a": gp.TensorSpec((), "int64")}), lost_files="skip")
    assert elements(ds) == [{"a": i} for i in range(5)]

    monkeypatch.delattr(module, part)
    with pytest.raises(NameError, match=part):
        list(ds)


@pytest.mark.parametrize("error", [AttributeError, TypeError, AssertionError, KeyError, ZeroDivisionError])
def test_whatever_a_library_raises_of_a_block_makes_its_rows_bad(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any) -> Any:
        raise error("odd")

    np.save(tmp_path / "one.npy", np.arange(3))
    ds = skipping(gp.NumpyDataset(str(tmp_path / "one.npy")))
    monkeypatch.setattr(numpy._Member, "column", damaged)

    with iter(ds) as items:
        assert list(items) == []
        assert [f"cannot be decoded: {error.__name__}: " in one.reason for one in items.errors] == [True] * 3


@every_format
def test_the_rows_of_a_file_with_other_columns_are_bad(case: FormatCase, tmp_path: Path) -> None:
    good = case.file(tmp_path / "0", columns(5))
    other = case.file(tmp_path / "1", {**columns(6), "a": np.arange(6) / 2})
    lacks = case.file(tmp_path / "2", {"a": np.arange(3)})
    more = case.file(tmp_path / "3", {"more": np.arange(3), **columns(3, 50)})

    with iter(skipping(case.make([str(good), str(other), str(lacks), str(more)], ["a", "name"]))) as items:
        assert [row["a"] for row in elements(items)] == [0, 1, 2, 3, 4, 50, 51, 52]
        assert [(record.file, record.offset) for record in items.errors] == [
            *((str(other), i) for i in range(6)),
            *((str(lacks), i) for i in range(3)),
        ]
        assert "column 'a' of int64 is needed, got float64" in items.errors[0].reason
        assert "column 'name' of bytes is needed, got none" in items.errors[-1].reason


@every_format
def test_a_missing_first_file_is_an_error_where_the_dataset_is_made(case: FormatCase, tmp_path: Path) -> None:
    there = str(case.file(tmp_path / "there", columns(3)))
    missing = str(tmp_path / "missing")

    with pytest.raises(MissingFileError, match="missing"):
        case.make(missing)
    assert elements(skipping(case.make([missing, there], "a"), lost_files="skip")) == [0, 1, 2]


@every_format
def test_a_file_that_is_replaced_while_it_is_read_is_read_to_its_end(case: FormatCase, tmp_path: Path) -> None:
    path = case.file(tmp_path / "one", {"a": np.arange(70_000)}, rows=7_000)
    new = case.file(tmp_path / "new", {"a": np.arange(70_001) + 80_000}, rows=7_000)

    with iter(case.make(str(path), "a")) as items:
        assert element(next(items)) == 0
        new.replace(path)
        assert elements(items) == list(range(1, 70_000))
    assert int(case.make(str(path), "a").first()) == 80_000


# ---- the library


@every_format
def test_a_missing_library_is_an_error_that_says_what_to_install(case: FormatCase, tmp_path: Path) -> None:
    if not case.library:
        pytest.skip(f"{case.name} needs NumPy alone")
    path = case.file(tmp_path / "one", columns(3))
    code = (
        f"import sys; sys.modules[{case.library!r}] = None\n"
        "import gpupipe as gp\n"
        f"try: gp.{case.make.__name__}({str(path)!r})\n"
        "except gp.MissingDependencyError as error: print(error)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert f"needs {case.library}, which is not installed; install it with: pip install {case.library}\n" in done.stdout
