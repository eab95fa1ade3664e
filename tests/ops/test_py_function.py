"""py_function: Python in the middle of a traced function, and what it may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import FunctionError, ParseError, PlanError, PlanTypeError, SpecError
from gpupipe.graph.host_values import HostValues
from gpupipe.graph.trace import trace
from gpupipe.spec import TensorSpec, flatten

INT = TensorSpec((), "int64")
VECTOR = TensorSpec((None,), "float32")


def fail(*args: Any) -> Any:
    raise KeyError("nope")


def returns(value: Any, spec: Any = INT) -> Any:
    """What a function that returns `value` gives."""
    return ops.py_function(lambda x: value, [0], spec)


def test_a_traced_function_calls_it_once_for_each_row() -> None:
    seen: list[Any] = []

    def count(name: bytes, n: np.int64) -> dict[str, Any]:
        seen.append((name, n))
        return {"length": len(name) * n, "parts": np.full(n, 0.5, np.float32)}

    def fn(x: Any) -> Any:
        return ops.py_function(count, (x["name"], x["n"]), {"length": INT, "parts": VECTOR}), x["n"] + 1

    structure = flatten({"name": 0, "n": 0})[1]
    traced = trace(fn, structure, [TensorSpec((), bytes), INT])
    assert traced is not None
    assert seen == []
    rows: list[list[Any]] = [[b"ab", memoryview(b"cde")], [np.int64(2), np.int64(0)]]
    keys = np.arange(2, dtype=np.uint64)
    values = HostValues(2, lambda i: rows[i], lambda i: keys, seed=0, epoch=0)

    element = traced.structure.unflatten([values.rows(value) for value in traced.outputs])

    assert element[0]["length"] == [4, 0]
    assert [part.tolist() for part in element[0]["parts"]] == [[0.5, 0.5], []]
    assert element[1] == [3, 1]
    assert seen == [(b"ab", 2), (b"cde", 0)]
    assert all(type(name) is bytes for name, _ in seen)


def test_python_numbers_take_the_type_of_the_spec() -> None:
    assert returns(3, TensorSpec((), "uint8")).dtype == np.uint8
    assert returns(2.5, TensorSpec((), "float32")).dtype == np.float32
    assert returns(True).dtype == np.int64
    assert returns([1, 2], VECTOR).tolist() == [1, 2]
    assert returns("é", TensorSpec((), bytes)) == "é".encode()


def test_a_list_stands_for_a_tuple_where_the_spec_has_one() -> None:
    assert returns([1, 2], (INT, INT)) == (1, 2)


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (1.5, INT, r"needs to return int64, got float64"),
        (np.float64(1), TensorSpec((), "float32"), "needs to return float32, got float64"),
        (300, TensorSpec((), "uint8"), "got 300 .*out of bounds"),
        (np.zeros((2, 2), np.float32), VECTOR, r"needs to return float32\[\?\], got float32\[2,2\]"),
        ((1, 2), INT, r"needs to return int64, got the structure \(\*, \*\)"),
        (1, (INT, INT), r"got the structure \*"),
        (None, INT, "got the structure None"),
        ({1}, INT, "got {1}"),
        (object(), INT, "got <object"),
        ((1, b"x"), (INT, INT), r"got bytes for \[1\]"),
    ],
)
def test_a_result_unlike_the_spec_is_an_error_of_the_data(value: Any, spec: Any, text: str) -> None:
    with pytest.raises(FunctionError, match=text) as caught:
        returns(value, spec)

    assert caught.value.stage == "py_function"


def test_an_exception_is_kept_as_the_cause() -> None:
    with pytest.raises(FunctionError, match=r"fail\(\) raised KeyError: 'nope'") as caught:
        ops.py_function(fail, [1], INT)

    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_that_says_what_is_wrong_with_the_data_passes_as_it_is() -> None:
    def refuse(x: Any) -> Any:
        raise ParseError("no label")

    with pytest.raises(ParseError, match="no label"):
        ops.py_function(refuse, [1], INT)


def test_mistakes_are_found_while_tracing() -> None:
    with pytest.raises(SpecError, match="dtype and rank"):
        ops.py_function(fail, [1], TensorSpec(None, "int64"))
    with pytest.raises(PlanTypeError, match="needs a TensorSpec for each result, got <class 'int'>"):
        ops.py_function(fail, [1], int)
    with pytest.raises(PlanTypeError, match="needs a function, got int"):
        ops.py_function(3, [1], INT)  # type: ignore[arg-type]
    with pytest.raises(PlanTypeError, match="tuple or list of arguments"):
        ops.py_function(fail, 1, INT)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="at least one argument"):
        ops.py_function(fail, [], INT)
