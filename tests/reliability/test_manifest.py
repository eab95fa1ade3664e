"""The manifest of bad records: what is written to it, and what one that is fed back does."""

from __future__ import annotations

import gc
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import UNITS, BadRecord, DataError
from gpupipe.flow.bad import records as module
from gpupipe.flow.batching import resumable as resumable_batcher
from gpupipe.flow.state import checkpoints
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.serial.errors import error_from_json, error_to_json
from tests.chains.damage import decoded, events
from tests.chains.data import Spy, on, parse
from tests.reliability.bad_records import BATCH, INT, Shards, doubled, inverse, kinds_in_turn, rows_of, same, train
from tests.reliability.executors import EXECUTORS
from tests.reliability.resume import state_after, taken, through_json

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_threads_left", "quiet")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the manifest is."""
    return tmp_path / "manifest.jsonl"


def condemn(path: Path, shards: Shards, numbers: Sequence[int]) -> None:
    """Write a manifest that lists some records of shards."""
    given: dict[str, Any] = {"stage": "by hand", "reason": "blurred", "action": "raised", "epoch": 0}
    bad = [BadRecord(str(shards.path(n)), shards.offset(n), unit="offset", key=0, **given) for n in numbers]
    path.write_bytes(b"".join(map(module.line_of, bad)))


