"""Mistakes in a user's function: gpupipe's names used wrongly are told at once, everything else with its element."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import FunctionError, PlanError, PlanTypeError, ResultError
from tests.behaviour import test_process_functions as functions
from tests.behaviour.model import outcomes
from tests.reliability.resume import plain, taken

# Mistakes are wrong on purpose: no type checker looks at these.
OPS: Any = ops
GP: Any = gp
X = Dataset.from_tensor_slices(np.zeros((2, 9, 8, 3), np.uint8))
HALF = functools.partial(OPS.resize, method="area")


def _late(x: Any) -> Any:
    x = OPS.flip_left_right(x)
    return OPS.nomralize(x, mean=(0, 0, 0), std=(1, 1, 1))


def _deep(x: Any) -> Any:
    return _late(x)


WRONG: list[tuple[str, Callable[[Any], Any], type[PlanError], str]] = [
    ("typo", lambda x: OPS.nomralize(x), PlanError, r"gpupipe.ops.nomralize, at .*py:\d+; did you mean normalize\?"),
    ("typo below", _deep, PlanError, r"gpupipe.ops.nomralize, at .*did you mean normalize\?"),
    ("typo in gpupipe", lambda x: GP.opps.resize(x, (4, 4)), PlanError, r"gpupipe.opps, at .*did you mean ops\?"),
    ("nothing like it", lambda x: OPS.zzzzzz(x), PlanError, r"got gpupipe.ops.zzzzzz, at \S+:\d+$"),
    ("missing", lambda x: OPS.resize(x), PlanTypeError, r"resize\(\) missing 1 required .* 'size', at .*py:\d+"),
    ("unexpected", lambda x: OPS.resize(x, (4, 4), metod="area"), PlanTypeError, "unexpected keyword argument 'metod'"),
    ("too many", lambda x: OPS.transpose(OPS.flip_left_right(x, 1, 2, 3)), PlanTypeError, r"flip_left_right\(\) takes"),
    ("partial", lambda x: HALF(x), PlanTypeError, r"resize\(\) missing 1 required"),
    ("class", lambda x: (OPS.flip_left_right(x), GP.TensorSpec(1, 2, 3, 4)), PlanTypeError, r"Spec.__init__\(\) takes"),
]


@pytest.mark.parametrize(("function", "kind", "text"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_wrong_use_of_gpupipe_is_told_on_the_users_line(
    function: Callable[[Any], Any], kind: type[PlanError], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        X.map(function)

    assert type(caught.value) is kind
    assert str(caught.value).startswith("map needs ")
    assert "test_mistakes_in_functions.py" in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def _compared(x: Any) -> Any:
    return ops.flip_left_right(x) if ops.cast(x, "float32")[0, 0, 0] > 1 else x


def _foreign(x: Any) -> Any:
    return memoryview(ops.flip_left_right(x))


TOLD: dict[str, Callable[[], Any]] = {
    "a wrong name": lambda: X.map(lambda x: OPS.nomralize(x)),
    "a wrong call": lambda: X.map(lambda x: OPS.resize(x)),
    "a truth value": lambda: X.map(_compared),
    "a function of NumPy": lambda: X.map(lambda x: np.mean(ops.flip_left_right(x))),
    "a library": lambda: X.map(_foreign),
    "a wrong shape": lambda: X.map(lambda x: ops.normalize(x, (1, 2), (1, 1))),
    "a wrong key": lambda: Dataset.from_tensor_slices({"a": np.zeros(2)}).map(lambda x: ops.cast(x["b"], "int32")),
    "too many arguments": lambda: X.map(lambda x, y: x),
    "of a dataset": lambda: X.flat_map(lambda x: GP.Nothing(x)),
    "the device": lambda: next(iter(X.map(ops.flip_left_right).with_options(Options(device="gpu:99")))),
    "the data": lambda: next(iter(Dataset.range(1).map(lambda i: ops.gather(np.arange(0), i)))),
    "the data of a batch": lambda: next(iter(Dataset.range(1).map(lambda i: ops.gather(np.arange(0), i)).batch(1))),
    "the data after a draw": lambda: next(
        iter(Dataset.range(1).map(lambda i: (ops.gather(np.arange(0), i), ops.random_uniform())))
    ),
    "a header": lambda: next(iter(Dataset.from_tensors(b"\xff\xd8\xff\xe0abc").map(ops.decode_jpeg).batch(1))),
    "a record": lambda: gp.io.parse_example([b"abc"], {"a": gp.io.FixedLenFeature((), "int64")}),
    "the result": lambda: next(
        iter(X.map(lambda x: ops.py_function(lambda y: y * 1.5, [x], spec=gp.TensorSpec((9, 8, 3), "int64"))))
    ),
}


@pytest.mark.parametrize("mistake", TOLD.values(), ids=TOLD)
def test_a_mistake_is_told_once_with_few_lines_that_are_not_the_users(mistake: Callable[[], Any]) -> None:
    with pytest.raises(gp.GpupipeError) as caught:
        mistake()

    lines = traceback.format_exception(caught.value)
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert "".join(lines).count(str(caught.value)) == 1
    assert sum("/gpupipe/" in line for line in lines) <= 3
    assert any(__file__ in line for line in lines[1:])


def test_a_mistake_in_a_function_ends_its_traceback_on_the_users_line() -> None:
    for function in (_compared, _foreign, _late):
        with pytest.raises(PlanError) as caught:
            X.map(function)
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert (last.filename, last.name) == (__file__, function.__name__)


def test_so_it_is_in_a_function_that_returns_datasets() -> None:
    names = Dataset.from_tensor_slices([b"a", b"b"])

    with pytest.raises(PlanError, match=r"flat_map needs .*gpupipe.TextLineDatset.*did you mean TextLineDataset"):
        names.flat_map(lambda name: GP.TextLineDatset(name))
    with pytest.raises(PlanTypeError, match="interleave needs"):
        names.interleave(lambda name: GP.TextLineDataset(name, nothing=3))


def resize(x: Any, size: Any) -> Any:
    return ops.resize(x, size)


class Holder:
    """An object of the user's own."""


