"""States of N shards are taken by M shards, where all had stopped at the same element of the whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import StateError
from tests.chains import damage
from tests.reliability.resume import taken, through_json
from tests.reliability.test_resume_images import crop

Build = Any


def states_of(build: Build, shards: int, count: int) -> tuple[list[Any], list[Any]]:
    """What all shards give in `count` elements each, and their states."""
    given, states = [], []
    for index in range(shards):
        with iter(build(shards, index)) as items:
            given += taken(items, count)
            states.append(through_json(items.state_dict()))
    return given, states


def rest_of(build: Build, shards: int, state: Any) -> list[Any]:
    found = []
    for index in range(shards):
        with build(shards, index).iterator(epoch=0) as items:
            items.load_state_dict(state)
            found += taken(items)
    return found


def rows(elements: list[Any]) -> Counter[Any]:
    """The rows of batches, by their bytes."""
    found: Counter[Any] = Counter()
    for _, leaves in elements:
        dtype, shape, data = leaves[-1]
        values = np.frombuffer(data, dtype).reshape(shape) if isinstance(data, bytes) else np.array(data)
        found.update(np.ravel(values).tolist())
    return found


CHAINS: dict[str, Build] = {
    "elements": lambda n, i: gp.Dataset.range(101).shard(n, i),
    "batches": lambda n, i: gp.Dataset.range(101).shard(n, i).batch(3).prefetch(1),
    "a global shuffle": lambda n, i: (
        gp.Dataset.range(101).shuffle(gp.ALL, seed=4).shard(n, i).map(lambda x: x * 2).batch(4)
    ),
    "a shard of batches": lambda n, i: gp.Dataset.range(101).shuffle(gp.ALL, seed=4).batch(2).shard(n, i).prefetch(1),
    "a repeat": lambda n, i: gp.Dataset.range(31).repeat(4).shard(n, i).batch(2),
}


def numbers() -> Any:
    yield from (np.int64(i) for i in range(101))


def evenly(even: Any) -> dict[str, Build]:
    """Chains whose shards are of one size."""
    return {
        "elements": lambda n, i: gp.Dataset.range(101).shard(n, i, even=even),
        "batches": lambda n, i: gp.Dataset.range(101).shard(n, i, even=even).batch(3).prefetch(1),
        "a global shuffle": lambda n, i: (
            gp.Dataset.range(101).shuffle(gp.ALL, seed=4).shard(n, i, even=even).map(lambda x: x * 2).batch(4)
        ),
        "a shard of batches": lambda n, i: gp.Dataset.range(101).batch(1).prefetch(1).shard(n, i, even=even),
        "a stream": lambda n, i: (
            gp.Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64"))
            .filter(lambda x: x % 2 == 0)
            .shuffle(7, seed=1)
            .shard(n, i, even=even)
            .batch(2)
        ),
    }


@pytest.mark.parametrize("counts", [(1, 2), (2, 4), (4, 3), (3, 1), (2, 5), (3, 3)])
@pytest.mark.parametrize("name", CHAINS)
def test_nothing_is_lost_and_nothing_comes_twice(name: str, counts: tuple[int, int]) -> None:
    build = CHAINS[name]
    before, after = counts
    whole = rows(taken(iter(build(1, 0))))
    for count in (0, 1, 3, 5):
        given, states = states_of(build, before, count)
        assert rows(given) + rows(rest_of(build, after, states)) == whole
        if before != after:
            assert rows(given) + rows(rest_of(build, after, states[0])) == whole


@pytest.mark.parametrize("counts", [(1, 2), (4, 3), (2, 5)])
@pytest.mark.parametrize("even", ["drop", "wrap"])
@pytest.mark.parametrize("name", evenly(None))
def test_even_shards_stay_even_in_other_numbers(name: str, even: str, counts: tuple[int, int]) -> None:
    build = evenly(even)[name]
    before, after = counts
    whole = rows(taken(iter(evenly(None)[name](1, 0))))
    for count in (0, 1, 3, 5):
        given, states = states_of(build, before, count)
        rests = []
        for index in range(after):
            with iter(build(after, index)) as items:
                items.load_state_dict(states if index % 2 else states[0])
                rests.append(taken(items))
        assert len(set(map(len, rests))) == 1
        assert len({tuple(sorted(map(len_of, rest))) for rest in rests}) == 1
        found = rows(given) + rows([element for rest in rests for element in rest])
        if even == "drop":
            assert found <= whole
            assert (whole - found).total() == (whole.total() - rows(given).total()) % after
        else:
            assert found >= whole
            assert (found - whole).total() == -(whole.total() - rows(given).total()) % after


def len_of(element: Any) -> int:
    """The rows of a batch."""
    return sum(rows([element]).values())


@pytest.mark.parametrize("even", ["drop", "wrap"])
def test_an_epoch_that_has_ended_has_ended_for_other_shards_too(even: str) -> None:
    build = evenly(even)["elements"]
    given, states = states_of(build, 4, 1000)

    assert len(given) == (100 if even == "drop" else 104)
    assert rest_of(build, 1, states) == []
    assert rest_of(build, 3, states[2]) == []


def test_a_take_that_depends_on_the_number_of_shards_is_named() -> None:
    def build(n: int, i: int) -> Any:
        return gp.Dataset.range(255).map(lambda x: x + 1).take(255 // n * n).shard(n, i).batch(8)

    _, states = states_of(build, 2, 3)
    refused(
        build,
        4,
        states[0],
        r"needs a take that does not depend on the number of shards, to continue in shard 0 of 4 after one of 2: step "
        r"3 was take\(254\), where this one has take\(252\) \(at .*test_reshard.py:\d+\); leave the take out and write "
        r"shard\(4, 0, even='drop'\)",
    )


def test_what_differs_beside_the_shard_is_named() -> None:
    def build(n: int, i: int) -> Any:
        return gp.Dataset.range(255).shard(n, i).batch(32 // n)

    _, states = states_of(build, 2, 3)
    refused(build, 4, states, r"or of other shards of it, got one whose step 3 was batch\(16\), .* batch\(8\)")
    refused(
        lambda n, i: gp.Dataset.range(255).shard(n, i, even="wrap").batch(16),
        4,
        states[0],
        r"step 2 was shard\(2, 0\), where this one has shard\(4, 0, even='wrap'\)",
    )


def test_shards_are_changed_twice_and_states_taken_in_between() -> None:
    build = CHAINS["a global shuffle"]
    whole = rows(taken(iter(build(1, 0))))
    found, states = Counter[Any](), None
    for shards in (1, 2, 4, 3):
        following = []
        for index in range(shards):
            with iter(build(shards, index)) as items:
                if states is not None:
                    items.load_state_dict(states)
                found += rows(taken(items, 2))
                following.append(through_json(items.state_dict()))
            with iter(build(shards, index)) as items:  # the same shard goes on by its own state
                items.load_state_dict(following[-1])
        states = following
    assert (
        found
        + rows([element for index, state in enumerate(states or []) for element in own_rest(build, 3, index, state)])
        == whole
    )


def own_rest(build: Build, shards: int, index: int, state: Any) -> list[Any]:
    with iter(build(shards, index)) as items:
        items.load_state_dict(state)
        return taken(items)


def test_images_keep_their_crops_in_other_shards(tmp_path: Path) -> None:
    damage.write(tmp_path / "a.tfrecord", [damage.example(i) for i in range(24)])

    def build(n: int, i: int) -> Any:
        ds = gp.TFRecordDataset(str(tmp_path / "a.tfrecord")).shard(n, i).map(crop)
        return ds.with_options(gp.Options(device="cpu", backend="numpy"))

    whole = sorted(map(repr, taken(iter(build(1, 0)))))
    given, states = states_of(build, 2, 5)
    assert sorted(map(repr, given + rest_of(build, 3, states))) == whole


def refused(build: Build, shards: int, state: Any, match: str) -> None:
    with iter(build(shards, 0)) as items, pytest.raises(StateError, match=match):
        items.load_state_dict(state)


def test_shards_that_stopped_at_several_places_are_refused() -> None:
    build = CHAINS["batches"]
    _, states = states_of(build, 3, 4)
    _, others = states_of(build, 3, 3)
    refused(build, 2, [states[0], states[1], others[2]], "all stopped at the same element")
    refused(build, 2, states[:2], "states of all shards, each once")
    refused(build, 2, [states[0], states[0], states[1]], "states of all shards, each once")


def test_a_chain_that_holds_elements_behind_its_shard_is_refused() -> None:
    def build(n: int, i: int) -> Any:
        return gp.Dataset.range(40).shard(n, i).shuffle(5)

    _, states = states_of(build, 2, 3)
    refused(build, 3, states[0], r"step 2 was shard\(2, 0\), where this one has shard\(3, 0\)")


def odd(x: Any) -> Any:
    if int(x) == 5:
        raise ValueError("five")
    return x


def test_bad_elements_that_were_left_out_are_refused() -> None:
    def build(n: int, i: int) -> Any:
        return gp.Dataset.range(40).map(odd).shard(n, i).batch(2).with_options(gp.Options(on_error="skip"))

    _, states = states_of(build, 2, 4)
    refused(build, 3, states[1], "had bad elements")


def test_later_epochs_are_whole() -> None:
    def build(n: int, i: int) -> Any:
        return gp.Dataset.range(12).shard(n, i)

    with build(2, 0).epochs(3) as items:
        taken(items, 2)
        state = items.state_dict()
    with build(1, 0).epochs(3) as items:
        items.load_state_dict(state)
        assert len(taken(items)) == 8 + 12 + 12


@pytest.mark.parametrize("even", [None, "drop", "wrap"])
def test_a_list_of_the_states_of_all_shards_goes_on_with_its_own(even: Any) -> None:
    def build(index: int) -> Any:
        return gp.Dataset.range(9).shard(2, index, even=even).batch(1)

    wholes = [[int(x[0]) for x in build(i).iterator(epoch=0)] for i in range(2)]
    states = []
    for i in range(2):
        with iter(build(i)) as items:
            next(items)
            next(items)
            states.append(items.state_dict())

    for i in range(2):
        with iter(build(i)) as items:
            items.load_state_dict(states)
            assert [int(x[0]) for x in items] == wholes[i][2:]
