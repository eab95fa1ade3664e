"""maps: the lowering of functions, and of small steps that handle one element at a time.

Here and in the other families, what few chains have is imported where it is lowered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import PlanError
from ...flow.combine.flat_map import FlatMapFlow
from ...flow.combine.inner import Inner
from ...flow.combine.interleave import InterleaveFlow
from ...flow.maps.host_program import HostProgram
from ...flow.maps.python_function import PythonFunction
from ...flow.run import Flow
from ...graph.host_values import is_image
from ...graph.trace import Traced, trace
from ...graph.values import Input, substitute, topological
from ...plan.batches import Batch, Unbatch
from ...plan.cache import Cache
from ...plan.joins import Zip
from ...plan.maps import (
    AssertCardinality,
    Filter,
    FlatMap,
    IgnoreErrors,
    Interleave,
    Map,
    PadToCardinality,
    RejectionResample,
    Scan,
    TakeWhile,
    Unique,
    traced_type,
)
from ...plan.node import Node
from ...plan.order import Prefetch
from ...spec import LEAF
from ..pending import Learns, Pending
from ..rules.graph_rules import optimize_values
from .annotate import picks
from .common_type import unknown
from .inner import DynamicInner, StaticInner
from .lowerer import Lowerer, Lowering
from .stall import where

if TYPE_CHECKING:
    from ...flow.maps.scan import Question

__all__ = ["MAPS"]


def map_(lowerer: Lowerer, node: Map, source: Pending) -> Pending:
    """Substitute a traced function into the pending expressions, or call a Python function."""
    traced = _trace_now(node, source) if node.pending and lowerer.asks else node.traced
    if traced is not None:
        return _traced_map(lowerer, node, source, traced)
    from ...flow.maps.python_map import PythonMapFlow

    placed, settings = lowerer.placed(node, source), lowerer.settings
    function = _python(node, placed, node.rng)
    calls, tuned = node.parallel(settings), False
    if node.workers == "thread":
        calls, tuned = lowerer.number(node, node.calls, calls)
    deterministic = settings.deterministic if node.deterministic is None else node.deterministic
    flow: Flow = PythonMapFlow(placed.flow, function, calls, deterministic, where(node), tuned)
    kind = "threads"
    if node.workers == "process":
        from ...flow.workers.process_map import ProcessMapFlow

        lasts = settings.persistent_workers and not lowerer.above.passing
        home = node.kept if lasts else None
        flow = ProcessMapFlow(placed.flow, function, calls, deterministic, where(node), home=home)
        kind = f"processes, which {'end with the iterator' if home is None else 'wait for the next iterator'}"
    text = f"{node.describe()}{f' in {calls} {kind}' if calls else ''}"
    return Pending.learning(node, flow, (*placed.steps, text), Learns.of(function.learned, function.seen))


def _python(node: Map | Scan, source: Pending, rng: bool = False) -> PythonFunction:
    """The user's function, for elements of a type and with a random site of its own."""
    result = None
    if node.result is not None and node.result.structure is not None:
        result = (node.result.structure, node.result.specs)
    site = f"{node.name}#{dict(node.source.random_calls).get(node.name, 0)}"
    return PythonFunction(node.fn, source.element.structure or LEAF, node.name, result, rng, site)


def _traced_map(lowerer: Lowerer, node: Map, source: Pending, traced: Traced) -> Pending:
    element = source.element
    if element.batched and source.batch is None and not source.unstack and not picks(traced.outputs):
        rows = tuple(Input(i, spec) for i, spec in enumerate(element.rows()))
        source = replace(source, values=rows, unstack=True)
    values = substitute(traced.outputs, source.values)
    steps = (*source.steps, node.describe())
    pending = replace(source, values=values, element=traced_type(traced, element), steps=steps)
    if lowerer.computes_at_once("deferral"):
        return lowerer.placed(node, pending)
    lowerer.placer.count({"deferral": 1})
    return pending


def _trace_now(node: Map, source: Pending) -> Traced | None:
    """Trace a map whose input type is known now, from its first element."""
    element = source.element
    if not element.known or element.structure is None:
        return None
    try:
        return trace(
            node.fn,
            element.structure,
            element.rows(),
            batched=element.batched,
            random_calls=node.source.random_calls,
            who="map",
        )
    except PlanError as error:
        raise type(error)(f"{error} (in the map at {node.line})").with_traceback(error.__traceback__) from None


