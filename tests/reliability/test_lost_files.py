"""Files that cannot be read to their end: what an index knows is an error of each record, anything else is raised."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.extract import retry
from gpupipe.extract.index import INDEXES
from gpupipe.extract.storage import LOCAL
from gpupipe.extract.writer import TFRecordWriter
from gpupipe.flow import base
from tests.reliability.faulty import Disk, Faulty
from tests.reliability.resume import plain, through_json
from tests.reliability.test_failed_reads import KINDS, POLICIES, taken

EACH, SIZE = 600, 3000
RECORD = SIZE + 16
BROKEN = 298 * RECORD + 4
"""From this byte on, in the header of a record, the first file cannot be read for 5,000 bytes."""


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short pauses, and nothing left of another test."""
    monkeypatch.setattr(retry, "PAUSE", 0.0005)
    forgotten = (LOCAL.close, INDEXES.clear, retry.GIVEN_UP.clear, base.TOLD.clear)
    for forget in forgotten:
        forget()
    yield
    for forget in forgotten:
        forget()


def payload(file: int, i: int) -> bytes:
    return f"{file:02d}.{i:05d}".encode().ljust(SIZE, b".")


FIRST, SECOND = ([payload(file, i) for i in range(EACH)] for file in range(2))


def records_of(path: Path, records: list[bytes]) -> None:
    with TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Two files of records."""
    records_of(tmp_path / "first", FIRST)
    records_of(tmp_path / "second", SECOND)
    return [str(tmp_path / "first"), str(tmp_path / "second")]


def of_kind(tmp_path: Path, kind: str) -> list[str]:
    """Two files of a kind."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, records in zip(paths, (FIRST, SECOND), strict=True):
        if kind in ("records", "gzip"):
            records_of(path, records)
        elif kind == "lines":
            path.write_bytes(b"".join(record + b"\n" for record in records))
        else:
            path.write_bytes(b"h" * 100 + b"".join(records) + b"f" * 10)
        if kind == "gzip":
            path.write_bytes(gzip.compress(path.read_bytes(), 0))
    return list(map(str, paths))


def bad_sector(path: str, monkeypatch: pytest.MonkeyPatch, begin: int = BROKEN, n: int = 5000) -> Disk:
    """Some bytes of a file cannot be read."""

    def fails(number: int, start: int, stop: int) -> int | None:
        return errno.EIO if start < begin + n and stop > begin else None

    return Disk(path, fails).install(monkeypatch)


