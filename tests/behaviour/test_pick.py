"""pick: elements at the places that a user names, as from a chain that is opened once."""

from __future__ import annotations

import gc
import itertools
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe import threads as pools
from gpupipe.errors import StateError
from gpupipe.flow.order.asked import PLACES_AHEAD
from gpupipe.flow.sources.records import RecordsFlow
from gpupipe.plan.index import Select
from tests.behaviour.model import fails_where, outcomes, plain, run
from tests.chains import damage
from tests.chains.data import parse
from tests.reliability.resume import goes_on

Range = gp.Dataset.range


def files(folder: Path, count: int = 6, records: int = 5) -> gp.Dataset:
    """The records of some files, in turn; each says where it came from."""
    folder.mkdir(exist_ok=True)
    for i in range(count):
        damage.write(folder / f"{i}.tfrecord", [b"%d-%d" % (i, j) for j in range(records)])
    names = gp.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False)
    return names.interleave(gp.TFRecordDataset, cycle_length=4)


def one_by_one(ds: gp.Dataset, places: Any, epoch: int = 0) -> list[Any]:
    fixed = ds.epoch(epoch)
    return [plain(fixed[int(i)]) for i in places]


def picked(ds: gp.Dataset, places: Any, epoch: int = 0) -> list[Any]:
    return [plain(element) for element in ds.pick(places, redraw=False).iterator(epoch=epoch)]


def _python(x: Any) -> int:
    return int(x) * 7


def _drawn(x: Any, rng: np.random.Generator) -> float:
    return float(rng.random()) + int(x)


PLACES = [5, 3, 17, 0, 3, 19]

CHAINS: dict[str, Any] = {
    "range": lambda: Range(20),
    "endless": lambda: Range(7).repeat(),
    "shuffled": lambda: Range(20).shuffle(gp.ALL, seed=1),
    "traced map": lambda: Range(20).map(lambda x: x + 1),
    "threads": lambda: Range(20).map(_python, num_parallel_calls=3),
    "random": lambda: Range(20).map(_drawn, rng=True),
    "batches": lambda: Range(60).map(_python).batch(3).prefetch(2),
    "full batches": lambda: Range(60).shuffle(gp.ALL, seed=2).map(_python).batch(3, drop_remainder=True).prefetch(2),
    "a short batch": lambda: Range(58).map(_python).batch(3),
    "joined": lambda: Range(8).concatenate(Range(12)),
    "picked": lambda: Range(40).pick(range(39, -1, -2)),
}


@pytest.mark.parametrize("given", [range(19, 2, -3), np.array([4, 1], np.uint8), (7,), [], np.zeros(0, int)])
def test_a_range_an_array_a_tuple_and_nothing_are_places(given: Any) -> None:
    expected, ds = list(given), Range(20).pick(given)
    if isinstance(given, np.ndarray):
        given[:] = 0  # it was copied

    assert [plain(x) for x in ds] == expected


def test_no_file_is_opened_for_each_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    was = RecordsFlow.indexed

    def indexed(self: RecordsFlow, at: Any, build: bool = True) -> Any:
        opened.append("")
        return was(self, at, build)

    ds = files(tmp_path).batch(2, drop_remainder=True)
    len(ds)
    monkeypatch.setattr(RecordsFlow, "indexed", indexed)
    places = [14, 3, 9, 3, 0, 7, 14] * 4
    list(ds.pick(places, redraw=False))

    assert len(opened) <= 2 * 6  # to count its records, and to read them
    list(ds.pick(places))
    assert len(opened) <= 4 * 6 + 8 * 6  # and once for each time that a place comes


