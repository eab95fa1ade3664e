"""ds[i], slices, len and skip by index: what iterating gives, without reading what lies before."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.shards.samples import SAMPLES
from gpupipe.flow.combine.interleave import InterleaveOrder
from gpupipe.spec import flatten
from tests.behaviour.model import fails_where
from tests.chains.damage import jpeg, write
from tests.extract.archives import archive
from tests.reliability.resume import goes_on, plain

SIZES = [5, 0, 9, 1, 13, 3]
Range = gp.Dataset.range
Slices = gp.Dataset.from_tensor_slices
Records = gp.TFRecordDataset
NUMBER = gp.TensorSpec((), "int64")
CPU = gp.Options(device="cpu", backend="numpy")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    for known in (INDEXES, SAMPLES.indexes):
        known.clear()
    yield
    for known in (INDEXES, SAMPLES.indexes):
        known.clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    for i, size in enumerate(SIZES):
        write(folder / f"f{i}.tfrecord", [b"%d-%d" % (i, j) * (j + 1) for j in range(size)])
        members = [(f"{i}/{j}.{name}", name.encode() * (j + 1)) for j in range(size) for name in ("jpg", "txt")]
        archive(folder / f"f{i}.tar", members)
    return folder


def files(folder: Path) -> list[str]:
    return [str(folder / f"f{i}.tfrecord") for i in range(len(SIZES))]


def samples(folder: Path, **how: Any) -> gp.Dataset:
    names = [str(folder / f"f{i}.tar") for i in range(len(SIZES))]
    return gp.WebDataset(names, {"key": "__key__", "text": "txt;text"}, **how)


def listed(folder: Path) -> gp.Dataset:
    return gp.Dataset.list_files(str(folder / "*.tfrecord"), seed=1)


def with_number(*xs: Any) -> Any:
    """The element with what a random op draws for it, which depends on its identity."""
    return *xs[:-1], xs[-1].integers(1 << 40)


def swapped(x: Any, y: Any) -> Any:
    """A function that is not traced."""
    return int(y), int(x)


def shown(element: Any) -> Any:
    """An element with the classes of its leaves, as something that `==` compares."""
    return [type(leaf) for leaf in flatten(element)[0]], plain(element)


def each(elements: Any) -> list[Any]:
    """Elements, or those of epoch 0 of a dataset."""
    return [shown(x) for x in (elements.iterator(epoch=0) if isinstance(elements, gp.Dataset) else elements)]


def drawn(ds: gp.Dataset) -> gp.Dataset:
    return ds.map(with_number, rng=True)


CHAINS: dict[str, Callable[[Path], gp.Dataset]] = {
    "range": lambda d: Range(5, 40, 4),
    "slices": lambda d: drawn(Slices(np.arange(7))),
    "slices of paths": lambda d: drawn(Slices(["a/x", "b/x", "a/x", "c/y"])),
    "list_files": lambda d: drawn(listed(d)),
    "records of one file": lambda d: drawn(Records(files(d)[4])),
    "file after file": lambda d: drawn(Records(files(d))),
    "in parallel": lambda d: drawn(Records(files(d), num_parallel_reads=3)),
    "samples": lambda d: drawn(samples(d)),
    "samples, shuffle ALL": lambda d: drawn(samples(d).shuffle(gp.ALL, seed=5)),
    "interleave": lambda d: drawn(listed(d).interleave(Records, cycle_length=4, block_length=2)),
    "flat_map of parts": lambda d: Slices(files(d)).flat_map(lambda f: Records(f).skip(1).take(3)),
    "interleave of ranges": lambda d: Range(5).interleave(lambda x: Range(3), cycle_length=2),
    "flat_map of Python maps": lambda d: Range(4).flat_map(lambda n: Range(3).enumerate(5).map(swapped, traced=False)),
    "flat_map of drawn records": lambda d: drawn(listed(d).flat_map(lambda f: drawn(Records(f).skip(1)))),
    "interleave of drawn records": lambda d: drawn(listed(d).interleave(lambda f: drawn(Records(f)), 4, 2)),
    "flat_map of flat_maps of Python maps": lambda d: Range(3).flat_map(
        lambda n: Range(2).flat_map(lambda m: drawn(Range(4))).batch(3)
    ),
    "flat_map of drawn records, shuffle ALL": lambda d: drawn(
        listed(d).flat_map(lambda f: drawn(Records(f))).shuffle(gp.ALL, seed=5)
    ),
    "map in threads": lambda d: Records(files(d)).map(lambda x: len(x), num_parallel_calls=2),
    "padded batch": lambda d: Records(files(d)).map(lambda x: np.frombuffer(x, np.uint8)).padded_batch(4),
    "skip": lambda d: drawn(Records(files(d)).skip(7)),
    "zip": lambda d: drawn(gp.Dataset.zip(Records(files(d)), drawn(Range(20)))),
    "zip of batches": lambda d: gp.Dataset.zip({"a": Range(10).batch(3), "b": Range(9).batch(3).map(lambda x: -x)}),
    "concatenate": lambda d: drawn(Range(4).concatenate(Range(5)).concatenate(Slices(np.arange(3)))),
    "concatenate of maps": lambda d: Range(4).map(int, spec=NUMBER, num_parallel_calls=2).concatenate(Range(3)),
    "repeat": lambda d: drawn(Records(files(d)).repeat(3)),
    "shuffled files, repeat, repeat": lambda d: drawn(Records(Slices(files(d)).shuffle(9).repeat(2).repeat(2))),
    "repeat, endless repeat": lambda d: drawn(Range(4)).repeat(2).repeat().take(20),
    "endless repeat, repeat": lambda d: drawn(Range(4)).repeat().take(9).repeat(2),
    "cache": lambda d: drawn(drawn(Records(files(d))).cache().repeat(2)),
    "shuffle ALL": lambda d: drawn(Records(files(d)).shuffle(gp.ALL, seed=5)),
}


@pytest.mark.parametrize("rules", [(), ("deferral", "sink_selects", "choose_rows")], ids=["", "eager"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_places_give_what_iterating_gives(chain: Callable[[Path], gp.Dataset], folder: Path, rules: Any) -> None:
    ds = chain(folder).with_options(gp.Options(disabled_rules=rules))
    expected = list(ds.iterator(epoch=0))
    INDEXES.clear()
    n = len(expected)
    assert n > 0

    assert len(ds) == n
    order = random.Random(0).sample(range(n), min(n, 6))
    assert all(shown(ds[i]) == shown(expected[i]) for i in (*order, -1, -n))
    for places in (slice(2, 9, 2), slice(None, None, -1), slice(-3, None), slice(n, None)):
        chosen = ds[places]
        assert each(chosen) == each(expected[places]), places
        assert len(chosen) == len(expected[places])
    for place in (n, -n - 1):
        with pytest.raises(IndexError, match=f"index {place} of a dataset of {n} elements"):
            ds[place]


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_skip_and_shard_give_what_iterating_gives(chain: Callable[[Path], gp.Dataset], folder: Path) -> None:
    """Of files without an index, and of those with one."""
    ds = chain(folder)
    expected = each(ds)
    n = len(expected)
    for known, counts, shards in ((False, (1, 6, n), (3, 2)), (True, (0, n - 1, n + 3), (n + 1, n))):
        INDEXES.clear()
        if known:
            len(ds)
        for count in counts:
            assert each(ds.skip(count)) == expected[count:]
        assert each(ds.skip(2).take(2)) == expected[2:4]
        assert each(ds.shard(*shards)) == expected[shards[1] :: shards[0]]
        assert each(ds.skip(2).shard(2, 0)) == expected[2::2]


STEPS: dict[str, Callable[[gp.Dataset, int], gp.Dataset]] = {
    "take": lambda ds, n: ds.take(n),
    "skip": lambda ds, n: ds.skip(n),
    "shard": lambda ds, n: ds.shard(n + 1, n // 2),
    "slice": lambda ds, n: ds[n : 5 * n : n + 1],
    "back": lambda ds, n: ds[::-1],
    "batch": lambda ds, n: ds.batch(n + 1),
    "full batches": lambda ds, n: ds.batch(n + 1, drop_remainder=True),
    "map": lambda ds, n: ds.map(lambda *x: x, num_parallel_calls=n or None),
    "draw": lambda ds, n: drawn(ds),
    "repeat": lambda ds, n: ds.repeat(n),
    "enumerate": lambda ds, n: ds.enumerate(n),
    "all": lambda ds, n: ds.shuffle(gp.ALL, seed=n),
    "split": lambda ds, n: ds.split([0.25, 0.75], seed=n)[n % 2],
    "prefetch": lambda ds, n: ds.prefetch(n),
    "zip": lambda ds, n: gp.Dataset.zip(ds, Range(10 * n).shuffle(gp.ALL)),
    "twice": lambda ds, n: ds.concatenate(ds.take(n)),
}


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(0, 40),
    steps=st.lists(st.tuples(st.sampled_from(list(STEPS)), st.integers(0, 6)), max_size=5),
    draw=st.randoms(use_true_random=False),
)
def test_any_chain_has_in_each_place_what_iterating_gives(
    size: int, steps: list[tuple[str, int]], draw: random.Random
) -> None:
    ds = Range(size)
    for name, n in steps:
        ds = STEPS[name](ds, n)
    try:
        expected = each(ds)
    except gp.DataError:  # batches of unequal batches do not stack
        assume(False)
    assert len(ds) == len(expected)
    for i in draw.sample(range(len(expected)), min(len(expected), 4)):
        assert shown(ds[i]) == expected[i]
    cut = slice(draw.randint(0, 9), draw.randint(0, 30), draw.randint(1, 4))
    assert each(ds[cut]) == expected[cut]
    assert each(ds[::-1]) == expected[::-1]
    assert each(ds.skip(cut.start)) == expected[cut.start :]
    assert each(ds.shard(cut.step, 0)) == expected[:: cut.step]


def test_a_dataset_that_cannot_be_made_is_a_bad_element_by_index() -> None:
    def made(n: Any) -> gp.Dataset:
        if isinstance(n, np.integer) and n == 2:
            raise ValueError("no two")
        return Range(4).map(lambda x: np.int64(int(x) * 2), traced=False)

    ds = Range(4).flat_map(made)

    assert [int(x) for x in ds.pick([12, 3, 8, 7]).ignore_errors()] == [6, 6, 6]  # place 8 is that of the dataset
    with pytest.raises(gp.DataError, match="no two"):
        ds[8]


def test_a_dataset_that_cannot_be_indexed_unlike_the_traced_one_is_named() -> None:
    def made(n: Any) -> gp.Dataset:
        inner = Range(4)
        kept = inner.filter(lambda x: x > n) if isinstance(n, np.integer) else inner
        return kept.map(lambda x: np.int64(int(x) * 2), traced=False)

    ds = Range(4).flat_map(made)

    assert [int(x) for x in ds] == [2, 4, 6, 4, 6, 6]
    with pytest.raises(gp.PlanError, match=r"flat_map at .* can be indexed, and filter\(.* cannot be indexed"):
        ds[0]


def test_places_of_datasets_that_a_function_makes_are_resumed() -> None:
    def build() -> gp.Dataset:
        return Range(5).flat_map(lambda n: drawn(Range(4))).shuffle(gp.ALL, seed=3)

    goes_on(build, [0, 1, 9])


def numbered(pair: Any) -> gp.Dataset:
    """As many pairs (own number, running number) as a dataset has elements."""
    return Range(pair[1]).map(lambda i: (pair[0], i))


def test_the_order_of_interleave_is_known_without_running_it() -> None:
    draw = random.Random(1)
    for _ in range(60):
        sizes = [draw.choice([0, 0, 1, 2, 3, 7, 12, 30]) for _ in range(draw.randint(0, 7))]
        cycle, block = draw.randint(1, 5), draw.randint(1, 4)
        inputs = Slices(np.array([*enumerate(sizes)], np.int64).reshape(-1, 2))
        ran = inputs.interleave(numbered, cycle, block)
        expected = [(int(f), int(i)) for f, i in ran]

        turns = InterleaveOrder(sizes, cycle, block)

        assert turns.size == len(expected)
        if expected:
            numbers, places = turns(np.arange(turns.size))
            assert list(zip(numbers.tolist(), places.tolist(), strict=True)) == expected, (sizes, cycle, block)


# ---- errors


@pytest.mark.parametrize(
    ("chain", "step"),
    [
        (
            lambda d: Range(9).filter(lambda x: x > 2).batch(2),
            r"filter\(.*\) \[traced\] at .*test_random_access.py:\d+",
        ),
        (lambda d: Range(9).batch(2).unbatch(), "unbatch"),
        (lambda d: Range(9).shuffle(4).batch(2), r"shuffle\(4, .*; use shuffle\(gp.ALL\), which can"),
        (lambda d: gp.Dataset.from_generator(lambda: iter([1])), "from_generator"),
        (lambda d: Records(files(d), "GZIP"), r"TFRecordDataset\(GZIP\).*a compressed file has no index"),
        (lambda d: Slices(files(d)).interleave(lambda f: Records(f).filter(lambda r: True)), "filter"),
        (lambda d: Slices(["memory://a", "memory://b"]).filter(lambda f: True), "filter"),
    ],
    ids=["filter", "unbatch", "buffer", "generator", "gzip", "inside", "filter of names"],
)
def test_a_step_without_places_is_named(chain: Callable[[Path], gp.Dataset], step: str, folder: Path) -> None:
    ds = chain(folder)

    for use in (lambda: ds[0], lambda: ds[1:3], lambda: ds[-1]):
        with pytest.raises(TypeError, match=rf"ds\[...\] needs steps that can be indexed, and {step}"):
            use()
    with pytest.raises(gp.PlanError, match=rf"shuffle\(gp.ALL\) needs steps that can be indexed, and {step}"):
        ds.shuffle(gp.ALL)
    with pytest.raises(gp.PlanError, match=r"; or write shuffle\(gp.UNKNOWN_CARDINALITY\), which holds all elements"):
        ds.shuffle(gp.ALL)
    with pytest.raises(gp.PlanError, match="split needs steps that can be indexed"):
        ds.split([0.5, 0.5])


def test_an_endless_list_of_files_is_not_indexed(folder: Path) -> None:
    for names in (listed(folder).repeat(), listed(folder).repeat().filter(lambda f: f != b"x")):
        ds = names.interleave(Records, cycle_length=2)

        with pytest.raises(TypeError, match="it makes datasets without end; use repeat after it"):
            ds[0]
        assert len(list(ds.take(50))) == 50  # list() asks for a length first, and must get an answer
        with pytest.raises(TypeError, match="unknown"):
            len(ds.take(5))


def test_what_has_no_end_has_places_from_the_front() -> None:
    ds = Range(3).interleave(lambda x: Range(2).repeat(), cycle_length=3)
    first = [int(x) for x in ds.take(20)]

    assert [int(ds[i]) for i in range(20)] == first
    assert [int(x) for x in ds[2::3].take(3)] == first[2:10:3]
    with pytest.raises(IndexError, match="index -1 of an infinite dataset: indices are 0 to"):
        ds[-1]
    for use in (len, lambda ds: ds[::-1]):
        with pytest.raises(TypeError, match="infinite"):
            use(ds)
    with pytest.raises(gp.PlanError, match="a dataset that ends"):
        list(ds.shuffle(gp.ALL).take(1))


def test_a_generator_of_names_runs_only_where_it_is_used(folder: Path) -> None:
    started: list[int] = []

    def names() -> Iterator[str]:
        started.append(1)
        yield from files(folder)

    ds = gp.Dataset.from_generator(names, output_signature=gp.TensorSpec((), bytes)).interleave(Records)

    assert len(list(ds)) == sum(SIZES)
    assert started == [1]
    with pytest.raises(TypeError, match="from_generator"):
        ds[0]
    with pytest.raises(TypeError, match="unknown"):
        len(ds)
    assert started == [1]


@pytest.mark.parametrize("key", [1.5, None, "1", True, (0, 1), np.float32(1)], ids=str)
def test_a_place_is_an_integer(key: Any) -> None:
    with pytest.raises(TypeError, match="needs an integer for the index"):
        Range(5)[key]
    with pytest.raises(ValueError, match="a step other than 0"):
        Range(5)[::0]


def test_an_empty_dataset_has_no_places(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for ds in (Range(0), Records(str(tmp_path / "empty")), Records([]), Range(0).repeat(), Range(3).take(0)):
        with pytest.raises(IndexError):
            ds[0]
        assert list(ds[:5]) == []
        assert list(ds.take(100).shuffle(gp.ALL)) == []


# ---- len


def test_len_counts_records_and_cardinality_does_not(folder: Path) -> None:
    ds = Records(files(folder)).shuffle(10).map(lambda x: x).batch(4).prefetch(2)

    assert ds.cardinality() == gp.UNKNOWN_CARDINALITY
    assert INDEXES.nbytes == 0
    assert len(ds) == -(-sum(SIZES) // 4)
    assert ds.cardinality() == gp.UNKNOWN_CARDINALITY
    assert len(Records(files(folder)).repeat(2).take(40).skip(5)) == 35
    assert len(gp.Dataset.zip(Records(files(folder)), Range(7).repeat())) == sum(SIZES)
    for endless, text in ((Records(files(folder)).filter(lambda x: True), "unknown"), (ds.repeat(), "infinite")):
        with pytest.raises(TypeError, match=text):
            len(endless)


# ---- nothing is read that is not asked for


def test_a_place_reads_one_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = Records(files(folder))
    len(ds)
    read: list[int] = []
    pread = os.preadv

    def counting(fd: int, buffers: Any, offset: int) -> int:
        read.append(offset)
        return pread(fd, buffers, offset)

    monkeypatch.setattr("gpupipe.extract.storage.files._preadv", counting)
    monkeypatch.setattr("gpupipe.extract.storage.files._pread_into", lambda fd, out, at: counting(fd, [out], at))

    assert ds[11] == b"2-6" * 7
    assert len(read) == 1


def test_skip_of_an_indexed_file_reads_no_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "many")
    write(tmp_path / "many", [b"%d" % i for i in range(50_000)])
    ds = Records([path, path]).skip(99_998)
    gp.io.build_index(path, "memory")
    monkeypatch.setattr(
        "gpupipe.extract.records.reference.walk_headers", lambda *a, **b: pytest.fail("headers were read")
    )
    made: list[int] = []
    monkeypatch.setattr(
        "gpupipe.flow.sources.records.indexed_elements",
        lambda index, path, stream, start, step: iter(made.extend([start]) or []),  # type: ignore[func-returns-value]
    )

    assert list(ds) == []
    assert made == [49_998]  # the first file is passed over whole, the second begins behind what is skipped


def test_skip_calls_no_function_behind_it_and_asks_for_no_item() -> None:
    asked: list[int] = []

    class Items:
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, i: int) -> int:
            asked.append(i)
            return i

    ds = gp.Dataset.from_indexable(Items(), spec=gp.TensorSpec((), "int64"))

    assert [int(x) for x in ds.skip(997)] == [997, 998, 999]
    assert asked == [997, 998, 999]
    asked.clear()
    assert [int(x) for x in ds.shard(500, 3)] == [3, 503]
    assert [int(x) for x in ds[5:900:400]] == [5, 405, 805]
    assert int(ds[-1]) == 999
    assert asked == [3, 503, 5, 405, 805, 999]


# ---- bad elements


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Five records; the payload of number 1 is damaged, and the length of number 3."""
    path = tmp_path / "damaged"
    write(path, [b"record%d" % i for i in range(5)])
    data = bytearray(path.read_bytes())
    data[23 + 14] ^= 1
    data[3 * 23] ^= 1
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_bad_element_raises_its_error_in_its_place(damaged: str, on_error: Any) -> None:
    ds = Records(damaged).with_options(gp.Options(on_error=on_error))

    good = [b"record0", b"record2", b"record4"]

    assert len(ds) == 5
    assert [ds[i] for i in (0, 2, 4)] == good
    if on_error == "skip":
        assert sorted(ds.shuffle(gp.ALL, seed=1).repeat(2)) == sorted(good * 2)
    for rules in ((), ("sink_selects", "choose_rows")):
        batches = ds.batch(2).with_options(gp.Options(disabled_rules=rules))
        assert batches[2].tolist() == [b"record4"]
        with pytest.raises(gp.DataError, match="CRC of the payload"):
            batches[0]
    with pytest.raises(gp.DataError, match=r"damaged at offset 23: .*CRC of the payload"):
        ds[1]
    with pytest.raises(gp.DataError, match=r"damaged at offset 69: .*length of a record"):
        ds[-2]


