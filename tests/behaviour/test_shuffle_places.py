"""A shuffle over what has places holds places: elements, identities and order are those of any other shuffle."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options
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
from tests.behaviour.model import take_until_closed
from tests.reliability.resume import through_json

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
def test_what_is_made_by_place_is_what_iterating_gives(name: str) -> None:
    source, at = SOURCES[name], at_epoch(1)
    all_of_it = shown(source.open(at))
    places = [random.Random(3).randrange(len(all_of_it)) for _ in range(500)] if all_of_it else []

    found = access(source, at)

    assert found.size == len(all_of_it)
    assert shown(found.pick(iter([np.array(places[:9], int), np.array(places[9:], int)]))) == [
        all_of_it[place] for place in places
    ]
    assert shown(iter([found.one(place) for place in places[:20]])) == [all_of_it[place] for place in places[:20]]
    for done in {0, 1, len(all_of_it) // 2, len(all_of_it)}:
        assert shown(source.open(at, {"n": done})) == all_of_it[done:]


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


def test_a_state_of_a_state_is_the_state_that_was_there() -> None:
    flow = ShuffleByIndexFlow(RangeFlow(range(500), np.dtype("int64")), 200, 3)
    for count in (0, 1, 130, 299, 300, 301, 302, 400, 499, 500):
        items: Any = flow.open(at_epoch())
        list(islice(items, count))
        state = through_json(to_json(items.snapshot()))

        again: Any = flow.open(at_epoch(), state)

        assert through_json(to_json(again.snapshot())) == state
        assert shown(again) == shown(items)


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