@pytest.mark.parametrize(
    ("ds", "places", "text"),
    [
        (Range(5), [5], r"pick needs places from 0 to 4, got 5"),
        (Range(5), [-1], r"pick needs places from 0 to 2\*\*62 - 1, got -1"),
        (Range(5), np.array([[1]]), r"pick needs places of shape \(N,\), got \(1, 1\)"),
        (Range(5), [[1], [0.5]], r"pick needs integers of one dtype, got \[1, 0.5\] of dtype float64"),
        (Range(5), np.array(3), r"pick needs places of shape \(N,\), got \(\)"),
        (Range(5), [*range(100_000), 0.5], r"pick needs integers of one dtype, got .{1,200} of dtype float64$"),
        (Range(5), bytearray(b"1"), r"a list, a range or an array, or from an iterator or a function, got bytearray"),
        (Range(5), [1.0], r"pick needs integers of one dtype, got \[1.0\] of dtype float64"),
        (Range(5), [True], r"pick needs integers of one dtype, got \[True\] of dtype bool"),
        *((Range(5), x, "pick needs integers in a list, a range") for x in (3, "12", b"12", {1, 2}, {1: 2}, Range(3))),
        (Range(5), [1, [2, 3]], r"pick needs integers, got \[1, \[2, 3\]\]"),
        (Range(5).shuffle(3), [1], r"pick needs steps that can be indexed, and shuffle\(3.*use shuffle\(gp.ALL\)"),
    ],
)
def test_what_is_no_place_is_refused_on_the_line(ds: gp.Dataset, places: Any, text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        ds.pick(places)


FAR = 1 << 60

NUMBERED = gp.PlanError, "an infinite dataset has elements up to number 2**62 - 1, of which the steps here make"
INFINITE = IndexError, "of an infinite dataset: indices are 0 to 2**62 - 1"


@pytest.mark.parametrize(
    ("make", "most", "element", "beyond"),
    [
        (lambda ds: ds.repeat(), (1 << 62) - 1, lambda i: i % 7, INFINITE),
        (lambda ds: ds.repeat().batch(4, True), FAR - 1, lambda i: [(4 * i + k) % 7 for k in range(4)], NUMBERED),
        (lambda ds: ds.repeat().shard(4, 1), FAR - 1, lambda i: (4 * i + 1) % 7, NUMBERED),
        (lambda ds: ds.repeat().skip(5), (1 << 62) - 6, lambda i: (i + 5) % 7, NUMBERED),
        (lambda ds: ds.take(3).concatenate(ds.repeat()), (1 << 62) - 1, lambda i: (i - 3) % 7, INFINITE),
        (
            lambda ds: Range(1 << 50).concatenate(ds),
            (1 << 50) + 6,
            lambda i: i if i < 1 << 50 else i - (1 << 50),
            (IndexError, f"index {(1 << 50) + 7} of a dataset of {(1 << 50) + 7} elements"),
        ),
    ],
    ids=["repeat", "full batch", "shard", "skip", "concatenate", "a long part"],
)
@pytest.mark.parametrize("given", [list, iter], ids=["list", "iterator"])
def test_far_places_have_their_elements_and_those_beyond_are_errors(
    make: Any, most: int, element: Any, beyond: tuple[type[Exception], str], given: Any
) -> None:
    ds = make(Range(7))
    places = [most, 1 << 45, 3]

    assert [plain(x) for x in ds.pick(given(places))] == [element(i) for i in places]
    assert [plain(ds[i]) for i in places] == [element(i) for i in places]
    last = rf"needs places from 0 to (2\*\*62 - 1|{most})|the steps here make {most + 1}; an element .* below that"
    with pytest.raises(gp.PlanError, match=rf"({last}), got {most + 1}$"):
        list(ds.pick(given([most + 1])))
    kind, text = beyond
    with pytest.raises(kind, match=re.escape(text)):
        ds[most + 1]


def test_other_places_are_another_chain() -> None:
    items = Range(9).pick([1, 2, 3]).iterator(epoch=0)
    next(items)
    with pytest.raises(gp.StateError, match="pick"):
        Range(9).pick([1, 2, 4]).iterator(epoch=0).load_state_dict(items.state_dict())


# ---- single batches by their numbers


@pytest.mark.parametrize("even", [None, "drop"])
def test_a_shard_of_batches_makes_only_its_own(even: Any) -> None:
    calls: list[Any] = []

    def noted(x: Any) -> Any:
        calls.append(x)
        return x

    ds = Range(160).shuffle(gp.ALL, seed=1).map(noted, traced=False).batch(4).prefetch(1).shard(4, 1, even=even)

    expected = Range(160).shuffle(gp.ALL, seed=1).batch(4)[1::4]

    assert run(ds.iterator(epoch=0)) == run(expected.iterator(epoch=0))
    assert len(calls) <= 40 + 1  # one more tells the type of the elements


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("even", [None, "drop", "wrap"])
def test_shards_of_batches_are_every_nth_batch(even: Any, drop: bool, known: bool, tmp_path: Path) -> None:
    """With rest and without, of batches and of rounds; also behind a skip and of records that are counted later."""
    for n in (24, 25, 28, 29, 35, 36, 3):
        rows = Range(n) if known else files(tmp_path / str(n), n, 1)
        ds = rows.batch(4, drop_remainder=drop).prefetch(1)
        for index, first in ((0, 0), (2, 0), (1, 2)):
            shard = (ds.skip(first) if first else ds).shard(3, index, even=even)
            off = shard.with_options(gp.Options(disabled_rules=("choose_batches",)))
            assert ("choose_batches" in str(shard.explain())) == (even != "wrap")
            assert [plain(x) for x in shard] == [plain(x) for x in off]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_shard_of_batches_with_bad_elements_is_that_of_the_whole_loop(on_error: Any) -> None:
    whole = (
        Range(50)
        .map(fails_where(lambda x: x % 5 == 0), traced=False)
        .batch(4)
        .with_options(gp.Options(on_error=on_error))
    )

    assert [plain(x) for x in whole.shard(3, 1)] == [plain(x) for x in whole][1::3]


BY_NUMBER: dict[str, tuple[Callable[[gp.Dataset], gp.Dataset], str]] = {
    "a slice": (lambda ds: ds[:], r"\[0::1\]"),
    "a slice from the end": (lambda ds: ds[-3:], r"\[7:10:1\]"),
    "a slice with a step": (lambda ds: ds[1::2], r"\[1::2\]"),
    "places": (lambda ds: ds.prefetch(1).pick([2]), r"pick\(\[2\]\)"),
    "places that come": (lambda ds: ds.pick(iter([2])), r"pick\(list_iterator\)"),
    "a full shuffle": (lambda ds: ds.shuffle(gp.ALL, seed=1), r"shuffle\(ALL, seed=1\)"),
    "one of streams": (lambda ds: ds.shuffle(gp.ALL, seed=1, streams=2, window=4), r"shuffle\(ALL, .*\)"),
    "a split": (lambda ds: ds.split([0.5, 0.5], seed=1)[0], r"split\(\[0.5, 0.5\], seed=1\)\[0\]"),
    "behind a cache": (lambda ds: ds.cache().shuffle(gp.ALL, seed=1), r"shuffle\(ALL, seed=1\)"),
    "behind passes": (lambda ds: ds.repeat(2)[1:], r"\[1::1\]"),
    "behind a join": (lambda ds: ds.concatenate(ds).take(9)[2:], r"\[2::1\]"),
    "behind more batches": (lambda ds: ds.batch(2)[:], r"\[0::1\]"),
    "before a step": (lambda ds: ds[2:].map(lambda x: x + 0).unbatch(), r"\[2::1\]"),
    "batches that a function makes": (lambda ds: Range(2).flat_map(lambda _: ds)[:], r"\[0::1\]"),
    "inside a function": (lambda ds: Range(2).flat_map(lambda _: ds[:]), r"\[0::1\]"),
    "inside an interleave": (lambda ds: Range(2).interleave(lambda _: ds.shuffle(gp.ALL)), r"shuffle\(ALL, .*\)"),
}


@pytest.mark.parametrize("padded", [False, True], ids=["batch", "padded_batch"])
@pytest.mark.parametrize("name", BY_NUMBER)
def test_batches_by_number_are_refused_where_bad_elements_are_skipped(name: str, padded: bool) -> None:
    choose, step = BY_NUMBER[name]
    rows = Range(40).map(fails_where(lambda x: x % 5 == 3), traced=False)
    ds = choose(rows.padded_batch(4) if padded else rows.batch(4))

    text = rf"^{step} at .*test_pick.py:\d+ needs on_error='raise' or 'replace', got 'skip'.* skip\(n\) and take\(n\)"
    with pytest.raises(gp.PlanError, match=text):
        next(iter(ds.with_options(gp.Options(on_error="skip"))))
    assert list(ds.with_options(gp.Options(on_error="replace")))


BEFORE: dict[str, Callable[[gp.Dataset], gp.Dataset]] = {
    "a slice": lambda ds: ds[:].batch(4),
    "a full shuffle": lambda ds: ds.shuffle(gp.ALL, seed=1).batch(4),
    "the parts of a split": lambda ds: ds.split([0.5, 0.5])[0].batch(4).concatenate(ds.split([0.5, 0.5])[1].batch(4)),
    "skip and take": lambda ds: ds.batch(4).skip(0).take(40),
    "a buffer": lambda ds: ds.batch(4).cache().shuffle(100, seed=1),
}


@pytest.mark.parametrize("name", BEFORE)
def test_what_chooses_before_batch_or_reads_in_order_has_all_good_rows(name: str) -> None:
    rows = Range(40).map(fails_where(lambda x: x % 5 == 3), traced=False)
    ds = BEFORE[name](rows).with_options(gp.Options(on_error="skip"))

    assert sorted(x for batch in ds for x in batch.tolist()) == [x for x in range(40) if x % 5 != 3]


def test_a_bad_element_costs_the_shard_its_batch() -> None:
    chain = Range(24).map(fails_where(lambda x: x == 5), traced=False).batch(4).shard(3, 1)

    assert outcomes(chain) == ["error", [16, 17, 18, 19]]


# ---- places that come while the chain runs


def decoded(record: Any) -> Any:
    encoded, label = parse(record)
    return ops.random_resized_crop(ops.decode_jpeg(encoded, channels=3), (8, 8)), label


def images(folder: Path, bad: int = -1) -> gp.Dataset:
    """The records of 40 images, of which only the decoder notices that one is bad."""
    for i in range(2):
        numbers = range(20 * i, 20 * i + 20)
        data = [damage.bad_scan(damage.jpeg(n)) if n == bad else damage.jpeg(n) for n in numbers]
        damage.write(folder / f"{i}.tfrecord", [damage.example(n, jpeg) for n, jpeg in zip(numbers, data, strict=True)])
    return gp.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord")))).with_options(gp.Options(device="cpu"))


THREADS = Range(60).map(_python, num_parallel_calls=3)

MORE: dict[str, Callable[[Path], gp.Dataset]] = {
    "shuffled": lambda folder: Range(20).shuffle(gp.ALL, seed=1),
    "random": lambda folder: Range(20).map(_drawn, rng=True),
    "threads and full batches": lambda folder: THREADS.batch(3, drop_remainder=True).prefetch(2),
    "threads below a take": lambda folder: THREADS.take(20),
    "batches of threads below a take": lambda folder: THREADS.take(57).batch(2, drop_remainder=True),
    "two maps in threads below a take": lambda folder: THREADS.map(_python, num_parallel_calls=2).take(20),
    "threads below a cache": lambda folder: THREADS.take(20).map(_python, num_parallel_calls=2).cache(),
    "images below a take": lambda folder: images(folder).map(decoded).take(30),
    "threads below a take and behind it": lambda folder: THREADS.take(20).map(_python, num_parallel_calls=2),
    "processes": lambda folder: Range(20).map(_python, workers="process", num_parallel_calls=2),
    "images": lambda folder: images(folder).map(decoded),
    "batches of images": lambda folder: images(folder).map(decoded).batch(2).prefetch(2),
    "Python behind images": lambda folder: images(folder).map(decoded).map(lambda i, n: int(n), traced=False),
}


def ended(name: str) -> None:
    """Wait until there is no thread of this name."""
    deadline = time.monotonic() + 20
    while left := [thread.name for thread in threading.enumerate() if name in thread.name]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def arrived(items: Any, seconds: float = 20.0) -> Any:
    """The next element or error, which must come although its iterator keeps a thread waiting."""
    found: list[Any] = []

    def take() -> None:
        try:
            found.append(next(items))
        except gp.DataError as error:
            found.append(error)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "the element did not come before the next place"
    return found[0]


@pytest.mark.parametrize("name", CHAINS)
def test_places_of_a_list_an_iterator_a_function_or_a_sampler_give_the_elements_at_these_places(name: str) -> None:
    ds = CHAINS[name]()

    for given in (PLACES, iter(PLACES), lambda: iter(PLACES), _Sampler()):
        assert picked(ds, given, 2) == one_by_one(ds, PLACES, 2)


class _Sampler:
    """An object as samplers are: iterated over in each epoch."""

    def __iter__(self) -> Iterator[np.int64]:
        return iter(np.array(PLACES))


@pytest.mark.parametrize("name", MORE)
def test_the_element_of_the_last_place_comes_while_the_iterator_waits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 100.0)  # for a thread that does not end
    ds = MORE[name](tmp_path)
    whole = run(ds.pick(PLACES).iterator(epoch=0))
    places: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    items = ds.pick(iter(places.get, None)).iterator(epoch=0)
    came: list[Any] = []
    try:
        for count in (2, 1, 3):
            for place in PLACES[len(came) : len(came) + count]:
                places.put(place)
            came += [plain(arrived(items)) for _ in range(count)]
        assert came == whole
    finally:
        started = time.monotonic()
        items.close()
        places.put(None)
    assert time.monotonic() - started < 50  # it does not wait for the iterator


