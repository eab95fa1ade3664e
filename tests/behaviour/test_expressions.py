"""Plain expressions and functions that look at a value before the first op: traced where it can be, else Python."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import SpecError, TraceError
from gpupipe.ops._shared.samples import encoded, noise
from tests.behaviour.model import run

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


def test_a_value_behind_the_first_op_is_an_error() -> None:
    def late(data: Any) -> Any:
        image = ops.decode_jpeg(data, channels=3)
        assert len(image) > 0
        return image

    with pytest.raises(TraceError, match=r"len\(\)"):
        Dataset.from_tensor_slices([JPEG]).map(late)
