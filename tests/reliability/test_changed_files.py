"""Files that are changed while they are read: an error that says so, once, or the old file to its end; never both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.extract.shards.samples import SAMPLES
from gpupipe.extract.storage.files import LOCAL
from gpupipe.flow import run as flow_run
from gpupipe.flow.sources.rows import BLOCKS
from tests.reliability import record_files
from tests.reliability.record_files import SIZE, payloads, taken

COUNT = 700
OLD, NEW, OTHER = (payloads(file, COUNT) for file in range(3))
CHANGED = "the file changed while it was read"

pytestmark = pytest.mark.usefixtures("afresh", "forgotten", "small_heap")


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)  # a reader thread also where too few CPUs make none
    for known in (SAMPLES.indexes, BLOCKS):
        known.clear()
    yield
    for known in (SAMPLES.indexes, BLOCKS):
        known.clear()


# ---- files of each kind: those of one layout whatever they hold


def _npy(path: Path, records: Sequence[bytes]) -> None:
    with path.open("wb") as out:
        np.save(out, np.array(records, f"S{SIZE}"))


def _csv(path: Path, records: Sequence[bytes]) -> None:
    path.write_bytes(b"".join(b'1,"%b"\n' % record for record in records))


def _parquet(path: Path, records: Sequence[bytes]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"x": list(records)})
    parquet.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False)


def _arrow(path: Path, records: Sequence[bytes]) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": list(records)})
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


def _hdf5(path: Path, records: Sequence[bytes]) -> None:
    with pytest.importorskip("h5py").File(path, "w") as out:
        out["x"] = np.array(records, f"S{SIZE}")


def _of(kind: str) -> Callable[[Path, Sequence[bytes]], None]:
    return lambda path, records: record_files.write(path, kind, records)


WRITE: dict[str, Callable[[Path, Sequence[bytes]], None]] = {
    **{kind: _of(kind) for kind in [*record_files.READERS, "samples, gzip"]},
    "npy": _npy,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "hdf5": _hdf5,
}
READ: dict[str, Callable[[Any], Dataset]] = {
    **record_files.READERS,
    "samples, gzip": lambda name: gp.WebDataset(name, "bin", compression_type="GZIP"),
    "npy": gp.NumpyDataset,
    "csv": lambda name: gp.CsvDataset(name, [b""], select_cols=[1]).map(lambda x: x),
    "parquet": lambda name: gp.ParquetDataset(name, "x"),
    "arrow": lambda name: gp.ArrowDataset(name, "x"),
    "hdf5": lambda name: gp.HDF5Dataset(name, "x"),
}
INDEXED = ["records", "samples", "npy", "parquet", "arrow", "hdf5"]


class Two:
    """Two files of a kind; the first one is changed."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.write, self.read = WRITE[kind], READ[kind]
        self.paths = [folder / f"{name}.{kind.split(',')[0]}" for name in ("first", "second")]
        for path, records in zip(self.paths, (OLD, OTHER), strict=True):
            self.write(path, records)
        self.first = self.paths[0]
        os.utime(self.first, ns=(10**18, 10**18))

    def other(self) -> bytes:
        """What a file holds of the same layout, with other elements."""
        path = self.first.with_suffix(".new")
        self.write(path, NEW)
        data = path.read_bytes()
        path.unlink()
        assert len(data) == self.first.stat().st_size
        return data

    def renamed(self) -> None:
        part = self.first.with_suffix(".new")
        self.write(part, NEW)
        os.replace(part, self.first)

    def overwritten(self) -> None:
        data = self.other()
        with self.first.open("r+b") as out:
            out.write(data)

    def appended(self) -> None:
        with self.first.open("ab") as out:
            out.write(b"more" * 10)

    def touched(self) -> None:
        os.utime(self.first, ns=(10**18, 10**18 + 1))

    def removed(self) -> None:
        self.first.unlink()

    def linked(self) -> None:
        os.link(self.first, self.first.with_suffix(".link"))
        self.first.chmod(0o600)

    def looked_at(self) -> None:
        """Another dataset opens the path."""
        assert bytes(next(iter(self.read(str(self.first))))) == NEW[0]

    def in_order(self, **options: Any) -> Dataset:
        names = Dataset.from_tensor_slices(list(map(str, self.paths)))
        return names.interleave(self.read, 1).with_options(Options(**options))


