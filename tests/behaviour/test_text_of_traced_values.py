"""A traced value can be printed. Its text says what it is, not which: it is for people, and no data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, TensorSpec, TraceError, ops

X = Dataset.from_tensor_slices(np.zeros((2, 9, 8, 3), np.uint8))
SHOWN = "<traced uint8[9,8,3]>"


def real(x: Any) -> Any:
    return ops.cast(x, "float32")


def test_print_shows_the_spec(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        print(x)
        print(f"{x}", f"an image: {x}", str(x), repr(x), "%s" % (x,), "{}".format(x))  # noqa: UP031, UP032
        return real(x)

    chain = X.map(function)

    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [SHOWN, f"{SHOWN} an image: {SHOWN} {SHOWN} {SHOWN} {SHOWN} {SHOWN}"]
    assert "[traced]" in chain.plan.describe()


DATA: dict[str, Callable[[Any], Any]] = {
    "a leaf": lambda x: (real(x), str(x)),
    "a part of a leaf": lambda x: (real(x), f"{x}.png"),
    "bytes": lambda x: (real(x), str(x).encode()),
    "a comparison": lambda x: _if(real(x), str(x) == "cat"),
    "another comparison": lambda x: _if(real(x), f"{x}" != "cat"),
    "a key": lambda x: real(x) * {str(x): 1}[str(x)],
    "one of a set": lambda x: _if(real(x), str(x) in {"cat", "dog"}),
    "a key that may be missing": lambda x: real(x) * {"cat": 2}.get(f"{x}", 1),
    "an argument of Python": lambda x: ops.py_function(lambda v, n: v, (real(x), f"{x}"), TensorSpec((), "int64")),
    "what a function captures": lambda x: _named(real(x), f"no {x}"),
    "a default of a keyword": lambda x: _named_by_a_keyword(real(x), f"no {x}"),
    "a parameter": lambda x: ops.resize(real(x), (3, 3), method=f"{x}"),
    "the repr": lambda x: (real(x), repr(x)),
    "a format": lambda x: (real(x), print(f"{real(x):.2f}")),
}


def _if(x: Any, double: bool) -> Any:
    return x * 2 if double else x


def _named(x: Any, name: str) -> Any:
    return ops.py_function(lambda v: name, (x,), TensorSpec((), bytes))


def _named_by_a_keyword(x: Any, name: str) -> Any:
    def named(_: Any, *, name: str = name) -> str:
        return name

    return ops.py_function(named, (x,), TensorSpec((), bytes))


@pytest.mark.parametrize("function", DATA.values(), ids=DATA)
def test_its_text_is_no_data(function: Callable[[Any], Any]) -> None:
    with pytest.raises((TraceError, ValueError), match=r"needs the text|needs the format|needs method") as caught:
        X.map(function)

    assert "test_text_of_traced_values.py:" in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [lambda x: "%.3s" % x, lambda x: (x, b"%.3a" % x), lambda x: x + 1000 * ("n%s" % x == "n1")],  # noqa: UP031
    ids=["cut", "cut bytes", "comparison"],
)
def test_an_expression_that_makes_a_text_makes_one_of_each_element(function: Callable[[Any], Any]) -> None:
    numbers = Dataset.range(3)

    assert list(numbers.map(function)) == list(numbers.map(function, traced=False))
