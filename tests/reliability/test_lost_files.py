"""Files that cannot be read to their end: what an index knows is an error of each record, anything else is raised."""

from __future__ import annotations

import errno
import gzip
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import LengthError
from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.records.manifest_writer import write_manifest
from gpupipe.extract.storage import retry
from gpupipe.flow import run as flow_run
from gpupipe.ops._shared.samples import encoded, picture
from tests.chains.damage import events
from tests.reliability.faulty import Disk, Faulty
from tests.reliability.record_files import READERS, SIZE, all_of, chain, payloads, write
from tests.reliability.resume import behind, plain, through_json
from tests.reliability.test_failed_reads import POLICIES

EACH = 600
RECORD = SIZE + 16
BROKEN = 298 * RECORD + 4
"""From this byte on, in the header of a record, the first file cannot be read for 5,000 bytes."""


FIRST, SECOND = (payloads(file, EACH) for file in range(2))


def of_kind(tmp_path: Path, kind: str) -> list[str]:
    """Two files of a kind."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path, records in zip(paths, (FIRST, SECOND), strict=True):
        write(path, kind, records)
    return list(map(str, paths))


def bad_sector(path: str, monkeypatch: pytest.MonkeyPatch, begin: int = BROKEN, n: int = 5000) -> Disk:
    """Some bytes of a file cannot be read."""

    def fails(number: int, start: int, stop: int) -> int | None:
        return errno.EIO if start < begin + n and stop > begin else None

    return Disk(path, fails).install(monkeypatch)


def dead(path: str, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Nothing of a file can be read."""
    return Disk(path, lambda number, start, stop: errno.EIO).install(monkeypatch)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Two files of records."""
    return of_kind(tmp_path, "records")


pytestmark = pytest.mark.usefixtures("afresh")

UNCOUNTED = ["records", "gzip", "lines"]


# ---- without an index


@pytest.mark.parametrize("calls", [None, 1])
@pytest.mark.parametrize("kind", UNCOUNTED)
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_read_that_fails_for_good_is_raised_under_every_policy_unless_it_is_allowed(
    tmp_path: Path,
    on_error: str,
    kind: str,
    calls: int | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)
    paths = of_kind(tmp_path, kind)
    bad_sector(paths[0], monkeypatch)

    good, (error,), items = all_of(chain(paths, kind, calls, on_error=on_error))

    begun = [record for record in good if record.startswith(b"00")]
    assert good == FIRST[: len(begun)] + SECOND
    assert (error.lost, error.file) == (True, paths[0])
    assert error.offset == len(begun) * {"lines": SIZE + 1}.get(kind, RECORD) <= BROKEN
    assert re.search(r"cannot be read: Input/output error \((as )?(6 tries in|in 6 tries)", str(error))
    assert 'Options(lost_files="skip")' in str(error)
    listed = (paths[0], error.offset, "file")
    assert [(x.file, x.offset, x.unit, x.action) for x in items.errors] == [(*listed, "raised")]
    assert items.left_out == 0
    with caplog.at_level(logging.WARNING, "gpupipe"):
        good, bad, items = all_of(chain(paths, kind, calls, on_error=on_error, lost_files="skip"))

    assert (good, bad) == (FIRST[: len(begun)] + SECOND, [])
    assert [(x.file, x.offset, x.unit, x.action) for x in items.errors] == [(*listed, "left out")]
    assert items.left_out == 1
    (said,) = caplog.messages
    assert paths[0] in said
    assert "cannot be counted" in said
    assert "unless" in said.partition("raised")[2]  # this one is not


@pytest.mark.parametrize("kind", [*UNCOUNTED, "fixed"])
@pytest.mark.parametrize("on_error", POLICIES)
def test_a_missing_file_is_raised_under_every_policy_unless_it_is_allowed(
    tmp_path: Path, on_error: str, kind: str
) -> None:
    paths = of_kind(tmp_path, kind)
    os.unlink(paths[0])

    good, (error,), _ = all_of(chain(paths, kind, on_error=on_error))
    assert good == SECOND
    assert isinstance(error, FileNotFoundError)
    assert error.lost

    good, bad, items = all_of(chain(paths, kind, on_error=on_error, lost_files="skip"))
    assert (good, bad) == (SECOND, [])
    assert [(record.file, record.action) for record in items.errors] == [(paths[0], "left out")]


@pytest.mark.parametrize("asked", ["GET", "HEAD"])
def test_a_read_that_stalls_for_good_is_raised(two: list[str], tmp_path: Path, asked: str) -> None:
    kinds = {asked: "hang"}
    with Faulty(tmp_path, lambda number: kinds.get("GET"), lambda number: kinds.get("HEAD")).serving() as server:
        paths = [server.url("first"), two[1]]

        good, (error,), _ = all_of(chain(paths, on_error="skip", read_timeout=0.05))

        assert good == SECOND
        assert error.lost
        assert "a read was given up after 0.05 s (Options.read_timeout)" in str(error)
        assert (server.gets if asked == "GET" else server.heads) == retry.TRIES


def parted(items: Any) -> tuple[list[Any], list[str]]:
    """What an iterator gives, and the texts of what it raises."""
    got, raised = list[Any](), list[str]()
    while True:
        try:
            value = next(items)
            got.append(bytes(value) if isinstance(value, memoryview) else value)
        except StopIteration:
            return got, raised
        except gp.DataError as error:
            raised.append(str(error))


def _cut_off(path: str) -> tuple[str, str | None]:
    data = gzip.compress(Path(path).read_bytes())
    Path(path).write_bytes(data[: len(data) - 150])
    return path, "GZIP"


def _packed_and_read_as_plain(path: str) -> tuple[str, str | None]:
    Path(path).write_bytes(gzip.compress(Path(path).read_bytes()))
    return path, None


DECLARED: dict[str, Callable[[str], tuple[str, str | None]]] = {
    "cut off": _cut_off,
    "compressed, read as plain": _packed_and_read_as_plain,
    "plain, read as compressed": lambda path: (path, "GZIP"),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", DECLARED)
def test_records_behind_damaged_or_undeclared_compression_are_lost(two: list[str], how: str, policy: Any) -> None:
    path, compression = DECLARED[how](two[0])
    items = iter(gp.TFRecordDataset(path, compression).with_options(Options(on_error=policy)))

    got, raised = parted(items)
    assert len(raised) == 1
    assert "cannot be counted from there on" in raised[0]
    assert items.left_out == 0
    assert got == FIRST[: len(got)]
    allowed = iter(gp.TFRecordDataset(path, compression).with_options(Options(on_error=policy, lost_files="skip")))
    assert list(map(bytes, allowed)) == got
    assert allowed.left_out == 1


FOLDERS: dict[str, Callable[[Any], Dataset]] = {
    "a manifest that is not there": gp.TFRecordDataset.from_manifest,
    "a folder that is not there": Dataset.load,
    "a folder whose manifest is damaged": Dataset.load,
}


@pytest.mark.parametrize("step", ["interleave", "flat_map"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", FOLDERS)
def test_a_dataset_that_a_function_cannot_open_is_lost(tmp_path: Path, how: str, policy: Any, step: str) -> None:
    paths = [str(tmp_path / f"{n}") for n in range(3)]
    for n, path in enumerate(paths):
        if "folder" in how:
            Dataset.range(10 * n, 10 * n + 10).save(path)
        else:
            with gp.io.TFRecordWriter(f"{path}.tfrecord") as out:
                for x in range(10 * n, 10 * n + 10):
                    out.write(b"%d" % x)
            write_manifest([f"{path}.tfrecord"], path, 1)
    if "damaged" in how:
        Path(paths[1], "saved.json").write_text("{}")
    else:
        os.remove(f"{paths[1]}/saved.json" if "folder" in how else paths[1])
    chain = getattr(Dataset.from_tensor_slices(paths), step)(FOLDERS[how])

    got, raised = parted(iter(chain.with_options(Options(on_error=policy))))
    assert sorted(map(int, got)) == [*range(10), *range(20, 30)]
    assert len(raised) == 1
    assert paths[1] in raised[0]
    allowed = iter(chain.with_options(Options(on_error=policy, lost_files="skip")))
    assert sorted(map(int, allowed)) == [*range(10), *range(20, 30)]
    assert allowed.left_out == 1


def test_a_wrong_use_in_a_function_that_makes_datasets_is_never_left_out() -> None:
    chain = Dataset.range(3).interleave(lambda x: Dataset.load(int(x)))  # type: ignore[arg-type]

    with pytest.raises(gp.errors.PlanTypeError, match="load needs the path of a folder, got 0"):
        list(chain.with_options(Options(on_error="skip")))


def test_a_whole_file_that_is_one_element_is_one_bad_element(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    dead(two[0], monkeypatch)
    ds = Dataset.from_tensor_slices([*two, two[0] + "-none"]).map(gp.io.read_file)

    with ds.with_options(Options(on_error="skip")).iterator() as items:
        assert list(items) == [Path(two[1]).read_bytes()]
        assert [record.file for record in items.errors] == ["from_tensor_slices"] * 2 or items.left_out == 2
    assert len(list(ds.with_options(Options(on_error="replace")))) == 3


# ---- with one


HIDDEN = {  # a kind of files, from where on how many bytes cannot be read, their records, where those begin
    "an index": ("records", BROKEN, 5000, range(298, 300), 0, RECORD),
    "headers": ("records", 300 * RECORD + 50, 2000, range(300, 301), 0, RECORD),
    "one length": ("fixed", BROKEN, 5000, range((BROKEN - 100) // SIZE, (BROKEN + 4899) // SIZE + 1), 100, SIZE),
}
WAYS: dict[str, tuple[str, Callable[[list[str]], Dataset]]] = {
    "an index": ("an index", lambda two: gp.TFRecordDataset(two, index="memory")),
    "an index beside": ("an index", lambda two: gp.TFRecordDataset(two, index="beside")),
    "headers": ("headers", chain),
    "headers, by a thread": ("headers", lambda two: chain(two, calls=1)),
    "headers of references": ("headers", lambda two: chain(two).shuffle(1)),
    "headers of references, by a thread": ("headers", lambda two: chain(two, calls=1).shuffle(1)),
    "one length": ("one length", lambda two: chain(two, "fixed")),
    "one length, by a thread": ("one length", lambda two: chain(two, "fixed", 1)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_error", POLICIES)
def test_where_the_next_record_begins_is_known_bytes_that_cannot_be_read_cost_their_records(
    tmp_path: Path, on_error: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)
    known, make = WAYS[way]
    kind, begin, n, hidden, first, length = HIDDEN[known]
    two = of_kind(tmp_path, kind)
    if known == "an index":
        gp.io.build_index(two, "beside" if "beside" in way else "memory")
        if "beside" in way:
            INDEXES.clear()
    bad_sector(two[0], monkeypatch, begin, n)

    good, bad, items = all_of(make(two).with_options(Options(on_error=on_error)))

    stand_ins = [FIRST[hidden.start - 1]] * len(hidden) if on_error == "replace" else []
    places = [first + i * length for i in hidden]
    assert good == FIRST[: hidden.start] + stand_ins + FIRST[hidden.stop :] + SECOND
    assert [(record.file, record.offset, record.unit) for record in items.errors] == [
        (two[0], at, "offset") for at in places
    ]
    assert [error.offset for error in bad] == (places if on_error == "raise" else [])
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
        good, bad, items = all_of(chosen)
        count = 2 * EACH - 3 * (chosen is not ds and len(chosen) < 2 * EACH)
        assert bad == []
        assert len(good) == (count if on_error == "replace" else count - EACH)
        assert items.left_out == EACH


@pytest.mark.parametrize("begin", [0, 50, 100 + SIZE * EACH, 100 + SIZE * EACH - 1])
def test_a_header_and_a_footer_need_not_be_read(tmp_path: Path, begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = of_kind(tmp_path, "fixed")
    bad_sector(paths[0], monkeypatch, begin, 5)

    good, bad, _ = all_of(chain(paths, "fixed"))

    last = begin == 100 + SIZE * EACH - 1
    assert good == FIRST[: EACH - last] + SECOND
    assert len(bad) == last


# ---- the index itself


@pytest.mark.parametrize("on_error", POLICIES)
def test_where_losses_are_allowed_what_can_be_counted_counts(
    two: list[str], on_error: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpupipe")
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two).with_options(Options(on_error=on_error, lost_files="skip"))

    with pytest.raises(LengthError, match="its records cannot be counted"):
        len(ds.with_options(Options(lost_files="raise")))
    count = len(ds)

    assert len(ds) == count
    assert len(caplog.messages) == 1
    known = count - EACH
    assert 0 < known <= BROKEN // RECORD + 1
    assert bytes(ds[known]) == SECOND[0]
    with ds.shuffle(gp.ALL).iterator() as items:
        assert sorted(items) == FIRST[:known] + SECOND
        assert [(record.unit, record.action) for record in items.errors] == [("file", "left out")]


def of_names(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).interleave(gp.TFRecordDataset, cycle_length=1)


def numbers(records: Dataset) -> Dataset:
    return records.map(lambda r: np.int64(int(bytes(r[3:8]))), traced=False)


STEPS: dict[str, Callable[[Dataset], Dataset]] = {
    "python map": lambda d: d.map(lambda x: x * 2, traced=False, num_parallel_calls=3),
    "filter": lambda d: d.filter(lambda x: x % 3 == 0),
    "take": lambda d: d.take(EACH + 50),
    "skip": lambda d: d.skip(EACH // 2),
    "shard": lambda d: d.shard(7, 2),
    "shuffle": lambda d: d.shuffle(64, seed=1),
    "batches dropped": lambda d: d.batch(7, drop_remainder=True),
    "window": lambda d: d.window(5, shift=3, drop_remainder=True).flat_map(lambda w: w.batch(5)),
    "zip second": lambda d: Dataset.zip(Dataset.range(10**6), d),
    "zipped batches": lambda d: Dataset.zip(d.batch(4), Dataset.range(10**6)),
    "scan": lambda d: d.scan(np.int64(0), lambda s, x: (s + x, s + x)),
    "unique": lambda d: d.unique(),
    "ignore errors in batches": lambda d: d.ignore_errors().batch(5),
    "mixed": lambda d: Dataset.sample_from_datasets(
        [d, Dataset.range(10**6)], [0.5, 0.5], seed=3, stop_on_empty_dataset=True
    ),
    "cache": lambda d: d.cache(),
    "groups": lambda d: d.group_by_window(lambda x: x % 2, lambda k, w: w.batch(4), window_size=4),
    "inner": lambda d: Dataset.range(3).interleave(lambda i: d, cycle_length=2),  # options are those of the whole
}


@pytest.mark.parametrize(("step", "on_error"), [(step, POLICIES[n % 3]) for n, step in enumerate(STEPS)])
def test_a_lost_rest_takes_no_place_in_any_step(
    two: list[str], step: str, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The elements are those of a chain over a file that ends there."""
    bad_sector(two[0], monkeypatch)
    ends = len(all_of(chain(two))[0]) - EACH

    def of(paths: list[str]) -> Any:
        ds = STEPS[step](numbers(of_names(paths))).with_options(Options(on_error=on_error))  # type: ignore[arg-type]
        found = events(ds)
        errors = [x for x in found if isinstance(x, gp.DataError)]
        assert all(error.lost for error in errors)
        return [plain(x) for x in found if not isinstance(x, gp.DataError)], len(errors)

    whole, errors = of(two)
    Path(two[0] + "-other").mkdir()
    short = f"{two[0]}-other/first"
    write(Path(short), "records", FIRST[:ends])

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
        good, bad, _ = all_of(ds)
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


