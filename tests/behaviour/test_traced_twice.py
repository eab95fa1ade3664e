"""A traced function is called twice: what differs would be one value for every element, and is refused."""

from __future__ import annotations

import itertools
import logging
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, TensorSpec, TraceError, ops
from gpupipe.graph.op import Op
from gpupipe.graph.symbols import apply
from tests.behaviour.model import run

R = Dataset.range(3)
X = Dataset.from_tensor_slices(np.zeros((2, 9, 8, 3), np.uint8))
FLOAT, INT = TensorSpec((), "float64"), TensorSpec((), "int64")
HERE = r"\S*test_traced_twice\.py:\d+"
_OWN = random.Random()


class Holder:
    """Something with a generator in it."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.old = np.random.RandomState()


HOLDER = Holder()


def _fresh() -> float:
    return float(np.random.default_rng().random())


def _torch() -> float:
    return float(pytest.importorskip("torch").rand(()).item())


GENERATORS: dict[str, Callable[[], float]] = {
    "random": random.random,
    "random.Random()": lambda: random.Random().random(),
    "a Random of the module": lambda: _OWN.random(),
    "numpy": lambda: float(np.random.rand()),
    "default_rng in a function": _fresh,
    "default_rng of an attribute": lambda: float(HOLDER.rng.random()),
    "RandomState of an attribute": lambda: float(HOLDER.old.rand()),
    "secrets": lambda: secrets.randbelow(1 << 40) / (1 << 40),
    "os.urandom": lambda: int.from_bytes(os.urandom(6), "little") / (1 << 48),
    "clock": lambda: time.perf_counter_ns() % 1_000_000_007 / 1e9,
    "torch": _torch,
}

USES: dict[str, Callable[[Callable[[], float]], Dataset]] = {
    "arithmetic": lambda draw: X.map(lambda x: ops.cast(x, "float32") * draw()),
    "a parameter of an op": lambda draw: X.map(lambda x: ops.adjust_brightness(x, delta=0.9 * draw())),
    "an array": lambda draw: X.map(lambda x: ops.cast(x, "float32") - np.array([draw(), 0, 0], np.float32)),
    "a leaf": lambda draw: X.map(lambda x: (ops.flip_left_right(x), draw())),
    "bytes": lambda draw: X.map(lambda x: (ops.flip_left_right(x), str(draw()))),
    "an argument of Python": lambda draw: R.map(lambda x: ops.py_function(lambda v, f: v * f, (x, draw()), FLOAT)),
    "what a function captures": lambda draw: R.map(lambda x: _scaled(x, draw())),
    "filter": lambda draw: R.filter(lambda x: ops.cast(x, "float32") < draw()),
    "a dataset inside": lambda draw: R.flat_map(lambda x: Dataset.range(10**9 + int(1e9 * draw()))),
    "a map inside": lambda draw: R.interleave(lambda x: R.map(lambda y: _times(y, draw()))),
    "a map two deep": lambda draw: R.flat_map(lambda x: R.flat_map(lambda y: R.map(lambda z: _times(z, draw())))),
    "an array inside": lambda draw: R.flat_map(lambda x: Dataset.from_tensor_slices(np.full(3, draw()))),
    "a large array inside": lambda draw: R.flat_map(lambda x: Dataset.from_tensor_slices(np.full((400, 1000), draw()))),
}


def _times(x: Any, factor: float) -> Any:
    return ops.cast(x, "float32") * factor


def _scaled(x: Any, factor: float) -> Any:
    return ops.py_function(lambda v: v * factor, (x,), FLOAT)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("draw", GENERATORS.values(), ids=GENERATORS)
def test_a_number_that_is_drawn_while_tracing_is_refused(
    draw: Callable[[], float], use: Callable[[Callable[[], float]], Dataset]
) -> None:
    with pytest.raises(TraceError, match=r"would hold for every element.*") as caught:
        use(draw)

    assert "test_traced_twice.py" in str(caught.value)


def test_the_constants_are_named() -> None:
    count = itertools.count(5)

    with pytest.raises(
        TraceError, match=rf"the lambda makes a different graph .*: 5, then 6 in \*, at {HERE}; .*random op"
    ):
        X.map(lambda x: ops.cast(x, "float32") * next(count))
    with pytest.raises(TraceError, match=rf"adjust_brightness with delta=0\.5, then 0\.25, at {HERE}"):
        deltas = iter((0.5, 0.25))
        X.map(lambda x: ops.adjust_brightness(x, delta=next(deltas)))
    with pytest.raises(TraceError, match=rf"flip_left_right, then flip_up_down, at {HERE}"):
        chosen = iter((True, False))
        X.map(lambda x: ops.flip_left_right(x) if next(chosen) else ops.flip_up_down(x))
    with pytest.raises(TraceError, match=rf"flat_map.*range with stop=5, then 6, at {HERE}"):
        sizes = iter((5, 6))
        R.flat_map(lambda x: Dataset.range(next(sizes)))


def test_a_second_call_that_fails_is_refused_too() -> None:
    once = iter((0.5,))

    with pytest.raises(TraceError, match=rf"makes a different graph .*StopIteration.*, at {HERE}") as caught:
        X.map(lambda x: ops.adjust_brightness(x, delta=next(once)))

    assert caught.value.__suppress_context__


@pytest.mark.parametrize("toss", [random.random, np.random.rand, _OWN.random, HOLDER.rng.random, _torch])
def test_a_coin_is_refused_whichever_way_it_falls(toss: Callable[[], float]) -> None:
    def function(x: Any) -> Any:
        return ops.flip_left_right(x) if toss() < 0.5 else x

    for _ in range(20):
        with pytest.raises(TraceError, match="draws from a random generator"):
            X.map(function)


# ---- what is no difference


class Counter:
    """A Python function with a state that is no constant of the graph."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x