def test_several_iterators_share_a_manifest(path: Path) -> None:
    options = gp.Options(on_error="skip", error_manifest=path)
    ds = gp.Dataset.range(300).map(inverse, spec=INT).batch(7).with_options(options)
    workers = [threading.Thread(target=lambda: [None for _ in ds.iterator(0)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert sorted(offsets_in(path)) == sorted([*range(0, 300, 3)] * 4)


def offsets_in(path: Path) -> list[int]:
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()]


def test_a_manifest_of_a_run_without_bad_records_is_empty(path: Path) -> None:
    assert len(list(gp.Dataset.range(3).with_options(gp.Options(error_manifest=path)))) == 3

    assert path.read_text() == ""


def test_a_folder_that_does_not_exist_is_named_before_anything_runs(tmp_path: Path) -> None:
    calls: list[int] = []
    ds = gp.Dataset.range(3).map(lambda x: calls.append(1))

    for place, said in (
        (tmp_path / "missing" / "it", ".*missing.*create the folder"),
        (tmp_path, "a file that can be"),
    ):
        with pytest.raises(gp.PlanError, match=f"Options.error_manifest needs {said}"):
            next(iter(ds.with_options(gp.Options(error_manifest=place))))

    assert calls == []


# ---- a manifest fed back


def all_same(first: Any, second: Any, executor: str = "numpy") -> bool:
    """Whether batches of rows have the same labels and images."""
    pairs = [pair for batches in zip(first, second, strict=True) for pair in zip(*batches, strict=True)]
    return all(label == other and same(left, right, executor) for (label, left), (other, right) in pairs)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_records_of_a_manifest_are_bad_from_the_start_and_cost_no_repair(
    tmp_path: Path, path: Path, executor: str, on_error: str, spy: Spy
) -> None:
    kinds = kinds_in_turn(range(4, 64, 5))
    shards = Shards(tmp_path / "good", 64, 2).write().damaged(tmp_path / "data", kinds)
    ds = shards.dataset().batch(BATCH)
    first, items = rows_of(ds.with_options(on(executor, on_error=on_error, error_manifest=path)))
    repaired = len(spy.sizes)

    second, again = rows_of(ds.with_options(on(executor, on_error=on_error, bad_records=path)))

    assert len(spy.sizes) - repaired == len(second) < repaired
    assert all_same(first, second, executor)
    assert set(again.errors) == set(items.errors)


def test_a_manifest_counts_in_every_pass_and_epoch_and_grows_by_what_is_new(
    tmp_path: Path, path: Path, spy: Spy
) -> None:
    shards = Shards(tmp_path / "good", 24, 1).write()
    shards = shards.damaged(tmp_path / "data", {3: "DQT removed", 17: "payload changed under its CRC"})
    options = on("numpy", on_error="skip", error_manifest=path, bad_records=path)
    once = gp.TFRecordDataset(shards.path(0)).map(train).batch(8).with_options(options)

    assert [len(labels) for _, labels in once.iterator(0)] == [8, 8, 6]
    lines = path.read_text()
    before = len(spy.sizes)
    with gp.TFRecordDataset(shards.path(0)).repeat(2).map(train).batch(8).with_options(options).epochs(2) as items:
        assert sum(len(labels) for _, labels in items) == 4 * 22
        assert items.left_out == 8

    assert len(lines.splitlines()) == 2
    assert path.read_text() == lines
    assert len(spy.sizes) - before == 2 * -(-44 // 8)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds,
        lambda ds: ds.batch(4),
        lambda ds: ds.batch(4).unbatch().batch(3),
        lambda ds: gp.Dataset.zip((ds.batch(2), gp.Dataset.range(10))),
    ],
    ids=["rows", "batches", "batches again", "zipped batches"],
)
def test_what_a_manifest_lists_is_not_written_to_it_again(
    path: Path, chain: Callable[[gp.Dataset], gp.Dataset], on_error: Any
) -> None:
    ds = chain(gp.Dataset.range(20).map(inverse, spec=INT))

    first = events(ds.with_options(gp.Options(on_error=on_error, error_manifest=path)))
    lines = path.read_text()
    again = events(ds.with_options(gp.Options(on_error=on_error, error_manifest=path, bad_records=path)))

    assert len(again) == len(first)
    assert path.read_text() == lines
    assert len(lines.splitlines()) >= 6  # of a batch that is lost as a whole the first is listed


def test_a_listed_record_is_not_read_and_stays_a_hole_for_every_step(tmp_path: Path, path: Path) -> None:
    """It counts for take, skip and enumerate, passes a filter, and no function sees it."""
    shards = Shards(tmp_path / "data", 12, 1).write()
    condemn(path, shards, [5])
    seen: list[int] = []

    def look(image: Any, label: Any) -> Any:
        seen.append(int(label))
        return label

    ds = gp.TFRecordDataset(shards.path(0)).map(decoded).skip(2).take(6).filter(lambda image, label: label != 3)
    ds = ds.map(look, spec=INT).enumerate().with_options(on("numpy", on_error="skip", bad_records=path))

    with ds.iterator(0) as items:
        assert [(int(i), int(label)) for i, label in items] == [(0, 2), (1, 4), (3, 6), (4, 7)]

    assert 5 not in seen
    assert [(one.offset, one.stage, one.reason) for one in items.errors] == [(shards.offset(5), "by hand", "blurred")]


@pytest.mark.parametrize("rows", [True, False], ids=["batches", "rows"])
def test_a_stand_in_for_a_listed_record_is_no_listed_record(tmp_path: Path, path: Path, rows: bool) -> None:
    """It has the bad one's identity, and so has a batch that begins with it."""
    shards = Shards(tmp_path / "data", 9, 1).write()
    condemn(path, shards, (0, 3, 4))
    ds = gp.TFRecordDataset(shards.path(0)).map(parse).map(lambda encoded, label: label).batch(3)
    ds = ds.map(doubled, spec=gp.TensorSpec((None,), "int64")) if rows else ds.unbatch().map(lambda x: int(x) * 2)

    with ds.with_options(on("numpy", on_error="replace", bad_records=path)).iterator(0) as items:
        found = [np.asarray(x).tolist() for x in items]

    assert np.ravel(found).tolist() == [2, 2, 4, 4, 4, 10, 12, 14, 16]
    assert items.left_out == 3


@pytest.mark.parametrize("often", [True, False], ids=["after each batch", "never"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("with_it", [True, False], ids=["added", "taken away"])
def test_a_state_may_be_loaded_with_a_manifest_that_it_was_saved_without(
    tmp_path: Path, path: Path, with_it: bool, on_error: Any, often: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints.Interval, "due", lambda self, count: often)  # a new state of the input
    kinds = {5: "DQT removed", 21: "SOS naming an absent component", 30: "12 bits"}
    shards = Shards(tmp_path / "good", 48, 2).write().damaged(tmp_path / "data", kinds)
    ds = shards.dataset().batch(8).prefetch(1)
    whole, _ = rows_of(ds.with_options(on("numpy", on_error=on_error, error_manifest=path)))
    plain = ds.with_options(on("numpy", on_error=on_error))
    fed = ds.with_options(on("numpy", on_error=on_error, bad_records=path))
    before, after = (plain, fed) if with_it else (fed, plain)

    for count in range(len(whole)):
        state = state_after(before.iterator(0), count)
        with after.iterator(0) as items:
            items.load_state_dict(state)
            rest = [[(int(label), image) for label, image in zip(*pair[::-1], strict=True)] for pair in items]

        assert all_same(rest, whole[count:])


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_state_behind_a_repair_holds_no_listed_record_that_is_still_to_come(
    tmp_path: Path, path: Path, on_error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the manifest those are good again."""
    monkeypatch.setattr(checkpoints.Interval, "due", lambda self, count: True)
    kinds = {9: "DQT removed", 20: "DQT removed", 33: "DQT removed"}
    shards = Shards(tmp_path / "good", 56, 1).write().damaged(tmp_path / "data", kinds)
    blurred = (3, 14, 17, 22, 25, 40, 47, 50)
    condemn(path, shards, blurred)
    ds = gp.TFRecordDataset(shards.path(0)).map(train).batch(8)
    plain, fed = (ds.with_options(on("numpy", on_error=on_error, **more)) for more in ({}, {"bad_records": path}))
    with fed.iterator(0) as items:
        whole = batches_of(items)

    for count in range(len(whole)):
        with fed.iterator(0) as items:
            seen = batches_of(items, count)
            state = items.state_dict()
        with plain.iterator(0) as items:
            items.load_state_dict(state)
            rest = [n for batch in batches_of(items) for n in batch]

        if on_error == "replace":
            assert [n for n in blurred if n >= 8 * count and n not in rest] == []
        else:
            begin = max((n for batch in seen for n in batch), default=-1) + 1
            assert rest == [n for n in range(begin, 56) if n not in kinds]


LISTS: list[tuple[set[int], set[int]]] = [
    ({3, 9, 14}, {3, 9, 14, 1, 5, 11, 30}),
    ({3, 9, 14, 1, 5, 11, 30}, {9}),
    ({3, 9, 14}, set()),
    (set(), {0, 1, 2, 3, 4, 5, 6, 7, 20}),
    ({0, 1, 2, 12, 13}, {2, 3, 4, 15, 16, 17}),
]
"""What a manifest lists when a state is taken, and when it is loaded."""

COUNTED: dict[str, Callable[[gp.Dataset], gp.Dataset]] = {
    "batch": lambda ds: ds.map(number, spec=INT, traced=False).batch(4).unbatch(),
    "skip": lambda ds: ds.skip(1).map(number, spec=INT, traced=False).batch(3).unbatch(),
    "shuffle": lambda ds: ds.shuffle(5, seed=1).map(number, spec=INT, traced=False).batch(4).unbatch(),
    "shuffle behind": lambda ds: ds.map(number, spec=INT, traced=False).batch(2).unbatch().shuffle(7, seed=2),
    "all": lambda ds: ds.shuffle(gp.ALL, seed=1).map(number, spec=INT, traced=False).batch(4).unbatch(),
    "prefetch": lambda ds: ds.map(number, spec=INT, traced=False).batch(2).prefetch(2).unbatch(),
    "filter": lambda ds: ds.map(number, spec=INT, traced=False).filter(lambda x: x >= 0).batch(4).unbatch(),
    "threads": lambda ds: ds.map(number, spec=INT, traced=False, num_parallel_calls=2).batch(4).unbatch(),
    "windows": lambda ds: ds.map(number, spec=INT, traced=False).window(3).flat_map(lambda w: w.batch(2)).unbatch(),
    "cache": lambda ds: ds.map(number, spec=INT, traced=False).batch(4).cache().unbatch(),
}


def number(x: Any) -> Any:
    return np.frombuffer(x, np.int64)[0]


@pytest.mark.parametrize("far", [3, 17, 26])
@pytest.mark.parametrize("source", ["records", "files"])
@pytest.mark.parametrize("name", COUNTED)
def test_no_row_is_lost_or_comes_twice_when_a_manifest_changes_between_a_state_and_its_resume(
    tmp_path: Path, path: Path, name: str, source: str, far: int
) -> None:
    values = [np.int64(i).tobytes() for i in range(40)]
    (tmp_path / "files").mkdir()
    for i, value in enumerate(values):
        (tmp_path / "files" / f"{i:02}").write_bytes(value)
    with gp.io.TFRecordWriter(tmp_path / "records") as out:
        for value in values:
            out.write(value)
    rows: gp.Dataset = gp.TFRecordDataset(str(tmp_path / "records"))
    if source == "files":
        rows = gp.Dataset.list_files(str(tmp_path / "files" / "*"), shuffle=False).map(gp.io.read_file)

    def condemned(listed: set[int]) -> gp.Dataset:
        lines: list[bytes] = []
        for i in sorted(listed):
            given: dict[str, Any] = {"stage": "by hand", "reason": "blurred", "action": "raised", "epoch": 0}
            where: Any = (str(tmp_path / "records"), 24 * i, "offset", 0)
            if source == "files":
                where = (str(tmp_path / "files" / f"{i:02}"), None, "index", keys[i])
            lines.append(module.line_of(BadRecord(where[0], where[1], unit=where[2], key=where[3], **given)))
        path.write_bytes(b"".join(lines))
        return COUNTED[name](rows).with_options(on("numpy", on_error="skip", bad_records=str(path)))

    keys: list[int] = []
    if source == "files":  # as a run lists them
        broken = rows.map(lambda x: gp.ops.decode_jpeg(x)).with_options(on("numpy", on_error="skip"))
        with broken.iterator(0) as items:
            assert list(items) == []
            keys = [one.key for one in items.errors]
    first = 1 if name == "skip" else 0

    for before, after in LISTS:
        with condemned(before).iterator(0) as items:
            got = [int(next(items)) for _ in range(far)]
            state = through_json(items.state_dict())
        with condemned(after).iterator(0) as items:
            items.load_state_dict(state)
            got += [int(x) for x in items]

        assert len(set(got)) == len(got), (before, after, got)
        assert set(range(first, 40)) - set(got) <= before | after, (before, after, got)
        assert set(got[:far]).isdisjoint(before)

        for more in (0, 1, 2):  # a state of that
            with condemned(after).iterator(0) as items:
                items.load_state_dict(state)
                some = [int(x) for x in islice(items, more)]
                second = through_json(items.state_dict())
            with condemned(after).iterator(0) as items:
                items.load_state_dict(second)
                assert [*got[:far], *some, *map(int, items)] == got, (before, after, more)


@pytest.mark.parametrize("given", [True, False])
def test_a_resume_without_the_manifest_that_was_counted_with_is_logged(
    tmp_path: Path, path: Path, given: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shards = Shards(tmp_path / "data", 12, 1).write()
    condemn(path, shards, [9])
    ds = gp.TFRecordDataset(shards.path(0)).batch(4).unbatch()
    listed = ds.with_options(on("numpy", on_error="skip", bad_records=str(path)))
    state = state_after(listed.iterator(0), 1)
    condemn(path, shards, [2])
    plain = ds.with_options(on("numpy", on_error="skip"))
    with caplog.at_level(logging.WARNING, "gpupipe"), (listed if given else plain).iterator(0) as items:
        items.load_state_dict(state)
        next(items)

    assert ("Options.bad_records was given when the state was taken" in caplog.text) == (not given)


def batches_of(items: Any, count: int | None = None) -> list[list[int]]:
    """The labels of the next batches, whatever is raised in between."""
    found: list[list[int]] = []
    while count is None or len(found) < count:
        try:
            found.append(next(items)[1].tolist())
        except StopIteration:
            break
        except gp.DataError:
            continue
    return found


def test_what_a_manifest_left_out_is_forgotten_in_time(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints.Interval, "due", lambda self, count: True)
    shards = Shards(tmp_path / "data", 48, 2).write()
    condemn(path, shards, (0, 1, 6, 7, 20))
    ds = shards.dataset().repeat().batch(8).with_options(on("numpy", on_error="skip", bad_records=path))

    with ds.iterator(0) as items:
        for _ in range(600):  # about a hundred passes
            next(items)
        kept = [len(thing.holes) for thing in gc.get_objects() if type(thing) is resumable_batcher._Known]
        assert items.left_out > 400

    assert max(kept) < 150


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds.shuffle(4, seed=1).cache(),
        lambda ds: ds.shuffle(gp.ALL, seed=1),
        lambda ds: ds.map(lambda x: x, num_parallel_calls=2).window(3).flat_map(lambda w: w),
    ],
    ids=["shuffle and cache", "shuffle(ALL)", "threads and windows"],
)
def test_a_listed_record_is_gone_whatever_the_chain_does(
    tmp_path: Path, path: Path, chain: Callable[[Any], Any]
) -> None:
    shards = Shards(tmp_path / "data", 10, 1).write()
    condemn(path, shards, [4])
    records = gp.TFRecordDataset(shards.path(0))
    options = on("numpy", on_error="skip", bad_records=path)

    rest = [bytes(x) for x in chain(records).with_options(options).iterator(0)]

    assert rest == [bytes(x) for x in chain(records).iterator(0) if bytes(x) != bytes(records[4])]
    assert len(rest) == 9


def test_elements_of_arrays_are_tried_again_as_another_array_may_have_their_indices(path: Path) -> None:
    """The manifest does not grow by them either."""
    options = gp.Options(on_error="skip", error_manifest=path, bad_records=path)
    training, validation = (gp.Dataset.from_tensor_slices(x).map(inverse, spec=INT) for x in ([1, 0, 2], [1, 4, 2]))
    assert [int(x) for x in training.with_options(gp.Options(on_error="skip", error_manifest=path))] == [1, 2]
    lines = path.read_text()

    with validation.with_options(options).iterator(0) as items:
        assert [int(x) for x in items] == [1, 4, 2]
        assert items.errors == ()
    assert [int(x) for x in training.with_options(options)] == [1, 2]

    assert path.read_text() == lines


def test_a_file_that_is_one_element_is_known_by_its_path_too(tmp_path: Path, path: Path, spy: Spy) -> None:
    """Files of two folders have the same keys, as neither their order nor their draws depend on where the folder is."""
    for folder in ("training", "validation"):
        for name in ("a/0.jpg", "a/1.jpg", "b/0.jpg"):
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_bytes(encoded(picture(16, 16)))
    (tmp_path / "training" / "a" / "1.jpg").write_bytes(encoded(picture(16, 16))[:300])
    options = on("numpy", on_error="skip", error_manifest=path, bad_records=path)

    def count(folder: str) -> int:
        images = gp.image_folder(str(tmp_path / folder)).map(lambda x, i: (gp.ops.decode_jpeg(x, channels=3), i))
        return sum(len(labels) for _, labels in images.batch(3).with_options(options))

    first = count("training")
    before = len(spy.sizes)
    again = count("training")

    assert (first, again, count("validation")) == (2, 2, 3)
    assert len(spy.sizes) - before == 2  # a batch of each, and no repair
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize("source", ["TFRecord files", "a table", "a database", "image files"])
def test_a_manifest_of_any_source_is_read_again(source: str, tmp_path: Path, path: Path) -> None:
    """What is listed is not decoded again, and a second run adds no line."""
    images = [encoded(picture(16, 16)), encoded(picture(16, 16))[:300]]
    if source == "TFRecord files":
        with gp.io.TFRecordWriter(tmp_path / "data") as out:
            for image in images:
                out.write(image)
        ds: Any = gp.TFRecordDataset(tmp_path / "data")
    elif source == "a table":
        np.save(tmp_path / "data.npy", np.array(images))
        ds = gp.NumpyDataset(str(tmp_path / "data.npy"))
    elif source == "a database":
        with pytest.importorskip("lmdb").open(str(tmp_path / "data")) as database, database.begin(write=True) as out:
            for i, image in enumerate(images):
                out.put(b"%d" % i, image)
        ds = gp.LMDBDataset(str(tmp_path / "data")).map(lambda key, image: image)
    else:
        for i, image in enumerate(images):
            (tmp_path / f"{i}.jpg").write_bytes(image)
        ds = gp.Dataset.list_files(str(tmp_path / "*.jpg")).map(gp.io.read_file)
    ds = ds.map(gp.ops.decode_jpeg).batch(1)

    def events_of(**options: Any) -> tuple[int, list[tuple[int | None, str]]]:
        with iter(ds.with_options(on("numpy", on_error="skip", **options))) as items:
            return len(list(items)), [(error.offset, error.unit) for error in items.errors]

    first = events_of(error_manifest=path)
    lines = path.read_text()

    assert len(lines.splitlines()) == 1
    assert first[0] == 1
    assert events_of(bad_records=path, error_manifest=path) == first
    assert path.read_text() == lines


def test_a_unit_that_no_gpupipe_writes_becomes_one_that_a_manifest_may_have() -> None:
    """A file of elements, or a worker, may say anything."""
    for unit in UNITS:
        assert error_from_json(error_to_json(DataError("x", unit=unit))).unit == unit
    assert error_from_json({"unit": "mile"}).unit == "index"


LINE = {"file": "a", "offset": 0, "unit": "offset", "key": "0" * 16, "stage": "s", "reason": "r", "action": "raised"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"no json\n", "invalid JSON in line 1"),
        (b"[" * 60_000 + b"\n", "invalid JSON"),
        (b'{"offset": ' + b"9" * 60_000 + b"}\n", "invalid JSON|no key"),
        (b"x" * (module.LINE + 1), "a line of more than"),
        (json.dumps(LINE | {"key": "F" * 16}).encode(), "no key"),
        (json.dumps(LINE | {"offset": 1 << 63}).encode(), "an offset"),
        (json.dumps(LINE | {"epoch": 0.5}).encode(), "an epoch"),
        (json.dumps(LINE | {"file": None}).encode(), "no text under 'file'"),
        (json.dumps(LINE | {"file": "a\0b"}).encode(), "a file name"),
        (json.dumps(LINE | {"unit": "mile"}).encode(), "a unit"),
        (json.dumps(LINE | {"action": "eaten"}).encode(), "an action"),
        (json.dumps(LINE).encode() + b"\n\n" + json.dumps(LINE)[1:40].encode(), "invalid JSON in line 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_manifest_is_checked(path: Path, text: bytes, complaint: str) -> None:
    path.write_bytes(text)

    with pytest.raises(gp.PlanError, match=rf"Options\.bad_records needs .*(?:{complaint})"):
        next(iter(gp.Dataset.range(3).with_options(gp.Options(bad_records=path))))


def test_a_manifest_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(gp.PlanError, match=r"Options\.bad_records needs a manifest, got .*missing\.jsonl"):
        next(iter(gp.Dataset.range(3).with_options(gp.Options(bad_records=tmp_path / "missing.jsonl"))))


def test_the_number_of_records_of_a_manifest_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS", 3)
    path.write_text((json.dumps(LINE) + "\n") * 3)

    assert len(module.read_manifest(str(path))) == 1
    path.write_text((json.dumps(LINE) + "\n") * 4)
    with pytest.raises(gp.PlanError, match="more than 3 records"):
        module.read_manifest(str(path))


# ---- what cannot be written or read


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("error_manifest", value) for value in (5, "", b"bytes")),
        ("bad_records", "a\0b"),
        *(("max_bad", value) for value in (-1, 1.5, float("nan"), True, "many")),
        *(("read_timeout", value) for value in (0, -1, float("nan"), 1e9, "3")),
        ("lost_files", "ignore"),
    ],
)
def test_options_that_mean_nothing_are_refused(name: str, value: Any) -> None:
    with pytest.raises(gp.PlanError, match=f"Options.{name} needs"):
        gp.Options(**{name: value})


@pytest.mark.parametrize("option", ["error_manifest", "bad_records"])
def test_a_fifo_is_no_manifest(option: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    ds = gp.Dataset.range(3).with_options(gp.Options(**{option: str(tmp_path / "fifo")}))  # type: ignore[arg-type]
    with pytest.raises(gp.PlanError, match=f"{option} needs a regular file"):
        next(iter(ds))


def test_a_torn_line_of_a_manifest_costs_that_line_only(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ds = gp.Dataset.range(20).map(lambda x: int(x) if int(x) % 5 != 2 else 1 // 0, spec=INT)

    def bad(**options: Any) -> list[int | None]:
        with iter(ds.with_options(gp.Options(on_error="skip", **options))) as items:
            list(items)
            return [record.offset for record in items.errors]

    bad(error_manifest=path)
    path.write_bytes(path.read_bytes()[:-30])
    assert bad(error_manifest=path) == [2, 7, 12, 17]
    lines = path.read_bytes().splitlines()
    assert len(lines) == 8
    assert json.loads(lines[4])["offset"] == 2
    with caplog.at_level(logging.WARNING, "gpupipe"):
        assert bad(bad_records=path) == [2, 7, 12, 17]
    assert "line 4 is torn" in caplog.text


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("images", [False, True], ids=["arrays", "images"])
def test_of_a_batch_that_does_not_stack_the_row_that_is_named_is_the_one_that_is_bad(
    images: bool, backend: Any
) -> None:
    widths = [24 if i == 5 else 16 for i in range(12)]
    if images:
        files = [encoded(picture(16, width)) for width in widths]
        ds = gp.Dataset.from_tensor_slices((files, np.arange(12)))
        ds = ds.map(lambda file, i: (gp.ops.decode_jpeg(file, channels=3), i)).batch(4)
    else:
        ds = gp.Dataset.from_generator(lambda: ((np.zeros(width), i) for i, width in enumerate(widths))).batch(4)

    with iter(ds.with_options(gp.Options(device="cpu", backend=backend, on_error="skip"))) as items:
        given = [i for _, numbers in items for i in numbers.tolist()]

    assert given == [0, 1, 2, 3, 8, 9, 10, 11]
    assert items.errors[0].offset == 5


@pytest.mark.parametrize(("on_error", "where"), [*(("raise", i) for i in range(8)), *(("skip", i) for i in range(4))])
def test_a_batch_that_failed_is_listed_once_wherever_among_its_rows_a_run_is_resumed(
    tmp_path: Path, on_error: Literal["raise", "skip"], where: int
) -> None:
    shapes = [(0,), (1,), (1,), (1,), (2,), (3,), (4,), (4,)]
    rows = gp.Dataset.from_generator(lambda: iter([np.zeros(shape, np.int64) for shape in shapes]))

    def opened(manifest: str) -> Any:
        options = gp.Options(on_error=on_error, error_manifest=tmp_path / manifest, device="cpu")
        pairs = rows.bucket_by_sequence_length(lambda x: 1, [10], [2, 2], no_padding=True)
        return iter(pairs.unbatch().with_options(options))

    with opened("whole") as items:
        whole, left_out = taken(items), items.left_out
    with opened("resumed") as items:
        first, state = taken(items, where), items.state_dict()
    with opened("resumed") as items:
        items.load_state_dict(state)
        assert first + taken(items) == whole
        assert items.left_out == left_out

    assert offsets_in(tmp_path / "whole") == [1, 5]
    assert (tmp_path / "resumed").read_text() == (tmp_path / "whole").read_text()
