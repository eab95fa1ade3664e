"""Random chains mean the same on tf.data and on gpupipe."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from tests.differential.tfdata_sides import (
    built,
    learns,
    shown,
)
from tests.selection import QUICK, programs

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]


def _steps(kind: str) -> list[st.SearchStrategy[tuple[Any, ...]]]:
    """Steps for elements of a kind: numbers, pairs of a number and a vector, vectors of any length, batches of each."""
    size = st.integers(1, 4)
    same: list[st.SearchStrategy[tuple[Any, ...]]] = [
        st.tuples(st.just("take"), st.sampled_from([3, 2, 5, 8, -1, 1, 0])),
        st.tuples(st.just("skip"), st.sampled_from([1, 2, 0, 3, -1])),
        st.tuples(st.just("repeat"), st.sampled_from([2, 2, 1, 0])),
        st.integers(1, 3).flatmap(lambda n: st.tuples(st.just("shard"), st.just(n), st.integers(0, n - 1))),
        st.tuples(st.just("prefetch"), st.integers(-1, 2)),
        st.just(("cache",)),
        st.just(("shuffle", 1)),
        st.just(("concatenate itself",)),
    ]
    batch = st.tuples(st.just("batch"), size, st.booleans())
    interleave = st.tuples(st.just("interleave"), st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, 1]))
    kinds: dict[str, list[st.SearchStrategy[tuple[Any, ...]]]] = {
        "number": [
            st.tuples(st.just("map"), st.integers(1, 3), st.sampled_from([None, 2])),
            st.tuples(st.just("filter"), st.integers(2, 3)),
            st.tuples(st.just("zip"), st.integers(0, 9)),
            st.tuples(st.just("enumerate"), st.integers(-2, 2)),
            interleave,
            st.just(("flat_map",)),
            st.just(("to pairs",)),
            st.just(("to dicts",)),
            st.just(("to vectors",)),
            batch,
        ],
        "pair": [
            st.tuples(st.just("filter"), st.integers(2, 3)),
            st.just(("swap twice",)),
            st.just(("to numbers",)),
            st.just(("flat_map",)),
            interleave,
            batch,
        ],
        "dict": [
            st.tuples(st.just("filter"), st.integers(2, 3)),
            st.just(("reverse keys",)),
            st.just(("to numbers",)),
            batch,
            st.tuples(st.just("padded_batch"), size, st.booleans()),
        ],
        "vector": [
            st.tuples(st.just("padded_batch"), size, st.booleans()),
            st.tuples(st.just("padded_batch to"), size),
            st.just(("unbatch",)),
            st.just(("flat_map",)),
            st.just(("reverse",)),
        ],
        "batch": [st.just(("unbatch",)), st.just(("unbatch",)), st.just(("twice",)), batch],
    }
    return same + kinds[kind] * 2


_BECOMES = {"to pairs": "pair", "to dicts": "dict", "to vectors": "vector", "to numbers": "number"}


@st.composite
def _chains(draw: st.DrawFn) -> tuple[int, tuple[tuple[Any, ...], ...]]:
    """A length and steps. What is in the batches is kept on a stack: `unbatch` gives it back."""
    steps: list[tuple[Any, ...]] = []
    kinds = ["number"]
    first = draw(st.sampled_from(["", "to pairs", "to dicts", "to vectors"]))
    if first:
        steps.append((first, "number"))
        kinds = [_BECOMES[first]]
    for _ in range(draw(st.integers(2, 7))):
        kind = kinds[-1]
        # Batches of all but numbers are only taken apart; how deep they are is bounded.
        choices = _steps(kind)
        step = draw(st.one_of(choices))
        if step[0] in ("twice", "batch") and kind == "batch" and (kinds[-2] != "number" or len(kinds) > 3):
            continue
        if step == ("repeat", 0) and any(name == "shuffle" for name, *_ in steps):
            continue  # which is an error in tf.data, where the two become one
        steps.append((step[0], kind, *step[1:]))
        if step[0] in _BECOMES:
            kinds[-1] = _BECOMES[step[0]]
        elif step[0] in ("flat_map", "interleave") and kind in ("pair", "vector"):
            kinds[-1] = "number"
        elif step[0] in ("batch", "padded_batch", "padded_batch to"):
            kinds.append("batch")
        elif step[0] == "unbatch":
            kinds.pop()
            if kind == "vector":
                kinds.append("number")
    return draw(st.sampled_from([7, 9, 5, 8, 3, 2, 1, 0])), tuple(steps)


def _step(D: Any, d: Any, step: tuple[Any, ...]) -> Any:
    match step:
        case ("take" | "skip" | "repeat" | "shard" | "prefetch" | "cache" | "shuffle" as name, _, *args):
            return getattr(d, name)(*args)
        case ("batch" | "padded_batch" as name, _, size, drop):
            return getattr(d, name)(size, drop_remainder=drop)
        case ("padded_batch to", _, size):
            return d.padded_batch(size, padded_shapes=[9], padding_values=np.int64(-1))
        case ("unbatch", *_):
            return d.unbatch()
        case ("concatenate itself", *_):
            return d.concatenate(d)
        case ("map", _, k, calls):
            return d.map(lambda x: x * 2 + k, num_parallel_calls=calls)
        case ("filter", "number", m):
            return d.filter(lambda x: x % m != 0)
        case ("filter", "pair", m):
            return d.filter(lambda x, v: (x + v[0]) % m != 0)
        case ("filter", "dict", m):
            return d.filter(lambda e: e["b"][0] % m == 0)
        case ("zip", _, n):
            return D.zip(d, D.range(n)).map(lambda a, b: a * 7 + b)
        case ("enumerate", _, start):
            return d.enumerate(start).map(lambda i, x: i * 100 + x)
        case ("flat_map", "number"):
            return d.flat_map(lambda x: D.range(x % 3).map(lambda y: y + x))
        case ("flat_map", "pair"):
            return d.flat_map(lambda x, v: D.from_tensor_slices(v))
        case ("flat_map", "vector"):
            return d.flat_map(lambda v: D.from_tensor_slices(v))
        case ("interleave", "number", cycle, block, calls):
            return d.interleave(lambda x: D.range(x % 4), cycle, block, num_parallel_calls=calls)
        case ("interleave", "pair", cycle, block, calls):
            return d.interleave(lambda x, v: D.from_tensor_slices(v), cycle, block, num_parallel_calls=calls)
        case ("to pairs", *_):
            return D.zip(d, d.map(lambda x: x + 1)).map(lambda a, b: (a, [a, b]))
        case ("to dicts", *_):
            return d.map(lambda x: {"b": (x % 5, x), "a": x * x})
        case ("to vectors", *_):
            return d.flat_map(lambda x: D.range(x % 5 + 1).batch(9))
        case ("to numbers", "pair"):
            return d.map(lambda x, v: x * 10 + v[1])
        case ("to numbers", "dict"):
            return d.map(lambda e: e["a"] + e["b"][0])
        case ("swap twice", *_):
            return d.map(lambda x, v: (v, x)).map(lambda v, x: (x, v))
        case ("reverse keys", *_):
            return d.map(lambda e: {"a": e["a"], "b": e["b"]})
        case ("reverse", *_):
            return d.map(lambda v: v[::-1])
        case ("twice", *_):
            return d.map(lambda x: x + x)
    raise AssertionError(step)


@pytest.mark.programs
def test_random_chains_mean_the_same(tf: Any) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=programs(150), deadline=None, database=None, derandomize=True)
    @given(program=_chains())
    def compare(program: tuple[int, tuple[tuple[Any, ...], ...]]) -> None:
        count, steps = program

        def chain(D: Any) -> Any:
            d = D.range(count)
            for step in steps:
                d = _step(D, d, step)
            return d.take(60)

        theirs, ours = built(tf, chain), chain(gp.Dataset)
        expected = [shown(x) for x in theirs]

        assert [shown(x) for x in ours] == expected
        known = int(theirs.cardinality())
        right = [known] if known >= 0 else [gp.UNKNOWN_CARDINALITY, len(expected)]
        assert ours.cardinality() in [*right, *[gp.UNKNOWN_CARDINALITY] * learns(ours)]
        seen.update(f"{step[0]} {step[1]}" for step in steps if expected)

    compare()
    # How many of the kinds of steps had elements to show, twice or more.
    assert sum(count >= 2 for count in seen.values()) >= 50 or QUICK, seen