@dataclass(frozen=True, slots=True)
class _Held(Op):
    """An op of a user that holds an object."""

    held: Any = None

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0]

    def reference(self, *args: Any) -> Any:
        return args[0]


LARGE = np.arange(100_000, dtype=np.float64)


def _aside(x: Any, notes: list[Any] = []) -> Any:  # noqa: B006
    notes.append(len(notes))
    return ops.cast(x, "float32")


STEADY: dict[str, Callable[[], Dataset]] = {
    "a closure made in the function": lambda: R.map(lambda x: ops.py_function(lambda v: v, (x,), INT)),
    "a callable made in the function": lambda: R.map(lambda x: ops.py_function(Counter(), (x,), INT)),
    "a closure over an object made in it": lambda: R.map(lambda x: _with_object(x)),
    "NaN": lambda: X.map(lambda x: ops.cast(x, "float32") * float("nan")),
    "an array of NaN": lambda: X.map(lambda x: ops.cast(x, "float32") * np.full(3, np.nan, np.float32)),
    "an array made in the function": lambda: X.map(lambda x: (ops.flip_left_right(x), np.arange(100_000.0))),
    "an array of the module": lambda: X.map(lambda x: (ops.flip_left_right(x), LARGE)),
    "a note aside": lambda: R.map(_aside),
    "an op that holds an object": lambda: X.map(lambda x: apply(_Held(Holder()), x)),
    "random ops": lambda: X.map(lambda x: ops.random_flip_left_right(ops.random_brightness(x, 0.2))),
    "a dataset with a new function": lambda: R.flat_map(lambda x: Dataset.range(2).map(lambda y: y + 1, traced=False)),
    "a dataset of a generator": lambda: R.flat_map(lambda x: Dataset.from_generator(lambda: iter([1]))),
    "a dataset of a large array": lambda: R.flat_map(lambda x: Dataset.from_tensor_slices(np.arange(4e5)).take(1)),
    "a cache inside": lambda: R.flat_map(lambda x: Dataset.range(3).cache().shuffle(2)),
    "batches inside": lambda: R.interleave(lambda x: Dataset.range(5).batch(2).map(lambda y: y * 2)),
    "a dataset zipped with a captured one": lambda: R.flat_map(lambda x: Dataset.zip(Dataset.range(2), X)),
}


