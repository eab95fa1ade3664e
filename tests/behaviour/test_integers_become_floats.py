"""Integers that become floats: one rule for what a traced function computes, whichever step or executor computes it."""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, TensorSpec, ops
from gpupipe.errors import FunctionError
from gpupipe.graph import classify as candidate
from gpupipe.graph import symbols as symbol
from tests.chains.data import on

IMAGES = np.random.RandomState(0).randint(0, 100, (4, 6, 5, 3))
NARROW = ("bool", "uint8", "int8", "uint16", "int16")
WIDE = ("int32", "uint32", "int64", "uint64")

INT, DOUBLE, SINGLE = np.int64(255), np.float64(255), np.float32(255)

TO_FLOATS: dict[str, Callable[[Any], Any]] = {
    "x / 255": lambda x: x / 255,
    "1 / (x + 1.5)": lambda x: 1 / (x + 1.5),
    "x * 0.5": lambda x: x * 0.5,
    "x / numpy float": lambda x: x / DOUBLE,
    "x / float32": lambda x: x / SINGLE,
    "x / x": lambda x: x / (x + 1.0),
    "a chain": lambda x: (x / 127.5 - 1) * 2,
}
PLAIN: dict[str, Callable[[Any], Any]] = {
    "x ** 0.5": lambda x: x**0.5,
    "x % 0.75": lambda x: x % 0.75,
    "x // 0.75": lambda x: x // 0.75,
}


def scale(x: Any, low: float = -1.0, *, by: float = 127.5) -> Any:
    return x / by + low


def scaled_twice(x: Any) -> Any:
    return scale(scale(x), low=0.0, by=2)


def counts_down(x: Any) -> Any:
    return counts_down(x - 1)


