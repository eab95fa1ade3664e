"""Lost files in chains: they take no place in any step, no cache keeps them, and states go on behind them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.extract.storage import retry
from gpupipe.ops._shared.samples import encoded, picture
from tests.reliability.lost import BROKEN, EACH, FIRST, SECOND, bad_sector, of_kind
from tests.reliability.record_files import READERS, chain, taken, write
from tests.reliability.resume import plain, through_json
from tests.reliability.test_failed_reads import POLICIES
from tests.selection import FULL

pytestmark = pytest.mark.usefixtures("afresh")


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


@pytest.mark.parametrize(
    ("step", "on_error"),
    [(step, policy) for n, step in enumerate(STEPS) for policy in (POLICIES if FULL else [POLICIES[n % 3]])],
)
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
            with build().iterator(epoch=0) as items:
                items.load_state_dict(state)
                assert [plain(element) for element in items] == rest
    if (
        mended and shape in (*READERS, "shuffled") and on_error != "replace"
    ):  # where nothing is read anew to come to this place
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


@pytest.mark.parametrize("begin", [0, BROKEN])
def test_a_saved_dataset_that_cannot_be_read_is_raised(
    tmp_path: Path, begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "saved"
    Dataset.from_tensor_slices(FIRST).save(str(folder))
    (path,) = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > BROKEN]
    bad_sector(str(path), monkeypatch, begin)

    for options in (Options(on_error="raise"), Options(on_error="skip"), Options(on_error="replace")):
        good, bad = taken(Dataset.load(str(folder)).with_options(options).iterator())
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
    with pytest.raises(gp.errors.PlanError, match=r"Options\.lost_files needs one of 'raise', 'skip', got 'ignore'"):
        Options(lost_files="ignore")  # type: ignore[arg-type]
    assert "lost_files='raise'" in Dataset.range(3).explain()
    assert "lost_files='skip'" in Dataset.range(3).with_options(Options(lost_files="skip")).explain()
