"""take_while, scan, reduce, unique, rejection_resample, mixtures and the small sources."""

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
INT = TensorSpec((), "int64")
HOST = Options(device="cpu", backend="numpy")


def small(x: Any) -> bool:
    return bool(int(x) < 3)


# ---- take_while


@pytest.mark.parametrize("predicate", [lambda x: x < 3, small], ids=["traced", "Python"])
def test_it_ends_for_good_at_the_first_false(predicate: Callable[[Any], Any]) -> None:
    assert run(Dataset.from_tensor_slices([0, 2, 5, 1, 0]).take_while(predicate).repeat(2)) == [0, 2] * 2
    assert [run(R(3).take_while(predicate)), run(R(3, 9).take_while(predicate))] == [[0, 1, 2], []]
    assert run(R(9).repeat().take_while(predicate)) == [0, 1, 2]
    assert R(3).repeat().take_while(predicate).cardinality() == gp.UNKNOWN_CARDINALITY


def test_holes_do_not_end_it_and_a_predicate_that_fails_makes_one() -> None:
    def inverse(x: Any) -> Any:
        return int(x) // (int(x) % 3)

    assert outcomes(R(9).map(inverse).take_while(lambda x: int(x) < 5)) == ["error", 1, 1, "error", 4, 2, "error"]
    assert outcomes(R(9).take_while(lambda x: inverse(x) < 4)) == ["error", 1, 2, "error"]


def test_a_predicate_that_is_no_boolean_is_refused_at_once_or_an_error_of_the_element() -> None:
    for bad in (lambda x: x, lambda x: (x < 1, x < 2)):
        with pytest.raises(gp.PlanError, match="take_while needs a predicate that returns one boolean"):
            R(3).take_while(bad)
    assert outcomes(R(2).take_while(lambda x: int(x))) == ["error", "error"]
    with pytest.raises(gp.DataError, match="take_while: take_while needs a predicate that returns one boolean"):
        next(iter(R(2).take_while(lambda x: int(x))))
    with pytest.raises(TypeError, match="take_while"):
        R(2).take_while(lambda a, b: a)


# ---- scan


def test_a_python_number_takes_the_dtype_of_the_state() -> None:
    chain = R(3).scan((np.uint8(250), np.float32(0)), lambda s, x: ((int(s[0]) + 1, float(s[1]) + 0.5), s))

    assert {tuple(leaf.dtype.name for leaf in element) for element in chain} == {("uint8", "float32")}
    with pytest.raises(TypeError, match="initial dtype"):
        list(R(9).scan(np.uint8(250), lambda s, x: (int(s) + 1, x)))