def _same(chain: Dataset, dtype: str, expected: Any) -> None:
    """Spec and value of an element, and of a batch on every executor, are of one dtype."""
    assert chain.element_spec.dtype == np.dtype(dtype)
    for options in (on("numpy"), on("dali")):
        element = next(iter(chain.with_options(options)))
        batch = next(iter(chain.batch(2).with_options(options)))
        assert (element.dtype, batch.dtype) == (np.dtype(dtype), np.dtype(dtype))
        np.testing.assert_allclose(np.asarray(element), np.asarray(expected), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("function", (TO_FLOATS | PLAIN).values(), ids=TO_FLOATS | PLAIN)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64"])
def test_an_integer_image_without_a_layout_becomes_float32(dtype: str, function: Callable[[Any], Any]) -> None:
    if dtype == "bool" and function in PLAIN.values():
        pytest.skip("NumPy has no such operators of booleans")
    images = IMAGES.astype(dtype)

    _same(Dataset.from_tensor_slices(images).map(function), "float32", function(images[0].astype(np.float64)))


@pytest.mark.parametrize("function", TO_FLOATS.values(), ids=TO_FLOATS)
def test_so_it_does_behind_an_op_and_behind_batch(function: Callable[[Any], Any]) -> None:
    images = IMAGES.astype(np.uint8)
    source = Dataset.from_tensor_slices(images)
    expected = function(images[:2].astype(np.float64))

    for chain in (
        source.map(lambda x: function(ops.flip_left_right(ops.flip_left_right(x)))).batch(2),
        source.batch(2).map(function),
        source.map(ops.flip_left_right).map(ops.flip_left_right).map(function).batch(2),
    ):
        got = next(iter(chain.with_options(on("numpy"))))
        assert chain.element_spec.dtype == got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("values", [np.arange(4), np.arange(24).reshape(4, 3, 2)])
@pytest.mark.parametrize("dtype", NARROW + WIDE)
def test_other_integers_become_what_tensorflow_makes_of_them(dtype: str, values: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    values = values.astype(dtype)
    wanted = "float32" if dtype in NARROW else "float64"
    chain = Dataset.from_tensor_slices(values).map(lambda x: x / 4)

    if dtype not in ("bool", "uint32", "uint64"):  # TensorFlow divides none of these
        assert tf.data.Dataset.from_tensor_slices(values).map(lambda x: x / 4).element_spec.dtype.name == wanted
    _same(chain, wanted, values[0] / 4)


def test_floats_that_are_given_stay_what_they_are() -> None:
    pairs = Dataset.from_tensor_slices((IMAGES.astype(np.uint8), np.full(4, 0.5)))

    assert pairs.map(lambda x, y: x * y).element_spec.dtype == np.float64
    assert Dataset.from_tensor_slices(IMAGES.astype(np.float64)).map(lambda x: x / 2).element_spec.dtype == np.float64
    assert Dataset.from_tensor_slices(IMAGES.astype(np.float32)).map(lambda x: x / 2).element_spec.dtype == np.float32


@pytest.mark.parametrize(
    "function",
    [lambda x: x + 1, lambda x: x / 2, lambda x: x * 0.5, lambda x: x // 2, lambda x: -x, lambda x: x > 9],
)
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_what_is_no_image_behind_dali_nodes_is_of_the_same_dtype(dtype: str, function: Callable[[Any], Any]) -> None:
    fn = pytest.importorskip("nvidia.dali").fn
    images = IMAGES.astype(dtype)
    spec = TensorSpec((90,), dtype)

    def flat(x: Any) -> Any:
        return ops.dali_function(lambda node: fn.reshape(node, shape=[90]), ops.flip_up_down(x), spec=spec)

    chain = Dataset.from_tensor_slices(images).map(lambda x: function(flat(x))).batch(2)
    got = next(iter(chain.with_options(on("dali"))))

    assert got.dtype == chain.element_spec.dtype
    np.testing.assert_allclose(got, function(images[:2, ::-1].reshape(2, 90)))


def test_a_helper_function_is_part_of_the_expression_that_calls_it() -> None:
    pairs = Dataset.from_tensor_slices((IMAGES.astype(np.uint8), np.arange(4)))
    inner: Callable[[Any], Any] = lambda x: scaled_twice(x) * 2  # noqa: E731

    for function in (lambda x, y: (scale(x), y), lambda x, y: (inner(x), y)):  # both are x / 127.5 - 1
        chain = pairs.map(function)
        image, label = next(iter(chain))

        assert (chain.element_spec[0].dtype, image.dtype, label.dtype) == (np.float32, np.float32, np.int64)
        np.testing.assert_allclose(image, IMAGES[0] / 127.5 - 1, rtol=2e-6, atol=2e-6)


def test_a_helper_that_is_more_than_an_expression_leaves_its_caller_ordinary_python() -> None:
    seen = []

    def noted(x: Any) -> Any:
        seen.append(x)
        return x / 255

    source = Dataset.from_tensor_slices(IMAGES.astype(np.uint8))
    for function in (lambda x: noted(x), lambda x: counts_down(x), lambda x: scale(abs(x)), lambda x: x(1)):
        source.map(function)  # calls nothing
        assert not seen
    assert next(iter(source.map(lambda x: noted(x)))).dtype == np.float64
    assert all(isinstance(x, np.ndarray) for x in seen)

    with pytest.raises(FunctionError, match="raised RecursionError"):
        next(iter(source.map(lambda x: counts_down(x))))


def jitter(x: Any) -> Any:
    return x + np.random.randint(1000)


TABLE = np.array([jitter], object)
ODD: Any = type("Odd", (int,), {"__add__": lambda self, other: jitter(other)})(3)
ODD_FLOAT: Any = type("OddFloat", (np.float64,), {"__add__": lambda self, other: jitter(other)})(3)
TOTAL = np.zeros(1, np.int64)


def through(x: Any, function: Any = jitter) -> Any:
    return function(x)


def through_a_keyword(x: Any, *, function: Any = jitter) -> Any:
    return function(x)


def adds_up(x: Any) -> Any:
    total = TOTAL
    total += 1
    return x + total


def adds_to(total: Any) -> Any:
    total += 1
    return total


DRAWING: dict[str, Callable[[Any], Any]] = {
    "default": through,
    "default of a helper": lambda x: through(x),
    "keyword of a helper": lambda x: through_a_keyword(x),
    "array of functions": lambda x: TABLE[0](x),
    "number of a kind of its own": lambda x: ODD + x,
    "number of a kind that is made of NumPy's": lambda x: ODD_FLOAT + x,
}


@pytest.mark.parametrize("function", DRAWING.values(), ids=DRAWING)
def test_what_may_draw_or_count_is_called_for_every_element(function: Callable[[Any], Any]) -> None:
    got = [int(value) - i for i, value in enumerate(Dataset.range(20).map(function))]

    assert len(set(got)) > 10


@pytest.mark.parametrize("function", [adds_up, lambda x: x + adds_to(TOTAL)], ids=["itself", "by a helper"])
def test_an_array_that_a_function_adds_to_is_changed_once_for_each_element(function: Callable[[Any], Any]) -> None:
    TOTAL[:] = 0
    chain = Dataset.range(4).map(function)

    assert TOTAL.tolist() == [0]
    assert [int(value[0]) for value in chain] == [1, 3, 5, 7]


def test_helpers_that_call_helpers_are_looked_at_once_each() -> None:
    names: dict[str, Any] = {"f0": scale, "g0": scale}
    for level in range(1, 19):
        for name in "fg":
            exec(f"def {name}{level}(x): return f{level - 1}(x) + g{level - 1}(x)", names)
    looked_at = []

    def counted(fn: Any, *arguments: Any) -> Any:
        looked_at.append(fn)
        return instructions(fn, *arguments)

    instructions = dis.get_instructions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dis, "get_instructions", counted)
        assert candidate.classify(names["f6"]) == "expression"
        assert len(set(looked_at)) == 12
        looked_at.clear()
        assert candidate.classify(names["f18"]) == "python"  # which may do 2**18 calls for each element, and no graph
    assert len(looked_at) == len(set(looked_at)) == 36


def test_helpers_that_are_called_by_another_name_make_no_endless_graph() -> None:
    names: dict[str, Any] = {"f0": lambda x: x + 1}
    for level in range(1, 15):
        exec(f"def f{level}(x):\n    g = f{level - 1}\n    return g(x) + g(x)", names)
    recorded = []

    def counted(*arguments: Any) -> Any:
        recorded.append(1)
        return record(*arguments)

    record = symbol._record
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symbol, "_record", counted)
        chain = Dataset.range(2).map(names["f14"])

    assert len(recorded) <= candidate.LARGEST + 1
    assert list(chain) == [2**14, 2 * 2**14]


def test_an_expression_may_give_an_array_that_no_graph_holds() -> None:
    large = np.zeros(200_000)

    got = [(int(x), y.shape) for x, y in Dataset.range(2).map(lambda x: (x, large))]
    assert got == [(0, large.shape), (1, large.shape)]


@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("wide", ["int64", "uint64"])
def test_a_wide_integer_beside_a_narrow_one_is_computed_as_numpy_does(wide: str, narrow: str) -> None:
    t = np.array([1700000001, 16777217, 123456789]).astype(wide)
    k = np.ones(3, narrow)
    functions: list[Callable[[Any, Any], Any]] = [lambda a, b: a / b, lambda a, b: b / a]
    functions += [lambda a, b: a - b] if narrow != "bool" else []
    for function in functions:
        traced = list(Dataset.from_tensor_slices((t, k)).map(function))
        expected = function(t, k)
        assert [x.dtype for x in traced] == [expected.dtype] * 3
        np.testing.assert_array_equal(traced, expected)
    kept = Dataset.from_tensor_slices((t, k)).filter(lambda a, b: a / b == a)
    assert len(list(kept)) == 3