def test_no_cache_keeps_batches_of_images_of_a_file_that_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, image = [tmp_path / "first", tmp_path / "second"], encoded(picture(16, 16))
    for path in paths:
        write(path, "records", [image] * 20)
    images = of_names(list(map(str, paths))).map(lambda x: ops.decode_jpeg(x, channels=3))
    ds = images.ignore_errors().batch(4).cache()
    with monkeypatch.context() as patch:
        bad_sector(str(paths[0]), patch, 10 * (len(image) + 16) + 4, 50)
        assert sum(map(len, ds)) == 30
    retry.GIVEN_UP.clear()

    assert sum(map(len, ds)) == 40


def test_a_file_that_is_opened_by_place_twice_is_listed_once_in_a_pass(
    two: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two).with_options(Options(lost_files="skip"))

    with ds.shuffle(gp.ALL).shard(4, 3, even="wrap").iterator() as items:
        assert len(list(items)) == -(-len(ds) // 4)
        assert [record.action for record in items.errors] == ["left out"]


def test_a_mixture_in_any_order_raises_too(two: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bad_sector(two[0], monkeypatch)
    ds = gp.TFRecordDataset(two, num_parallel_reads=2).with_options(Options(on_error="skip", deterministic=False))

    good, bad, _ = all_of(ds)

    assert [error.lost for error in bad] == [True]
    assert {record for record in good if record.startswith(b"01")} == set(SECOND)


# ---- states


@pytest.mark.parametrize("mended", [False, True])
@pytest.mark.parametrize("on_error", POLICIES)
@pytest.mark.parametrize("shape", ["records", "shuffled", "batches", "gzip", "lines"])
def test_behind_a_lost_file_a_state_goes_on_with_what_would_have_followed(
    tmp_path: Path, shape: str, on_error: str, mended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = shape if shape in READERS else "records"
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
            assert behind(build(), state) == rest
    # Where nothing is read anew to come to this place.
    if mended and shape in (*READERS, "shuffled") and on_error != "replace":
        retry.GIVEN_UP.clear()
        assert behind(build(), state) == rest


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


@pytest.mark.parametrize("begin", [0, BROKEN])
def test_a_saved_dataset_that_cannot_be_read_is_raised(
    tmp_path: Path, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "saved"
    Dataset.from_tensor_slices(FIRST).save(str(folder))
    (path,) = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > BROKEN]
    bad_sector(str(path), monkeypatch, begin)

    for options in (Options(on_error="raise"), Options(on_error="skip"), Options(on_error="replace")):
        good, bad, _ = all_of(Dataset.load(str(folder)).with_options(options))
        assert (len(good) > 0, len(good) < EACH) == (begin > 0, True)
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


def test_lost_files_are_raised_or_skipped_and_explain_says_so() -> None:
    assert "lost_files='raise'" in Dataset.range(3).explain()
    assert "lost_files='skip'" in Dataset.range(3).with_options(Options(lost_files="skip")).explain()


GONE: dict[str, tuple[Any, int]] = {
    "shuffle": (lambda ds: ds.shuffle(gp.ALL, seed=1), 1),
    "slice": (lambda ds: ds[2:5], 1),
    "pick": (lambda ds: ds.pick([1, 2]), 1),
    "batches": (lambda ds: ds.shuffle(gp.ALL, seed=1).map(lambda x: x).batch(2).prefetch(1), 1),
    "behind others": (lambda ds: Dataset.from_tensor_slices([b"a", b"b"]).concatenate(ds.shuffle(gp.ALL, seed=1)), 2),
}


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("name", GONE)
def test_a_file_that_goes_missing_ends_the_epoch_not_the_loop(name: str, policy: Any, tmp_path: Path) -> None:
    """Errors of the flow itself: behind other elements it is opened once more, as reading may have failed for once."""
    write(tmp_path / "x", "tfrecord", [b"%d" % i for i in range(9)])
    make, most = GONE[name]
    ds = make(gp.TFRecordDataset(str(tmp_path / "x"))).with_options(Options(on_error=policy))
    full = len(list(ds))
    (tmp_path / "x").rename(tmp_path / "away")
    given, errors, items = 0, 0, ds.epochs(2)
    for _ in range(30):
        try:
            next(items)
            given += 1
        except StopIteration:
            break
        except gp.DataError as error:
            assert "no such file" in str(error)
            errors += 1
            if errors == most:  # the epoch is over
                (tmp_path / "away").rename(tmp_path / "x")

    assert errors == most
    assert given == full + (2 if name == "behind others" else 0)