def test_an_image_that_fails_is_an_error_at_once(tmp_path: Path) -> None:
    """Its batch is repaired while the stage waits for the next place."""
    places: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    ds = images(tmp_path, bad=5).map(decoded).batch(2, drop_remainder=True)
    items = ds.pick(iter(places.get, None)).iterator(epoch=0)
    places.put(1)
    assert plain(arrived(items)[1]) == [2, 3]
    places.put(2)
    assert isinstance(arrived(items), gp.errors.DataError)
    places.put(3)
    assert plain(arrived(items)[1]) == [6, 7]
    items.close()
    places.put(None)


def test_a_plain_loop_takes_no_place_ahead() -> None:
    asked: list[int] = []

    def places() -> Iterator[int]:
        for place in PLACES:
            asked.append(threading.get_ident())
            yield place

    items = Range(60).map(_python).batch(3).pick(places()).iterator(epoch=0)
    for count in range(1, 7):
        next(items)
        assert asked == [threading.get_ident()] * count


def test_few_places_of_batches_are_taken_ahead() -> None:
    asked: list[int] = []

    def places() -> Iterator[int]:
        for place in range(100):
            asked.append(place)
            yield place

    with Range(600).batch(6, drop_remainder=True).prefetch(1).pick(places()).iterator(epoch=0) as items:
        next(items)
        time.sleep(0.3)
        assert len(asked) <= 8
    assert PLACES_AHEAD > 8


