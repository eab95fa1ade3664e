"""pick with an iterator: elements at places that come while the chain runs."""

from __future__ import annotations

import gc
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe import threads as pools
from gpupipe.errors import StateError
from gpupipe.flow.order.asked import PLACES_AHEAD
from gpupipe.plan.index import Select
from tests.behaviour.model import plain, run
from tests.behaviour.test_pick import CHAINS, PLACES, one_by_one, picked
from tests.chains import damage
from tests.chains.data import parse
from tests.reliability.resume import goes_on

Range = gp.Dataset.range


def seven(x: Any) -> int:
    return int(x) * 7


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


def _without_folder(make: Callable[[], gp.Dataset], folder: Path) -> gp.Dataset:
    return make()


MORE: dict[str, Callable[[Path], gp.Dataset]] = {
    **{name: partial(_without_folder, CHAINS[name]) for name in ("shuffled", "threads", "random", "full batches")},
    "threads below a take": lambda folder: Range(60).map(seven, num_parallel_calls=3).take(20),
    "batches of threads below a take": lambda folder: (
        Range(80).map(seven, num_parallel_calls=3).take(60).batch(3, drop_remainder=True)
    ),
    "two maps in threads below a take": lambda folder: (
        Range(60).map(seven, num_parallel_calls=3).map(seven, num_parallel_calls=2).take(20)
    ),
    "threads below a cache": lambda folder: (
        Range(20).map(seven, num_parallel_calls=3).map(seven, num_parallel_calls=2).cache()
    ),
    "images below a take": lambda folder: images(folder).map(decoded).take(30),
    "threads below a take and behind it": lambda folder: (
        Range(60).map(seven, num_parallel_calls=3).take(20).map(seven, num_parallel_calls=2)
    ),
    "processes": lambda folder: Range(20).map(seven, workers="process", num_parallel_calls=2),
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
def test_places_of_an_iterator_give_the_elements_at_these_places(name: str) -> None:
    ds = CHAINS[name]()

    for given in (iter(PLACES), lambda: iter(PLACES), _Sampler()):
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

    items = Range(60).map(seven).batch(3).pick(places()).iterator(epoch=0)
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
    batches = Range(500).map(seven, num_parallel_calls=3).batch(5, drop_remainder=True)
    goes_on(lambda: batches.pick(lambda: iter(numbers)), [14, 15, 40])


@pytest.mark.parametrize(("stop", "left"), [(6, 5), (1, 0)])
@pytest.mark.parametrize("threads", [None, 3])
def test_a_state_beyond_the_places_of_today_is_an_error(stop: int, left: int, threads: int | None) -> None:
    numbers = [(7 * i) % 50 for i in range(30)]
    chains = [Range(50).map(seven, num_parallel_calls=threads)]
    chains.append(Range(200).map(seven, num_parallel_calls=threads).batch(4, drop_remainder=True))
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
    ds = Range(20).map(seven, num_parallel_calls=threads or None).pick(iter([3, place]))
    items = iter(ds)
    with pytest.raises(gp.PlanError, match=r"pick at .*test_pick_asked.py:\d+ needs places from 0 to 19, got "):
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
    ds = {"plain": ds, "threads": ds.map(seven, num_parallel_calls=3), "prefetch": ds.prefetch(2)}[how]
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

    ds = Range(20).map(seven, num_parallel_calls=threads or None).pick(places)
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
