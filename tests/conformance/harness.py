"""One op on one executor: what the conformance tests share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from gpupipe.comparison.steps.tolerance import GPU_DECODING
from gpupipe.graph.host_values import HostValues, is_image
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.values import Apply, Draw, Input, Item, Value
from gpupipe.spec import TensorSpec, as_leaf, spec_of
from gpupipe.transform import machine
from gpupipe.transform.before_graph import BeforeGraph, calls_before
from gpupipe.transform.numpy import NumpyExecutor
from gpupipe.transform.program import Executor, Feed, Program

ROWS = 5
"""Rows of a batch: all of one element, each with numbers of its own."""

GPU = [pytest.param("dali-gpu", marks=pytest.mark.gpu)] if machine.gpu_count() and machine.has_dali() else []
"""The executor on a GPU, where there is one: elsewhere a quarter of all tests would be skipped."""

EXECUTORS = [
    "numpy",
    pytest.param("fast", marks=pytest.mark.skipif(not machine.has_fast(), reason="the extra `fast` is not installed")),
    pytest.param("dali-cpu", marks=pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")),
    *GPU,
]
"""Parameters of a test that runs on every executor."""


def on_executors(cases: Iterable[Case], apart: bool = False) -> list[Any]:
    """Each case with each executor that computes it by itself, as parameters `case` and `kind`.

    NumPy's runs `reference`, and "fast" does so where the op has no `fast`: compared with `reference` that cannot fail.
    What the host computes, no executor does, so one of them stands for all. Where DALI on the CPU calls `reference`,
    the first case of an op shows that it can; `test_nodes.py` compares the nodes of a GPU.

    Args:
        cases: of any ops.
        apart: whether the parts of each op are computed, as `Batch.in_parts` has them.
    """
    kinds = [kind if isinstance(kind, ParameterSet) else pytest.param(kind) for kind in EXECUTORS]
    firsts: dict[type[Op], Case] = {}
    found = []
    for case in cases:
        ops = [part for part, _ in case.op.decompose()] if apart else [case.op]
        first = firsts.setdefault(type(case.op), case) is case
        for kind in kinds:
            name = str(kind.values[0])
            if any(computes(op, name) or (first and calls_reference(op, name)) for op in ops):
                found.append(pytest.param(case, *kind.values, marks=kind.marks, id=f"{case}-{name}"))
    return found


def computes(op: Op, kind: str) -> bool:
    """Whether an executor of this kind has a form of the op other than `reference`."""
    if kind == "numpy":
        return op.domain == "host" or "out" in signature(op.reference).parameters
    return op.domain != "host" and (kind != "fast" or op.supports("fast")) and not calls_reference(op, kind)


def calls_reference(op: Op, kind: str) -> bool:
    """Whether DALI calls `reference`: on the CPU, of an op that has `nodes` for a GPU."""
    return kind == "dali-cpu" and hasattr(op, "nodes")


def make_executor(kind: str, program: Program, batch_size: int = ROWS) -> Executor:
    """An executor of this kind."""
    if kind in ("numpy", "fast"):
        return NumpyExecutor(program, batch_size, 2, fast=kind == "fast")
    from gpupipe.transform.dali.executor import DaliExecutor

    def dali(graph: Program) -> Executor:
        return DaliExecutor(graph, batch_size, 2, 0 if kind == "dali-gpu" else None)

    return BeforeGraph(program, batch_size, 2, dali) if calls_before(program) else dali(program)


def given(op: Op, first: TensorSpec, rows: list[Any], params: Sequence[Any]) -> tuple[Program, Feed]:
    """An op on rows of one input, with parameters that are given: arrays[B, ...]."""
    specs = [first, *(TensorSpec(param.shape[1:], param.dtype) for param in params)]
    inputs: list[Value] = [Input(i, spec) for i, spec in enumerate(specs)]
    program, columns = Program((Apply(op, (inputs[0],), tuple(inputs[1:])),)), [rows, *params]
    return program, Feed(len(rows), tuple(columns[inputs.index(value)] for value in program.inputs))


@dataclass(frozen=True)
class Batch:
    """A case as a graph on a batch: each row the same element under another key.

    Attributes:
        call: the op on its inputs.
        values: the host values of the batch.
    """

    call: Apply
    values: HostValues

    @classmethod
    def of(cls, case: Case, *, varying: bool = False, rows: int = ROWS, epoch: int = 0) -> Batch:
        """Make the batch. With `varying`, heights and widths are unknown before the data is seen."""
        leaves = [as_leaf(x) if not isinstance(x, bytes) else x for x in case.inputs]
        layouts = (*case.layouts, *(None,) * (len(leaves) - len(case.layouts)))
        specs = [replace(spec_of(x), layout=layout) for x, layout in zip(leaves, layouts, strict=True)]
        inputs = tuple(Input(i, _open(spec) if varying else spec) for i, spec in enumerate(specs))
        params: tuple[Value, ...] = ()
        if case.op.parameters:
            draw = Draw(case.op, f"{case.op.name}#0/0" if case.op.random else "", inputs)
            params = tuple(Item(draw, i) for i in range(len(case.op.parameters)))
        keys = np.arange(1, rows + 1, dtype=np.uint64) << np.uint64(20)
        values = HostValues(rows, lambda i: [leaves[i]] * rows, lambda i: keys, seed=1, epoch=epoch)
        return cls(Apply(case.op, inputs, params), values)

    @property
    def results(self) -> tuple[Value, ...]:
        """One value per result of the op."""
        if len(self.call.specs) == 1:
            return (self.call,)
        return tuple(Item(self.call, i) for i in range(len(self.call.specs)))

    def in_parts(self) -> Batch:
        """The same batch with the op taken apart, as the optimizer does it."""
        (x,), params = self.call.x, self.call.params
        for part, taken in self.call.op.decompose():
            x = Apply(part, (x,), tuple(params[i] for i in taken))
        assert isinstance(x, Apply)
        return Batch(x, self.values)

    def arguments(self, row: int) -> list[Any]:
        """What the reference of one row gets: inputs, then parameters."""
        return [self.values.rows(value)[row] for value in self.call.inputs]

    def references(self) -> list[tuple[Array, ...]]:
        """The meaning: for each row one array per result."""
        return [_tuple(self.call.op.reference(*self.arguments(row))) for row in range(self.values.size)]

    def run(self, kind: str) -> list[tuple[Array, ...]]:
        """The same on an executor; ops of the host run where the host runs them."""
        if not is_image(self.call):
            return [
                tuple(map(np.asarray, row)) for row in zip(*(self.values.rows(v) for v in self.results), strict=True)
            ]
        program = Program(self.results)
        executor = make_executor(kind, program, self.values.size)
        try:
            executor.submit(Feed.of(program, self.values))
            columns = executor.collect()
        finally:
            executor.close()
        return [tuple(host(column[row]) for column in columns) for row in range(self.values.size)]


def decomposed(op: Op, arguments: Sequence[Any]) -> Array:
    """The result for one element by the parts of an op."""
    x, *params = arguments
    for part, taken in op.decompose():
        x = part.reference(x, *(params[i] for i in taken))
    return np.asarray(x)


def assert_close(got: Array, expected: Array, case: Case, layout: str | None, kind: str) -> None:
    """Compare one result: dtype, shape, then values inside and on the outermost ring of pixels."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.dtype == bool:
        np.testing.assert_array_equal(got, expected)
        return
    difference, inner = apart(got, expected, layout)
    extra = GPU_DECODING if kind == "dali-gpu" and case.op.decodes else 0
    inside = case.atol + extra
    assert inner.max(initial=0) <= inside, f"inside differs by {inner.max()}, {inside} is allowed ({case.reason})"
    ring = extra + (case.atol if case.ring is None else case.ring)
    assert difference.max(initial=0) <= ring, (
        f"the ring differs by {difference.max()}, {ring} is allowed ({case.reason})"
    )


def apart(got: Array, expected: Array, layout: str | None) -> tuple[Array, Array]:
    """How far two results of one shape are from each other, and the same without the outermost ring of pixels."""
    # float64 holds every pixel exactly; the difference of infinities that are equal is 0, also that of two NaN
    a, b = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return difference, _inner(difference, layout)


def _inner(x: Array, layout: str | None) -> Array:
    if layout == "HWC":
        return x[1:-1, 1:-1]
    return x[:, 1:-1, 1:-1] if layout == "CHW" else x


def _open(spec: TensorSpec) -> TensorSpec:
    """The spec of images whose sizes vary."""
    if spec.layout is None or spec.shape is None:
        return spec
    return replace(
        spec, shape=tuple(n if axis == "C" else None for n, axis in zip(spec.shape, spec.layout, strict=True))
    )


def _tuple(result: Any) -> tuple[Array, ...]:
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else (np.asarray(result),)


def host(row: Any) -> Array:
    """A row of a result as a NumPy array, wherever it lives."""
    if hasattr(row, "tensor"):  # gpupipe.transform.array.DeviceArray: CuPy is missing
        return np.asarray(row.tensor.as_cpu())
    return np.asarray(row.get() if hasattr(row, "get") else row)
