"""scan: steps that go through their input element by element, as flows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import PlanError
from ...flow.maps.cardinality import AssertCardinalityFlow, PadToCardinalityFlow
from ...flow.maps.host_program import HostProgram
from ...flow.maps.ignore_errors import IgnoreErrorsFlow
from ...flow.maps.python_function import PythonFunction
from ...flow.maps.resample import ResampleFlow
from ...flow.maps.scan import Question, ScanFlow, TakeWhileFlow
from ...flow.maps.unique import UniqueFlow
from ...graph.host_values import is_image
from ...graph.values import Input, substitute, topological
from ...plan.joins import Zip
from ...plan.node import Node
from ...plan.scanning import (
    AssertCardinality,
    IgnoreErrors,
    PadToCardinality,
    RejectionResample,
    Scan,
    TakeWhile,
    Unique,
)
from ...plan.steps import Batch, Cache, Filter, Map, Prefetch, Unbatch
from ...spec import LEAF
from ..pending import Pending, renumber
from ..rules.graph_rules import optimize_values
from .common_type import unknown
from .registry import lowers

if TYPE_CHECKING:
    from .lowerer import Lowerer

__all__ = []


def question(lowerer: Lowerer, node: TakeWhile | RejectionResample, site: str = "") -> tuple[Pending, Question]:
    """What a node asks of its elements, and the chain it asks: expressions stay pending where it does not read them."""
    source = lowerer.done[id(node.source)]
    traced, settings = node.traced, lowerer.settings
    if traced is None or source.batch is not None or source.unstack:
        placed = lowerer.placer.place(source, label=node.name)
        return placed, PythonFunction(node.fn, placed.element.structure or LEAF, node.name, site=site)
    values = substitute(traced.outputs, source.values)
    if any(map(is_image, topological(values))):  # it looks at pixels: they are computed first
        source = lowerer.placer.place(source, label=node.name)
        values = substitute(traced.outputs, source.values)
        if any(map(is_image, topological(values))):
            return source, PythonFunction(node.fn, source.element.structure or LEAF, node.name, site=site)
    values, _ = optimize_values(values, settings.disabled_rules)
    return source, HostProgram(values, settings.max_pixels)


@lowers(TakeWhile)
def _take_while(lowerer: Lowerer, node: TakeWhile) -> Pending:
    source, predicate = question(lowerer, node)
    return replace(source, flow=TakeWhileFlow(source.flow, predicate), steps=(*source.steps, node.describe()))


@lowers(RejectionResample)
def _rejection_resample(lowerer: Lowerer, node: RejectionResample) -> Pending:
    number = dict(node.source.counts).get("rejection_resample", 0)
    site = f"rejection_resample{f'#{number}' if node.seed is None else f'@{node.seed}'}"
    source, classes = question(lowerer, node, site)
    flow = ResampleFlow(source.flow, classes, node.target, node.initial, site, node.seed is not None)
    steps = (*source.steps, node.describe())
    element = node.infer(source.element)
    if isinstance(classes, PythonFunction):
        return lowerer.learned(node, flow, steps, lambda: element.structure)
    assert node.traced is not None
    spec = node.traced.outputs[0].spec
    return replace(
        source,
        flow=flow,
        columns=source.columns + 1,
        values=(Input(0, spec), *renumber(source.values, 1)),
        element=element,
        references=frozenset(column + 1 for column in source.references),
        steps=steps,
    )


@lowers(Scan)
def _scan(lowerer: Lowerer, node: Scan) -> Pending:
    source = lowerer.placer.place(lowerer.done[id(node.source)], label="scan")
    result = None
    if node.result is not None and node.result.structure is not None:
        result = (node.result.structure, node.result.specs)
    site = f"scan#{dict(node.source.counts).get('scan', 0)}"
    function = PythonFunction(node.fn, source.element.structure or LEAF, "scan", result, site=site)
    flow = ScanFlow(source.flow, function, node.leaves, node.structure, node.line)
    learned: Callable[[], Any] = function.learned if result is None else lambda: result[0]
    return lowerer.learned(node, flow, (*source.steps, node.describe()), learned, function.seen)


@lowers(Unique)
def _unique(lowerer: Lowerer, node: Unique) -> Pending:
    source = lowerer.placer.place(lowerer.done[id(node.source)], label="unique")
    structure = source.element.structure
    if structure is not None and structure.count != 1:
        raise PlanError(f"unique needs elements of one component, got {structure} (in the unique at {node.line})")
    return replace(source, flow=UniqueFlow(source.flow), steps=(*source.steps, "unique()"))


@lowers(AssertCardinality)
def _assert_cardinality(lowerer: Lowerer, node: AssertCardinality) -> Pending:
    source = lowerer.done[id(node.source)]
    if lowerer.settings.on_error == "skip" and source.batch is None and not source.unstack:
        # What is computed later can fail later, and would be left out of those that were counted.
        source = lowerer.placer.place(source, label="assert_cardinality")
    return source.through(lambda flow: AssertCardinalityFlow(flow, node.count), node.describe())


@lowers(PadToCardinality)
def _pad_to_cardinality(lowerer: Lowerer, node: PadToCardinality) -> Pending:
    source = lowerer.placer.place(lowerer.done[id(node.source)], label="pad_to_cardinality")
    element, steps = source.element, (*source.steps, node.describe())
    if unknown(element):  # no element is good: there is nothing to make zeros like
        return replace(source, flow=PadToCardinalityFlow(source.flow, node.count, element.specs), steps=steps)
    structure = element.structure
    assert structure is not None
    if structure.kind is not dict or node.key in structure.keys:
        raise PlanError(
            f"pad_to_cardinality needs elements that are dicts without the key {node.key!r}, got {structure} (in the "
            f"pad_to_cardinality at {node.line})"
        )
    flow = PadToCardinalityFlow(source.flow, node.count, element.specs)
    return Pending.columns_of(flow, node.infer(element), steps)


@lowers(IgnoreErrors)
def _ignore_errors(lowerer: Lowerer, node: IgnoreErrors) -> Pending:
    """What is written behind it may fail, too, and that counts. So what is pending is computed here.

    Not where nothing is written behind it that could join the same stage: then it stays one stage, whose results
    need not leave the device.
    """
    source = lowerer.done[id(node.source)]
    text = f"{node.describe()}{', each of them logged' if node.log else ''}"
    if source.batch is not None or source.unstack:
        if source.unstack and lowerer.settings.on_error == "raise":
            source = replace(source, aligned=True)  # a batch with a row that fails is left out as a whole
        if not mapped_above(lowerer, node):
            return source.through(lambda flow: IgnoreErrorsFlow(flow, node.log), text)
    elif any(map(is_image, topological(source.values))) and only_batched(lowerer, node):
        flow = IgnoreErrorsFlow(source.flow, node.log)
        ignores = node.log or bool(source.ignores)
        return replace(source, flow=flow, ignores=ignores, steps=(*source.steps, text))
    source = lowerer.placer.place(source, label="ignore_errors")
    return replace(source, flow=IgnoreErrorsFlow(source.flow, node.log), steps=(*source.steps, text))


def mapped_above(lowerer: Lowerer, node: Node) -> bool:
    """Whether a map stands above a node before something computes what is pending: it would join the same stage."""
    waiting = list(lowerer.users.get(id(node), ()))
    while waiting:
        user = waiting.pop()
        if isinstance(user, Map):
            return True
        if not isinstance(user, Batch | Cache | Unbatch | Zip | Filter):
            waiting += lowerer.users.get(id(user), ())
    return False


def only_batched(lowerer: Lowerer, node: Node) -> bool:
    """Whether a node's elements go into batches as they are, and what is pending is computed there."""
    if "map_and_batch" in lowerer.settings.disabled_rules:
        return False
    users = lowerer.users.get(id(node), [])
    return bool(users) and all(
        (isinstance(user, Batch) and not mapped_above(lowerer, user))
        or (isinstance(user, Prefetch | IgnoreErrors) and only_batched(lowerer, user))
        for user in users
    )
