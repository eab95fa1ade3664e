"""shuffle: what must hold whatever the numbers are."""

from __future__ import annotations

import pickle
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, compat, set_seed
from gpupipe.extract.storage.names import Names
from gpupipe.flow.access import access
from gpupipe.flow.element import Element
from gpupipe.flow.order import shuffle_by_index
from gpupipe.flow.order.shuffle import ShuffleFlow
from gpupipe.flow.order.shuffle_by_index import ShuffleByIndexFlow, has_cheap_index
from gpupipe.flow.run import Context, Flow, Run
from gpupipe.flow.sources.arrays import FilesFlow, RangeFlow, SlicesFlow
from gpupipe.flow.state.snapshot import Counted, State, to_json
from gpupipe.flow.step import Running
from gpupipe.random import hash64, mix64
from gpupipe.spec import byte_array
from tests.behaviour.model import run, take_until_closed


def test_the_bound_is_reached_and_elements_may_wait_long() -> None:
    ahead, waited = 0, 0
    for epoch in range(25):
        for p, index in enumerate(run(Dataset.range(60).shuffle(10).iterator(epoch=epoch))):
            ahead, waited = max(ahead, index - p), max(waited, p - index)

    assert ahead == 9
    assert waited > 30  # there is no lower bound: an element waits for ever with probability (9/10)**k


def test_a_buffer_of_everything_is_a_uniform_permutation() -> None:
    n, epochs = 5, 1200
    places = np.zeros((n, n))
    orders: Counter[tuple[int, ...]] = Counter()
    dataset = Dataset.range(n).shuffle(n)
    for epoch in range(epochs):
        order = run(dataset.iterator(epoch=epoch))
        orders[tuple(order)] += 1
        places[order, range(n)] += 1

    # Fixed seeds: no flake. 5 standard deviations of a binomial for each place; for the orders a chi-square (119
    # degrees of freedom, standard deviation 15.4) within 5 of them.
    expected = epochs / n
    assert abs(places - expected).max() < 5 * (epochs * (1 / n) * (1 - 1 / n)) ** 0.5
    mean = epochs / 120
    chi = sum((orders[order] - mean) ** 2 / mean for order in orders) + (120 - len(orders)) * mean
    assert abs(chi - 119) < 5 * 15.4


def test_every_slot_of_a_small_buffer_is_equally_likely() -> None:
    dataset = Dataset.range(40).shuffle(4)
    first = Counter(int(next(dataset.iterator(epoch=epoch))) for epoch in range(1000))

    assert set(first) == {0, 1, 2, 3}
    assert all(abs(count - 250) < 5 * (1000 * 0.25 * 0.75) ** 0.5 for count in first.values())


def test_without_reshuffling_every_epoch_has_one_order() -> None:
    fixed = Dataset.range(30).shuffle(30, reshuffle_each_iteration=False)

    assert run(fixed) == run(fixed) != list(range(30))


def test_the_seed_of_the_chain_counts() -> None:
    dataset = Dataset.range(30).shuffle(30, seed=1)
    default = run(dataset.iterator(epoch=0))

    assert run(dataset.with_options(Options(seed=0)).iterator(epoch=0)) == default
    assert run(dataset.with_options(Options(seed=5)).iterator(epoch=0)) != default
    set_seed(5)
    try:
        assert run(dataset.iterator(epoch=0)) == run(dataset.with_options(Options(seed=5)).iterator(epoch=0))
    finally:
        set_seed(0)