def question(
    lowerer: Lowerer, node: Filter | TakeWhile | RejectionResample, source: Pending, site: str = ""
) -> tuple[Pending, Question]:
    """The function that a node asks of its elements, and its input, whose leaves stay pending if possible."""
    traced, placed = node.traced, None
    if traced is not None and source.batch is None and not source.unstack:
        values = substitute(traced.outputs, source.values)
        if any(map(is_image, topological(values))):  # it reads pixels, which are computed first
            source = placed = lowerer.placed(node, source)
            values = substitute(traced.outputs, source.values)
        if not any(map(is_image, topological(values))):
            values, _ = optimize_values(values, lowerer.settings.disabled_rules)
            return source, HostProgram(values, lowerer.settings.max_pixels, lowerer.settings.decoding.strict_images)
    source = placed or lowerer.placed(node, source)
    return source, PythonFunction(node.fn, source.element.structure or LEAF, node.name, site=site)


def filter_(lowerer: Lowerer, node: Filter, source: Pending) -> Pending:
    """Keep the elements for which the predicate is true."""
    from ...flow.maps.python_map import PythonFilterFlow
    from ...flow.maps.traced import FilterFlow

    source, predicate = question(lowerer, node, source)
    if isinstance(predicate, HostProgram):
        flow: Flow = FilterFlow(source.flow, predicate, where(node))
        return source.then(flow, f"{node.describe()} before anything is decoded")
    return source.then(PythonFilterFlow(source.flow, predicate, where(node)), node.describe())


def take_while(lowerer: Lowerer, node: TakeWhile, source: Pending) -> Pending:
    """Keep the elements before the first for which the predicate is false."""
    from ...flow.maps.scan import TakeWhileFlow

    source, predicate = question(lowerer, node, source)
    return source.then(TakeWhileFlow(source.flow, predicate), node.describe())


def rejection_resample(lowerer: Lowerer, node: RejectionResample, source: Pending) -> Pending:
    """Resample by class; the class becomes a column before the others."""
    from ...flow.maps.resample import ResampleFlow

    number = dict(node.source.random_calls).get("rejection_resample", 0)
    site = f"rejection_resample{f'#{number}' if node.seed is None else f'@{node.seed}'}"
    source, classes = question(lowerer, node, source, site)
    flow = ResampleFlow(source.flow, classes, node.target, node.initial, site, node.seed is not None)
    element = node.infer(source.element)
    if isinstance(classes, PythonFunction):
        steps = (*source.steps, node.describe())
        return Pending.learning(node, flow, steps, Learns(lambda: element.structure))
    return source.with_first(flow, element.specs[0], node.describe(), element)


def flat_map(lowerer: Lowerer, node: FlatMap, source: Pending) -> Pending:
    """Open a traced plan for each outer element, or the dataset that a function makes of it."""
    source = lowerer.placed(node, source)
    if node.inner is None or (lowerer.asks and node.inner.element.structure is None):
        # The type is known only from an element of an inner dataset, which takes an outer element to make.
        dynamic = DynamicInner(node, source.element, lowerer.made)
        lowerer.placer.made = lowerer.placer.made or lowerer.delivered(node)
        flow = _opened(lowerer, node, source.flow, Inner(dynamic, access=dynamic.access))
        return Pending.learning(node, flow, (*source.steps, node.describe()), dynamic.learns())
    pending = lowerer.inner(node, node.inner)
    flow = _opened(lowerer, node, source.flow, Inner(StaticInner(pending.flow), pending.flow))
    steps = (*source.steps, node.describe(), *(f"  each: {step}" for step in pending.steps))
    return replace(pending, flow=flow, steps=steps)


def _opened(lowerer: Lowerer, node: FlatMap, source: Flow, inner: Inner) -> Flow:
    if not isinstance(node, Interleave):
        return FlatMapFlow(source, inner, where(node))
    settings = lowerer.settings
    deterministic = settings.deterministic if node.deterministic is None else node.deterministic
    if isinstance(inner.open, StaticInner) and not inner.open.python:  # threads start only for datasets that call it
        calls, tuned = settings.threads if node.calls < 0 else node.calls, False
    else:
        calls, tuned = lowerer.number(node, node.calls, settings.threads)
    threads = min(calls, node.cycle)
    return InterleaveFlow(source, inner, node.cycle, node.block, deterministic, where(node), threads, tuned)