FALLBACKS: dict[str, Callable[[Any], Any]] = {
    "its own attribute": lambda x: (ops.flip_left_right, Holder().nothing),  # type: ignore[attr-defined]
    "its own function": lambda x: (ops.flip_left_right, resize(x)),  # type: ignore[call-arg]
    "another type error": lambda x: (ops.flip_left_right, 1 + "a"),  # type: ignore[operator]
    "numpy": lambda x: (ops.flip_left_right, np.nothing),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("function", FALLBACKS.values(), ids=FALLBACKS)
def test_any_other_exception_belongs_to_the_elements(
    function: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="gpupipe"):
        chain = X.map(function)

    assert "runs as ordinary Python" in caplog.text
    with pytest.raises(FunctionError, match="at index 0: map: raised"):
        next(iter(chain))


# ---- exceptions that are no ordinary ones


KINDS: list[Any] = [{}, {"num_parallel_calls": 2}, {"num_parallel_calls": 1, "workers": "process"}]
IDS = ["inline", "threads", "processes"]


@pytest.mark.parametrize("how", KINDS, ids=IDS)
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (functions.Speechless(), "Speechless (its text cannot be made: ZeroDivisionError"),
        (asyncio.CancelledError("no more"), "CancelledError: no more"),  # which is no Exception
    ],
)
def test_whatever_is_raised_is_the_error_of_its_element(error: BaseException, text: str, how: Any) -> None:
    said = taken(iter(Dataset.range(3).map(functools.partial(functions.raises_at_one, error=error), **how)))

    assert said[::2] == [plain(np.int64(0)), plain(np.int64(2))]
    assert said[1][1].startswith(f"range at index 1: map: raised {text}")


@pytest.mark.parametrize("how", KINDS, ids=IDS)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_a_program_ends_the_run(kind: type[BaseException], how: Any) -> None:
    with iter(Dataset.range(4).map(functools.partial(functions.raises_at_one, error=kind(7)), **how)) as items:
        assert int(next(items)) == 0
        with pytest.raises(kind) as caught:
            next(items)

    assert type(caught.value) is kind
    assert caught.value.args == (7,)


def _cancelled(x: Any) -> Any:
    return functions.raises_at_one(x, asyncio.CancelledError("no more"))