def test_a_large_buffer_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        assert sorted(run(Dataset.range(5).shuffle(10**12))) == list(range(5))
        assert sorted(run(Dataset.range(5).shuffle(10**12).repeat(2))) == sorted([*range(5)] * 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 5_000_000


# ---- of an unknown number of elements

ODD = Dataset.range(40).filter(lambda x: x % 2 == 1)


def test_a_shuffle_by_an_unknown_cardinality_is_one_of_everything() -> None:
    shuffled = ODD.shuffle(ODD.cardinality(), seed=1)

    assert run(shuffled.iterator(epoch=0)) == run(ODD.shuffle(1000, seed=1).iterator(epoch=0)) != run(ODD)
    assert sorted(run(shuffled)) == run(ODD)
    assert shuffled.cardinality() == gp.UNKNOWN_CARDINALITY


def test_passes_never_mix_and_each_has_its_own_order() -> None:
    twice = run(ODD.shuffle(-2, seed=1).repeat(2).iterator(epoch=0))

    assert sorted(twice[:20]) == sorted(twice[20:]) == run(ODD)
    assert twice[:20] != twice[20:]
    assert run(ODD.apply(compat.shuffle_and_repeat(-2, 2, seed=1)).iterator(epoch=0)) == twice


@pytest.mark.parametrize("endless", [ODD.repeat(), Dataset.range(3).repeat().batch(2), Dataset.counter()])
@pytest.mark.parametrize("size", [gp.UNKNOWN_CARDINALITY, gp.INFINITE_CARDINALITY])
def test_what_has_no_end_is_refused(endless: Dataset, size: int) -> None:
    with pytest.raises(gp.PlanError, match="needs a dataset that ends, got an infinite one; shuffle before repeat"):
        endless.shuffle(size)


def test_any_other_negative_number_is_refused() -> None:
    for size in (0, -1, -3):
        with pytest.raises(gp.PlanError, match=r"buffer_size >= 1, .*use gpupipe.ALL, or UNKNOWN_CARDINALITY where"):
            ODD.shuffle(size)


# ---- a shuffle over what has places holds places: elements, identities and order are those of any other

PATHS = [f"/data/{i % 7}/{i % 9}.jpg" for i in range(300)]  # some are listed more than once

SOURCES: dict[str, Flow] = {
    "range": RangeFlow(range(5, 700, 3), np.dtype("int32")),
    "range of floats": RangeFlow(range(2**53 - 9, 2**53 + 9), np.dtype("float32")),
    "empty": RangeFlow(range(0), np.dtype("int64")),
    "slices": SlicesFlow(
        (np.arange(200.0), np.arange(400).reshape(200, 2), byte_array([b"%d" % i for i in range(200)]))
    ),
    "rows of several types": SlicesFlow(((b"a", b"b", b"c"), (np.arange(2), np.arange(3), np.arange(4)))),
    "named": SlicesFlow((byte_array([p.encode() for p in PATHS]), np.arange(300)), names=Names(PATHS)),
    "files": FilesFlow(tuple(PATHS), Names(PATHS)),
}


class Passed:
    """A flow that gives what another one gives, and has no places."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def open(self, at: Context, state: State = None) -> Running:
        done = 0 if state is None else state["n"]
        return Counted(islice(self.flow.open(at), done, None), done=done)


def at_epoch(epoch: int = 0) -> Context:
    return Context(Run(Options().resolve()), epoch).in_zip(3, epoch % 2)


def shown(elements: Iterator[Element]) -> list[Any]:
    """Elements with their types and identities."""
    return [
        ([(type(c), getattr(c, "dtype", None), np.asarray(c).tolist()) for c in value], s.key, s.name, s.unit, position)
        for value, s, position in elements
    ]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("size", [1, 2, 128, 200, 201, 10_000])
@pytest.mark.parametrize("repeat", [1, 3])
def test_what_leaves_is_what_leaves_a_buffer_of_elements(name: str, size: int, repeat: int) -> None:
    source, at = SOURCES[name], at_epoch(size % 3)
    assert has_cheap_index(source)

    ours = shown(ShuffleByIndexFlow(source, size, 7, True, repeat).open(at))

    assert ours == shown(ShuffleFlow(Passed(source), size, 7, True, repeat).open(at))


@pytest.mark.parametrize("name", SOURCES)
def test_one_place_has_what_iterating_gives(name: str) -> None:
    source, at = SOURCES[name], at_epoch(1)
    found = access(source, at)

    assert shown(found.one(place) for place in range(found.size)) == shown(source.open(at))


def test_listed_files_are_keyed_by_name_and_by_how_often_it_came_before() -> None:
    at, seen = at_epoch(2), dict.fromkeys(PATHS, 0)
    expected = []
    assert len(seen) < len(PATHS)
    for path in PATHS:
        expected.append(mix64(mix64(at.key, hash64(path)), seen[path]))
        seen[path] += 1
    names = Names(PATHS)
    names.hashes(np.array([7, 3, 7]))

    for again in (names, pickle.loads(pickle.dumps(names))):
        assert [stream.key for _, stream, _ in FilesFlow(tuple(PATHS), again).open(at)] == expected


class Asked(tuple[Any, ...]):
    """A column that counts how often it is asked for a row."""

    times = 0

    def __getitem__(self, place: Any) -> Any:
        Asked.times += 1
        return super().__getitem__(place)


def test_filling_the_buffer_makes_no_element() -> None:
    items = ShuffleByIndexFlow(SlicesFlow((Asked([b"a"] * 10_000),)), 10_000, 1).open(at_epoch())
    Asked.times = 0

    next(items)

    assert 1 <= Asked.times <= 128


@pytest.mark.parametrize(
    ("changed", "message"), [({"places": "x"}, "damaged"), ({"taken": -1}, "number >= 0")], ids=str
)
def test_a_state_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    flow = ShuffleByIndexFlow(RangeFlow(range(500), np.dtype("int64")), 200, 3)
    items: Any = flow.open(at_epoch())
    list(islice(items, 150))
    state = to_json(items.snapshot())

    with pytest.raises(gp.StateError, match=message):
        flow.open(at_epoch(), {**state, "pass": {**state["pass"], **changed}})


def test_an_endless_fill_can_be_stopped() -> None:
    items = iter(Dataset.range(10**15).shuffle(10**15))
    threading.Timer(0.3, items.close).start()

    taken: list[Any] = []
    take_until_closed(items, taken)
    assert taken == []


@pytest.mark.parametrize(("size", "batch"), [(10_000, 1000), (100_000, 100)])
def test_the_buffer_is_seldom_copied_for_states_that_nobody_asks_for(
    monkeypatch: pytest.MonkeyPatch, size: int, batch: int
) -> None:
    snapshots = []
    snapshot = shuffle_by_index._Shuffled.snapshot

    def counted(self: shuffle_by_index._Shuffled) -> State:
        snapshots.append(1)
        return snapshot(self)

    monkeypatch.setattr(shuffle_by_index._Shuffled, "snapshot", counted)

    for _ in Dataset.range(100_000).shuffle(size, seed=1).batch(batch):
        pass

    assert 0 < len(snapshots) <= 101  # not twice for a batch, and the more seldom the larger the buffer is
