"""Random chains mean the same on tf.data and on gpupipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from tests.differential.tfdata_sides import built, learns, shown
from tests.selection import QUICK, programs

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]


class Step(NamedTuple):
    """Adds a step to `d`, a dataset of the library of `D`. A step that makes "rows" gives back what a batch holds."""

    add: Callable[..., Any]
    given: st.SearchStrategy[tuple[Any, ...]] = st.just(())
    makes: str = ""


def _numbers(*values: int | None) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.sampled_from(values))


SIZE = st.tuples(st.integers(1, 4), st.booleans())
CYCLES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, 1]))
BATCH = Step(lambda D, d, *given: d.batch(*given), SIZE, "batch")
PADDED = Step(lambda D, d, n, drop: d.padded_batch(n, drop_remainder=drop), SIZE, "batch")

ANY: dict[str, Step] = {
    "take": Step(lambda D, d, n: d.take(n), _numbers(3, 2, 5, 8, -1, 1, 0)),
    "skip": Step(lambda D, d, n: d.skip(n), _numbers(1, 2, 0, 3, -1)),
    "repeat": Step(lambda D, d, n: d.repeat(n), _numbers(2, 2, 1, 0)),
    "shard": Step(lambda D, d, *given: d.shard(*given), st.sampled_from([(1, 0), (2, 0), (2, 1), (3, 0), (3, 2)])),
    "prefetch": Step(lambda D, d, n: d.prefetch(n), _numbers(-1, 0, 1, 2)),
    "cache": Step(lambda D, d: d.cache()),
    "shuffle": Step(lambda D, d: d.shuffle(1)),
    "concatenate itself": Step(lambda D, d: d.concatenate(d)),
}
OF_KIND: dict[str, dict[str, Step]] = {
    "number": {
        "map": Step(lambda D, d, k, calls: d.map(lambda x: x * 2 + k, num_parallel_calls=calls),
                    st.tuples(st.integers(1, 3), st.sampled_from([None, 2]))),
        "filter": Step(lambda D, d, m: d.filter(lambda x: x % m != 0), _numbers(2, 3)),
        "zip": Step(lambda D, d, n: D.zip(d, D.range(n)).map(lambda a, b: a * 7 + b), _numbers(*range(10))),
        "enumerate": Step(lambda D, d, n: d.enumerate(n).map(lambda i, x: i * 100 + x), _numbers(-2, -1, 0, 1, 2)),
        "interleave": Step(lambda D, d, cycle, block, calls:
                           d.interleave(lambda x: D.range(x % 4), cycle, block, num_parallel_calls=calls), CYCLES),
        "flat_map": Step(lambda D, d: d.flat_map(lambda x: D.range(x % 3).map(lambda y: y + x))),
        "to pairs": Step(lambda D, d: D.zip(d, d.map(lambda x: x + 1)).map(lambda a, b: (a, [a, b])), makes="pair"),
        "to dicts": Step(lambda D, d: d.map(lambda x: {"b": (x % 5, x), "a": x * x}), makes="dict"),
        "to vectors": Step(lambda D, d: d.flat_map(lambda x: D.range(x % 5 + 1).batch(9)), makes="vector"),
        "batch": BATCH,
    },
    "pair": {
        "filter": Step(lambda D, d, m: d.filter(lambda x, v: (x + v[0]) % m != 0), _numbers(2, 3)),
        "swap twice": Step(lambda D, d: d.map(lambda x, v: (v, x)).map(lambda v, x: (x, v))),
        "to numbers": Step(lambda D, d: d.map(lambda x, v: x * 10 + v[1]), makes="number"),
        "flat_map": Step(lambda D, d: d.flat_map(lambda x, v: D.from_tensor_slices(v)), makes="number"),
        "interleave": Step(lambda D, d, cycle, block, calls: d.interleave(
            lambda x, v: D.from_tensor_slices(v), cycle, block, num_parallel_calls=calls), CYCLES, "number"),
        "batch": BATCH,
    },
    "dict": {
        "filter": Step(lambda D, d, m: d.filter(lambda e: e["b"][0] % m == 0), _numbers(2, 3)),
        "reverse keys": Step(lambda D, d: d.map(lambda e: {"a": e["a"], "b": e["b"]})),
        "to numbers": Step(lambda D, d: d.map(lambda e: e["a"] + e["b"][0]), makes="number"),
        "batch": BATCH,
        "padded_batch": PADDED,
    },
    "vector": {
        "padded_batch": PADDED,
        "padded_batch to": Step(lambda D, d, n: d.padded_batch(n, padded_shapes=[9], padding_values=np.int64(-1)),
                                _numbers(1, 2, 3, 4), "batch"),
        "unbatch": Step(lambda D, d: d.unbatch(), makes="number"),
        "flat_map": Step(lambda D, d: d.flat_map(lambda v: D.from_tensor_slices(v)), makes="number"),
        "reverse": Step(lambda D, d: d.map(lambda v: v[::-1])),
    },
    "batch": {
        "unbatch": Step(lambda D, d: d.unbatch(), makes="rows"),
        "twice": Step(lambda D, d: d.map(lambda x: x + x)),
        "batch": BATCH,
    },
}  # fmt: skip
"""What can be done with numbers, pairs of a number and a vector, dicts, vectors of any length, and batches of each."""


@st.composite
def _chains(draw: st.DrawFn) -> tuple[int, list[tuple[str, str, tuple[Any, ...]]]]:
    """A length and steps: kind of elements, name, arguments. What is in the batches is kept on a stack."""
    steps: list[tuple[str, str, tuple[Any, ...]]] = []
    kinds = ["number"]
    first = draw(st.sampled_from(["", "to pairs", "to dicts", "to vectors"]))
    for number in range(draw(st.integers(2, 7))):
        kind = kinds[-1]
        own = list(OF_KIND[kind])
        name = first if first and not number else draw(st.sampled_from([*ANY, *own, *own]))
        step = (ANY | OF_KIND[kind])[name]
        arguments = draw(step.given)
        # Batches of all but numbers are only taken apart; how deep they are is bounded.
        if name in ("twice", "batch") and kind == "batch" and (kinds[-2] != "number" or len(kinds) > 3):
            continue
        if (name, arguments) == ("repeat", (0,)) and any(name == "shuffle" for _, name, _ in steps):
            continue  # which is an error in tf.data, where the two become one
        steps.append((kind, name, arguments))
        if step.makes == "rows":
            kinds.pop()
        elif step.makes == "batch":
            kinds.append("batch")
        elif step.makes:
            kinds[-1] = step.makes
    return draw(st.sampled_from([7, 9, 5, 8, 3, 2, 1, 0])), steps


@pytest.mark.programs
def test_random_chains_mean_the_same(tf: Any) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=programs(150), deadline=None, database=None, derandomize=True)
    @given(program=_chains())
    def compare(program: tuple[int, list[tuple[str, str, tuple[Any, ...]]]]) -> None:
        count, steps = program

        def chain(D: Any) -> Any:
            d = D.range(count)
            for kind, name, arguments in steps:
                d = (ANY | OF_KIND[kind])[name].add(D, d, *arguments)
            return d.take(60)

        theirs, ours = built(tf, chain), chain(gp.Dataset)
        expected = [shown(x) for x in theirs]

        assert [shown(x) for x in ours] == expected
        known = int(theirs.cardinality())
        right = [known] if known >= 0 else [gp.UNKNOWN_CARDINALITY, len(expected)]
        assert ours.cardinality() in [*right, *[gp.UNKNOWN_CARDINALITY] * learns(ours)]
        seen.update(f"{kind} {name}" for kind, name, _ in steps if expected)

    compare()
    # How many of the kinds of steps had elements to show, twice or more.
    assert sum(count >= 2 for count in seen.values()) >= 50 or QUICK, seen
