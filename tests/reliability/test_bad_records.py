"""A data set with 1 % bad records of twelve kinds: exactly those are gone or replaced, and each is listed once."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import BadRecord, TooManyBadError
from gpupipe.flow.bad import records as module
from gpupipe.transform.machine import gpu_count, has_dali
from tests.chains.damage import decoded, events
from tests.chains.data import Spy, on
from tests.reliability.bad_records import (
    BAD,
    BATCH,
    DECODER_ONLY,
    INT,
    STAGES,
    Shards,
    flipped,
    has_flipped_bits,
    host,
    inverse,
    kinds_in_turn,
    photograph,
    rows_of,
    same,
    train,
    without,
)
from tests.reliability.executors import EXECUTORS
from tests.reliability.resume import taken

COUNT = 1_200
FILES = 4

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("no_threads_left", "quiet")]


@dataclass(frozen=True)
class Clean:
    """The undamaged data set, and what every executor makes of it.

    Attributes:
        shards: its files.
        order: labels as they are delivered.
        images: by executor and label.
    """

    shards: Shards
    order: list[int]
    images: dict[str, dict[int, Any]]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    shards = Shards(tmp_path_factory.mktemp("reliability") / "data", COUNT, FILES).write()
    images: dict[str, dict[int, Any]] = {}
    for executor in ("numpy", *(["dali"] if has_dali() else []), *(["gpu"] if has_dali() and gpu_count() else [])):
        batches, _ = rows_of(shards.dataset().batch(BATCH).with_options(on(executor)))
        images[executor] = dict(row for batch in batches for row in batch)
    return Clean(shards, list(images["numpy"]), images)


# ---- where the bad ones stand, as places in the order in which records are delivered


PLACES: dict[str, Callable[[int], list[int]]] = {
    "one per hundred": lambda count: sorted(
        np.random.default_rng(7).choice(count, count // 100, replace=False).tolist()
    ),
    "several in one batch": lambda count: [*range(35, 41), *range(50, 56)],
    "a whole batch": lambda count: list(range(3 * BATCH, 4 * BATCH)),
    "the first and the last batch": lambda count: [*range(BATCH), *range(count - BATCH, count)],
}


def expected(order: Sequence[int], bad: set[int], on_error: str) -> list[list[int]]:
    """Labels of the batches, by what `on_error` means."""
    rows: list[int] = []
    early = 0
    for label in order:
        if label not in bad:
            rows += [label] * (early + 1)
            early = 0
        elif on_error == "replace":
            if rows:
                rows.append(rows[-1])
            else:
                early += 1
    return [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("places", PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("executor", EXECUTORS)
def test_exactly_the_bad_ones_are_gone_or_replaced_and_each_is_listed_once(
    clean: Clean, tmp_path: Path, executor: str, places: Callable[[int], list[int]], on_error: str
) -> None:
    order = clean.order
    kinds = kinds_in_turn(order[place] for place in places(len(order)))
    shards = clean.shards.damaged(tmp_path / "data", kinds)
    manifest = tmp_path / "manifest.jsonl"
    ds = shards.dataset().batch(BATCH).prefetch(2)

    found, items = rows_of(ds.with_options(on(executor, on_error=on_error, error_manifest=manifest)))

    assert [[label for label, _ in batch] for batch in found] == expected(order, set(kinds), on_error)
    # Every good one is what it is in the undamaged files; a stand-in, perhaps the first, is another crop of its image.
    first = next(label for label in order if label not in kinds) if on_error == "replace" and order[0] in kinds else -1
    seen: set[int] = set()
    for label, image in (row for batch in found for row in batch):
        unlike = executor == "gpu" and has_flipped_bits(label)  # its decoders decode alone and in a batch differently
        if label not in seen and not unlike and label != first:
            assert same(image, clean.images[executor][label], executor), label
        seen.add(label)
    # Each bad one is listed once, with its place and the step that failed.
    errors = items.errors
    assert items.left_out == len(errors) == len(kinds)
    assert [json.loads(line) for line in manifest.read_text().splitlines()] == [as_json(one) for one in errors]
    by_place = {(one.file, one.offset): one for one in errors}
    assert sorted(by_place) == sorted((str(shards.path(n)), shards.offset(n)) for n in kinds)
    for number, kind in kinds.items():
        one = by_place[str(shards.path(number)), shards.offset(number)]
        assert one.stage == STAGES.get(kind, "decode_jpeg")
        assert one.action == ("left out" if on_error == "skip" else "replaced")
        assert one.unit == "offset" and one.epoch == 0 and one.reason
    assert len({one.key for one in errors}) == len(kinds)


def as_json(one: BadRecord) -> dict[str, Any]:
    names = ("file", "offset", "unit", "key", "stage", "reason", "action", "epoch")
    return {name: f"{one.key:016x}" if name == "key" else getattr(one, name) for name in names}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", BAD, ids=list(BAD))
def test_a_kind_is_seen_where_it_can_be_seen(tmp_path: Path, executor: str, kind: str, spy: Spy) -> None:
    """On the host, before the executor gets a batch that would have to be repaired; or only by the decoder."""
    shards = Shards(tmp_path / "good", 32, 1).write().damaged(tmp_path / "data", {9: kind})
    ds = gp.TFRecordDataset(shards.path(0)).map(train).batch(BATCH).with_options(on(executor, on_error="skip"))

    labels = [label for batch in rows_of(ds)[0] for label, _ in batch]

    assert labels == [n for n in range(32) if n != 9]
    assert (spy.decoded > 32) == (kind in DECODER_ONLY)


FLIPPED: dict[str, tuple[int, Callable[[int], bytes], str]] = {
    "4:2:0": (50, photograph, "all"),
    "4:4:4": (50, lambda n: photograph(n, subsampling=0), "all"),
    "restart markers": (50, lambda n: photograph(n, restart_marker_blocks=2), "all"),
    "CMYK": (50, lambda n: photograph(n, "CMYK"), "all"),
    "progressive, 1 bit": (1, lambda n: photograph(n, progressive=True), "some"),
    "progressive": (50, lambda n: photograph(n, progressive=True), "few"),
}


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
@pytest.mark.parametrize(("bits", "make", "good"), FLIPPED.values(), ids=list(FLIPPED))
def test_the_executors_agree_which_damaged_images_are_bad(
    bits: int, make: Callable[[int], bytes], good: str, request: pytest.FixtureRequest
) -> None:
    """A flipped bit may make a marker, at which libjpeg fails: behind the last row of a baseline image (one in a
    thousand of these), before the first one of a progressive image, where there may have been a warning before."""
    files = [flipped(make(n), bits) for n in range(640 if good == "all" else 192)]
    ds = gp.Dataset.from_tensor_slices({"data": files, "number": np.arange(len(files))})
    ds = ds.map(lambda x: (ops.decode_jpeg(x["data"], channels=3), x["number"])).batch(64)
    numpy, dali = (
        dict(row for batch in rows_of(ds.with_options(on(executor, on_error="skip")))[0] for row in batch)
        for executor in ("numpy", "dali")
    )

    assert sorted(numpy) == sorted(dali)
    assert {"all": len(numpy) == len(files), "some": 0 < len(numpy) < len(files), "few": len(numpy) < 20}[good]
    # Where libjpeg fails at a CMYK image, DALI's next decoder takes over, whose conversion to RGB rounds otherwise.
    most = 2 if "CMYK" in request.node.name else 0
    assert all(np.abs(image.astype(int) - dali[number]).max() <= most for number, image in numpy.items())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_progressive_image_whose_damage_swallows_its_end_is_bad(executor: str) -> None:
    """A marker with a length in its last scan: libjpeg passes over the end of the file."""
    data = photograph(1, progressive=True)
    last = data.rindex(b"\xff\xda")
    at = last + 2 + int.from_bytes(data[last + 2 : last + 4], "big")
    damaged = data[:at] + b"\xff\xe1\xff\xf0" + data[at + 4 :]
    ds = gp.Dataset.from_tensor_slices({"data": [data, damaged]}).map(lambda x: ops.decode_jpeg(x["data"], channels=3))

    with ds.batch(2).with_options(on(executor, on_error="skip")).iterator(0) as items:
        assert [len(images) for images in items] == [1]

    assert [one.stage for one in items.errors] == ["decode_jpeg"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_cmyk_is_what_its_ink_says_with_adobes_marker_and_without(executor: str) -> None:
    """Adobe stores CMYK inverted, and only the marker says so."""
    pixels = np.random.default_rng(1).integers(0, 256, (6, 8, 4), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels, "CMYK").resize((64, 48)).save(stream, "JPEG", quality=95)
    files = [stream.getvalue(), without(stream.getvalue(), 0xEE)]
    ink = np.asarray(Image.open(io.BytesIO(files[0]))).astype(int)  # Pillow: 255 is all ink
    ds = gp.Dataset.from_tensor_slices({"data": files}).map(lambda x: ops.decode_jpeg(x["data"], channels=3)).batch(2)

    ((first, second),) = [host(images).astype(int) for images in ds.with_options(on(executor)).iterator(0)]

    most = 3 if executor == "gpu" else 0
    assert np.abs(first - (255 - ink[..., :3]) * (255 - ink[..., 3:]) // 255).max() <= most
    assert np.abs(second - ink[..., :3] * ink[..., 3:] // 255).max() <= most


# ---- what is listed


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_is_raised_is_listed_once_when_it_reaches_the_user(tmp_path: Path, executor: str) -> None:
    kinds = kinds_in_turn(range(3, 39, 3))
    shards = Shards(tmp_path / "good", 48, 1).write().damaged(tmp_path / "data", kinds)
    ds = gp.TFRecordDataset(shards.path(0)).map(train).batch(8).prefetch(2)
    raised: list[int | None] = []

    with ds.with_options(on(executor, error_manifest=tmp_path / "m")).iterator(0) as items:
        while True:
            try:
                next(items)
            except StopIteration:
                break
            except gp.DataError as error:
                raised.append(error.offset)
                assert items.errors[-1].offset == error.offset and len(items.errors) == len(raised)

    assert sorted(raised, key=str) == sorted(map(shards.offset, kinds), key=str)
    assert [one.action for one in items.errors] == ["raised"] * 12
    assert items.left_out == 0
    assert [json.loads(line)["offset"] for line in (tmp_path / "m").read_text().splitlines()] == raised


HOLES: dict[str, Callable[[gp.Dataset], gp.Dataset]] = {
    "batch": lambda ds: ds.batch(4),
    "no batch": lambda ds: ds,
    "threads": lambda ds: ds.map(lambda x: x, num_parallel_calls=2).batch(4),
    "window": lambda ds: ds.window(3).flat_map(lambda w: w.batch(3)),
    "ignore_errors": lambda ds: ds.ignore_errors().batch(4),
    "padded_batch": lambda ds: ds.padded_batch(4),
    "shuffle": lambda ds: ds.shuffle(5).batch(4).prefetch(2),
    "cache": lambda ds: ds.cache().batch(4),
    "zip": lambda ds: gp.Dataset.zip(gp.Dataset.range(12), ds).batch(4),
}


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("way", HOLES.values(), ids=list(HOLES))
def test_python_functions_and_every_way_out_of_a_chain(way: Callable[[gp.Dataset], gp.Dataset], on_error: str) -> None:
    ds = way(gp.Dataset.range(12).map(inverse, spec=INT)).with_options(gp.Options(on_error=on_error))  # type: ignore[arg-type]

    items = ds.iterator(0)
    list(items)

    assert sorted(offsets(items)) == [0, 3, 6, 9]
    assert all(one.stage == "map" and "ZeroDivisionError" in one.reason for one in items.errors)
    assert items.left_out == 4


def test_every_pass_lists_its_own_also_behind_a_cache() -> None:
    ds = gp.Dataset.range(7).map(inverse, spec=INT).cache().repeat(2).with_options(gp.Options(on_error="skip"))

    first, second = ds.iterator(0), ds.iterator(1)
    for items in (first, second):
        assert [int(x) for x in items] == [1, 2, 4, 5] * 2

    for items, epoch in ((first, 0), (second, 1)):
        assert [one.offset for one in items.errors] == [0, 3, 6] * 2
        assert [one.epoch for one in items.errors] == [epoch] * 6
        assert len({one.key for one in items.errors}) == 6
    assert {one.key for one in first.errors} == {one.key for one in second.errors}


def test_a_row_of_a_lost_batch_is_listed_by_its_own_identity(tmp_path: Path) -> None:
    """Zipped batches go as a whole; what is listed is the row, as it is where nothing is zipped."""
    shards = Shards(tmp_path / "good", 12, 1).write().damaged(tmp_path / "data", {6: "SOS naming an absent component"})
    records = gp.TFRecordDataset(shards.path(0)).map(decoded)
    plain = records.batch(4).with_options(on("numpy", on_error="skip")).iterator(0)
    zipped = (
        gp.Dataset.zip(records.batch(4), gp.Dataset.range(3)).with_options(on("numpy", on_error="skip")).iterator(0)
    )

    assert len(list(plain)) == 3 and len(list(zipped)) == 2

    assert plain.errors == zipped.errors
    assert [one.offset for one in plain.errors] == [shards.offset(6)]


def test_memory_is_bounded_and_everything_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.KEPT == 10_000
    ds = gp.Dataset.range(10_500).map(lambda x: 1 // 0, spec=INT).with_options(gp.Options(on_error="skip"))

    with ds.iterator(0) as items:
        assert list(items) == []

    assert items.left_out == 10_500
    assert [one.offset for one in items.errors] == list(range(500, 10_500))


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize(("way", "ahead"), [("shuffle", True), ("window", True), ("cache", False), ("threads", False)])
def test_what_was_listed_before_a_state_is_not_listed_behind_it(on_error: str, way: str, ahead: bool) -> None:
    """What was taken ahead of the last delivered batch is met again, and nothing else."""
    ds = HOLES[way](gp.Dataset.range(40).map(inverse, spec=INT)).with_options(gp.Options(on_error=on_error))  # type: ignore[arg-type]
    items = ds.iterator(0)
    list(items)
    everything = offsets(items)

    for count in (1, 3, 5):
        with ds.iterator(0) as items:
            taken(items, count)
            state, before = items.state_dict(), offsets(items)
        with ds.iterator(0) as items:
            items.load_state_dict(state)
            list(items)
            behind = offsets(items)

        assert sorted({*before, *behind}) == sorted(everything) == list(range(0, 40, 3))
        assert len(behind) == len(set(behind))
        assert ahead or len(before) + len(behind) == items.left_out == len(everything)


def offsets(items: Any) -> list[int]:
    return [one.offset or 0 for one in items.errors]


def test_a_reason_of_any_length_is_cut() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("x" * 100_000)

    with gp.Dataset.range(1).map(fail, spec=INT).with_options(gp.Options(on_error="skip")).iterator(0) as items:
        assert list(items) == []

    assert len(items.errors[0].reason) == 500


def test_a_chain_that_gives_up_before_its_first_good_element_lists_what_it_saw() -> None:
    items = gp.Dataset.range(500).map(lambda x: 1 // 0).iterator(0)
    with items, pytest.raises(gp.DataError, match="and so did the next 99"):
        next(items)

    assert [one.offset for one in items.errors] == list(range(100))
    assert {one.action for one in items.errors} == {"raised"}


# ---- too many


def test_too_many_bad_elements_end_the_iterator_and_their_causes_are_counted() -> None:
    def fail(x: Any) -> Any:
        if x % 3 == 0:
            raise ValueError(f"no {int(x)} today")
        return 7 // (int(x) % 3 - 2)

    ds = gp.Dataset.range(100).map(fail, spec=INT).with_options(gp.Options(on_error="skip", max_bad=5))

    with ds.iterator(0) as items:
        with pytest.raises(TooManyBadError) as raised:
            list(items)
        with pytest.raises(gp.ClosedError, match="was ended by a TooManyBadError"):
            next(items)

    text = str(raised.value)
    assert "6 bad elements were left out or replaced, and Options.max_bad=5 allows 5" in text
    assert "3 x map: raised ValueError: no N today; 3 x map: raised ZeroDivisionError" in text
    assert "The last one: range at index 8" in text
    assert not isinstance(raised.value, gp.DataError)
    assert len(items.errors) == 6


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_too_many_in_a_transform_stage(tmp_path: Path, executor: str, on_error: str) -> None:
    kinds = dict.fromkeys(range(20, 40), "DQT removed")
    shards = Shards(tmp_path / "good", 64, 1).write().damaged(tmp_path / "data", kinds)
    ds = gp.TFRecordDataset(shards.path(0)).map(train).batch(8).prefetch(2)

    items = ds.with_options(on(executor, on_error=on_error, max_bad=9)).iterator(0)
    with items, pytest.raises(TooManyBadError, match=r"10 bad elements.*10 x decode_jpeg"):
        list(items)
    with ds.with_options(on(executor, on_error=on_error, max_bad=20)).iterator(0) as items:
        assert sum(len(labels) for _, labels in items) == (44 if on_error == "skip" else 64)


def test_an_endless_chain_of_bad_elements_ends() -> None:
    ds = gp.Dataset.range(10).map(lambda x: 1 // 0, spec=INT).repeat().ignore_errors()

    with (
        ds.with_options(gp.Options(max_bad=0.01)).iterator(0) as items,
        pytest.raises(TooManyBadError, match="of the last 101"),
    ):
        next(items)


@pytest.mark.parametrize("batch", [0, 10], ids=["elements", "batches"])
@pytest.mark.parametrize(("every", "most", "fine"), [(90, 0.02, True), (30, 0.02, False), (30, 0.05, True)])
def test_a_share_is_one_of_the_last_ten_thousand(batch: int, every: int, most: float, fine: bool) -> None:
    """The 100 that are always allowed come first; a share of 2 % is 200 of 10,000."""
    ds = gp.Dataset.range(24_000).map(lambda x: x if int(x) % every else 1 // 0, spec=INT)
    ds = (ds.batch(batch) if batch else ds).with_options(gp.Options(on_error="skip", max_bad=most))

    with ds.iterator(0) as items:
        if fine:
            assert sum(np.size(x) for x in items) == 24_000 - -(-24_000 // every)
            assert items.left_out == -(-24_000 // every)
        else:
            with pytest.raises(TooManyBadError, match="201 of the last"):
                list(items)


def test_what_is_raised_is_never_too_many() -> None:
    ds = gp.Dataset.range(9).map(inverse, spec=INT).with_options(gp.Options(max_bad=0))

    assert len([x for x in events(ds) if isinstance(x, gp.DataError)]) == 3
