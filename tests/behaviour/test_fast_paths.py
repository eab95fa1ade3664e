"""Shortcuts for one element: each gives what the general rule gives, and reads no further than it did."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import Dataset, Options, TensorSpec
from gpupipe.errors import DataError, PlanTypeError
from gpupipe.flow.batching.batcher import Batcher, Group
from gpupipe.flow.batching.stack import stack_rows
from gpupipe.flow.check import fits
from gpupipe.flow.element import Element, Hole, Stream
from gpupipe.flow.maps.python_function import like, quick_leaf
from gpupipe.flow.run import SILENT_REPLAY, Context, Run
from gpupipe.flow.sources.arrays import RangeFlow
from gpupipe.graph.arithmetic import OPERATORS, Arithmetic
from gpupipe.graph.eager import run as run_op
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight
from gpupipe.spec import DatasetSpec, as_leaf, flatten, own, spec_of
from tests.behaviour.model import outcomes

quick = settings(max_examples=300, deadline=None, database=None, derandomize=True)


def context(on_error: str = "raise") -> Context:
    return Context(Run(Options(on_error=on_error).resolve()))  # type: ignore[arg-type]


# ---- sources

RANGES = [
    ("int64", range(3000)),
    ("int64", range(5000, -5000, -7)),
    ("int64", range(2**63 - 3, 2**63)),
    ("int64", range(-(2**63), -(2**63) + 2049, 2)),
    ("int64", range(0, 2**70, 2**69)),
    ("uint64", range(2**63 - 1030, 2**63 + 1030)),
    ("int8", range(-3, 3)),
    ("float16", range(2040, 2060)),
    ("float32", range(2**53 + 2**29 - 3, 2**53 + 2**29 + 5)),
]


@pytest.mark.parametrize(("dtype", "numbers"), RANGES, ids=str)
def test_numbers_made_in_blocks_are_those_made_one_by_one(dtype: str, numbers: range) -> None:
    kind = np.dtype(dtype).type

    def until_overflow(items: Iterator[Any]) -> tuple[list[Any], str]:
        taken: list[Any] = []
        try:
            taken.extend(items)
        except OverflowError as error:
            return taken, str(error)
        return taken, ""

    got, ended = until_overflow(RangeFlow(numbers, np.dtype(dtype)).open(context()))

    assert ([element[0][0] for element in got], ended) == until_overflow(map(kind, numbers))
    assert {type(element[0][0]) for element in got} == {kind}
    assert [element[2] for element in got] == list(range(len(got)))


# ---- what Python functions return

numbers = st.one_of(
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-5, 5),
    st.floats(),
    st.binary(max_size=3),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.sampled_from([
        np.int8(3), np.uint64(2**63), np.float16(0.5), np.longdouble(2), np.bool_(True), np.datetime64("2020-01-01"),
        np.timedelta64(3, "s"), np.str_("x"), np.bytes_(b"x"), np.complex64(1j), memoryview(b"abc"), bytearray(b"x"),
        np.arange(6).reshape(2, 3), np.array(3), np.array([b"x", b"y"], object), np.array(["x"]),
        np.arange(3, dtype=">i4"), [1, 2], [1.5], [], np.ma.array([1, 2]), None,
    ]),
)  # fmt: skip


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and a.dtype == b.dtype and a.shape == b.shape
        if isinstance(a, (np.ndarray, np.generic))
        else a == b
    )


@quick
@given(value=numbers)
def test_a_leaf_that_its_type_decides_is_what_the_general_rule_makes(value: Any) -> None:
    got = quick_leaf(value)

    assert got is None or same(got, own(as_leaf(value)))
    assert not isinstance(got, np.ndarray) or not np.shares_memory(got, value)


nested = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("ab"), inner, min_size=1),
        inner.map(lambda x: [x]),
    ),
    max_leaves=4,
)  # fmt: skip


@quick
@given(first=nested, value=nested)
def test_columns_by_type_and_length_are_those_of_the_general_rule(first: Any, value: Any) -> None:
    if first is None or isinstance(first, list):
        return
    structure = flatten(first)[1]
    got = like(structure, value)

    if got is not None:
        leaves, found = flatten(value)
        assert found == structure
        assert all(map(same, got, [own(as_leaf(leaf)) for leaf in leaves]))


SPECS = [TensorSpec(shape, dtype) for shape in [None, (), (3,), (None, 3), (2, 3), (None,)]
         for dtype in [None, "int64", "float32", bytes, "bool", "uint8"]]  # fmt: skip


@pytest.mark.parametrize("spec", [*SPECS, DatasetSpec(TensorSpec((), "int64"))], ids=str)
def test_what_fits_a_spec_is_what_the_spec_accepts(spec: TensorSpec) -> None:
    leaves = [
        np.int64(3), np.float32(2), np.bool_(True), b"x", np.zeros(3, np.float32), np.zeros((2, 3), np.int64),
        np.zeros((4, 3), np.uint8), np.array(5), np.zeros((0,), bool),
    ]  # fmt: skip

    assert [fits(leaf, spec) for leaf in leaves] == [spec.accepts(spec_of(leaf)) for leaf in leaves]
    assert not fits(np.array([b"x"], object), spec)  # the general rule knows that these are byte strings


@pytest.mark.parametrize("calls", [None, 2])
def test_a_result_unlike_the_first_is_a_hole_also_after_many_that_are(calls: int | None) -> None:
    results = [1, np.int64(2), 3, 2.5, True, 4, (5,), None, np.array(6), 2**63, 7]
    dataset = Dataset.range(len(results)).map(lambda i, r=results: r[int(i)], num_parallel_calls=calls)

    assert outcomes(dataset) == [1, 2, 3, "error", "error", 4, "error", "error", 6, "error", 7]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_function_that_raises_stop_iteration_fails_for_one_element(on_error: str) -> None:
    def fn(x: Any) -> Any:
        if x == 1:
            raise StopIteration
        return x

    dataset = Dataset.range(4).map(fn).with_options(Options(on_error=on_error))  # type: ignore[arg-type]

    assert outcomes(dataset) == ([0, "error", 2, 3] if on_error == "raise" else [0, 2, 3])


def test_a_dataset_that_a_function_runs_leaves_its_own_draws_alone() -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)

    def flipped(_: Any) -> Any:
        return run_op(RandomFlipLeftRight(), [image], None)

    inner = Dataset.range(3).map(flipped, traced=False)

    def nested(x: Any) -> Any:
        list(inner)
        return flipped(x)

    alone, around = Dataset.range(20).map(flipped, traced=False), Dataset.range(20).map(nested, traced=False)

    assert [x.tolist() for x in alone] == [x.tolist() for x in around]


# ---- filters and compiled expressions


SAMPLES = (np.int64(7), np.int64(3)), (np.arange(1, 4), np.int64(2)), (np.bool_(True), np.bool_(False))


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_a_compiled_operator_is_the_operator(name: str) -> None:
    for a, b in SAMPLES:
        for op, xs in (
            (Arithmetic(name, right=b), (a,)),
            (Arithmetic(name, left=a), (b,)),
            (Arithmetic(name), (a,) if name in ("neg", "invert", "abs") else (a, b)),
        ):
            results = []
            for call in (op.reference, op.compiled()):
                try:
                    results.append(np.asarray(call(*xs)).tolist())
                except Exception as error:
                    results.append(type(error))
            assert results[0] == results[1]


# ---- forming batches, against the plain rules element by element


def test_an_error_of_the_source_keeps_the_rows_taken_before_it() -> None:
    def element(at: int) -> Element:
        if at == 3:
            raise PlanTypeError("no dataset")
        return (at,), Stream(1, "x"), at

    batcher = Batcher(map(element, count(1)), 4, False, context().run)

    with pytest.raises(PlanTypeError):
        batcher.next()
    group = batcher.next()
    assert isinstance(group, Group)
    assert [row[0] for row in group.rows] == [(1,), (2,), (4,), (5,)]


def test_a_batch_of_good_rows_looks_at_each_of_them_once() -> None:
    looks = []

    class Looked(tuple[Any, ...]):
        __slots__ = ()

        def __getitem__(self, key: Any) -> Any:
            looks.append(key)
            return super().__getitem__(key)

    source = [Looked(((i,), Stream(1, "x"), i)) for i in range(200)]
    batcher = Batcher(iter(source), 100, False, context().run)

    for _ in range(2):
        assert isinstance(batcher.next(), Group)
    assert len(looks) <= 200 + 2 * 2  # those of the last row of each batch, which replaces bad ones that follow


def test_a_bad_row_that_was_good_makes_its_own_batch_bad_and_no_other() -> None:
    at = context("skip")
    bad = Hole(DataError("cannot be read"))
    source: list[Element] = [(bad if i in (1, 2, 5) else (i,), Stream(1, "x"), i) for i in range(9)]
    before = SILENT_REPLAY.set(True)
    try:
        batcher = Batcher(iter(source), 3, False, at.run)
        made = [batcher.next() for _ in range(3)]
    finally:
        SILENT_REPLAY.reset(before)

    assert [type(one) for one in made] == [tuple, tuple, Group]
    assert [one[2] for one in made if isinstance(one, tuple)] == [0, 3]


def test_rows_of_several_classes_and_shapes_stack_or_say_why_not() -> None:
    where: list[Element] = [((), Stream(1, "x"), i) for i in range(2)]

    assert stack_rows([np.array(1), np.int64(2)], where, "").tolist() == [1, 2]
    for column in ([np.zeros(2), np.zeros((2, 1))], [np.zeros(2), np.float64(3)], [np.float64(3), np.zeros(2)]):
        with pytest.raises(gp.DataError, match=r"needs elements of one shape.*x at index 0"):
            stack_rows(column, where, "")


def test_an_interleave_goes_on_behind_a_function_that_made_no_dataset() -> None:
    def inner(x: Any) -> Any:
        return int(x) if x == 1 else Dataset.range(int(x), int(x) + 2)

    items = iter(Dataset.range(4).interleave(inner, cycle_length=2))
    seen: list[Any] = []
    for _ in range(20):
        try:
            seen.append(int(next(items)))
        except StopIteration:
            break
        except PlanTypeError:
            seen.append("error")

    assert seen.count("error") == 1
    assert sorted(x for x in seen if x != "error") == [0, 1, 2, 3, 3, 4]