def test_a_function_gives_places_for_each_pass_and_epoch() -> None:
    ds = Range(20).pick(lambda: iter(PLACES))

    assert run(ds.repeat(2)) == PLACES * 2
    assert run(ds) == PLACES


def test_an_iterator_serves_one_loop() -> None:
    ds = Range(20).pick(iter(PLACES))
    assert run(ds) == PLACES
    with pytest.raises(gp.PlanError, match=r"^pick\(list_iterator\) at .*gave its places to an earlier one; give"):
        next(iter(ds))


def test_of_two_threads_that_start_at_once_one_has_the_iterator() -> None:
    both = threading.Barrier(2)

    class Meeting(list[object]):
        """Lets both threads come to the place where they ask for the iterator before either of them goes on."""

        def append(self, item: object) -> None:
            both.wait(20)
            super().append(item)

    ds = Range(20).pick(iter(PLACES))
    assert isinstance(ds.plan, Select)
    object.__setattr__(ds.plan.order, "taken", Meeting())

    def loop() -> list[Any]:
        try:
            return run(ds)
        except gp.PlanError as error:
            return [str(error)]

    with ThreadPoolExecutor(2) as pool:
        found = [task.result(60) for task in [pool.submit(loop), pool.submit(loop)]]

    refused = [one for one in found if one != PLACES]
    assert len(refused) == 1
    assert "gave its places to an earlier one" in refused[0][0]