def of(records: Sequence[bytes], file: int) -> list[bytes]:
    return [record for record in records if record.startswith(b"%02d." % file)]


def begun(ds: Dataset, change: Callable[[], None], first: int = 1) -> tuple[list[bytes], list[gp.DataError]]:
    """Everything that comes of a dataset, whose file changes after some elements."""
    items = iter(ds)
    given = [bytes(next(items)) for _ in range(first)]
    change()
    good, bad = taken(items)
    return given + good, bad


# ---- in order


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("change", [Two.renamed, Two.removed, Two.linked])
def test_a_file_that_is_replaced_or_removed_is_read_to_its_end(
    kind: str, change: Callable[[Two], None], tmp_path: Path
) -> None:
    two = Two(tmp_path, kind)

    assert begun(two.in_order(), lambda: change(two)) == (OLD + OTHER, [])


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_file_that_is_overwritten_is_an_error_once(kind: str, on_error: str, tmp_path: Path) -> None:
    two = Two(tmp_path, kind)
    before = LOCAL.size(str(two.first))[1]

    good, bad = begun(two.in_order(on_error=on_error), two.overwritten)

    *torn, last = bad
    assert (last.lost, last.file, last.offset is None) == (True, str(two.first), False)
    assert all(text in str(last) for text in (CHANGED, before, LOCAL.size(str(two.first))[1]))
    assert not any(CHANGED in str(error) for error in torn)
    assert len(torn) <= (kind == "gzip" and on_error == "raise")  # a record in two blocks, whose CRC does not match
    assert of(good, 0)[0] == OLD[0]
    assert good[-COUNT:] == OTHER


@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("change", [Two.appended, Two.touched])
def test_a_file_that_grows_or_gets_another_time_gives_what_it_had_and_an_error_at_its_end(
    kind: str, change: Callable[[Two], None], tmp_path: Path
) -> None:
    two = Two(tmp_path, kind)

    good, bad = begun(two.in_order(), lambda: change(two))

    assert good == OLD + OTHER
    assert [(CHANGED in str(error), error.lost, error.file) for error in bad] == [(True, True, str(two.first))]


@pytest.mark.parametrize("kind", READ)
def test_a_file_that_is_replaced_and_opened_anew_elsewhere_is_an_error_once(kind: str, tmp_path: Path) -> None:
    two = Two(tmp_path, kind)

    def change() -> None:
        two.renamed()
        two.looked_at()

    good, bad = begun(two.in_order(), change)

    assert good == OLD[: len(good) - COUNT] + OTHER
    assert [(CHANGED in str(error), error.lost, error.file) for error in bad] == [(True, True, str(two.first))]


def test_what_is_known_of_records_does_not_repeat_the_error(tmp_path: Path) -> None:
    """An index names each record behind the first that cannot be read."""
    two = Two(tmp_path, "records")
    assert len(gp.TFRecordDataset(str(two.first))) == COUNT

    def change() -> None:
        two.renamed()
        LOCAL.size(str(two.first))

    good, bad = begun(two.in_order(on_error="skip"), change)

    assert good == OLD[: len(good) - COUNT] + OTHER
    assert [(CHANGED in str(error), error.lost) for error in bad] == [(True, True)]


