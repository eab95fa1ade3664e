"""The small steps and mixtures on tf.data and on gpupipe: elements, structure, order, cardinality, errors.

Numbers that are drawn are gpupipe's own; there the same elements come, in each dataset's order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.behaviour.model import plain
from tests.differential.tfdata_sides import Chain, on, outcomes

pytestmark = [pytest.mark.tf, pytest.mark.filterwarnings("ignore")]

I64 = np.int64


def numbers(D: Any, *values: int) -> Any:
    return D.from_tensor_slices(np.array(values, I64))


CASES: dict[str, Chain] = {
    # take_while
    "take_while": lambda D: D.range(9).take_while(lambda x: x < 4),
    "take_while endless": lambda D: D.range(5).repeat().take_while(lambda x: x < 3),
    "take_while of a pair": lambda D: D.zip(D.range(5), D.range(5)).take_while(lambda a, b: a + b < 5),
    "take_while in the middle": lambda D: numbers(D, 1, 2, 9, 1, 2).take_while(lambda x: x < 5).repeat(2),
    # scan
    "scan": lambda D: D.range(5).scan(I64(0), lambda s, x: (s + x, s + x)),
    "scan of two states": lambda D: D.range(7).scan((I64(0), I64(1)), lambda s, x: ((s[1], s[0] + s[1]), s[0])),
    "scan of a pair": lambda D: D.zip(D.range(4), D.range(4)).scan(I64(0), lambda s, e: (s + e[0] * e[1], s)),
    "scan a list in the output is stacked": lambda D: D.range(3).scan(I64(0), lambda s, x: (s + 1, [s, x])),
    "scan dicts": lambda D: D.range(3).scan({"n": I64(1)}, lambda s, x: ({"n": s["n"] * 2}, {"x": x, "s": (s["n"],)})),
    # unique
    "unique": lambda D: numbers(D, 1, 37, 2, 37, 2, 1).unique(),
    "unique rows": lambda D: D.from_tensor_slices(np.array([[1, 2], [1, 3], [1, 2]])).unique(),
    "unique strings": lambda D: D.from_tensor_slices(["a", "b", "a", "", "b"]).unique(),
    # errors
    "ignore_errors of none": lambda D: D.range(5).ignore_errors(),
    # cardinality
    "assert_cardinality": lambda D: on(D).assert_cardinality(D.range(5), 5),
    "assert_cardinality of unknown": lambda D: on(D).assert_cardinality(D.range(6).filter(lambda x: x > 1), 4),
    "assert_cardinality endless": lambda D: on(D).assert_cardinality(D.range(3).repeat(), -1).take(5),
    "assert_cardinality then take": lambda D: on(D).assert_cardinality(D.range(9), 4).take(4),
    "pad_to_cardinality": lambda D: on(D).pad_to_cardinality(D.from_tensor_slices({"a": [1, 2]}), 4),
    "pad_to_cardinality nested": lambda D: on(D).pad_to_cardinality(
        D.from_tensor_slices({"a": ["x", "y"], "b": ([1.5, 2.5], [[1, 2], [3, 4]])}), 3, mask_key="real"
    ),
    # sources
    "counter": lambda D: D.counter().take(3),
    "counter wraps": lambda D: D.counter(start=254, dtype=np.uint8).take(4),
    "counter float": lambda D: D.counter(start=0.0, step=0.1, dtype=np.float32).take(200),
    "from_list": lambda D: on(D).from_list([("a", 1), ("b", 2)]),
    "from_list of ranks": lambda D: on(D).from_list([1, [2]]),
    "from_list of arrays": lambda D: on(D).from_list([np.zeros((2, 2)), np.ones((2, 2))]).batch(2),
    # mixtures
    "choose": lambda D: D.choose_from_datasets([D.range(2), D.range(10, 20)], numbers(D, 0, 1, 1, 0, 1)),
    "choose stops": lambda D: D.choose_from_datasets([D.range(2), D.range(10, 20)], numbers(D, 0, 0, 1, 0, 1)),
    "choose of endless": lambda D: D.choose_from_datasets(
        [D.range(2).repeat(), D.range(5, 6).repeat()], numbers(D, 1, 0)
    ),
    "choose shapes": lambda D: D.choose_from_datasets([D.from_tensors([1, 2]), D.from_tensors(1)], D.range(2)),
    "choose keys": lambda D: D.choose_from_datasets(
        [D.from_tensors({"a": 1, "b": 2}), D.from_tensors({"b": 3, "a": 4})], D.range(2)
    ),
    "sample of one": lambda D: D.sample_from_datasets([D.range(3)]),
    "sample weight 0": lambda D: D.sample_from_datasets([D.range(2), D.range(10, 13)], weights=[0.0, 1.0]),
    "sample no weight": lambda D: D.sample_from_datasets([D.range(2), D.range(10, 13)], weights=[0.0, 0.0]),
    "sample certain weights": lambda D: D.sample_from_datasets(
        [D.range(3), D.range(10, 13)], weights=D.from_tensor_slices([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    ),
    "sample certain weights and stop": lambda D: D.sample_from_datasets(
        [D.range(1), D.range(10, 13)], D.from_tensor_slices([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), None, True
    ),
    # resampling that keeps all
    "rejection_resample of equal ones": lambda D: D.range(6).rejection_resample(
        lambda x: x % 2, [0.5, 0.5], initial_dist=[0.5, 0.5]
    ),
    "rejection_resample of a pair": lambda D: D.zip(D.range(3), D.range(3)).rejection_resample(
        lambda a, b: a * 0, [1.0], initial_dist=[1.0]
    ),
}


# tf.data promises an endless dataset here, which ends with its choices.
NOT_ENDLESS = {"choose of endless"}


@pytest.mark.parametrize("name", CASES)
def test_elements_structure_order_and_cardinality_are_equal(tf: Any, name: str) -> None:
    theirs, ours = CASES[name](tf.data.Dataset), CASES[name](gp.Dataset)
    expected, known = [plain(x) for x in theirs.as_numpy_iterator()], int(theirs.cardinality())

    got = [plain(x) for x in ours]
    assert got == expected
    assert [list(x) for x in got if isinstance(x, dict)] == [list(x) for x in expected if isinstance(x, dict)]
    assert [plain(x) for x in ours.as_numpy_iterator()] == expected
    unsure = known == gp.UNKNOWN_CARDINALITY or name in NOT_ENDLESS
    assert ours.cardinality() == known or (unsure and ours.cardinality() == len(expected))


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("weights", [None, [1.0, 3.0, 2.0]])
def test_sampled_elements_are_the_same_in_each_dataset(tf: Any, stop: bool, weights: Any) -> None:
    def chain(D: Any) -> Any:
        inputs = [D.range(20), D.range(100, 140), D.range(200, 210)]
        return D.sample_from_datasets(inputs, weights=weights, seed=1, stop_on_empty_dataset=stop)

    theirs = [int(x) for x in chain(tf.data.Dataset).as_numpy_iterator()]
    ours = [int(x) for x in chain(gp.Dataset)]

    for low, high in ((0, 100), (100, 200), (200, 300)):
        a, b = ([x for x in seen if low <= x < high] for seen in (theirs, ours))
        assert a[: min(len(a), len(b))] == b[: min(len(a), len(b))]
        assert stop or len(a) == len(b)


@pytest.mark.parametrize("anew", [None, False, True])
def test_the_order_repeats_in_the_same_cases(tf: Any, anew: bool | None) -> None:
    def orders(D: Any) -> tuple[bool, bool]:
        inputs = [D.range(30), D.range(100, 130)]
        mixed = D.sample_from_datasets(inputs, seed=1, rerandomize_each_iteration=anew)
        twice = [int(x) for x in mixed.repeat(2)]
        drawn = [int(x) for x in D.random(seed=1, rerandomize_each_iteration=anew).take(9).repeat(2)]
        return twice[:60] == twice[60:], drawn[:9] == drawn[9:]

    assert orders(gp.Dataset) == orders(tf.data.Dataset) == (not anew, not anew)


REDUCTIONS: dict[str, Chain] = {
    "sum": lambda D: D.range(5).reduce(I64(0), lambda s, x: s + x),
    "empty": lambda D: D.range(0).reduce(I64(7), lambda s, x: s + x),
    "not unpacked": lambda D: D.zip(D.range(3), D.range(3)).reduce(I64(0), lambda s, e: s + e[0] * e[1]),
    "list": lambda D: D.range(4).reduce((I64(0), I64(0)), lambda s, x: [s[0] + 1, s[1] + x]),
    "dict": lambda D: D.range(4).reduce({"n": I64(0)}, lambda s, x: {"n": s["n"] + x}),
    "single element": lambda D: D.range(7).batch(7).get_single_element(),
    "single pair": lambda D: D.from_tensors((1, {"a": "x"})).get_single_element(),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_runs_at_once_gives_the_same(tf: Any, name: str) -> None:
    theirs = tf.nest.map_structure(lambda x: x.numpy(), REDUCTIONS[name](tf.data.Dataset))

    assert plain(REDUCTIONS[name](gp.Dataset)) == plain(theirs)


def _inverse(x: Any) -> Any:
    return np.float32(1) / x if x != 0 else 1 // 0


def _failing(tf: Any, D: Any) -> Any:
    """1, 1/2, an error, 1/4, an error, 1/5."""
    data = D.from_tensor_slices(np.array([1, 2, 0, 4, 0, 5], np.float32))
    if D is gp.Dataset:
        return data.map(_inverse)
    return data.map(lambda x: tf.debugging.check_numerics(1 / x, "bad"))


FAILING: dict[str, Callable[[Any, Any], Any]] = {
    "as they are": lambda D, d: d,
    "ignored": lambda D, d: d.ignore_errors(),
    "batch, then ignored": lambda D, d: d.batch(2).ignore_errors(),
    "batch, take, then ignored": lambda D, d: d.batch(2).take(2).ignore_errors(),
    "zip, then ignored": lambda D, d: D.zip(d, D.range(6)).ignore_errors(),
    "scan, then ignored": lambda D, d: d.scan(I64(0), lambda s, x: (s + 1, s)).ignore_errors(),
    "too few": lambda D, d: on(D).assert_cardinality(D.range(3), 4).ignore_errors().take(3),
    "choices outside": lambda D, d: D.choose_from_datasets(
        [D.range(2), D.range(10, 20)], numbers(D, 0, 2, -1, 1, 1)
    ).ignore_errors(),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_is_left_out_in_the_same_places(tf: Any, name: str) -> None:
    theirs, ours = (outcomes(tf, FAILING[name](D, _failing(tf, D))) for D in (tf.data.Dataset, gp.Dataset))

    assert ours == theirs


def test_an_element_that_failed_keeps_its_place_here(tf: Any) -> None:
    """In tf.data `take` and `skip` do not count what failed, here they do: a rewrite cannot change what there is."""
    theirs, ours = (
        [outcomes(tf, d) for d in (_failing(tf, D).take(3).ignore_errors(), _failing(tf, D).take(3))]
        for D in (tf.data.Dataset, gp.Dataset)
    )

    assert theirs[0] == [1, 0.5, 0.25]
    assert ours == [[1, 0.5], [1, 0.5, "error"]]


ERRORS: dict[str, Chain] = {
    "take_while a number": lambda D: D.range(2).take_while(lambda x: x),
    "take_while a vector": lambda D: D.range(4).batch(2).take_while(lambda x: x < 2),
    "scan no pair": lambda D: D.range(2).scan(I64(0), lambda s, x: s),
    "scan no output": lambda D: D.range(2).scan(I64(0), lambda s, x: (s, None)),
    "scan dtype": lambda D: D.range(2).scan(np.int32(0), lambda s, x: (x, x)),
    "reduce dtype": lambda D: D.range(2).reduce(np.int32(0), lambda s, x: x),
    "reduce fewer": lambda D: D.range(2).reduce((I64(0), I64(0)), lambda s, x: s[0]),
    "unique of pairs": lambda D: D.from_tensor_slices(([1, 1], [2, 3])).unique(),
    "too few": lambda D: on(D).assert_cardinality(D.range(4), 5),
    "not endless": lambda D: on(D).assert_cardinality(D.range(6), -1),
    "pad no dict": lambda D: on(D).pad_to_cardinality(D.range(2), 4),
    "pad too many": lambda D: on(D).pad_to_cardinality(D.from_tensor_slices({"a": [1, 2]}), 1),
    "pad endless": lambda D: on(D).pad_to_cardinality(D.from_tensor_slices({"a": [1, 2]}).repeat(), 9),
    "single of none": lambda D: D.range(0).get_single_element(),
    "counter start": lambda D: D.counter(start=1.5).take(2),
    "from_list no list": lambda D: on(D).from_list((1, 2)),
    "from_list empty": lambda D: on(D).from_list([]),
    "from_list dtypes": lambda D: on(D).from_list([1, 2.5]),
    "sample nothing": lambda D: D.sample_from_datasets([]),
    "sample weights": lambda D: D.sample_from_datasets([D.range(2), D.range(3)], weights=[1.0]),
    "sample dtypes": lambda D: D.sample_from_datasets([D.range(3), D.from_tensor_slices([1.5])]),
    "choose nothing": lambda D: D.choose_from_datasets([], D.range(2)),
    "choose int32": lambda D: D.choose_from_datasets([D.range(2)], D.from_tensor_slices(np.array([0], np.int32))),
    "choose outside": lambda D: D.choose_from_datasets([D.range(2)], numbers(D, 0, 1)),
    "resample lengths": lambda D: D.range(4).rejection_resample(lambda x: x % 2, [0.5, 0.5], [0.3, 0.3, 0.4]),
    "resample a float class": lambda D: D.range(4).rejection_resample(lambda x: x / 2, [0.5, 0.5], [0.3, 0.7]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_an_error_there_is_one_here(tf: Any, name: str) -> None:
    for D in (tf.data.Dataset, gp.Dataset):
        with pytest.raises((ValueError, TypeError, AttributeError, RuntimeError, tf.errors.OpError)):
            list(ERRORS[name](D))


def test_fingerprints_are_equal_for_equal_chains(tf: Any) -> None:
    for D in (tf.data.Dataset, gp.Dataset):
        one, same, other = (int(D.range(n).shuffle(3, seed=1).batch(2).fingerprint()) for n in (4, 4, 5))
        assert one == same != other