def test_a_chain_with_an_iterator_has_no_state_and_says_what_has() -> None:
    items = Range(20).batch(2).pick(iter([1, 2])).iterator(epoch=0)
    next(items)
    with pytest.raises(gp.StateError, match=r"pick\(list_iterator\) .* gives them once; give it a list, or a function"):
        items.state_dict()


@pytest.mark.parametrize("name", [name for name in MORE if name not in ("processes",)])
def test_a_chain_with_a_function_goes_on_after_a_state(name: str, tmp_path: Path) -> None:
    goes_on(lambda: MORE[name](tmp_path).pick(lambda: iter(PLACES)), [1, 4])


def test_a_state_of_single_images_goes_on_there_although_places_come_faster(tmp_path: Path) -> None:
    """Groups of images are as large as there are places, so they differ when they are made again."""
    pause = 0.01
    numbers = (*range(39, -1, -1), *range(40))

    def places() -> Iterator[int]:
        for place in numbers:
            time.sleep(pause)
            yield place

    ds = images(tmp_path).map(decoded)
    whole = run(ds.pick(numbers).iterator(epoch=0))
    slow = ds.pick(places)
    for stop in (7, 33):
        pause = 0.01
        with slow.iterator(epoch=0) as items:
            for _ in range(stop):
                next(items)
            state = items.state_dict()
        pause = 0.0
        with slow.iterator(epoch=0) as other:
            other.load_state_dict(state)
            assert run(other) == whole[stop:]