def test_an_error_at_the_end_can_be_allowed_and_comes_again_after_no_state(tmp_path: Path) -> None:
    two = Two(tmp_path, "records")
    ds = two.in_order(lost_files="skip")

    with ds.iterator(epoch=0) as items:
        first = bytes(next(items))
        two.appended()
        rest = [bytes(x) for x in items]
        listed = [(x.file, x.unit, x.action) for x in items.errors]

    assert [first, *rest] == OLD + OTHER
    assert listed == [(str(two.first), "file", "left out")]


@pytest.mark.parametrize("kind", ["records", "samples"])
@pytest.mark.parametrize("indexed", [False, True])
def test_references_of_a_shuffle_are_those_of_one_version(kind: str, indexed: bool, tmp_path: Path) -> None:
    two = Two(tmp_path, kind)
    if indexed:
        assert len(two.read(str(two.first))) == COUNT

    def change() -> None:
        two.renamed()
        two.looked_at()

    good, bad = begun(two.in_order(on_error="skip").shuffle(10, seed=1), change, 20)

    assert of(good, 1) == []
    assert set(of(good, 0)) < set(OLD)
    assert sorted(of(good, 2)) == OTHER
    assert all(CHANGED in str(error) for error in bad)
    _, (error,) = begun(two.in_order().shuffle(10, seed=1), two.touched, 20)
    assert CHANGED in str(error)


def test_the_error_of_a_descriptor_that_was_closed_names_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two(tmp_path, "lines")
    before = LOCAL.size(str(two.first))[1]

    def change() -> None:
        two.renamed()
        with monkeypatch.context() as patch:
            patch.setattr(LOCAL, "_limit", 0)
            LOCAL.size(str(two.paths[1]))

    good, (error,) = begun(two.in_order(), change)

    assert good == OLD[: len(good) - COUNT] + OTHER
    assert all(text in str(error) for text in (CHANGED, before, LOCAL.size(str(two.first))[1]))


# ---- by index


@pytest.mark.parametrize("kind", INDEXED)
@pytest.mark.parametrize("change", [Two.renamed, Two.removed, Two.linked])
def test_all_elements_of_the_old_file_come_by_index(kind: str, change: Callable[[Two], None], tmp_path: Path) -> None:
    two = Two(tmp_path, kind)

    good, bad = begun(two.read(str(two.first)).shuffle(gp.ALL, seed=1), lambda: change(two), 10)

    assert (sorted(good), bad) == (OLD, [])


@pytest.mark.parametrize("kind", INDEXED)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("order", ["all", "buffer", "pick", "shard", "batches", "zip", "cache"])
def test_a_pass_by_index_over_a_file_that_was_written_to_ends_with_the_error(
    kind: str, order: str, several: bool, tmp_path: Path
) -> None:
    two = Two(tmp_path, kind)
    paths = list(map(str, two.paths)) if several else [str(two.first)]
    whole = Dataset.from_tensor_slices(paths).flat_map(two.read) if several else two.read(paths[0])
    if order == "buffer" and kind not in ("records", "samples"):
        pytest.skip("the buffer holds all rows before the file changes")
    count = len(whole)
    orders: dict[str, Callable[[], Dataset]] = {
        "all": lambda: whole.shuffle(gp.ALL, seed=1),
        "buffer": lambda: whole.shuffle(count, seed=1),
        "pick": lambda: whole.pick(reversed(range(count))),
        "shard": lambda: whole.shuffle(gp.ALL, seed=1).shard(2, 0),
        "batches": lambda: whole.batch(2).shuffle(gp.ALL, seed=1).unbatch(),
        "cache": lambda: whole.cache().shuffle(gp.ALL, seed=1),
        "zip": lambda: Dataset.zip((whole, Dataset.range(count))).shuffle(gp.ALL, seed=1).map(lambda x, i: x),
    }
    good, bad = begun(orders[order](), two.touched, 2)

    assert bad, len(good)
    assert all(CHANGED in str(error) for error in bad)
    assert len({str(error) for error in bad if error.lost}) <= 1  # once


