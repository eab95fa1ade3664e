"""sample_from_datasets, choose_from_datasets, and the small sources: counter, random, from_list."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec, ops
from tests.behaviour.model import outcomes, run
from tests.chains.damage import jpeg

R = Dataset.range
sample, choose = Dataset.sample_from_datasets, Dataset.choose_from_datasets
HOST = Options(device="cpu", backend="numpy")
ENDLESS = gp.INFINITE_CARDINALITY
UNKNOWN = gp.UNKNOWN_CARDINALITY
WRONG: Any = 1.5
ANY: Any = R(2)


def choices(*numbers: int) -> Dataset:
    return Dataset.from_tensor_slices(np.array(numbers, np.int64))


# ---- sample_from_datasets


@pytest.mark.parametrize("scale", [1, 1e-9])
def test_datasets_are_drawn_by_weight(scale: float) -> None:
    inputs = [Dataset.from_tensors(i).repeat() for i in range(3)]
    count = Counter(run(sample(inputs, weights=[6 * scale, 3 * scale, scale]).take(4000)))

    for i, expected in enumerate([2400, 1200, 400]):  # 4 sigma is 124, 116, 76
        assert abs(count[i] - expected) < 125


def test_the_order_of_datasets_is_the_same_in_every_epoch_unless_asked_for() -> None:
    inputs = [R(20), R(100, 120)]
    fixed, anew = sample(inputs, seed=1), sample(inputs, seed=1, rerandomize_each_iteration=True)

    assert run(fixed) == run(fixed)
    first, second = run(anew), run(anew)
    assert first != second
    assert first == run(anew.iterator(epoch=0)) == run(anew.repeat(2).iterator(epoch=0))[:40]


def test_a_mixture_inside_another_draws_for_itself() -> None:
    inner = sample([Dataset.from_tensors(i).repeat() for i in range(2)])
    outer = sample([inner, Dataset.from_tensors(2).repeat()])
    seen = run(outer.take(2000))

    count = Counter(seen)
    assert abs(count[2] - 1000) < 90  # 4 sigma
    assert abs(count[0] - 500) < 80
    follows = Counter(pairwise(seen))
    assert all(follows[a, b] > 60 for a in range(2) for b in range(2))  # each expected 125: no pair is missing


def test_an_error_that_travels_on_uses_up_no_choice() -> None:
    bad = R(3).map(lambda x: 2 // int(x), spec=TensorSpec((), "int64")).batch(2)

    assert outcomes(choose([bad, R(10, 14).batch(2)], choices(0, 1, 1))) == ["error", [2, 1], [10, 11], [12, 13]]


def test_one_dataset_twice_draws_differently_in_each_place() -> None:
    shuffled = R(30).shuffle(30)
    seen = run(choose([shuffled, shuffled], choices(*[0, 1] * 30)))

    assert sorted(seen[::2]) == sorted(seen[1::2]) == list(range(30))
    assert seen[::2] != seen[1::2]
    assert seen[::2] == run(shuffled.iterator(epoch=0))  # input 0 keeps the keys that it has alone


def test_weights_from_a_dataset() -> None:
    def by(*rows: list[float]) -> Dataset:
        return Dataset.from_tensor_slices(np.array(rows))

    inputs = [R(3), R(10, 13)]

    assert run(sample(inputs, weights=by([1, 0], [0, 2]).repeat())) == [0, 10, 1, 11, 2, 12]
    pairs = Dataset.from_tensor_slices(([1, 0, 0], [0, 1, 1]))
    assert run(sample(inputs, weights=pairs)) == [0, 10, 11]
    assert run(sample([R(1), R(10, 13)], weights=by([1, 0], [1, 0], [0, 1]))) == [0, 10]
    endless = [Dataset.from_tensors(i).repeat() for i in range(2)]
    count = Counter(run(sample(endless, weights=by([3, 1]).repeat()).take(2000)))
    assert abs(count[0] - 1500) < 80  # 4 sigma


def test_weights_from_a_dataset_that_cannot_be_are_errors_in_their_places() -> None:
    weights = Dataset.from_tensor_slices(np.array([[1, 0], [0, 0], [np.nan, 1], [0, 1], [-1, 1]]))

    assert outcomes(sample([R(3), R(10, 13)], weights=weights)) == [0, "error", "error", 10, 11]
    ragged = R(3).map(lambda n: np.ones(int(n)))
    assert outcomes(sample([R(3), R(10, 13)], weights=ragged))[:2] == ["error", "error"]


CARDINALITIES: list[tuple[str, Callable[[Dataset], Dataset], tuple[int, int, int]]] = [
    ("sample, the other endless", lambda d: sample([d, R(4).repeat()]), (ENDLESS, ENDLESS, ENDLESS)),
    ("sample, stop", lambda d: sample([d, R(4)], stop_on_empty_dataset=True), (UNKNOWN, UNKNOWN, UNKNOWN)),
    ("choose", lambda d: choose([d, R(4)], choices(0, 1)), (UNKNOWN, UNKNOWN, UNKNOWN)),
    ("choose of endless ones", lambda d: choose([d.repeat(), R(4).repeat()], choices(0, 1)), (2, 2, UNKNOWN)),
    (
        "choose endlessly of endless ones",
        lambda d: choose([d.repeat(), R(4).repeat()], R(2).repeat()),
        (ENDLESS, ENDLESS, UNKNOWN),
    ),
]


@pytest.mark.parametrize(("make", "expected"), [pytest.param(*row[1:], id=row[0]) for row in CARDINALITIES])
def test_cardinality(make: Callable[[Dataset], Dataset], expected: tuple[int, int, int]) -> None:
    inputs = (R(10), R(10).repeat(), R(10).filter(lambda x: x >= 0))

    assert tuple(make(d).cardinality() for d in inputs) == expected
    for d, count in zip(inputs, expected, strict=True):
        if count >= 0:
            assert len(run(make(d))) == count


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: sample([R(2), R(3)], weights=[1.0, float("nan")]), ValueError),
        (lambda: sample([R(2), R(3)], weights=["a", "b"]), TypeError),
        (lambda: sample([R(2), R(3)], weights=Dataset.from_tensors([1.0])), ValueError),
        (lambda: sample([R(2), R(3)], weights=Dataset.from_tensors((1.0, 1.0, 1.0))), ValueError),
        (lambda: sample([R(2), WRONG]), TypeError),
        (lambda: sample(ANY), TypeError),
        (lambda: sample([R(2), Dataset.zip(R(2), R(2))]), TypeError),
        (lambda: sample([R(2), R(3)], seed=WRONG), TypeError),
        (lambda: sample([R(2), R(3)], rerandomize_each_iteration=WRONG), TypeError),
        (lambda: choose([R(2)], WRONG), TypeError),
        (lambda: choose([R(2)], choices(0).batch(1)), TypeError),
        (lambda: choose([R(2)], Dataset.zip(R(2), R(2))), TypeError),
        (lambda: choose([R(2), Dataset.from_tensors(1.5)], R(2)), TypeError),
    ],
)
def test_mixtures_that_cannot_be(make: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"(sample|choose)_from_datasets needs"):
        make()


def test_what_only_the_first_element_tells_is_refused_then() -> None:
    python = R(3).map(lambda x: float(x))
    with pytest.raises(TypeError, match=r"sample_from_datasets needs datasets of one structure and dtype.*test_mixing"):
        list(sample([R(3), python]))
    with pytest.raises(TypeError, match=r"choose_from_datasets needs choices that are one int64.*test_mixing"):
        list(choose([R(3), R(3)], python))

    assert sorted(run(sample([R(3), R(3).map(lambda x: int(x) + 5)]))) == [0, 1, 2, 5, 6, 7]
    nothing = R(0).map(lambda x: (float(x), 1))
    assert run(sample([nothing, R(3)])) == run(sample([R(3), nothing])) == [0, 1, 2]


# ---- choose_from_datasets


def chosen(inputs: list[list[int]], picks: list[int], stop: bool) -> list[int]:
    left, out = [list(items) for items in inputs], []
    for pick in picks:
        if left[pick]:
            out.append(left[pick].pop(0))
        elif stop or not any(left):
            break
    return out


@settings(max_examples=80, deadline=None, database=None, derandomize=True)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.lists(st.integers(0, 99), max_size=20), st.booleans())
def test_choices_are_followed(sizes: list[int], picks: list[int], stop: bool) -> None:
    inputs = [list(range(100 * i, 100 * i + size)) for i, size in enumerate(sizes)]
    picks = [pick % len(sizes) for pick in picks]
    chain = choose([R(items[0], items[-1] + 1) if items else R(0) for items in inputs], choices(*picks), stop)

    assert run(chain) == chosen(inputs, picks, stop)


def test_a_choice_outside_is_an_error_in_its_place() -> None:
    assert outcomes(choose([R(2), R(10, 20)], choices(0, 2, -1, 1, 1))) == [0, "error", "error", 10, 11]
    with pytest.raises(gp.DataError, match="from_tensor_slices at index 1: choose_from_datasets: needs choices from 0"):
        list(choose([R(2)], choices(0, 2)))
    failing = R(4).map(lambda x: 1 // (int(x) - 1) * 0, spec=TensorSpec((), "int64"))
    assert outcomes(choose([R(9)], failing)) == [0, "error", 1, 2]


def test_images_of_one_graph_are_decoded_in_one_stage() -> None:
    def pictures(*numbers: int) -> Dataset:
        return Dataset.from_tensor_slices([jpeg(number) for number in numbers]).map(_decoded)

    def _decoded(data: Any) -> Any:
        return ops.random_crop(ops.decode_jpeg(data, channels=3), (8, 8, 3))

    mixed = choose([pictures(0, 1), pictures(2, 3)], choices(0, 1, 1, 0)).batch(2).with_options(HOST)
    text = str(mixed.explain())

    assert "batches of 2" in text
    assert "stage 2" not in text
    alone = [np.stack(list(pictures(*pair).with_options(HOST))) for pair in ((0, 1), (2, 3))]
    batches = np.concatenate(list(mixed))
    assert batches.shape == (4, 8, 8, 3)
    np.testing.assert_array_equal(batches[[0, 3]], alone[0])  # input 0 keeps its keys
    other = choose([pictures(0, 1), pictures(2, 3).map(lambda x: ops.flip_left_right(x))], choices(0, 1, 1, 0))
    one = np.stack(list(other.with_options(HOST)))
    np.testing.assert_array_equal(one[[0, 3]], alone[0])
    np.testing.assert_array_equal(one[[1, 2], :, ::-1], batches[[1, 2]])


def test_every_input_is_closed() -> None:
    closed: list[int] = []

    def numbers(k: int) -> Any:
        try:
            yield from range(k * 10, k * 10 + 5)
        finally:
            closed.append(k)

    inputs = [Dataset.from_generator(numbers, args=(k,), output_signature=TensorSpec((), "int64")) for k in range(3)]
    with iter(sample(inputs)) as items:
        next(items)
    started = len(closed)
    assert run(choose(inputs, choices(0, 1, 2))) == [0, 10, 20]

    assert started <= 3
    assert sorted(closed[started:]) == [0, 1, 2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe-prefetch")]


def test_picks_that_only_meet_empty_datasets_end_when_the_iterator_is_closed() -> None:
    chain = choose([R(1), R(5)], Dataset.from_tensors(np.int64(0)).repeat(), stop_on_empty_dataset=False)
    items = iter(chain.prefetch(1))
    assert int(next(items)) == 0

    items.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe-prefetch")]


# ---- counter, random


def test_counting() -> None:
    assert run(Dataset.counter(5, -2).take(3)) == [5, 3, 1]
    assert run(Dataset.counter(2**63 - 1).take(2)) == [2**63 - 1, -(2**63)]
    assert Dataset.counter().cardinality() == ENDLESS
    assert run(Dataset.counter().skip(3000).take(2)) == [3000, 3001]


def test_random_numbers() -> None:
    numbers = run(Dataset.random(seed=4).take(3000))

    assert all(0 <= x < 2**32 for x in numbers)
    assert len(set(numbers)) > 2990
    assert abs(np.mean(numbers) / 2**32 - 0.5) < 0.022  # 4 sigma
    assert type(Dataset.random().first()) is np.int64
    assert Dataset.random().cardinality() == ENDLESS


def test_random_numbers_repeat_unless_asked_for() -> None:
    fixed, anew = Dataset.random(seed=4).take(3), Dataset.random(seed=4, rerandomize_each_iteration=True).take(3)

    assert run(fixed) == run(fixed)
    assert run(anew) != run(anew)
    assert run(Dataset.random(seed=5).take(3)) != run(fixed) != run(fixed.with_options(Options(seed=1)))
    with pytest.raises(TypeError, match="random needs True or False"):
        Dataset.random(rerandomize_each_iteration="no")  # type: ignore[arg-type]


# ---- from_list


def test_listed_elements() -> None:
    assert Dataset.from_list([[1], [2, 3]]).element_spec == TensorSpec((None,), "int64")
    assert Dataset.from_list([1, [2]]).element_spec == TensorSpec(None, "int64")
    assert run(Dataset.from_list([{"a": 1, "b": 2}, {"b": 3, "a": 4}])) == [{"a": 1, "b": 2}, {"a": 4, "b": 3}]
    absent = [{"a": 1, "b": None}, {"a": 4, "b": None}]
    assert run(Dataset.from_list(absent)) == absent
    kept = np.zeros(2)
    chain = Dataset.from_list([kept, np.ones(3)])
    kept[0] = 7
    assert run(chain) == [[0, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([None], ValueError),
        ([(1, 2), 3], ValueError),
        ([{"a": 1}, {"b": 1}], ValueError),
        ([1, "a"], TypeError),
        ([object()], TypeError),
    ],
)
def test_lists_that_cannot_be(given: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Dataset.from_list(given)