def scan(lowerer: Lowerer, node: Scan, source: Pending) -> Pending:
    """Call a function of a running state and each element."""
    from ...flow.maps.scan import ScanFlow

    source = lowerer.placed(node, source)
    function = _python(node, source)
    flow = ScanFlow(source.flow, function, node.leaves, node.structure, node.line)
    return Pending.learning(node, flow, (*source.steps, node.describe()), Learns.of(function.learned, function.seen))


def unique(lowerer: Lowerer, node: Unique, source: Pending) -> Pending:
    """Keep the first occurrence of each value."""
    from ...flow.maps.unique import UniqueFlow

    source = lowerer.placed(node, source)
    structure = source.element.structure
    if structure is not None and structure.count != 1:
        raise PlanError(f"unique needs elements of one component, got {structure} (in the unique at {node.line})")
    return source.then(UniqueFlow(source.flow), "unique()")


def assert_cardinality(lowerer: Lowerer, node: AssertCardinality, source: Pending) -> Pending:
    """Count the elements."""
    from ...flow.maps.cardinality import AssertCardinalityFlow

    if lowerer.settings.on_error == "skip" and source.batch is None and not source.unstack:
        # An element that is computed later could fail later, and be left out after it was counted.
        source = lowerer.placed(node, source)
    return source.through(lambda flow: AssertCardinalityFlow(flow, node.count), node.describe())


def pad_to_cardinality(lowerer: Lowerer, node: PadToCardinality, source: Pending) -> Pending:
    """Add elements of zeros at the end."""
    from ...flow.maps.cardinality import PadToCardinalityFlow

    source = lowerer.placed(node, source)
    element = source.element
    flow = PadToCardinalityFlow(source.flow, node.count, element.specs)
    if unknown(element):  # no element is good: the shapes of the zeros are unknown
        return source.then(flow, node.describe())
    structure = element.structure
    assert structure is not None
    if structure.kind is not dict or node.key in structure.keys:
        raise PlanError(
            f"pad_to_cardinality needs elements that are dicts without the key {node.key!r}, got {structure} (in the "
            f"pad_to_cardinality at {node.line})"
        )
    return source.then(flow, node.describe(), node.infer(element))


def ignore_errors(lowerer: Lowerer, node: IgnoreErrors, source: Pending) -> Pending:
    """Leave out elements that fail. Errors of steps above must not be ignored: so pending values are computed here.

    Not where no step above could join the same stage: then they stay one stage, whose results need not leave the
    device.
    """
    from ...flow.maps.ignore_errors import IgnoreErrorsFlow

    text = f"{node.describe()}{', each of them logged' if node.log else ''}"
    if source.batch is not None or source.unstack:
        if source.unstack and lowerer.settings.on_error == "raise":
            source = replace(source, aligned=True)  # a batch with a row that fails is left out as a whole
        if not mapped_above(lowerer, node):
            return source.through(lambda flow: IgnoreErrorsFlow(flow, node.log), text)
    elif any(map(is_image, topological(source.values))) and only_batched(lowerer, node):
        ignores = node.log or bool(source.ignores)
        return replace(source, ignores=ignores).then(IgnoreErrorsFlow(source.flow, node.log), text)
    source = lowerer.placed(node, source)
    return source.then(IgnoreErrorsFlow(source.flow, node.log), text)


def mapped_above(lowerer: Lowerer, node: Node) -> bool:
    """Whether a map above a node would join the same stage: no step between them computes pending values."""
    users = lowerer.marks.users
    waiting = list(users.get(id(node), ()))
    while waiting:
        user = waiting.pop()
        if isinstance(user, Map):
            return True
        if not isinstance(user, Batch | Cache | Unbatch | Zip | Filter):
            waiting += users.get(id(user), ())
    return False


def only_batched(lowerer: Lowerer, node: Node) -> bool:
    """Whether a node's elements go into batches unchanged, and pending values are computed there."""
    if "map_and_batch" in lowerer.settings.disabled_rules:
        return False
    users = lowerer.marks.users.get(id(node), [])
    return bool(users) and all(
        (isinstance(user, Batch) and not mapped_above(lowerer, user))
        or (isinstance(user, Prefetch | IgnoreErrors) and only_batched(lowerer, user))
        for user in users
    )


MAPS: dict[type[Node], Lowering] = {
    Map: map_,
    Filter: filter_,
    TakeWhile: take_while,
    RejectionResample: rejection_resample,
    FlatMap: flat_map,
    Interleave: flat_map,
    Scan: scan,
    Unique: unique,
    AssertCardinality: assert_cardinality,
    PadToCardinality: pad_to_cardinality,
    IgnoreErrors: ignore_errors,
}
