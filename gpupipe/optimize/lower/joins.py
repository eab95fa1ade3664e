"""joins: the lowering of steps with several inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import PlanTypeError
from ...flow.combine.join import ConcatenateFlow, ZipFlow
from ...flow.combine.mixing import ChooseFlow, SampleFlow
from ...flow.maps.to_gpu import PutFlow
from ...flow.run import Flow
from ...graph.values import Identity, Input, Value
from ...plan.joins import Concatenate, Zip
from ...plan.mixing import ChooseFrom, SampleFrom
from ...plan.node import ElementType, Node
from ...spec import TensorSpec
from ..pending import Pending, renumber
from ..place.placer import Placer
from .common_type import common, in_one_order, unknown
from .lowerer import Lowerer, Lowering
from .stall import where

__all__ = ["JOINS"]


def zip_(lowerer: Lowerer, node: Zip, *given: Pending) -> Pending:
    """Put columns side by side; expressions stay pending."""
    inputs = [lowerer.flat(node, pending) for pending in given]
    total = sum(pending.columns for pending in inputs)
    values: list[Value] = []
    references, on_gpu, shift = set[int](), set[int](), 0
    for j, pending in enumerate(inputs):
        own = Identity(total + j - 1) if j else None
        values += renumber(pending.values, shift, own)
        references |= {shift + column for column in pending.references}
        on_gpu |= {shift + column for column in pending.on_gpu}
        shift += pending.columns
    return Pending(
        ZipFlow(tuple(pending.flow for pending in inputs), node.branch),
        total + len(inputs) - 1,
        tuple(values),
        node.infer(*(pending.element for pending in inputs)),
        references=frozenset(references),
        on_gpu=frozenset(on_gpu),
        steps=(*steps_of(inputs), node.describe()),
    )


def steps_of(inputs: Sequence[Pending]) -> tuple[str, ...]:
    """The steps of several inputs in words, each with the number of its input."""
    return tuple(f"  {j}: {step}" for j, pending in enumerate(inputs) for step in pending.steps)


def concatenate(lowerer: Lowerer, node: Concatenate, *given: Pending) -> Pending:
    """Run inputs one after the other."""
    inputs, same = in_one_stream(lowerer, node, in_one_order(given))
    flow = ConcatenateFlow(tuple(pending.flow for pending in inputs), node.first_branches())
    element = node.element
    if element.structure is None:
        element = common(node.name, node.line, [pending.element for pending in inputs])
    return one_stream(inputs, same, flow, element, (*steps_of(inputs), node.describe()))


def mixture(lowerer: Lowerer, node: SampleFrom | ChooseFrom, *given: Pending) -> Pending:
    """Mix inputs, one element at a time."""
    inputs, same = in_one_stream(lowerer, node, given[: len(node.inputs)])
    picks = lowerer.placed(node, given[-1]) if node.picks is not None else None
    element = node.element
    if not element.known:
        element = common(node.name, node.line, [pending.element for pending in inputs])
    steps = steps_of(inputs)
    if picks is not None:
        steps = (*steps, *(f"  picks: {step}" for step in picks.steps))
    flow = _mixed(node, tuple(pending.flow for pending in inputs), picks)
    return one_stream(inputs, same, flow, element, (*steps, node.describe()))


def in_one_stream(lowerer: Lowerer, node: Node, inputs: Sequence[Pending]) -> tuple[list[Pending], bool]:
    """Prepare inputs that become one stream of elements: with equal columns, on one device.

    Returns:
        The inputs, and whether equal expressions stay pending in all of them.
    """
    first = inputs[0]
    same = all(
        (p.values, p.columns, p.references, p.batch, p.unstack)
        == (first.values, first.columns, first.references, None, 0)
        for p in inputs
    )
    if not same:
        inputs = [lowerer.placer.place(p, lowerer.delivered(node), node.name) for p in inputs]
    return on_one_device(inputs, lowerer.placer), same


def one_stream(
    inputs: Sequence[Pending], same: bool, flow: Flow, element: ElementType, steps: Sequence[str]
) -> Pending:
    """The stream of inputs from `in_one_stream`; `same` says that expressions stay pending."""
    if same:
        return replace(inputs[0], flow=flow, element=element, steps=tuple(steps))
    return replace(Pending.columns_of(flow, element, steps), on_gpu=inputs[0].on_gpu)


def _mixed(node: SampleFrom | ChooseFrom, inputs: tuple[Flow, ...], picks: Pending | None) -> Flow:
    branches = node.first_branches()
    if isinstance(node, SampleFrom):
        by = None if picks is None else picks.flow
        return SampleFlow(
            inputs, branches, node.branch, node.stop, node.weights, by, node.seed, node.rerandomize, where(node)
        )
    assert picks is not None
    element = picks.element
    (spec, *rest) = element.specs
    if not unknown(element) and (rest or spec.dtype != np.dtype(np.int64) or spec.shape != ()):
        raise PlanTypeError(
            f"choose_from_datasets needs choices that are one int64 each, got {element.structure} of "
            f"{', '.join(map(str, element.specs))} (in the choose_from_datasets at {node.line})"
        )
    return ChooseFlow(inputs, branches, node.stop, picks.flow, where(node))


def on_one_device(inputs: Sequence[Pending], placer: Placer) -> list[Pending]:
    """Copy every column that is on a GPU in one of several inputs to the GPU in all."""
    columns = frozenset[int]().union(*(pending.on_gpu for pending in inputs))
    put = []
    for pending in inputs:
        specs = {value.index: value.spec for value in pending.values if isinstance(value, Input)}
        missing = frozenset(i for i in columns - pending.on_gpu if i not in specs or _may_go(specs[i]))
        if missing:
            text = f"{_named(missing, pending)}copied to GPU {placer.choice().device_id}, where the others are"
            pending = pending.then(PutFlow(pending.flow, missing, placer.hand_over()), text)
        put.append(replace(pending, on_gpu=columns))
    return put


def _may_go(spec: TensorSpec) -> bool:
    """Whether a column may hold arrays, which `PutFlow` copies."""
    return type(spec) is not TensorSpec or (spec.shape != () and spec.dtype is not bytes)


def _named(columns: frozenset[int], pending: Pending) -> str:
    """The names of the leaves in these columns; "" for all leaves."""
    structure = pending.element.structure
    names = [] if structure is None else structure.leaf_names()
    leaves = zip(names, pending.values, strict=False)  # elements of unknown type have one value
    meant = [name for name, value in leaves if isinstance(value, Input) and value.index in columns]
    return f"{', '.join(map(repr, meant))} " if len(meant) < len(names) else ""


JOINS: dict[type[Node], Lowering] = {
    Zip: zip_,
    Concatenate: concatenate,
    SampleFrom: mixture,
    ChooseFrom: mixture,
}
