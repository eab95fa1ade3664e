"""Equal seeds in the inputs of a zip, on tf.data and on gpupipe: the same chains pair their inputs on both, each epoch.

Which order it is differs: draws are gpupipe's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpupipe as gp
from tests.behaviour.model import plain

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

N = 24


def _range(d: Any) -> Any:
    return d.range(N)


def _pair(f: Callable[[Any], Any], d: Any) -> Any:
    return d.zip((f(_range(d)), f(_range(d))))


def _choice(d: Any) -> Any:
    return d.range(2).repeat(N)


PAIRED: dict[str, Callable[[Any], Any]] = {
    "shuffle": lambda d: _pair(lambda x: x.shuffle(100, seed=1), d),
    "one order for all epochs": lambda d: _pair(lambda x: x.shuffle(100, 1, reshuffle_each_iteration=False), d),
    "repeat, shuffle": lambda d: _pair(lambda x: x.repeat(3).shuffle(100, seed=1), d),
    "shuffle, shard": lambda d: _pair(lambda x: x.shuffle(100, seed=1).shard(2, 1), d),
    "shuffle, concatenate": lambda d: _pair(lambda x: x.shuffle(100, seed=1).concatenate(x.shuffle(9, seed=2)), d),
    "sample_from_datasets": lambda d: _pair(lambda x: d.sample_from_datasets([x, x.skip(5)], seed=1), d),
    "choose_from_datasets": lambda d: _pair(
        lambda x: d.choose_from_datasets([x.shuffle(9, seed=1), x.shuffle(9, seed=2)], _choice(d)), d
    ),
    "random": lambda d: d.zip((d.random(seed=1).take(N), d.random(seed=1))),
    "one input is concatenated": lambda d: d.zip(
        (_range(d).shuffle(100, seed=1).repeat(2), d.range(9).concatenate(d.range(9, N)).shuffle(100, seed=1).repeat(2))
    ),
    "a zip of zips": lambda d: d.zip(
        (_pair(lambda x: x.shuffle(100, seed=1).repeat(2), d), _range(d).shuffle(100, seed=1).repeat(2))
    ).map(lambda ab, c: (ab[0], ab[1], c)),
    "a zip inside flat_map": lambda d: d.range(3).flat_map(lambda i: _pair(lambda x: x.shuffle(100, seed=1), d)),
    "inner datasets": lambda d: _pair(lambda x: x.flat_map(lambda i: d.range(5).shuffle(5, seed=1)), d),
    "a zip, then repeat": lambda d: _pair(lambda x: x.shuffle(100, seed=1), d).repeat(2),
}


@pytest.mark.parametrize("chain", PAIRED.values(), ids=PAIRED.keys())
def test_inputs_of_one_seed_pair_on_both(tf: Any, chain: Callable[[Any], Any]) -> None:
    ours, theirs = chain(gp.Dataset), chain(tf.data.Dataset)

    for _ in range(3):
        expected = [tuple(map(int, pair)) for pair in theirs.as_numpy_iterator()]
        got = [plain(pair) for pair in ours]

        assert all(len(set(pair)) == 1 for pair in expected)
        assert all(len(set(pair)) == 1 for pair in got)
        assert len(got) == len(expected) or "sample" in str(chain.__code__.co_names)  # an empty one is drawn elsewhere


@pytest.mark.parametrize("seeds", [(None, None), (1, None), (1, 2)], ids=str)
def test_inputs_of_other_seeds_part_on_both(tf: Any, seeds: tuple[int | None, int | None]) -> None:
    for d in (gp.Dataset, tf.data.Dataset):
        zipped = d.zip(tuple(_range(d).shuffle(100, seed=seed) for seed in seeds))

        assert all(sum(int(a) == int(b) for a, b in zipped) < 9 for _ in range(3))