@pytest.mark.parametrize(
    ("state", "fn", "kind", "text"),
    [
        (0, lambda s, x: (s, x, x), TypeError, "got 3 values"),
        (0, lambda s, x: (s + 0.5, x), TypeError, "initial dtype, int64, got float64"),
        (0, lambda s, x: (np.int32(s), x), TypeError, "initial dtype, int64, got int32"),
        ((0, b""), lambda s, x: ((s[0], s[0]), x), TypeError, r"bytes for \[1\], got int64"),
        (0, lambda s, x: ((s, s), x), ValueError, "nested like the initial one"),
        ({"a": 0}, lambda s, x: ({"b": 0}, x), ValueError, "nested like the initial one"),
    ],
)
def test_functions_that_do_not_fit(state: Any, fn: Callable[[Any, Any], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=f"scan needs .*{text}.*test_small_steps.py"):
        list(R(3).scan(state, fn))


def test_a_function_that_raises_leaves_the_state_as_it_was() -> None:
    def summed(total: Any, x: Any) -> Any:
        if x == 2:
            raise KeyError("two")
        return total + x, total + x

    assert outcomes(R(5).scan(0, summed)) == [0, 1, "error", 4, 8]
    assert outcomes(R(5).map(lambda x: 6 // (int(x) - 1)).scan(0, lambda s, x: (s + 1, s))) == [0, "error", 1, 2, 3]
    with pytest.raises(gp.DataError, match="range at index 2: scan: raised KeyError"):
        list(R(5).scan(0, summed))


def test_a_state_that_is_changed_in_place() -> None:
    initial = np.zeros(2)

    def count(state: Any, x: Any) -> Any:
        state[0] += 1
        return state, state

    chain = R(3).scan(initial, count)

    assert run(chain) == run(chain) == [[1, 0], [2, 0], [3, 0]]
    assert initial.tolist() == [0, 0]


def test_the_spec_of_the_outputs() -> None:
    chain = R(4).scan(0, lambda s, x: (s + x, np.float32(s)), spec=TensorSpec((), "float32"))

    assert chain.element_spec == TensorSpec((), "float32")
    assert run(chain.map(lambda x: x * 2).batch(4)) == [[0, 0, 2, 6]]
    assert outcomes(R(1).scan(0, lambda s, x: (s, b"x"), spec=INT)) == ["error"]
    assert outcomes(R(2).scan(0, lambda s, x: (s, x if x else x + 0.5))) == [0.5, "error"]


def test_ops_inside_draw_by_the_element() -> None:
    image = np.arange(900, dtype=np.uint8).reshape(30, 30, 1)
    chain = R(6).scan(0, lambda s, x: (s, ops.random_crop(image, (1, 1, 1))))

    def drawn(epoch: int) -> list[Any]:
        return [x.ravel().tolist() for x in chain.iterator(epoch=epoch)]

    assert drawn(0) == drawn(0) != drawn(1)
    assert len({tuple(x) for x in drawn(0)}) > 2
    twice = chain.scan(0, lambda s, x: (s, (x, ops.random_crop(image, (1, 1, 1)))))
    assert any(a.tolist() != b.tolist() for a, b in twice)


# ---- reduce


def test_reduce_runs_at_once() -> None:
    assert type(R(0).reduce(7, lambda s, x: s + x)) is np.int64
    assert R(3).reduce(np.zeros(0, np.int64), lambda s, x: np.append(s, x)).tolist() == [0, 1, 2]
    assert R(5).batch(2).reduce(0, lambda s, x: s + x.sum()) == 10
    assert Dataset.from_tensor_slices(["a", "bc"]).reduce("", lambda s, x: s + x) == b"abc"


def test_windows_are_reduced() -> None:
    windows = R(4).window(2)

    assert windows.reduce(0, lambda s, w: s + w.reduce(0, lambda a, b: a + b)) == 6
    assert R(4).map(lambda x: (x, x)).window(3).reduce(0, lambda s, w: s + len(list(w[0])) * len(list(w[1]))) == 10


@pytest.mark.parametrize("x", [0, 1, 2, 3])
def test_a_float_never_becomes_an_integer_state_whatever_its_value(x: int) -> None:
    one = Dataset.from_tensor_slices([x])

    with pytest.raises(TypeError, match=r"reduce needs .*initial dtype, int64, got float64"):
        one.reduce(0, lambda s, x: float(s + x / 2))
    with pytest.raises(TypeError, match=r"scan needs .*initial dtype, int64, got float64"):
        list(one.scan(0, lambda s, x: (float(s + x / 2), x)))
    with pytest.raises(TypeError, match=r"reduce needs .*initial dtype, bool, got int64"):
        one.reduce(False, lambda s, x: int(x))


def test_reduce_counts_as_an_epoch() -> None:
    chain = R(20).shuffle(20)
    first = chain.reduce(np.zeros(0, np.int64), lambda s, x: np.append(s, x)).tolist()

    assert first == run(chain.iterator(epoch=0))
    assert run(chain) == run(chain.iterator(epoch=1)) != first


def test_reduce_raises_what_fails_and_stops_its_threads() -> None:
    with pytest.raises(gp.DataError, match="ZeroDivisionError") as caught:
        R(9).prefetch(2).reduce(0, lambda s, x: int(s) // (int(x) - 3))
    with pytest.raises(gp.DataError, match="range at index 2"):
        R(9).map(lambda x: 1 // (int(x) - 2)).prefetch(2).reduce(0, lambda s, x: s + x)

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe-prefetch")]


# ---- unique


def test_the_first_of_each_value_in_order() -> None:
    assert run(Dataset.from_tensor_slices(["a", "b", "a", "a\0"]).unique()) == [b"a", b"b", b"a\0"]
    assert run(Dataset.from_tensor_slices([b"x" * 99, b"y" * 99, b"x" * 99]).unique()) == [b"x" * 99, b"y" * 99]
    texts = [[b"a", b"b"], [b"ab", b""], [b"a", b"b"]]
    assert run(Dataset.from_tensor_slices(texts).unique()) == texts[:2]
    assert run(Dataset.from_tensor_slices([True, False, True]).unique()) == [True, False]
    assert run(Dataset.from_tensor_slices({"a": [1, 1, 2]}).unique()) == [{"a": 1}, {"a": 2}]
    with pytest.raises(gp.PlanError, match=r"one component.*test_small_steps.py"):
        list(R(2).map(lambda x: (int(x), 1)).unique())


def test_floats_are_compared_by_value() -> None:
    nan = [np.nan, np.float64(np.frombuffer(b"\x01\0\0\0\0\0\xf8\x7f", np.float64)[0])]
    numbers = [0.0, -0.0, 0.5, *nan, 0.5]

    assert str(run(Dataset.from_tensor_slices(numbers).unique())) == "[0.0, 0.5, nan]"
    rows = [[0.0, nan[0]], [-0.0, nan[1]]]
    assert len(run(Dataset.from_tensor_slices(rows).unique())) == 1


# ---- rejection_resample


def rare(x: Any) -> Any:
    return x // 900  # of 1000 numbers, 900 of class 0 and 100 of class 1


@pytest.mark.parametrize("initial", [[0.9, 0.1], None], ids=["given", "estimated"])
@pytest.mark.parametrize("python", [False, True], ids=["traced", "Python"])
def test_the_classes_come_as_was_asked_for(initial: list[float] | None, python: bool) -> None:
    numbers = np.random.default_rng(0).permutation(1000)
    classes = (lambda x: int(rare(int(x)))) if python else rare
    chain = Dataset.from_tensor_slices(numbers).rejection_resample(classes, [0.5, 0.5], initial)

    seen = run(chain)
    count = Counter(c for c, _ in seen)

    assert all(c == rare(x) for c, x in seen)
    assert [x for _, x in seen] == [x for x in numbers.tolist() if x in {y for _, y in seen}]  # in order, each once
    assert count[1] > 90
    assert 65 <= count[0] <= 165  # 100 expected, and more before the estimate has settled: 3 sigma is 30
    assert chain.cardinality() == gp.UNKNOWN_CARDINALITY


def test_draws_depend_on_seed_epoch_and_element_only() -> None:
    chain = R(300).rejection_resample(lambda x: x % 2, [0.5, 0.1], [0.5, 0.5])

    def kept(chain: Dataset, epoch: int = 0) -> set[int]:
        return {int(x) for _, x in chain.iterator(epoch=epoch)}

    assert kept(chain) == kept(R(300).shuffle(300).rejection_resample(lambda x: x % 2, [0.5, 0.1], [0.5, 0.5]))
    assert kept(chain) != kept(chain, epoch=1)
    assert kept(chain) != kept(chain.with_options(Options(seed=1)))
    assert kept(chain) != kept(R(300).rejection_resample(lambda x: x % 2, [0.5, 0.1], [0.5, 0.5], seed=3))
    again = chain.rejection_resample(lambda c, x: x % 2, [0.5, 0.1], [0.5, 0.5])
    odd = [int(x) % 2 for _, (_, x) in again]
    assert 0 < sum(odd) < sum(x % 2 for x in kept(chain))  # another site: other draws
    passes = [int(x) for _, x in chain.repeat(2).iterator(epoch=0)]
    assert sorted(passes) != sorted([*kept(chain), *kept(chain)])


def test_equal_distributions_keep_all() -> None:
    chain = R(20).rejection_resample(lambda x: x % 2, [5, 5], [0.5, 0.5])

    assert run(chain) == [(x % 2, x) for x in range(20)]
    assert chain.cardinality() == 20
    assert chain.repeat().rejection_resample(lambda c, x: c, [1, 2]).cardinality() == gp.INFINITE_CARDINALITY


def test_classes_of_features_are_found_before_decoding() -> None:
    data = ([jpeg(0), b"no image", jpeg(2)], [0, 1, 0])
    chain = Dataset.from_tensor_slices(data).map(lambda x, y: (ops.decode_jpeg(x, channels=3), y))

    seen = list(chain.rejection_resample(lambda x, y: y, [1, 0], [2, 1]).batch(2).with_options(HOST))

    assert seen[0][0].tolist() == [0, 0]
    assert seen[0][1][0].shape == (2, 24, 32, 3)


def test_classes_that_cannot_be_are_errors_of_their_elements() -> None:
    assert outcomes(R(4).rejection_resample(lambda x: x, [1, 1, 1], [1, 1, 1])) == [(0, 0), (1, 1), (2, 2), "error"]
    assert outcomes(R(2).rejection_resample(lambda x: x - 1, [1, 1], [1, 1])) == ["error", (0, 1)]
    assert outcomes(R(2).rejection_resample(lambda x: str(x), [1, 1], [1, 1])) == ["error", "error"]
    with pytest.raises(gp.DataError, match="needs a class from 0 to 2, got 3"):
        list(R(4).rejection_resample(lambda x: x, [1, 1, 1], [1, 1, 1]))


# ---- sample_from_datasets, choose_from_datasets, and the small sources: counter, random, from_list

sample, choose = Dataset.sample_from_datasets, Dataset.choose_from_datasets
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
    bad = R(3).map(lambda x: 2 // int(x), spec=INT).batch(2)

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
    ("endless choices", lambda d: choose([d.repeat(), R(4).repeat()], R(2).repeat()), (ENDLESS, ENDLESS, UNKNOWN)),
]


@pytest.mark.parametrize(("make", "expected"), [pytest.param(*row[1:], id=row[0]) for row in CARDINALITIES])
def test_cardinality(make: Callable[[Dataset], Dataset], expected: tuple[int, int, int]) -> None:
    inputs = (R(10), R(10).repeat(), R(10).filter(lambda x: x >= 0))

    assert tuple(make(d).cardinality() for d in inputs) == expected
    for d, count in zip(inputs, expected, strict=True):
        if count >= 0:
            assert len(run(make(d))) == count


def resample(*given: Any) -> Dataset:
    return R(4).rejection_resample(lambda x: x % 2, *given)


FEW = [R(2), R(3)]
VALUES: list[Callable[[], Any]] = [
    lambda: R(3).reduce(0, lambda s, x: (s, s)),
    lambda: R(3).reduce(0, lambda s, x: None),
    lambda: R(3).reduce(None, lambda s, x: s),
    lambda: resample([0.5, 0.5], [0.3, 0.3, 0.4]),
    lambda: resample([0.5, 0.5], [1.0, 0.0]),
    lambda: resample([0.5, -0.5]),
    lambda: resample([0, 0]),
    lambda: resample([[0.5, 0.5]]),
    lambda: resample([float("nan"), 1]),
    lambda: sample(FEW, weights=[1.0, float("nan")]),
    lambda: sample(FEW, weights=Dataset.from_tensors([1.0])),
    lambda: sample(FEW, weights=Dataset.from_tensors((1.0, 1.0, 1.0))),
]
TYPES: list[Callable[[], Any]] = [
    lambda: R(3).reduce(0, WRONG),
    lambda: resample(["a", "b"]),
    lambda: resample([0.5, 0.5], None, 1.5),
    lambda: sample(FEW, weights=["a", "b"]),
    lambda: sample([R(2), WRONG]),
    lambda: sample(ANY),
    lambda: sample([R(2), Dataset.zip(R(2), R(2))]),
    lambda: sample(FEW, seed=WRONG),
    lambda: sample(FEW, rerandomize_each_iteration=WRONG),
    lambda: choose([R(2)], WRONG),
    lambda: choose([R(2)], choices(0).batch(1)),
    lambda: choose([R(2)], Dataset.zip(R(2), R(2))),
    lambda: choose([R(2), Dataset.from_tensors(1.5)], R(2)),
]


@pytest.mark.parametrize(("kind", "make"), [*((ValueError, x) for x in VALUES), *((TypeError, x) for x in TYPES)])
def test_arguments_that_do_not_fit(kind: type[Exception], make: Callable[[], Any]) -> None:
    with pytest.raises(kind, match=r"(reduce|rejection_resample|(sample|choose)_from_datasets) needs"):
        make()


def test_what_only_the_first_element_tells_is_refused_then() -> None:
    python = R(3).map(lambda x: float(x))
    with pytest.raises(TypeError, match=r"sample_from_datasets needs datasets of one structure and dtype.*test_small"):
        list(sample([R(3), python]))
    with pytest.raises(TypeError, match=r"choose_from_datasets needs choices that are one int64.*test_small_steps"):
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
    failing = R(4).map(lambda x: 1 // (int(x) - 1) * 0, spec=INT)
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

    inputs = [Dataset.from_generator(numbers, args=(k,), output_signature=INT) for k in range(3)]
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