def test_so_it_is_in_a_generator_and_in_py_function() -> None:
    def cancelled() -> Any:
        yield 0
        raise asyncio.CancelledError("no more")

    spec = gp.TensorSpec((), "int64")
    traced = taken(iter(Dataset.range(3).map(lambda x: ops.py_function(_cancelled, [x], spec))))
    said, text = taken(iter(Dataset.from_generator(cancelled))), "raised CancelledError: no more"

    assert said == [plain(np.int64(0)), ("error", f"from_generator at index 1: from_generator: {text}")]
    assert traced[1] == ("error", f"range at index 1: py_function: _cancelled() {text}")
    assert traced[::2] == [plain(np.int64(0)), plain(np.int64(2))]


# ---- what a signal handler raises


class Preempted(BaseException):
    """A program's own, raised by its handler of SIGTERM."""


class _Struck:
    """A function that a signal strikes in its eighth call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.calls == 8:
            signal.raise_signal(signal.SIGTERM)
        return x


def _generated(struck: Any) -> Iterator[int]:
    yield from map(struck, range(20))


class _Indexed:
    def __init__(self, struck: Any) -> None:
        self.struck = struck

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> int:
        return int(self.struck(i))


OF_FUNCTIONS: dict[str, Callable[[Any], Dataset]] = {
    "map": lambda f: Dataset.range(20).map(f, traced=False),
    "map in threads": lambda f: Dataset.range(20).map(f, traced=False, num_parallel_calls=2),
    "py_function": lambda f: Dataset.range(20).map(lambda x: ops.py_function(f, [x], gp.TensorSpec((), "int64"))),
    "filter": lambda f: Dataset.range(20).filter(lambda x: bool(np.asarray(f(x)) >= 0)),
    "take_while": lambda f: Dataset.range(20).take_while(lambda x: f(x) >= 0),
    "scan": lambda f: Dataset.range(20).scan(0, lambda state, x: (state, f(x))),
    "flat_map": lambda f: Dataset.range(20).flat_map(lambda x: Dataset.from_tensors(f(x))),
    "interleave": lambda f: Dataset.range(20).interleave(lambda x: Dataset.from_tensors(f(x)), cycle_length=1),
    "group_by_window": lambda f: Dataset.range(20).group_by_window(lambda x: f(x) * 0, lambda _, w: w, window_size=1),
    "from_indexable": lambda f: Dataset.from_indexable(_Indexed(f)),
    "pick": lambda f: Dataset.range(20).pick(lambda: map(f, range(20))),
}


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("way", OF_FUNCTIONS)
def test_what_a_signal_handler_raises_gets_through_and_costs_no_element(way: str, policy: Any) -> None:
    def preempt(number: int, frame: Any) -> None:
        raise Preempted

    before = signal.signal(signal.SIGTERM, preempt)
    try:
        items = iter(OF_FUNCTIONS[way](_Struck()).with_options(Options(on_error=policy)))
        got = list[int]()
        with pytest.raises(Preempted):
            got.extend(int(x) for x in items)  # extend keeps what came before
        got.extend(int(x) for x in items)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert got == list(range(20))
    assert items.left_out == 0


def test_a_generator_that_a_signal_strikes_starts_again() -> None:
    """Nothing tells where a generator goes on, so what came before is made again."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        struck, got = _Struck(), list[int]()
        items = iter(Dataset.from_generator(lambda: _generated(struck)))
        with pytest.raises(KeyboardInterrupt):
            got.extend(int(x) for x in items)
        got.extend(int(x) for x in items)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert got == list(range(20))


# ---- values


def _masked() -> Any:
    return np.ma.array([1, 2], mask=[False, True])


def test_a_masked_array_is_refused_wherever_it_comes_from() -> None:
    fill = r"values without a mask, got a masked array; fill it first: x.filled\(0\)"

    for make in (Dataset.from_tensor_slices, Dataset.from_tensors, lambda x: Dataset.from_tensors([x, x])):
        with pytest.raises(PlanTypeError, match=fill):
            make(_masked())
    with pytest.raises(ResultError, match=fill):
        next(iter(Dataset.range(2).map(lambda x: _masked(), traced=False)))
    with pytest.raises(FunctionError, match=fill):
        next(iter(Dataset.from_generator(lambda: iter([_masked()]))))
    with pytest.raises(PlanTypeError, match=fill):
        ops.adjust_brightness(np.ma.zeros((4, 4, 3), np.uint8), delta=0.1)