def dead(path: str, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Nothing of a file can be read."""
    return Disk(path, lambda number, start, stop: errno.EIO).install(monkeypatch)


def chain(paths: list[str], kind: str = "records", calls: int | None = None, **options: Any) -> Dataset:
    made = Dataset.from_tensor_slices(paths)
    if kind == "fixed":
        made = made.interleave(
            lambda name: gp.FixedLengthRecordDataset(name, SIZE, 100, 10), cycle_length=1, num_parallel_calls=calls
        )
    else:
        made = made.interleave(KINDS[kind][1], cycle_length=1, num_parallel_calls=calls)
    return made.with_options(Options(**options))


UNCOUNTED = ["records", "gzip", "lines"]


# ---- without an index


@pytest.mark.parametrize("calls", [None, 1])
@pytest.mark.parametrize("kind", UNCOUNTED)
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_read_that_fails_for_good_is_raised_under_every_policy(
    tmp_path: Path, on_error: str, kind: str, calls: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "cpu_count", lambda: 4)
    paths = of_kind(tmp_path, kind)
    bad_sector(paths[0], monkeypatch)

    with chain(paths, kind, calls, on_error=on_error).iterator(epoch=0) as items:
        good, bad = taken(items)
        (listed,) = items.errors

    begun = [record for record in good if record.startswith(b"00")]
    assert begun == FIRST[: len(begun)]
    assert good == begun + SECOND
    (error,) = bad
    assert error.lost
    assert error.file == paths[0]
    assert error.offset is not None and 0 <= error.offset <= BROKEN
    assert error.offset == len(begun) * {"lines": SIZE + 1}.get(kind, RECORD)
    assert re.search(r"cannot be read: Input/output error \((as )?(6 tries in|in 6 tries)", str(error))
    assert 'Options(lost_files="skip")' in str(error)
    assert (listed.file, listed.offset, listed.unit, listed.action) == (paths[0], error.offset, "file", "raised")
    assert items.left_out == 0


@pytest.mark.parametrize("kind", UNCOUNTED)
@pytest.mark.parametrize("on_error", POLICIES)
def test_the_rest_of_a_file_may_be_lost_where_that_is_allowed(
    tmp_path: Path, on_error: str, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    paths = of_kind(tmp_path, kind)
    bad_sector(paths[0], monkeypatch)

    with chain(paths, kind, on_error=on_error, lost_files="skip").iterator(epoch=0) as items:
        good, bad = taken(items)
        (listed,) = items.errors

    begun = [record for record in good if record.startswith(b"00")]
    assert (good, bad) == (FIRST[: len(begun)] + SECOND, [])
    assert (listed.file, listed.unit, listed.action, items.left_out) == (paths[0], "file", "left out", 1)
    (said,) = caplog.messages
    assert paths[0] in said
    assert "cannot be counted" in said


@pytest.mark.parametrize("kind", [*UNCOUNTED, "fixed"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_missing_file_is_raised_under_every_policy_unless_it_is_allowed(
    tmp_path: Path, on_error: str, kind: str
) -> None:
    paths = of_kind(tmp_path, kind)
    os.unlink(paths[0])

    good, bad = taken(chain(paths, kind, on_error=on_error).iterator(epoch=0))
    assert good == SECOND
    (error,) = bad
    assert isinstance(error, FileNotFoundError)
    assert error.lost

    with chain(paths, kind, on_error=on_error, lost_files="skip").iterator(epoch=0) as items:
        assert taken(items) == (SECOND, [])
        assert [(record.file, record.action) for record in items.errors] == [(paths[0], "left out")]


def test_a_file_over_a_network_that_is_lost_is_raised(two: list[str], tmp_path: Path) -> None:
    with Faulty(tmp_path, lambda number: "503").serving() as server:
        paths = [server.url("first"), two[1]]
        for on_error in POLICIES:
            good, bad = taken(chain(paths, on_error=on_error).iterator(epoch=0))

            assert good == SECOND
            assert [(error.file, error.lost, error.offset) for error in bad] == [(paths[0], True, 0)]
            assert "503" in str(bad[0])


def test_a_read_that_stalls_for_good_is_raised(two: list[str], tmp_path: Path) -> None:
    with Faulty(tmp_path, lambda number: "hang").serving() as server:
        paths = [server.url("first"), two[1]]

        good, bad = taken(chain(paths, on_error="skip", read_timeout=0.05).iterator(epoch=0))

        assert good == SECOND
        (error,) = bad
        assert error.lost
        assert "a read was given up after 0.05 s (Options.read_timeout)" in str(error)
        assert server.gets == retry.TRIES


def test_a_whole_file_that_is_one_element_is_one_bad_element(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    dead(two[0], monkeypatch)
    ds = Dataset.from_tensor_slices([*two, two[0] + "-none"]).map(gp.io.read_file)

    with ds.with_options(Options(on_error="skip")).iterator() as items:
        assert list(items) == [Path(two[1]).read_bytes()]
        assert [record.file for record in items.errors] == ["from_tensor_slices"] * 2 or items.left_out == 2
    assert len(list(ds.with_options(Options(on_error="replace")))) == 3


# ---- with one


@pytest.mark.parametrize("where", ["memory", "beside"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_what_an_index_knows_is_an_error_of_each_record(
    two: list[str], on_error: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gp.io.build_index(two, where)
    if where == "beside":
        INDEXES.clear()
    bad_sector(two[0], monkeypatch)
    hidden = range(BROKEN // RECORD, (BROKEN + 5000 - 1) // RECORD + 1)
    ds = gp.TFRecordDataset(two, index=where).with_options(Options(on_error=on_error))

    with ds.iterator(epoch=0) as items:
        good, bad = taken(items)
        listed = items.errors

    kept = [record for i, record in enumerate(FIRST) if i not in hidden]
    stand_ins = [FIRST[hidden.start - 1]] * len(hidden)
    if on_error == "replace":
        assert good == FIRST[: hidden.start] + stand_ins + FIRST[hidden.stop :] + SECOND
    else:
        assert good == kept + SECOND
    assert [(record.file, record.offset) for record in listed] == [(two[0], i * RECORD) for i in hidden]
    assert [error.offset for error in bad] == ([i * RECORD for i in hidden] if on_error == "raise" else [])
    assert not any(error.lost for error in bad)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_of_a_file_that_is_gone_for_good_every_record_is_one(
    two: list[str], on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened before, or the index could not tell that it is of this file."""
    ds = gp.TFRecordDataset(two[::-1]).with_options(Options(on_error=on_error))
    assert len(ds) == 2 * EACH
    dead(two[0], monkeypatch)

    for chosen in (ds, ds.shuffle(50), ds.shuffle(gp.ALL), ds.skip(3)):
        with chosen.iterator(epoch=0) as items:
            good, bad = taken(items)
            count = 2 * EACH - 3 * (chosen is not ds and len(chosen) < 2 * EACH)
            assert bad == []
            assert len(good) == (count if on_error == "replace" else count - EACH)
            assert items.left_out == EACH


@pytest.mark.parametrize("calls", [None, 1])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_header_that_can_be_read_says_where_the_next_record_begins(
    two: list[str], on_error: str, shuffled: bool, calls: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the bytes of a payload that cannot be read cost that record, with an index or without."""
    monkeypatch.setattr(base, "cpu_count", lambda: 4)
    bad_sector(two[0], monkeypatch, 300 * RECORD + 50, 2000)
    ds = chain(two, calls=calls, on_error=on_error)

    with (ds.shuffle(1) if shuffled else ds).iterator(epoch=0) as items:
        good, bad = taken(items)
        (listed,) = items.errors

    stand_in = [FIRST[299]] if on_error == "replace" else []
    assert good == FIRST[:300] + stand_in + FIRST[301:] + SECOND
    assert (listed.file, listed.offset, listed.unit) == (two[0], 300 * RECORD, "offset")
    assert [error.offset for error in bad] == ([300 * RECORD] if on_error == "raise" else [])
    assert not any(error.lost for error in bad)


@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("calls", [None, 1])
def test_where_records_of_one_length_begin_is_known(
    tmp_path: Path, calls: int | None, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "cpu_count", lambda: 4)
    paths = of_kind(tmp_path, "fixed")
    bad_sector(paths[0], monkeypatch)
    hidden = range((BROKEN - 100) // SIZE, (BROKEN + 5000 - 100 - 1) // SIZE + 1)

    with chain(paths, "fixed", calls, on_error=on_error).iterator(epoch=0) as items:
        good, bad = taken(items)
        listed = items.errors

    kept = [record for i, record in enumerate(FIRST) if i not in hidden]
    if on_error == "replace":
        assert len(good) == 2 * EACH
    else:
        assert good == kept + SECOND
    assert len(bad) == (len(hidden) if on_error == "raise" else 0)
    assert [(record.file, record.offset) for record in listed] == [(paths[0], 100 + i * SIZE) for i in hidden]


@pytest.mark.parametrize("begin", [0, 50, 100 + SIZE * EACH, 100 + SIZE * EACH - 1])
def test_a_header_and_a_footer_need_not_be_read(tmp_path: Path, begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = of_kind(tmp_path, "fixed")
    bad_sector(paths[0], monkeypatch, begin, 5)

    good, bad = taken(chain(paths, "fixed").iterator(epoch=0))

    last = begin == 100 + SIZE * EACH - 1
    assert good == FIRST[: EACH - last] + SECOND
    assert len(bad) == last


# ---- the index itself


ASKED: dict[str, Callable[[Dataset], Any]] = {
    "len": len,
    "ds[0]": lambda ds: ds[0],
    "shuffle(ALL)": lambda ds: list(ds.shuffle(gp.ALL)),
    "slice": lambda ds: list(ds[::2]),
    "split": lambda ds: list(ds.split([0.5, 0.5])[0]),
}


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("on_error", POLICIES)
def test_an_index_never_pretends(two: list[str], on_error: Any, ask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen by place among files that cannot be counted would be chosen among other numbers."""
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two).with_options(Options(on_error=on_error))

    with pytest.raises(gp.DataError, match=r"Input/output error.*; its records cannot be counted") as got:
        ASKED[ask](ds)

    assert got.value.file == two[0]


@pytest.mark.parametrize("on_error", POLICIES)
def test_where_losses_are_allowed_what_can_be_counted_counts(
    two: list[str], on_error: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two).with_options(Options(on_error=on_error, lost_files="skip"))

    count = len(ds)

    assert len(ds) == count
    assert len(caplog.messages) == 1
    known = count - EACH
    assert 0 < known <= BROKEN // RECORD + 1
    assert bytes(ds[known]) == SECOND[0]
    with ds.shuffle(gp.ALL).iterator() as items:
        assert sorted(items) == FIRST[:known] + SECOND
        assert [(record.unit, record.action) for record in items.errors] == [("file", "left out")]


# ---- chains


def of_names(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).interleave(gp.TFRecordDataset, cycle_length=1)


def numbers(records: Dataset) -> Dataset:
    return records.map(lambda r: np.int64(int(bytes(r[3:8]))), traced=False)


STEPS: dict[str, Callable[[Dataset], Dataset]] = {
    "map": lambda d: d.map(lambda x: x * 2),
    "python map": lambda d: d.map(lambda x: x * 2, traced=False, num_parallel_calls=3),
    "filter": lambda d: d.filter(lambda x: x % 3 == 0),
    "take": lambda d: d.take(EACH + 50),
    "skip": lambda d: d.skip(EACH // 2),
    "shard": lambda d: d.shard(7, 2),
    "shuffle": lambda d: d.shuffle(64, seed=1),
    "batch": lambda d: d.batch(7),
    "batches dropped": lambda d: d.batch(7, drop_remainder=True),
    "padded": lambda d: d.padded_batch(7, []),
    "window": lambda d: d.window(5, shift=3, drop_remainder=True).flat_map(lambda w: w.batch(5)),
    "unbatch": lambda d: d.batch(5).unbatch(),
    "zip": lambda d: Dataset.zip(d, Dataset.range(10**6)),
    "zip second": lambda d: Dataset.zip(Dataset.range(10**6), d),
    "zipped batches": lambda d: Dataset.zip(d.batch(4), Dataset.range(10**6)),
    "enumerate": lambda d: d.enumerate(),
    "concatenate": lambda d: d.concatenate(Dataset.range(5)),
    "repeat": lambda d: d.repeat(2),
    "scan": lambda d: d.scan(np.int64(0), lambda s, x: (s + x, s + x)),
    "unique": lambda d: d.unique(),
    "take while": lambda d: d.take_while(lambda x: x >= 0),
    "prefetch": lambda d: d.prefetch(3),
    "ignore errors": lambda d: d.ignore_errors(),
    "ignore errors in batches": lambda d: d.ignore_errors().batch(5),
    "mixed": lambda d: Dataset.sample_from_datasets(
        [d, Dataset.range(10**6)], [0.5, 0.5], seed=3, stop_on_empty_dataset=True
    ),
    "cache": lambda d: d.cache(),
    "groups": lambda d: d.group_by_window(lambda x: x % 2, lambda k, w: w.batch(4), window_size=4),
    "inner": lambda d: Dataset.range(3).interleave(lambda i: d, cycle_length=2),  # options are those of the whole
}


@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("step", STEPS)
def test_a_lost_rest_takes_no_place_in_any_step(
    two: list[str], step: str, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The elements are those of a chain over a file that ends there."""
    bad_sector(two[0], monkeypatch)
    ends = len([r for r in taken(chain(two).iterator(epoch=0))[0] if r.startswith(b"00")])

    def of(paths: list[str]) -> Any:
        ds = STEPS[step](numbers(of_names(paths))).with_options(Options(on_error=on_error))  # type: ignore[arg-type]
        out, errors = [], 0
        with ds.iterator(epoch=0) as items:
            while True:
                try:
                    out.append(plain(next(items)))
                except StopIteration:
                    return out, errors
                except gp.DataError as error:
                    assert error.lost
                    errors += 1

    whole, errors = of(two)
    Path(two[0] + "-other").mkdir()
    short = f"{two[0]}-other/first"
    records_of(Path(short), FIRST[:ends])

    assert (errors == 0) == ("ignore" in step)
    assert (whole, 0) == of([short, two[1]])


@pytest.mark.parametrize("lost_files", ["raise", "skip"])
@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("in_file", [False, True])
def test_a_cache_keeps_no_pass_that_lost_a_file(
    two: list[str], tmp_path: Path, in_file: bool, on_error: Any, lost_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = chain(two, on_error=on_error, lost_files=lost_files).cache(*([str(tmp_path / "cache")] if in_file else []))
    with monkeypatch.context() as patch:
        bad_sector(two[0], patch)
        good, bad = taken(ds.iterator(epoch=0))
        assert (EACH < len(good) < 2 * EACH, len(bad)) == (True, int(lost_files == "raise"))
    retry.GIVEN_UP.clear()

    assert list(map(bytes, ds)) == FIRST + SECOND


def test_a_file_that_ignore_errors_leaves_out_is_listed_and_said(
    two: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    ds = chain(two).ignore_errors().cache()
    with monkeypatch.context() as patch:
        bad_sector(two[0], patch)
        with ds.iterator() as items:
            assert len(list(items)) == 298 + EACH
            assert [(record.unit, record.action) for record in items.errors] == [("file", "left out")]
    assert [two[0] in text for text in caplog.messages] == [True]
    retry.GIVEN_UP.clear()

    assert len(list(ds)) == 2 * EACH


def test_a_mixture_in_any_order_raises_too(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two, num_parallel_reads=2).with_options(Options(on_error="skip", deterministic=False))

    good, bad = taken(ds.iterator(epoch=0))

    assert [error.lost for error in bad] == [True]
    assert {record for record in good if record.startswith(b"01")} == set(SECOND)


# ---- states


@pytest.mark.parametrize("mended", [False, True])
@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("shape", ["records", "shuffled", "batches", "gzip", "lines"])
def test_behind_a_lost_file_a_state_goes_on_with_what_would_have_followed(
    tmp_path: Path, shape: str, on_error: str, mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = shape if shape in KINDS else "records"
    two = of_kind(tmp_path, kind)

    def build() -> Dataset:
        ds = chain(two, kind, on_error=on_error)
        return ds.shuffle(20, seed=1) if shape == "shuffled" else ds.batch(7) if shape == "batches" else ds

    with monkeypatch.context() as patch:
        bad_sector(two[0], patch)
        with build().iterator(epoch=0) as items:
            while True:
                try:
                    next(items)
                except gp.DataError as error:
                    assert error.lost
                    break
            state = through_json(items.state_dict())
            rest = [plain(element) for element in items]
        if not mended:
            with build().iterator(epoch=0) as items:
                items.load_state_dict(state)
                assert [plain(element) for element in items] == rest
    if mended and shape in KINDS and on_error != "replace":  # where nothing is read anew to come to this place
        retry.GIVEN_UP.clear()
        with build().iterator(epoch=0) as items:
            items.load_state_dict(state)
            assert [plain(element) for element in items] == rest


def test_a_state_from_before_the_error_reads_the_file_where_it_is_mended(
    two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        bad_sector(two[0], patch)
        items = chain(two).iterator(epoch=0)
        begun: list[Any] = []
        state: dict[str, Any] = {}
        with pytest.raises(gp.DataError, match="Input/output error"):
            while True:
                state = through_json(items.state_dict())
                begun.append(next(items))
    with chain(two).iterator(epoch=0) as items:
        items.load_state_dict(state)

        assert begun + list(items) == FIRST + SECOND


def test_a_manifest_that_lists_a_lost_file_condemns_no_record(
    two: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = tmp_path / "bad.jsonl"
    with monkeypatch.context() as patch:
        bad_sector(two[0], patch)
        list(chain(two, lost_files="skip", error_manifest=str(manifest)))
    (line,) = map(json.loads, manifest.read_text().splitlines())
    assert (line["file"], line["unit"], line["action"]) == (two[0], "file", "left out")
    retry.GIVEN_UP.clear()

    assert list(chain(two, bad_records=str(manifest))) == FIRST + SECOND


# ---- what is written down


def test_a_saved_dataset_that_cannot_be_read_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "saved"
    Dataset.from_tensor_slices(FIRST).save(str(folder))
    (path,) = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > BROKEN]
    bad_sector(str(path), monkeypatch)

    for options in (Options(on_error="raise"), Options(on_error="skip"), Options(on_error="replace")):
        good, bad = taken(Dataset.load(str(folder)).with_options(options).iterator())
        assert 0 < len(good) < EACH
        assert [(error.lost, error.file) for error in bad] == [(True, str(path))]


def test_nothing_is_saved_of_what_lost_a_file_unless_it_is_allowed(
    two: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_sector(two[0], monkeypatch)
    with pytest.raises(gp.DataError, match="cannot be counted"):
        chain(two, on_error="skip").save(str(tmp_path / "a"))
    chain(two, on_error="replace", lost_files="skip").save(str(tmp_path / "b"))

    saved = list(Dataset.load(str(tmp_path / "b")))
    assert EACH < len(saved) < 2 * EACH
    assert saved[-EACH:] == SECOND


def test_lost_files_count_for_max_bad(two: list[str]) -> None:
    ds = chain(["none-1", "none-2", two[1]], on_error="skip", lost_files="skip", max_bad=1)

    with pytest.raises(gp.errors.TooManyBadError, match="2 bad elements were left out"):
        list(ds)


def test_explain_says_what_becomes_of_lost_files() -> None:
    assert "lost_files='raise'" in Dataset.range(3).explain()
    assert "lost_files='skip'" in Dataset.range(3).with_options(Options(lost_files="skip")).explain()


def test_lost_files_takes_two_values() -> None:
    with pytest.raises(gp.errors.PlanError, match=r"Options\.lost_files needs one of 'raise', 'skip', got 'ignore'"):
        Options(lost_files="ignore")  # type: ignore[arg-type]
