"""take_while, scan, reduce, unique, rejection_resample."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
    assert run(R(3, 9).take_while(predicate)) == []
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
    with pytest.raises(gp.DataError, match="take_while: take_while needs a predicate that returns one boolean"):
        next(iter(R(2).take_while(lambda x: int(x))))
    with pytest.raises(TypeError, match="take_while"):
        R(2).take_while(lambda a, b: a)


# ---- scan


def test_a_python_number_takes_the_dtype_of_the_state() -> None:
    chain = R(3).scan((np.uint8(250), np.float32(0)), lambda s, x: ((int(s[0]) + 1, float(s[1]) + 0.5), s))

    assert {tuple(leaf.dtype for leaf in element) for element in chain} == {(np.uint8, np.float32)}
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
    with pytest.raises(kind, match=f"scan needs .*{text}.*test_scanning.py"):
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


@pytest.mark.parametrize(
    ("state", "fn", "kind"),
    [
        (0, lambda s, x: (s, s), ValueError),
        (0, lambda s, x: None, ValueError),
        (None, lambda s, x: s, ValueError),
        (0, 5, TypeError),
    ],
)
def test_reductions_that_do_not_fit(state: Any, fn: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="reduce needs"):
        R(3).reduce(state, fn)


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
    with pytest.raises(gp.PlanError, match=r"one component.*test_scanning.py"):
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


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (([0.5, 0.5], [0.3, 0.3, 0.4]), ValueError),
        (([0.5, 0.5], [1.0, 0.0]), ValueError),
        (([0.5, -0.5],), ValueError),
        (([0, 0],), ValueError),
        (([[0.5, 0.5]],), ValueError),
        (([float("nan"), 1],), ValueError),
        ((["a", "b"],), TypeError),
        (([0.5, 0.5], None, 1.5), TypeError),
    ],
)
def test_distributions_that_do_not_fit(arguments: tuple[Any, ...], kind: type[Exception]) -> None:
    with pytest.raises(kind, match="rejection_resample needs"):
        R(4).rejection_resample(lambda x: x % 2, *arguments)
