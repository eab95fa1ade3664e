"""mixing: several datasets in one, and the sources they are chosen by, as flows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import PlanTypeError
from ...flow.combine.mixing import ChooseFlow, SampleFlow
from ...flow.run import Flow
from ...flow.sources.arrays import SlicesFlow
from ...flow.sources.numbers import CounterFlow, RandomFlow
from ...plan.mixing import ChooseFrom, Counter, Listed, Mixture, RandomNumbers, SampleFrom
from ...plan.node import Element
from ..pending import Pending
from .common_type import common, unknown
from .delivered import on_one_device
from .registry import lowers
from .stall import where

if TYPE_CHECKING:
    from .lowerer import Lowerer

__all__ = []


@lowers(Counter)
def _counter(lowerer: Lowerer, node: Counter) -> Pending:
    return Pending.columns_of(CounterFlow(node.start, node.step, node.dtype), node.element, (node.describe(),))


@lowers(RandomNumbers)
def _random(lowerer: Lowerer, node: RandomNumbers) -> Pending:
    return Pending.columns_of(RandomFlow(node.seed, node.anew), node.element, (node.describe(),))


@lowers(Listed)
def _listed(lowerer: Lowerer, node: Listed) -> Pending:
    return Pending.columns_of(SlicesFlow(node.columns, names=node.names), node.element, (node.describe(),))


@lowers(SampleFrom, ChooseFrom)
def _mixture(lowerer: Lowerer, node: SampleFrom | ChooseFrom) -> Pending:
    inputs = [lowerer.done[id(source)] for source in node.inputs]
    first = inputs[0]
    same = all(
        (p.values, p.columns, p.references) == (first.values, first.columns, first.references) for p in inputs
    ) and not any(p.batch is not None or p.unstack for p in inputs)
    if not same:
        placer, deliver = lowerer.placer, id(node) in lowerer.delivered
        inputs = [placer.place(p, deliver, node.name) for p in inputs]
    inputs = on_one_device(inputs, lowerer.placer)
    first = inputs[0]
    element = _common(node, inputs)
    picks = None
    if node.picks is not None:
        picks = lowerer.placer.place(lowerer.done[id(node.picks)], label=node.name)
    flow = _flow(node, tuple(p.flow for p in inputs), picks)
    steps = tuple(f"  {j}: {step}" for j, p in enumerate(inputs) for step in p.steps)
    if picks is not None:
        steps = (*steps, *(f"  picks: {step}" for step in picks.steps))
    steps = (*steps, node.describe())
    if not same:
        return replace(Pending.columns_of(flow, element, steps), on_gpu=first.on_gpu)
    return replace(first, flow=flow, element=element, steps=steps)


def _flow(node: SampleFrom | ChooseFrom, inputs: tuple[Flow, ...], picks: Pending | None) -> Flow:
    branches = node.first_branches()
    if isinstance(node, SampleFrom):
        by = None if picks is None else picks.flow
        return SampleFlow(inputs, branches, node.number, node.stop, node.weights, by, node.seed, node.anew, where(node))
    assert picks is not None
    element = picks.element
    (spec, *rest) = element.specs
    if not unknown(element) and (rest or spec.dtype != np.dtype(np.int64) or spec.shape != ()):
        raise PlanTypeError(
            f"choose_from_datasets needs choices that are one int64 each, got {element.structure} of "
            f"{', '.join(map(str, element.specs))} (in the choose_from_datasets at {node.line})"
        )
    return ChooseFlow(inputs, branches, node.stop, picks.flow, where(node))


def _common(node: Mixture, inputs: Sequence[Pending]) -> Element:
    """The type of the elements of all inputs, those that turned out to have none left out.

    Raises:
        PlanTypeError: structures or dtypes differ.
    """
    if node.element.known:
        return node.element
    return common(node.name, node.line, [p.element for p in inputs])
