"""States of versions of the format that are still read: `states-7.json` was written by a gpupipe that wrote version 7.

`python -c 'from tests.reliability.test_old_states import main; main()'` prints such a file, of the version that the
running gpupipe writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp

Range = gp.Dataset.range
AFTER = 3
"""Elements that were taken before each state."""


def broken(x: Any) -> Any:
    if int(x) == 7:
        raise ValueError("seven")
    return x


def with_a_bad_one(rank: int, world: int) -> gp.Dataset:
    """Behind a bad element of a rank, a state says nothing of the others."""
    return Range(64).map(broken).batch(8).by_rank(rank, world, check=False)


def mixed(batch: int = 8) -> gp.Dataset:
    return Range(200).shuffle(gp.ALL, seed=1).batch(batch)


CHAINS: dict[str, Callable[[], gp.Dataset]] = {
    "a chain that can be indexed": mixed,
    "a window shuffle": lambda: Range(200).shuffle(16, seed=1).batch(8).prefetch(2),
    "streams": lambda: Range(200).shuffle(gp.ALL, seed=1, streams=4, window=10).batch(8),
    "pick": lambda: mixed().pick(list(range(20, 0, -2))),
    "repeat": lambda: Range(9).shuffle(4, seed=1).repeat(3),
    "a shard": lambda: Range(200).shuffle(gp.ALL, seed=1).shard(2, 1).batch(4),
    "a shard of batches": lambda: mixed().shard(2, 1),
    "a rank": lambda: mixed().by_rank(1, 2, check=False),
    "a rank whose steps hold elements": lambda: mixed().by_rank(1, 2, check=False).unbatch().batch(3),
}


def lists(items: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in items]


def states() -> dict[str, Any]:
    """A state of each chain, in epoch 2."""
    found = {}
    for name, chain in CHAINS.items():
        with chain().iterator(epoch=2) as items:
            for _ in range(AFTER):
                next(items)
            found[name] = items.state_dict()
    with with_a_bad_one(1, 2).iterator(epoch=2) as items:
        with suppress(gp.DataError):
            next(items)
        found["a rank with a bad element"] = items.state_dict()
    return found


@pytest.fixture(scope="module")
def old() -> dict[str, Any]:
    text = Path(__file__).with_name("states-7.json").read_text()
    found: dict[str, Any] = json.loads(text)
    assert {state["gpupipe_state"] for state in found.values()} == {7}
    return found


@pytest.mark.parametrize("name", CHAINS)
def test_an_old_state_goes_on(name: str, old: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with CHAINS[name]().iterator(epoch=2) as items:
        whole = lists(items)
    with CHAINS[name]().iterator(epoch=2) as items:
        items.load_state_dict(old[name])
        assert lists(items) == whole[AFTER:]
    assert len(whole) > AFTER
    assert caplog.text == ""


def test_an_old_state_of_ranks_goes_on_with_any_number_of_them(old: dict[str, Any]) -> None:
    whole = lists(mixed().iterator(epoch=2))
    for world in (1, 2, 4):
        with mixed().by_rank(world - 1, world, check=False).iterator(epoch=2) as items:
            items.load_state_dict(old["a rank"])
            assert lists(items) == [batch[world - 1 :: world] for batch in whole[AFTER:]]


def test_an_old_state_of_a_shard_goes_on_in_another_number_of_them(old: dict[str, Any]) -> None:
    whole = lists(Range(200).shuffle(gp.ALL, seed=1).iterator(epoch=2))
    with Range(200).shuffle(gp.ALL, seed=1).shard(4, 3).batch(4).iterator(epoch=2) as items:
        items.load_state_dict(old["a shard"])
        assert [x for batch in items for x in batch.tolist()] == whole[24:][3::4]


def test_a_loop_does_not_take_an_old_state_of_ranks_nor_ranks_one_of_a_loop(old: dict[str, Any]) -> None:
    with mixed().iterator(epoch=2) as items, pytest.raises(gp.StateError, match="needs a state of this chain"):
        items.load_state_dict(old["a rank"])
    rank = mixed().by_rank(1, 2, check=False)
    with rank.iterator(epoch=2) as items, pytest.raises(gp.StateError, match="needs a state of this chain"):
        items.load_state_dict(old["a chain that can be indexed"])


def test_an_old_state_of_steps_that_hold_elements_is_still_of_one_rank(old: dict[str, Any]) -> None:
    other = mixed().by_rank(0, 4, check=False).unbatch().batch(3)
    with other.iterator(epoch=2) as items, pytest.raises(gp.StateError, match="got one of rank 1 of 2 on rank 0 of 4"):
        items.load_state_dict(old["a rank whose steps hold elements"])


def test_an_old_state_behind_a_bad_element_is_still_of_one_rank(old: dict[str, Any]) -> None:
    other, text = with_a_bad_one(0, 4), "a state that says how far all shards were"
    with other.iterator(epoch=2) as items, pytest.raises(gp.StateError, match=text):
        items.load_state_dict(old["a rank with a bad element"])
    with with_a_bad_one(1, 2).iterator(epoch=2) as items:
        items.load_state_dict(old["a rank with a bad element"])
        assert lists(items)[0] == [9, 11, 13, 15]


def main() -> None:
    json.dump(states(), sys.stdout, indent=1)