def _with_object(x: Any) -> Any:
    held = Holder()
    return ops.py_function(lambda v: v + 0 * len(vars(held)), (x,), INT)


@pytest.mark.parametrize("make", STEADY.values(), ids=STEADY)
def test_a_function_that_makes_equal_graphs_is_traced(make: Callable[[], Dataset]) -> None:
    chain = make()

    assert "Python" not in chain.plan.describe()
    next(iter(chain.with_options(Options(backend="numpy"))))


def test_ordinary_python_may_draw_for_each_element() -> None:
    assert len(set(run(R.map(lambda x: random.random())))) == 3
    assert (
        len(set(run(R.map(lambda x: {"a": [ops.cast(x, "float64") + random.random()]}).map(lambda x: x["a"][0])))) == 3
    )


# ---- what it costs


def _nested(depth: int, calls: list[int]) -> Callable[[Any], Dataset]:
    def function(x: Any) -> Dataset:
        calls[depth] += 1
        return Dataset.range(2).flat_map(_nested(depth - 1, calls)) if depth else Dataset.range(2).map(leaf)

    def leaf(y: Any) -> Any:
        calls[-1] += 1
        return ops.cast(y, "float32")

    return function


def test_functions_inside_functions_are_called_twice_too_not_twice_as_often_at_each_depth() -> None:
    calls = [0] * 6

    R.flat_map(_nested(4, calls))

    assert calls == [2] * 6


def test_what_a_function_makes_for_each_element_is_traced_twice_for_the_first_only() -> None:
    calls = []

    def leaf(y: Any) -> Any:
        calls.append(1)
        return ops.cast(y, "float32")

    chain = Dataset.range(1, 6).flat_map(lambda x: Dataset.range(int(x)).map(leaf))

    assert len(run(chain)) == 15
    assert len(calls) == 6


def test_what_a_generator_is_called_with_is_told(caplog: pytest.LogCaptureFixture) -> None:
    count = itertools.count()

    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        chain = R.interleave(lambda x: _numbered(next(count), INT))

    assert "from_generator with args=(0,), then (1,), at " in caplog.text
    assert "the first holds for every element" in caplog.text
    assert run(chain) == [0, 0, 0]


def _numbered(number: int, spec: Any) -> Dataset:
    return Dataset.from_generator(lambda n: iter([n]), args=(number,), output_signature=spec)


def test_a_function_that_is_called_for_each_element_may_count() -> None:
    count = itertools.count()

    chain = R.interleave(lambda x: _numbered(next(count), None))  # only an element tells its type

    assert run(chain) == [2, 3, 4]


def test_what_differs_beside_it_is_refused() -> None:
    count = itertools.count()

    with pytest.raises(TraceError, match=r"shuffle with seed=1, then 3"):
        R.flat_map(lambda x: _numbered(next(count), INT).shuffle(9, seed=next(count)))


def test_a_draw_that_imports_numpy_s_generators_is_noticed() -> None:
    """Before numpy.random is imported, for which a trace does not wait, a position of one not used is assumed."""
    code = """
import sys, numpy as np
from gpupipe.graph.classify import _UNUSED, generator_states, generators
before = generator_states([])
assert np.random.get_state()[2] == _UNUSED
assert generator_states([]) == before, "importing them draws nothing"
np.random.rand()
assert generator_states([]) != before
old, new = np.random.RandomState(1), np.random.default_rng(1)
found = generators(lambda: (old, new))
assert {*map(id, found)} == {id(old), id(new)}
for one in (old.rand, new.random):
    before = generator_states(found)
    one()
    assert generator_states(found) != before
"""

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- the text of a traced value says what it is, not which: it is for people, and no data

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

    assert "test_traced_twice.py:" in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [lambda x: "%.3s" % x, lambda x: (x, b"%.3a" % x), lambda x: x + 1000 * ("n%s" % x == "n1")],  # noqa: UP031
    ids=["cut", "cut bytes", "comparison"],
)
def test_an_expression_that_makes_a_text_makes_one_of_each_element(function: Callable[[Any], Any]) -> None:
    numbers = Dataset.range(3)

    assert list(numbers.map(function)) == list(numbers.map(function, traced=False))