@pytest.mark.parametrize("kind", ["records", "samples"])
def test_each_of_many_files_whose_records_a_shuffle_reads_later_is_compared(kind: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.{kind}" for i in range(20)]
    for path in paths:
        WRITE[kind](path, OLD[:3])
    names = Dataset.from_tensor_slices(list(map(str, paths)))
    ds = names.interleave(READ[kind], cycle_length=20).shuffle(60, seed=1).with_options(Options(lost_files="skip"))

    with iter(ds) as items:
        next(items)
        for path in paths:
            os.utime(path, ns=(10**18, 10**18))
        assert len(list(items)) == 59
        assert {error.file for error in items.errors} == set(map(str, paths))


@pytest.mark.parametrize("changed", [{0}, {1}, {2}, {0, 2}])
@pytest.mark.parametrize("order", ["all", "buffer", "in order"])
def test_each_pass_over_a_file_is_compared(order: str, changed: set[int], tmp_path: Path) -> None:
    two = Two(tmp_path, "records")
    names = Dataset.from_tensor_slices([str(two.first)])
    ds = two.read(str(two.first)).shuffle(gp.ALL, seed=1) if order == "all" else names.interleave(two.read, 1)
    ds = (ds.shuffle(20, seed=1) if order == "buffer" else ds).repeat(3)

    with iter(ds.with_options(Options(on_error="skip", lost_files="skip"))) as items:
        for number in range(3):
            for _ in range(COUNT // 2):
                next(items)
            if number in changed:
                os.utime(two.first, ns=(10**18, 10**18 + 1 + number))
            for _ in range(COUNT // 2 if number < 2 else 0):
                if next(items, None) is None:
                    break
        list(items)
        assert items.errors


@pytest.mark.parametrize("kept", ["cache", "snapshot", "GZIP"])
def test_a_cache_is_not_kept_when_files_were_replaced_while_it_was_filled(kept: str, tmp_path: Path) -> None:
    two = Two(tmp_path, "lines")
    old = two.first.with_suffix(".old")
    os.link(two.first, old)
    (tmp_path / "kept").mkdir()
    place = str(tmp_path / "kept" / "c")
    ds = Dataset.from_tensor_slices([str(two.paths[1]), str(two.first)]).flat_map(two.read)
    ds = ds.cache(place) if kept == "cache" else ds.snapshot(place, "" if kept == "snapshot" else kept)

    good, bad = begun(ds, two.renamed)
    assert (good, bad) == ([*OTHER, *NEW], [])
    os.replace(old, two.first)  # the old one is there again

    assert [bytes(x) for x in ds] == [*OTHER, *OLD]


@pytest.mark.parametrize("kind", INDEXED)
@pytest.mark.parametrize("ask", ["open", "len"])
def test_no_element_by_index_is_that_of_a_file_that_was_opened_later(kind: str, ask: str, tmp_path: Path) -> None:
    two = Two(tmp_path, kind)

    def change() -> None:
        two.renamed()
        two.looked_at() if ask == "open" else len(two.read(str(two.first)))

    good, bad = begun(two.read(str(two.first)).shuffle(gp.ALL, seed=1), change, 10)

    assert len(good) + len(bad) == COUNT
    assert set(good) <= set(OLD)
    assert all(CHANGED in str(error) for error in bad)
    assert bad or kind in ("npy", "parquet", "arrow", "hdf5")  # of which many rows are read at once


@pytest.mark.parametrize("kind", INDEXED)
@pytest.mark.parametrize("part", ["skip", "shard"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_part_that_an_index_finds_ends_with_the_error(kind: str, part: str, shuffled: bool, tmp_path: Path) -> None:
    two = Two(tmp_path, kind)
    whole = two.read(str(two.first))
    assert len(whole) == COUNT
    ds = whole.skip(1) if part == "skip" else whole.shard(2, 1)
    if shuffled:  # which makes references
        ds = ds.shuffle(2, seed=1)

    good, bad = begun(ds, two.touched)

    if kind == "samples" and part == "shard":  # each is compared
        assert all(CHANGED in str(error) for error in bad)
        assert len(good) + len(bad) == COUNT // 2
    else:
        assert sorted(good) == (OLD[1:] if part == "skip" else OLD[1::2])
        assert [(CHANGED in str(error), error.lost) for error in bad] == [(True, True)]
    assert bad


@pytest.mark.parametrize("change", [Two.overwritten, Two.appended])
@pytest.mark.parametrize("rows", ["shuffle", "skip"])
def test_samples_by_index_of_an_archive_that_is_overwritten_are_errors(
    change: Callable[[Two], None], rows: str, tmp_path: Path
) -> None:
    two = Two(tmp_path, "samples")
    ds = two.read(str(two.first))
    assert len(ds) == COUNT

    good, bad = begun(ds.shuffle(gp.ALL, seed=1) if rows == "shuffle" else ds.skip(1), lambda: change(two), 10)

    assert all(CHANGED in str(error) for error in bad)
    if rows == "skip":
        assert [error.lost for error in bad] == [True]
    else:
        assert len(good) + len(bad) == COUNT
        assert bad
        assert len(of(good, 1)) <= 256  # whose headers were read before


def test_a_record_that_was_overwritten_says_what_differs(tmp_path: Path) -> None:
    two = Two(tmp_path, "records")
    ds = two.read(str(two.first)).shuffle(gp.ALL, seed=1)

    def change() -> None:
        with two.first.open("r+b") as out:
            out.write(b"x" * two.first.stat().st_size)

    good, bad = begun(ds, change, 10)

    assert len(good) + len(bad) == COUNT
    assert set(good) <= set(OLD)
    assert all(CHANGED in str(error) for error in bad)


READ_ON: dict[str, Callable[[Dataset], Dataset]] = {
    "plain": lambda ds: ds,
    "shuffle": lambda ds: ds.shuffle(4, seed=1),
    "cache": lambda ds: ds.cache().repeat(2),
    "window": lambda ds: ds.window(3).flat_map(lambda w: w),
    "by index": lambda ds: ds.shuffle(gp.ALL, seed=1),
}
NO_INDEX = ("lines", "by index")


@pytest.mark.parametrize("size", ["the same size", "longer"])
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("records", "lines") for name in READ_ON if (kind, name) != NO_INDEX]
)
def test_a_file_that_is_replaced_while_an_iterator_is_interrupted_is_not_mixed_in(
    kind: str, name: str, size: str, tmp_path: Path
) -> None:
    path, strike = tmp_path / "a", [False]

    def write(mark: bytes) -> None:
        rows = [mark + b"%02d" % i for i in range(10)]
        if kind == "records":
            with gp.io.TFRecordWriter(tmp_path / "new") as writer:
                for row in rows:
                    writer.write(row)
        else:
            (tmp_path / "new").write_bytes(b"\n".join(rows))
        os.replace(tmp_path / "new", path)

    def struck(row: bytes) -> bytes:
        if strike[0]:
            strike[0] = False
            raise KeyboardInterrupt
        return row

    for taken_before in (0, 3):
        write(b"A")
        source = gp.TFRecordDataset(path) if kind == "records" else gp.TextLineDataset(path)
        items = iter(READ_ON[name](source).map(struck, traced=False))
        rows = [bytes(next(items)) for _ in range(taken_before)]
        strike[0] = True
        with pytest.raises(KeyboardInterrupt):
            next(items)
        write(b"B" if size == "the same size" else b"BB")
        if taken_before:
            with pytest.raises(gp.DataError, match=CHANGED):
                next(items)
        rows += map(bytes, items)

        assert {row[:1] for row in rows} == {b"A" if taken_before else b"B"}
        assert len(rows) == taken_before or not taken_before