def test_a_state_among_the_rows_of_a_batch_goes_on_there() -> None:
    """A map in threads takes a checkpoint after 64 rows."""
    numbers = [(7 * i) % 100 for i in range(60)]
    batches = Range(500).map(_python, num_parallel_calls=3).batch(5, drop_remainder=True)
    goes_on(lambda: batches.pick(lambda: iter(numbers)), [14, 15, 40])


@pytest.mark.parametrize(("stop", "left"), [(6, 5), (1, 0)])
@pytest.mark.parametrize("threads", [None, 3])
def test_a_state_beyond_the_places_of_today_is_an_error(stop: int, left: int, threads: int | None) -> None:
    numbers = [(7 * i) % 50 for i in range(30)]
    chains = [Range(50).map(_python, num_parallel_calls=threads)]
    chains.append(Range(200).map(_python, num_parallel_calls=threads).batch(4, drop_remainder=True))
    for chain in chains:
        ds = chain.pick(lambda: iter(numbers))
        with ds.iterator(epoch=0) as items:
            for _ in range(stop):
                next(items)
            state = items.state_dict()
        fewer = chain.pick(lambda: iter(numbers[:left]))
        with fewer.iterator(epoch=0) as other, pytest.raises(StateError, match="that the state was taken over"):
            other.load_state_dict(state)
            next(other)
        if threads is None:  # threads have taken elements of later places
            with chain.pick(lambda: iter(numbers[:stop])).iterator(epoch=0) as other:
                other.load_state_dict(state)
                assert list(other) == []


@pytest.mark.parametrize("place", [20, -1, 1.5, True, "3", None, int])
@pytest.mark.parametrize("threads", [0, 3])
def test_what_is_no_place_is_an_error_of_the_step(place: Any, threads: int) -> None:
    ds = Range(20).map(_python, num_parallel_calls=threads or None).pick(iter([3, place]))
    items = iter(ds)
    with pytest.raises(gp.PlanError, match=r"pick at .*test_pick.py:\d+ needs places from 0 to 19, got "):
        for _ in range(2):
            next(items)


@pytest.mark.parametrize("how", ["plain", "threads", "prefetch"])
@pytest.mark.parametrize("leave", ["close", "drop"])
def test_the_iterator_of_a_loop_that_is_left_is_closed_and_no_thread_stays(how: str, leave: str) -> None:
    closed = threading.Event()

    def places() -> Iterator[int]:
        try:
            yield from itertools.cycle(range(20))
        finally:
            closed.set()

    ds = Range(20).pick(places)
    ds = {"plain": ds, "threads": ds.map(_python, num_parallel_calls=3), "prefetch": ds.prefetch(2)}[how]
    items = iter(ds)
    assert [int(next(items)) for _ in range(3)]
    if leave == "close":
        items.close()
    del items
    gc.collect()

    assert closed.wait(20)
    ended("gpupipe-places")


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("threads", [0, 3])
def test_an_iterator_that_raises_is_never_left_out(on_error: Any, threads: int) -> None:
    def places() -> Iterator[int]:
        yield 3
        raise OSError("no weights")

    ds = Range(20).map(_python, num_parallel_calls=threads or None).pick(places)
    items = iter(ds.with_options(gp.Options(on_error=on_error)))
    with pytest.raises(gp.errors.FunctionError, match="no weights"):
        for _ in range(2):
            next(items)
    del items
    gc.collect()
    ended("gpupipe-map")  # the error keeps no run alive


def test_its_length_is_not_known_and_nothing_behind_it_is_indexed() -> None:
    ds = Range(9).pick(iter([1, 2, 3, 4]))
    assert ds.cardinality() == gp.UNKNOWN_CARDINALITY
    with pytest.raises(TypeError, match="its places come while it runs; give it a list"):
        ds[0]
    assert [int(x) for x in ds.shard(2, 1)] == [2, 4]
    assert "pick(list_iterator) by an index, as their places come" in str(ds.explain())