def test_a_dataset_is_made_by_a_constructor() -> None:
    with pytest.raises(
        PlanTypeError, match=r"Dataset needs a plan, got ndarray; call a constructor: Dataset.from_tensor_slices"
    ):
        GP.Dataset(np.zeros(3))


# ---- what is said of a mistake: which step, which function, what was got

R = Dataset.range


AHEAD = gp.compat.parallel_interleave(lambda x: 5, 2, buffer_output_elements=2)  # type: ignore[arg-type,return-value]

NEEDS = "needs a function .*None from the lambda"
NOTHING: Any = lambda x: None  # noqa: E731

SAID: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: list(R(3).scan(0, lambda s, x: (s, None))), PlanTypeError, "new state, output.*got None as the output"),
    (lambda: R(3).take_while(NOTHING), PlanTypeError, f"take_while {NEEDS}"),
    (lambda: R(3).group_by_window(NOTHING, lambda key, d: d, 2), PlanTypeError, f"group_by_window {NEEDS}"),
    (lambda: R(3).bucket_by_sequence_length(NOTHING, [1], [1, 1]), PlanTypeError, f"bucket_by_sequence_length {NEEDS}"),
    (lambda: R(4).repeat()[2**62], IndexError, r"of an infinite dataset: indices are 0 to 2\*\*62 - 1"),
    (lambda: Dataset.load("memory://s"), gp.PlanError, "load needs a local path, got 'memory://s'"),
    (lambda: R(3).apply(AHEAD), PlanTypeError, "interleave needs a function that returns a Dataset, got int"),
]


@pytest.mark.parametrize(("make", "kind", "text"), SAID)
def test_a_mistake_is_named(make: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()


# ---- an iterator that is asked by a function of its own chain


WITHIN: list[Callable[[Callable[[Any], Any]], Dataset]] = [
    lambda fn: R(3).map(fn),
    lambda fn: R(3).map(fn, num_parallel_calls=2),
    lambda fn: R(3).map(fn).prefetch(1),
    lambda fn: R(3).map(fn, spec=gp.TensorSpec((), "int64")).batch(1),
    lambda fn: R(3).flat_map(lambda x: R(fn(x))),
]


@pytest.mark.parametrize("make", WITHIN)
def test_next_inside_of_the_own_chain_is_an_error_of_each_element(make: Any) -> None:
    items: list[Iterator[Any]] = []
    chain = make(lambda x: int(next(items[0])) + int(x))
    items.append(iter(chain))

    for _ in range(3):
        with pytest.raises(FunctionError, match=r"next\(\) needs to be called from outside"):
            next(items[0])
    assert next(items[0], None) is None


# ---- what takes a turn, what counts


@pytest.mark.parametrize("bad", [1, 7, 12])
def test_an_error_that_is_raised_takes_no_turn_of_an_interleave(bad: int) -> None:
    def inverse(x: Any) -> Any:
        return int(x) if int(x) not in (1, bad) else 1 // 0

    chain = R(20).map(inverse).window(3).interleave(lambda w: w, cycle_length=3)
    batched = R(3).interleave(lambda i: R(4).map(inverse).batch(1), cycle_length=2, block_length=2)

    for each in (chain, batched):
        raised = [x for x in outcomes(each) if x != "error"]
        assert raised == outcomes(each.with_options(Options(on_error="skip")))


@pytest.mark.parametrize("deep", [False, True])
def test_rows_behind_a_ragged_batch_are_padded_with_ragged_rows(deep: bool) -> None:
    rows = R(1, 4).map(lambda n: {"x": np.ones((int(n), 2), np.float32), "s": [b"a"] * int(n)})
    batches = rows.ragged_batch(1).ragged_batch(2) if deep else rows.ragged_batch(2)

    *_, last, zeros = batches.pad_to_cardinality(3)

    assert (bool(last["valid"]), bool(zeros["valid"])) == (True, False)
    for key in ("x", "s"):
        assert isinstance(zeros[key], gp.Ragged)
        assert (zeros[key].dtype, zeros[key].ragged_rank) == (last[key].dtype, last[key].ragged_rank)
        assert (len(zeros[key]), zeros[key].flat_values.size) == (len(last[key]), 0)
