"""LMDBDataset: entries in order and by index, from threads and in forked children, and what is refused."""

from __future__ import annotations

import gc
import multiprocessing
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.errors import MissingFileError, PlanError, RecordError, StateError
from gpupipe.extract.shards import lmdb as reader
from gpupipe.flow.sources import entries
from tests.fuzz.bounds import lowered

lmdb = pytest.importorskip("lmdb")


def database(path: Path, written: dict[bytes, bytes], folder: bool = False) -> str:
    with lmdb.open(str(path), map_size=64 << 20, subdir=folder) as environment, environment.begin(write=True) as out:
        for key, value in written.items():
            out.put(key, value)
    return str(path)


def numbered(count: int, size: int = 40, start: int = 0) -> dict[bytes, bytes]:
    return {b"%05d" % i: bytes([i % 251]) * size for i in range(start, start + count)}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return database(tmp_path / "a.lmdb", numbered(60))


@pytest.mark.parametrize("folder", [False, True])
def test_entries_come_in_the_order_of_their_keys(tmp_path: Path, folder: bool) -> None:
    written = {b"b": b"2", b"a" * 400: b"", b"\xff\0": b"x" * 500_000, b"a": b"1"}
    ds = gp.LMDBDataset(database(tmp_path / "x", written, folder))
    assert list(ds) == sorted(written.items())
    assert ds.element_spec == (gp.TensorSpec((), bytes), gp.TensorSpec((), bytes))


def test_a_database_has_a_length_and_entries_by_place(tmp_path: Path, path: str) -> None:
    other = database(tmp_path / "b.lmdb", numbered(7, start=100), folder=True)
    reader._known.clear()
    ds = gp.LMDBDataset([path, other])
    whole = [*numbered(60).items(), *numbered(7, start=100).items()]
    assert len(ds) == 67
    assert [ds[i] for i in (0, 59, 60, 66)] == [whole[i] for i in (0, 59, 60, 66)]
    assert reader._known.nbytes == 67 * (8 + 5) + 16  # the keys are listed once
    assert list(ds[50:66:3]) == whole[50:66:3]


def drawn(ds: Dataset) -> dict[bytes, int]:
    """What a random step draws for each entry, by its key."""
    with ds.map(lambda key, _, rng: (key, rng.integers(1 << 40)), rng=True).iterator(epoch=0) as items:
        return {bytes(key): int(number) for key, number in items}


def test_what_is_drawn_for_an_entry_depends_on_its_key_and_the_name_of_its_file(tmp_path: Path, path: str) -> None:
    other = database(tmp_path / "b.lmdb", numbered(30, start=1000))
    expected = drawn(gp.LMDBDataset([path, other]))
    assert len(set(expected.values())) == 90
    (tmp_path / "c").mkdir()
    moved = [shutil.copy(name, tmp_path / "c") for name in (path, other)]

    assert drawn(gp.LMDBDataset([path, other]).shuffle(gp.ALL)) == expected
    gc.collect()
    with lmdb.open(moved[0], map_size=64 << 20, subdir=False) as environment, environment.begin(write=True) as out:
        out.put(b"00000x", b"new")  # moves all others by one place
    more = drawn(gp.LMDBDataset(moved))
    assert {key: more[key] for key in expected} == expected


def test_a_state_whose_key_is_not_base64_is_refused() -> None:
    with pytest.raises(StateError, match="the key of an entry as base64, got 'ä'"):
        entries._key("ä")


def test_a_missing_or_foreign_file_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "text").write_bytes(b"text" * 5000)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    short = tmp_path / "short"
    short.write_bytes(Path(path).read_bytes()[:-4096])
    for name, kind, reason in (
        ("none", MissingFileError, "no such file"),
        ("folder", MissingFileError, "data.mdb: read: no such file"),
        ("text", RecordError, "LMDB cannot read the database: .*not an LMDB file"),
        ("empty", RecordError, "LMDB cannot read the database"),
        ("short", RecordError, "say that the database has .* bytes, the file has .*: it is truncated"),
    ):
        with iter(gp.LMDBDataset(str(tmp_path / name))) as items, pytest.raises(kind, match=reason) as caught:
            next(items)
        assert str(tmp_path / name) in str(caught.value)
        with pytest.raises(gp.DataError, match=reason):
            len(gp.LMDBDataset(str(tmp_path / name)))
    left = gp.LMDBDataset([str(short), path]).with_options(Options(on_error="skip", lost_files="skip"))
    assert len(list(left)) == 60


