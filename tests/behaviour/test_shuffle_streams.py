"""shuffle(gp.ALL, streams=, window=): every element once, the law of the order, ranks that read few files."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from benchmarks.suites.far_store import MANIFEST, Store, stored
from gpupipe import Dataset, PlanError, TFRecordDataset
from gpupipe.extract.records.manifest import BLOCK, Manifest
from gpupipe.extract.records.manifest_offsets import Offsets
from gpupipe.flow.order.permutation import Permutation
from gpupipe.flow.order.streams import StreamOrder
from gpupipe.flow.sources import far_records
from gpupipe.optimize.rules.plan_rules import PLAN_RULES
from gpupipe.random import hash64, mix64
from tests.behaviour.manifests import written


def by_the_law(sizes: list[int], streams: int, window: int, key: int) -> list[int]:
    """The order, as the docstring of `StreamOrder` says it, element by element."""
    starts = np.cumsum([0, *sizes])
    order = Permutation(len(sizes), mix64(key, hash64("parts")))(np.arange(len(sizes))).tolist()
    line = [int(starts[part]) + i for part in order for i in range(sizes[part])]
    n = len(line)
    lengths = [n // streams + (c < n % streams) for c in range(streams)]
    found = []
    for i in range(n):
        c, j = i % streams, i // streams
        shift = window * c // streams
        w = next(w for w in range(n + 1) if w * window - shift <= j < (w + 1) * window - shift)
        places = [k for k in range(w * window - shift, (w + 1) * window - shift) if 0 <= k < lengths[c]]
        at = int(Permutation(len(places), mix64(mix64(key, c), w))(np.array([places.index(j)]))[0])
        found.append(line[sum(lengths[:c]) + places[at]])
    return found


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 9), st.integers(1, 9), st.integers(0, (1 << 64) - 1))
@settings(max_examples=60, deadline=None)
def test_an_order_is_what_the_law_says_and_has_every_element_once(
    sizes: list[int], streams: int, window: int, key: int
) -> None:
    order = StreamOrder(np.array(sizes, np.int64), streams, window, key)

    found = order(np.arange(sum(sizes))).tolist()

    assert found == by_the_law(sizes, streams, window, key)
    assert sorted(found) == list(range(sum(sizes)))


def test_the_files_of_a_stream_are_counted() -> None:
    sizes = np.array([100, 0, 3, 5000, 77, 40])
    order, ends = StreamOrder(sizes, 7, 50, 11), np.cumsum(sizes)

    for stream in range(7):
        files = np.searchsorted(ends, order(np.arange(stream, 5220, 7)), side="right")
        assert order.parts_of(stream) == len(np.unique(files))
    assert StreamOrder(np.array([2]), 3, 1, 1).parts_of(2) == 0


def chain(tmp_path_files: list[str]) -> Dataset:
    return TFRecordDataset(tmp_path_files).shuffle(gp.ALL, seed=3, streams=64, window=1000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """20 files of 90 to 109 records, and their manifest."""
    manifest, paths, _ = written(tmp_path_factory.mktemp("d"), list(range(90, 110)))
    return manifest, paths


def batches(ds: Dataset, epoch: int = 1) -> list[list[bytes]]:
    return [list(map(bytes, batch)) for batch in ds.iterator(epoch=epoch)]


@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_global_batches_are_equal_for_any_number_of_ranks(files: tuple[str, list[str]], ranks: int) -> None:
    ds = chain(files[1]).batch(128, drop_remainder=True)

    shares = [batches(ds.by_rank(rank, ranks, check=False)) for rank in range(ranks)]

    whole = batches(ds)
    assert len(whole) == 1990 // 128
    assert [[shares[i % ranks][b][i // ranks] for i in range(128)] for b in range(len(whole))] == whole


def test_files_and_their_manifest_give_the_same_order(files: tuple[str, list[str]]) -> None:
    near = chain(files[1]).map(lambda record: record)
    far = TFRecordDataset.from_manifest(files[0]).map(lambda x: x).shuffle(gp.ALL, seed=3, streams=64, window=1000)

    whole = [bytes(x) for x in near.epoch(4)]

    for epoch in (4, 7):  # where every epoch is the same, it is epoch 0
        fixed = TFRecordDataset(files[1]).shuffle(gp.ALL, 3, False, streams=64, window=1000)
        assert [bytes(x) for x in fixed.epoch(epoch)] == [bytes(x) for x in near.epoch(0)]
    assert [bytes(x) for x in far.epoch(4)] == whole
    assert sorted(whole) == sorted(bytes(x) for x in TFRecordDataset(files[1]))
    assert [bytes(x) for x in far.epoch(5)] != whole
    assert [bytes(far.epoch(4)[i]) for i in (0, 77, 1989)] == [whole[i] for i in (0, 77, 1989)]


STEPS: dict[str, Callable[[Dataset], Dataset]] = {
    "take": lambda ds: ds.take(-1),
    "skip": lambda ds: ds.skip(0),
    "repeat": lambda ds: ds.repeat(1),
    "shard": lambda ds: ds.shard(1, 0),
    "even shard": lambda ds: ds.shard(1, 0, even="drop"),
    "prefetch": lambda ds: ds.prefetch(2),
    "map": lambda ds: ds.map(lambda x: x),
    "a map in Python": lambda ds: ds.map(bytes, traced=False, num_parallel_calls=2),
    "all": lambda ds: ds.skip(0).map(lambda x: x).take(-1).repeat(1).prefetch(1),
}
"""Steps that leave elements and their order as they are."""


@pytest.mark.parametrize("name", STEPS)
def test_files_are_known_behind_steps_that_change_nothing_whatever_rules_fire(
    files: tuple[str, list[str]], name: str
) -> None:
    whole = [bytes(x) for x in chain(files[1]).epoch(2)]
    ds = STEPS[name](TFRecordDataset(files[1])).shuffle(gp.ALL, seed=3, streams=64, window=1000)

    for rules in ((), tuple(rule.__name__ for rule in PLAN_RULES)):
        assert [bytes(x) for x in ds.with_options(gp.Options(disabled_rules=rules)).epoch(2)] == whole


def test_a_rank_reads_a_part_of_the_files_and_nearly_in_sequence(files: tuple[str, list[str]]) -> None:
    ds = TFRecordDataset(files[1]).shuffle(gp.ALL, seed=3, streams=8, window=50).batch(64)

    seen = [{row.split(b":")[0] for batch in batches(ds.by_rank(r, 8, check=False)) for row in batch} for r in range(8)]

    assert max(map(len, seen)) <= 5
    assert set.union(*seen) == {b"%d" % i for i in range(20)}


def test_one_rank_of_1024_reads_few_of_10_000_files_and_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    files, each, length = 10_000, 100_000, 100
    counts = np.full(files, each)
    manifest = Manifest("m", ("",) * files, counts * length, counts, np.zeros(files, np.uint64), "", "", "")
    asked: list[int] = []

    def read(self: Manifest, start: int, stop: int) -> bytes:
        file, at = divmod(start - 8, 8 * (each + 2 * -(-each // BLOCK)))
        out, number = b"", at // (8 * (BLOCK + 2))
        while len(out) < stop - start:
            first = number * BLOCK
            block = (np.arange(first, min(first + BLOCK, each) + 1, dtype="<u8") * length).tobytes()
            out, number = out + block + crc32c(block).to_bytes(8, "little"), number + 1
        asked.append(file)
        return out

    monkeypatch.setattr(Manifest, "read", read)
    order, offsets, held = StreamOrder(counts, 1024, 10_000, 5), Offsets(manifest, None), 0
    of_the_rank = np.arange(517, len(manifest), 1024)
    for start in range(0, len(of_the_rank), 4096):
        found = order(of_the_rank[start : start + 4096])
        starts, stops, errors = offsets.spans(found // each, found % each)
        held = max(held, order.nbytes + offsets.nbytes)
        assert not errors
        assert (starts == found % each * length).all()
        assert (stops - starts == length).all()

    assert len(manifest) == 10**9
    assert len(set(asked)) <= 12
    assert held <= 1_000_000
    assert len(asked) <= 3 * len(of_the_rank) // 4096


@pytest.mark.parametrize(
    ("room", "window", "least", "most"),
    [(8 << 20, 200, 0.06, 0.07), (2 << 20, 200, 0.06, 0.07), (8_000_000, 800, 0.06, 0.07), (1 << 19, 200, 0.9, 1.1)],
)
def test_a_rank_reads_each_range_once_where_two_windows_fit_and_else_record_by_record(
    monkeypatch: pytest.MonkeyPatch, room: int, window: int, least: float, most: float
) -> None:
    monkeypatch.setattr(far_records, "RANGE", 16 << 10)
    with stored(Store(16, 1500, 1000)) as store:
        ds = TFRecordDataset.from_manifest(MANIFEST).shuffle(gp.ALL, seed=1, streams=4, window=window)
        rank = ds.batch(100).by_rank(1, 4, check=False).with_options(gp.Options(host_memory=room))
        store.requests = store.sent = 0

        found = sum(len(batch) for batch in rank)

        assert found == 6000
        assert least <= store.requests / found <= most
        assert store.sent / found / 1000 <= 1.03


def test_elements_without_files_are_shuffled_in_runs_of_neighbours() -> None:
    ds = Dataset.range(1000).shuffle(gp.ALL, seed=1, streams=2, window=10)

    found = [int(x) for x in ds.epoch(0)]

    assert sorted(found) == list(range(1000))
    windows = found[0:20:2], found[1:11:2], found[11:31:2]  # the first of stream 1 is half as long
    assert [len({x // 10 for x in window}) for window in windows] == [1, 1, 2]
    assert found[:20] != sorted(found[:20])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"buffer_size": 10, "streams": 2}, "shuffle needs gp.ALL with streams=2, got buffer_size=10"),
        ({"buffer_size": gp.ALL, "streams": 0}, "streams >= 1"),
        ({"buffer_size": gp.ALL, "streams": 2, "window": 0}, "window >= 1"),
        ({"buffer_size": gp.ALL, "window": 3}, "shuffle needs streams with window=3, got none"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        Dataset.range(9).shuffle(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "streams"), [(700, 5), (700, 1 << 20), (1 << 55, 2**63 - 1), (1 << 62, 1), (2**63 - 1, 5)]
)
def test_a_window_may_be_larger_than_any_stream(window: int, streams: int) -> None:
    found = [int(x) for x in Dataset.range(1000).shuffle(gp.ALL, seed=1, streams=streams, window=window)]

    assert sorted(found) == list(range(1000))
    assert streams > 5 or found != sorted(found)
