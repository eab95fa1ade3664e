"""Plan rules: each by plan equality, and random chains that give the same elements with any of them left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpupipe import Dataset, Options
from gpupipe.optimize.rules.graph_rules import GRAPH_RULES
from gpupipe.optimize.rules.plan_rules import PLAN_RULES, ShuffleRepeat, rewrite
from gpupipe.plan.node import Node, walk
from tests.behaviour.model import run
from tests.behaviour.programs import Program, build, elements, programs

R = Dataset.range(10)
LOWERING_RULES = ("deferral", "map_and_batch")
ALL_RULES = (*(rule.__name__ for rule in PLAN_RULES), *GRAPH_RULES, *LOWERING_RULES)


def _rewritten(dataset: Dataset, disabled: tuple[str, ...] = ()) -> Node:
    return rewrite(dataset.plan, disabled)[0]


EQUATIONS: list[tuple[str, str, Dataset, Dataset]] = [
    ("take(-1)", "drop_no_ops", R.take(-1), R),
    ("skip(0)", "drop_no_ops", R.skip(0), R),
    ("repeat(1)", "drop_no_ops", R.repeat(1), R),
    ("shard(1, 0)", "drop_no_ops", R.shard(1, 0), R),
    ("prefetch(0)", "drop_no_ops", R.prefetch(0), R),
    ("no-ops inside", "drop_no_ops", R.skip(0).batch(2).take(-1).take(3), R.batch(2).take(3)),
    ("takes", "merge_takes", R.take(5).take(3), R.take(3)),
    ("takes, the other way", "merge_takes", R.take(3).take(5), R.take(3)),
    ("three takes", "merge_takes", R.take(7).take(3).take(5), R.take(3)),
    ("skips", "merge_skips", R.skip(2).skip(3), R.skip(5)),
    ("prefetches", "merge_prefetches", R.prefetch(2).prefetch(5), R.prefetch(5)),
    ("prefetch AUTOTUNE", "merge_prefetches", R.prefetch(-1).prefetch(5), R.prefetch(-1)),
    ("prefetch AUTOTUNE behind", "merge_prefetches", R.prefetch(7).prefetch(-1), R.prefetch(-1)),
    ("under a zip", "merge_takes", Dataset.zip(R.take(5).take(3), R), Dataset.zip(R.take(3), R)),
    ("under a concatenate", "merge_skips", R.concatenate(R.skip(1).skip(1)), R.concatenate(R.skip(2))),
]


@pytest.mark.parametrize(("rule", "left", "right"), [pytest.param(*row[1:], id=row[0]) for row in EQUATIONS])
def test_the_equation_holds(rule: str, left: Dataset, right: Dataset) -> None:
    plan, fired = rewrite(left.plan)

    assert plan == right.plan
    assert fired.get(rule, 0) > 0
    assert _rewritten(left, (rule,)) == left.plan or len(fired) > 1
    assert run(left) == run(right)


def test_a_shard_of_batches_is_a_slice_of_them() -> None:
    left, right = R.batch(2).prefetch(1).shard(2, 1), R.batch(2)[1::2].prefetch(1)

    plan, fired = rewrite(left.plan)

    assert plan == rewrite(right.plan)[0]  # the slice becomes one of rows
    assert fired == {"choose_batches": 1, "sink_selects": 1, "choose_rows": 1}
    assert _rewritten(left, ("choose_batches",)) == left.plan
    assert run(left) == run(right)


KEPT: list[tuple[str, Dataset]] = [
    ("skip(-1) is not skip(0)", R.skip(-1)),
    ("skip(2).skip(-1)", R.skip(2).skip(-1)),
    ("take(2).skip(1)", R.take(2).skip(1)),
    ("skip(1).take(2)", R.skip(1).take(2)),
    ("repeat(2)", R.repeat(2)),
    ("shard(2, 0)", R.shard(2, 0)),
    ("repeat behind a map", R.shuffle(3).map(lambda x: x).repeat(2)),
    ("repeat(0)", R.shuffle(3).repeat(0)),
    ("shuffle behind repeat", R.repeat(2).shuffle(3)),
]


@pytest.mark.parametrize("dataset", [pytest.param(row[1], id=row[0]) for row in KEPT])
def test_what_is_no_left_side_stays(dataset: Dataset) -> None:
    plan, fired = rewrite(dataset.plan)

    assert plan is dataset.plan and fired == {}


@pytest.mark.parametrize("count", [2, 5, -1])
def test_shuffle_and_repeat_become_one_node_with_every_parameter(count: int) -> None:
    dataset = R.shuffle(3, seed=4, reshuffle_each_iteration=False).repeat(count)

    plan, fired = rewrite(dataset.plan)

    assert plan == ShuffleRepeat(R.plan, 3, 4, False, count, branch=dataset.plan.branch)
    assert (plan.element, plan.cardinality) == (dataset.plan.element, dataset.cardinality())
    assert fired == {"shuffle_and_repeat": 1}


def test_numbers_of_nodes_are_kept() -> None:
    # Keys of elements depend on the number of a repeat, zip or concatenate; repeat(1) below had one too.
    dataset = R.repeat(1).shuffle(3).repeat(2).concatenate(R)

    before = {type(node).__name__: node.branch for node in walk(dataset.plan)}
    after = {type(node).__name__: node.branch for node in walk(_rewritten(dataset))}

    assert before["Concatenate"] == after["Concatenate"] == 3
    assert after["ShuffleRepeat"] == before["Repeat"] == 2


def test_a_rule_that_is_off_does_nothing() -> None:
    for rule in PLAN_RULES:
        name = rule.__name__
        for dataset in (row[2] for row in EQUATIONS):
            assert name not in rewrite(dataset.plan, (name,))[1]


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(program=programs())
def test_optimising_twice_changes_nothing(program: Program) -> None:
    once = rewrite(build(program).plan)[0]

    again, fired = rewrite(once)

    assert again is once and fired == {}


# ---- the same elements, whatever is left out


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(program=programs(failing=True), on_error=st.sampled_from(["raise", "skip", "replace"]))
def test_random_chains_give_the_same_without_each_and_all_of_the_rules(program: Program, on_error: Any) -> None:
    def chain(*rules: str) -> list[Any]:
        return elements(build(program).with_options(Options(on_error=on_error, disabled_rules=rules)))

    expected = chain()
    for rule in (*(rule.__name__ for rule in PLAN_RULES), *LOWERING_RULES):
        assert chain(rule) == expected
    assert chain(*ALL_RULES) == expected


def test_deferral_computes_only_what_is_delivered() -> None:
    calls: list[int] = []

    def seen(x: Any) -> Any:
        calls.append(int(x))
        return x

    # A Python map is no expression: it runs where it stands. A traced one behind it is put off until the batch.
    dataset = Dataset.range(9).map(seen).map(lambda x: x * 2).filter(lambda x: x > 9).take(2).batch(2)

    assert run(dataset) == [[10, 12]]
    assert calls == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("rules", [(), ("map_and_batch",), ("deferral",), ALL_RULES], ids=str)
def test_a_map_and_its_batch_give_the_same_fused_or_not(rules: tuple[str, ...]) -> None:
    data = Dataset.from_tensor_slices({"x": np.arange(12.0).reshape(6, 2), "y": list(range(6))})
    dataset = data.map(lambda d: (d["x"] * 2, d["y"] + 1)).batch(4).map(lambda x, y: (x + 1, y * 3))

    assert run(dataset.with_options(Options(disabled_rules=rules))) == [
        ([[1, 3], [5, 7], [9, 11], [13, 15]], [3, 6, 9, 12]),
        ([[17, 19], [21, 23]], [15, 18]),
    ]