def test_a_url_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="needs databases on a local disk, got 'memory://x'"):
        gp.LMDBDataset(["x", "memory://x"])
    ds = Dataset.from_tensor_slices(["memory://x"]).flat_map(lambda name: gp.LMDBDataset(name))
    with iter(ds) as items, pytest.raises(RecordError, match=r"memory://x.*on a local disk"):
        next(items)


def test_a_database_that_the_program_has_open_says_so(path: str) -> None:
    own = lmdb.open(path, subdir=False, readonly=True, lock=False)
    with own, iter(gp.LMDBDataset(path)) as items, pytest.raises(RecordError, match="close it there"):
        next(items)


def test_too_many_keys_are_refused(path: str) -> None:
    ds = gp.LMDBDataset(path)
    with lowered(reader, _MOST_KEYS=500), pytest.raises(RecordError, match="more than 500 bytes; read it in order"):
        ds[0]
    assert ds[0][0] == b"00000"


def test_threads_read_one_database_at_once(path: str) -> None:
    ds = Dataset.from_tensor_slices([path] * 8).interleave(gp.LMDBDataset, cycle_length=8, num_parallel_calls=4)
    assert sorted(ds) == sorted(list(numbered(60).items()) * 8)


def of_child(path: str, out: Any) -> None:
    found = list(gp.LMDBDataset(path))
    out.put((len(found), gp.LMDBDataset(path)[7][0]))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forked_child_opens_the_database_again(path: str) -> None:
    items = iter(gp.LMDBDataset(path))
    assert next(items)[0] == b"00000"
    assert len(reader._environments._open) == 1
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=of_child, args=(path, out))
    child.start()
    assert out.get(timeout=60) == (60, b"00007")
    child.join(60)
    assert child.exitcode == 0
    assert len(list(items)) == 59


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(gp.MissingDependencyError, match="pip install lmdb"):
        gp.LMDBDataset("x")


def test_a_database_is_closed_behind_its_last_reader(path: str) -> None:
    assert len(list(gp.LMDBDataset(path))) == 60
    assert gp.LMDBDataset(path)[3][0] == b"00003"
    gc.collect()
    assert len(reader._environments._open) == 0
    with lmdb.open(path, map_size=64 << 20, subdir=False) as own, own.begin(write=True) as out:
        out.put(b"new", b"1")
    assert len(list(gp.LMDBDataset(path))) == 61
    assert gp.LMDBDataset(path)[60] == (b"new", b"1")


@pytest.mark.parametrize("size", [48, 47])
def test_a_named_database_is_no_entry(size: int, tmp_path: Path) -> None:
    """LMDB keeps 48 bytes about it in the place of a value; values of that length are entries."""
    with lmdb.open(str(tmp_path / "a"), subdir=False, max_dbs=2, map_size=64 << 20) as environment:
        inner = [environment.open_db(name) for name in (b"inner", b"other")]
        with environment.begin(write=True) as out:
            out.put(b"a", b"x" * size)
            out.put(b"z", b"y" * size)
            for database in inner:
                out.put(b"k", b"v", db=database)
    ds = gp.LMDBDataset(str(tmp_path / "a"))

    with iter(ds.with_options(Options(on_error="skip"))) as items:
        assert list(items) == [(b"a", b"x" * size), (b"z", b"y" * size)]
        assert [record.reason.partition(",")[0] for record in items.errors] == [
            f"the entry {name!r} is a named database" for name in (b"inner", b"other")
        ]
    assert ds[0] == (b"a", b"x" * size)
    with pytest.raises(RecordError, match="the entry b'inner' is a named database"):
        ds[1]
