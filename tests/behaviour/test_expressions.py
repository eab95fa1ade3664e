"""Plain expressions and functions that look at a value before the first op: traced where it can be, else Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import SpecError
from gpupipe.ops._shared.samples import encoded, noise
from tests.behaviour.model import outcomes, run

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")  # of integers, by NumPy

EXPRESSIONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "join": (lambda p: p + b".jpg", [b"a.jpg", b"bc.jpg"]),
    "repeat": (lambda p: p * 2, [b"aa", b"bcbc"]),
    "format": (lambda p: b"%s!" % p, [b"a!", b"bc!"]),
    "a pair": (lambda p: (p, p + b"!"), [(b"a", b"a!"), (b"bc", b"bc!")]),
}


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_an_expression_of_byte_strings_is_pythons(expression: Callable[[Any], Any], expected: list[Any]) -> None:
    assert run(Dataset.from_tensor_slices(["a", "bc"]).map(expression)) == expected


def test_where_tracing_is_asked_for_it_raises() -> None:
    with pytest.raises(SpecError, match="a subscript is not defined for bytes"):
        Dataset.from_tensor_slices(["a"]).map(lambda p: p[0], traced=True)


# ---- ops behind something that needs a value


JPEG = encoded(noise(20, 20))


def _image(data: Any) -> Any:
    return ops.center_crop(ops.decode_jpeg(data, channels=3), (9, 9))


def _checked(data: Any) -> Any:
    assert len(data) > 0
    return _image(data)


def _branching(data: Any) -> Any:
    return _image(data if data else b"")


@pytest.mark.parametrize("function", [_checked, _branching], ids=["assert", "branch"])
def test_the_fall_back_to_python_is_logged(function: Any, caplog: pytest.LogCaptureFixture) -> None:
    source = Dataset.from_tensor_slices([JPEG] * 2)

    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        chain = source.map(function)

    assert "[Python]" in chain.plan.describe()
    (record,) = [record for record in caplog.records if record.name == "gpupipe"]
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert text.startswith(f"{function.__name__}() runs as ordinary Python")
    assert "test_expressions.py" in text  # the line that needed the value
    assert "py_function" in text
    assert run(chain) == run(source.map(_image))


def test_nothing_is_logged_where_python_was_meant(caplog: pytest.LogCaptureFixture) -> None:
    source = Dataset.from_tensor_slices([JPEG])

    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        source.map(_image)
        source.map(_checked, traced=False)
        source.map(lambda data: data + b"x")
        source.map(lambda data: len(data))

    assert [record for record in caplog.records if record.name == "gpupipe"] == []


# ---- integers divided by zero: an error of that element, wherever it is computed


IMAGES = np.zeros((4, 6, 6, 3), np.uint8)
WITH_ZERO, WITHOUT = np.array([1, 0]), np.array([1, 2])
ROWS = np.array([[1, 2], [3, 0], [5, 6], [0, 8]])

DIVISIONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "number // x": (lambda x: 6 // (x - 1), [-6, "error", 6, 3]),
    "number % x": (lambda x: 5 % (x - 1), [0, "error", 0, 1]),
    "x % x": (lambda x: (x + 1) % x, ["error", 0, 1, 1]),
    "x // 0": (lambda x: x // 0, ["error"] * 4),
    "x // array": (lambda x: x // WITH_ZERO, ["error"] * 4),
    "x // 2": (lambda x: x // 2, [0, 0, 1, 1]),
    "x // array without zeros": (lambda x: x // WITHOUT, [[0, 0], [1, 0], [2, 1], [3, 1]]),
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided_by_zero_are_an_error_of_that_element(name: str) -> None:
    divide, expected = DIVISIONS[name]
    chain = Dataset.range(4).map(divide)

    assert "[traced]" in chain.plan.describe()
    assert outcomes(chain) == expected
    assert outcomes(chain.with_options(Options(on_error="skip"))) == [x for x in expected if x != "error"]


def test_the_error_says_what_it_was_and_where() -> None:
    chain = Dataset.range(4).map(lambda x: 6 // (x - 1))

    with pytest.raises(gp.DataError, match=r"range at index 1: .*ZeroDivisionError: integer division") as caught:
        list(chain)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_arrays_and_small_integers_are_checked_too() -> None:
    rows = Dataset.from_tensor_slices(ROWS)

    assert outcomes(rows.map(lambda x: 24 // x)) == [[24, 12], "error", [4, 4], "error"]
    assert outcomes(rows.batch(2).map(lambda x: 24 // x)) == ["error", [[24, 12], [4, 4]], "error"]
    for dtype in (np.uint8, np.int32, np.bool_):
        assert "error" in outcomes(Dataset.from_tensor_slices(ROWS.astype(dtype)).map(lambda x: 7 % x))


@pytest.mark.parametrize("backend", ["numpy", "dali"])
def test_a_number_beside_an_image_is_checked_on_every_executor(backend: Any) -> None:
    def with_label(image: Any, x: Any) -> Any:
        return ops.resize(image, (3, 3)), 6 // (x - 1)

    def turned(image: Any, x: Any) -> Any:
        return ops.random_flip_left_right(image, p=(6 // (x - 1)) * 0 + 0.5), x

    pairs = Dataset.zip(Dataset.from_tensor_slices(IMAGES), Dataset.range(4))
    for function, expected in ((with_label, [-6, 6, 3]), (turned, [0, 2, 3])):
        chain = pairs.map(function).with_options(Options(backend=backend, on_error="skip"))

        assert [int(x) for _, x in chain] == expected
        assert [x.tolist() for _, x in chain.batch(2)] == [expected[:2], expected[2:]]