def test_batches_that_are_bad_as_a_whole_keep_their_places(damaged: str) -> None:
    ds = Records(damaged).batch(1).enumerate().with_options(gp.Options(on_error="replace"))

    with iter(ds[1:5]) as items:
        found = [(int(i), b.tolist()) for i, b in items if items.valid]
    assert found == [(2, [b"record2"]), (4, [b"record4"])]
    assert len(ds[1:5]) == 4


@pytest.mark.parametrize("known", [False, True])
def test_skip_counts_bad_elements(damaged: str, known: bool) -> None:
    if known:
        gp.io.build_index(damaged, "memory")
    options = gp.Options(on_error="skip")

    assert list(Records(damaged).skip(2).with_options(options)) == [b"record2", b"record4"]
    assert list(Records(damaged).skip(4).with_options(options)) == [b"record4"]
    assert list(Records(damaged).shard(2, 1).with_options(options)) == []


def test_a_missing_file_has_no_places_and_is_an_error_unless_it_may_be_lost(folder: Path, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    write(tmp_path / "gone", [b"x"])
    ds = Records([files(folder)[0], gone, files(folder)[5]]).with_options(gp.Options(on_error="skip"))
    os.unlink(gone)

    for ask in (len, lambda ds: ds[6], lambda ds: list(ds.shuffle(gp.ALL))):
        with pytest.raises(gp.DataError, match="no such file; its records cannot be counted"):
            ask(ds)
    ds = ds.with_options(gp.Options(lost_files="skip"))
    assert len(ds) == 5 + 0 + 3
    assert ds[5] == b"5-0"
    assert len(list(ds.shuffle(gp.ALL))) == 8


# ---- images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("images") / "images"
    write(path, [jpeg(i) for i in range(7)])
    return str(path)


def augmented(path: str) -> gp.Dataset:
    def example(x: Any) -> Any:
        return ops.random_flip_left_right(ops.random_crop(ops.decode_jpeg(x, channels=3), (12, 12, 3)))

    return Records(path).map(example)


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds,
        lambda ds: ds.batch(3),
        lambda ds: ds.batch(3).map(ops.flip_left_right).repeat(2),
        lambda ds: gp.Dataset.zip(ds.batch(2, drop_remainder=True), Range(3)),
        lambda ds: ds.shuffle(gp.ALL, seed=1).batch(4),
        lambda ds: ds.batch(3).shuffle(gp.ALL, seed=1).cache(),
    ],
    ids=["", "batch", "batch, map, repeat", "zip", "shuffled", "batches shuffled"],
)
def test_an_image_has_the_same_augmentation_in_its_place(
    images: str, chain: Callable[[gp.Dataset], gp.Dataset]
) -> None:
    ds = chain(augmented(images)).with_options(CPU)
    expected = list(ds.iterator(epoch=0))

    assert len(ds) == len(expected)
    assert [shown(ds[i]) for i in range(len(expected))] == each(expected)
    assert each(ds[::-1]) == each(expected)[::-1]


@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_by_place_whose_rows_are_all_bad_is_replaced(padded: bool) -> None:
    ds = gp.Dataset.range(12).map(fails_where(lambda x: int(x) in (0, 4, 5, 7)), traced=False)
    batches = (ds.padded_batch(2) if padded else ds.batch(2))[::1]
    whole = batches.with_options(gp.Options(on_error="replace"))

    with iter(whole) as items:
        found = [(batch.tolist(), items.valid.tolist()) for batch in items]
        assert items.left_out == 4
    assert [batch for batch, _ in found] == [[1, 1], [2, 3], [2, 3], [6, 6], [8, 9], [10, 11]]
    assert [valid for _, valid in found][:4] == [[False, True], [True, True], [False, False], [True, False]]
    goes_on(lambda: whole)
