"""lowerer: a plan into flows and stages, inputs first, by deferral (see `pending`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import PlanError
from ...extract.storage.names import Names
from ...flow.batching.padded import PaddedBatchFlow
from ...flow.batching.unbatch import UnbatchFlow
from ...flow.cache.fill import CacheFlow
from ...flow.combine.flat_map import FlatMapFlow
from ...flow.combine.inner import Inner
from ...flow.combine.interleave import InterleaveFlow
from ...flow.combine.join import ConcatenateFlow, ZipFlow
from ...flow.maps.host_program import HostProgram
from ...flow.maps.peek import PrimedFlow
from ...flow.maps.python_function import PythonFunction
from ...flow.maps.python_map import PythonFilterFlow, PythonMapFlow
from ...flow.maps.to_gpu import OneKindFlow
from ...flow.maps.traced import FilterFlow
from ...flow.order.select import EnumerateFlow
from ...flow.prefetch.prefetch import PrefetchFlow
from ...flow.run import Context, Flow
from ...flow.sources.arrays import FilesFlow, ParamFlow, RangeFlow, SlicesFlow
from ...flow.sources.generator import GeneratorFlow
from ...flow.sources.records import RecordsFlow
from ...flow.workers.process_map import ProcessMapFlow
from ...graph.host_values import is_image
from ...graph.trace import Traced, trace
from ...graph.values import Identity, Input, Value, substitute, topological
from ...options import Settings
from ...plan.indexed import Select
from ...plan.joins import Concatenate, Zip, graft
from ...plan.mixing import Mixture
from ...plan.node import Element, Node, walk
from ...plan.order import any_order, arrival
from ...plan.padding import given_padding
from ...plan.scanning import IgnoreErrors, PadToCardinality, Scan, Unique
from ...plan.sources import Files, FromGenerator, Param, Range, Records, Slices, Tensors
from ...plan.steps import (
    Batch,
    Cache,
    Enumerate,
    Filter,
    FlatMap,
    Interleave,
    Map,
    PaddedBatch,
    Prefetch,
    Shard,
    Shuffle,
    Skip,
    Unbatch,
    WithOptions,
    enumerated,
)
from ...spec import LEAF, Structure, TensorSpec
from ..pending import AHEAD, Pending, renumber
from ..place.placer import Placer
from ..rules.graph_rules import GRAPH_RULES, optimize_values
from ..rules.plan_rules import PLAN_RULES, ShuffleRepeat, disabled_rules, rewrite
from . import by_index, mixing, scan, sources, windows  # noqa: F401 : they register
from .common_type import common, in_one_order
from .delivered import delivered, on_one_device, passes, picks, reader
from .inner import DynamicInner, StaticInner
from .passthrough import held, transparent_step
from .registry import LOWERINGS
from .stall import watched, where

__all__ = ["Lowered", "Lowerer", "lower"]

READS_ALL = IgnoreErrors | PadToCardinality | Scan | Unique
"""Small steps that need the payloads themselves, like a batch: no reference comes through."""


RULES = (*(rule.__name__ for rule in PLAN_RULES), *GRAPH_RULES, "deferral", "map_and_batch")
"""Every rule that `Options.disabled_rules` can name."""


@dataclass(frozen=True)
class Lowered:
    """A chain that can run.

    Attributes:
        flow: gives delivered elements, one column per leaf.
        element: their type; not known where nothing was read and a Python function decides it.
        steps: what the flow does, in words.
        placer: the stages it has.
        fired: how often each plan rule fired.
        learned: the types that only a first element told, by the number of the step.
    """

    flow: Flow
    element: Element
    steps: tuple[str, ...]
    placer: Placer
    fired: dict[str, int]
    learned: dict[int, Element] = field(default_factory=dict)


def lower(
    root: Node, settings: Settings, at: Context | None = None, known: Mapping[int, Element] | None = None
) -> Lowered:
    """Lower a plan.

    Args:
        root: the plan.
        settings: its options, resolved.
        at: the context it will be opened in. Without one nothing is read, and what only a first element can tell stays
            unknown.
        known: `Lowered.learned` of an earlier run: then no first element is looked at.
    """
    for name in settings.disabled_rules:
        if name not in RULES:
            raise PlanError(f"Options.disabled_rules needs names of rules ({', '.join(RULES)}), got {name!r}")
    root, fired = rewrite(root, disabled_rules(settings))
    lowerer = Lowerer(settings, Placer(settings, dry=at is None), at, delivers=True, known=known or {})
    lowerer.numbers = {id(node): i for i, node in enumerate(walk(root))}
    trailing = 0
    while isinstance(root, Prefetch | WithOptions):
        if isinstance(root, Prefetch):
            trailing = max(trailing, AHEAD if root.size < 0 else root.size)
        root = root.source
    pending = lowerer.run(root)
    threaded = pending.batch is not None or pending.unstack or any(map(is_image, topological(pending.values)))
    if trailing and threaded:
        pending = replace(pending, ready=trailing)
    placed = lowerer.placer.place(pending, deliver=True, label="delivery")
    flow = placed.flow
    if lowerer.placer.made and lowerer.placer.has_gpu():
        flow = OneKindFlow(flow, placed.on_gpu, lowerer.placer.hand_over())
        kinds = f"each column stays where its first array is, on GPU {lowerer.placer.choice().device_id} or the host"
        placed = replace(placed, steps=(*placed.steps, kinds))
    if trailing and not lowerer.placer.notes:
        flow = PrefetchFlow(flow, trailing)
    steps = (*placed.steps, f"prefetch({trailing}): finished elements that wait") if trailing else placed.steps
    return Lowered(flow, placed.element, steps, lowerer.placer, fired, lowerer.found())


@dataclass
class Lowerer:
    """Lowers node by node, inputs first, with a table instead of recursion.

    Attributes:
        delivers: whether elements of the plan reach the user as they are.
        delivered: the nodes of which that is true.
        reads: what reads them otherwise; None where that is the user.
    """

    settings: Settings
    placer: Placer
    at: Context | None
    done: dict[int, Pending] = field(default_factory=dict)
    references: dict[int, bool] = field(default_factory=dict)
    contexts: dict[int, Context] = field(default_factory=dict)
    zipped: set[int] = field(default_factory=set)
    users: dict[int, list[Node]] = field(default_factory=dict)
    ahead: bool = False
    passing: bool = False  # a dataset that a function has just made: it will be gone soon
    delivers: bool = False
    delivered: frozenset[int] = frozenset()
    reads: Node | None = None
    known: Mapping[int, Element] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    looked_at: list[Node] = field(default_factory=list)

    def found(self) -> dict[int, Element]:
        """The types that only first elements told, by the numbers of the steps."""
        told = {self.numbers[id(node)]: self.done[id(node)].element for node in self.looked_at}
        return {number: element for number, element in told.items() if element.known}

    def run(self, root: Node) -> Pending:
        """Lower a plan and everything below it."""
        order = walk(root, self._filled)
        self._mark_references(order)
        self._mark_contexts(order)
        for node in reversed(order):
            # Behind a batch `ignore_errors` leaves out the whole batch, which keeps its place as if it were zipped.
            ignored = isinstance(node, IgnoreErrors) and self.settings.on_error == "raise"
            if isinstance(node, Zip) or ignored or id(node) in self.zipped:
                self.zipped.update(id(source) for source in node.sources)
            for source in node.sources:
                self.users.setdefault(id(source), []).append(node)
        if self.delivers:
            self.delivered = delivered(order, self.users)
        for node in order:
            if id(node) not in self.done:
                self.placer.at = self._reader(node)
                self.done[id(node)] = watched(self, node, self._node)
        return self.done[id(root)]

    def _reader(self, node: Node) -> Node:
        """The step that is to blame if what is computed for a node has to be on the host."""
        passing = any(passes(node, source) for source in node.sources)
        return (reader(node, self.users) or self.reads or node) if passing else node

    def _mark_contexts(self, order: list[Node]) -> None:
        """Find the context in which each node will be opened first: there its first element is looked at."""
        if self.at is None:
            return
        for node in reversed(order):
            at = self.contexts.get(id(node), self.at)
            for j, source in enumerate(node.sources):
                below = at
                if isinstance(node, Cache):
                    below = at.neutral()
                elif isinstance(node, Zip):
                    below = at.in_zip(node.number, j)
                elif isinstance(node, Concatenate):
                    below = at.in_branch(node.first_branches()[j])
                elif isinstance(node, Mixture):
                    below = at.in_mixture(node.first_branches()[j])
                self.contexts.setdefault(id(source), below)

    def _filled(self, node: Node) -> bool:
        """Whether a node is a cache that needs its input no more: nothing below it is opened or looked at."""
        return isinstance(node, Cache) and node.store.full(self.settings)

    def _mark_references(self, order: list[Node]) -> None:
        """Find the sources whose records are held or passed over: they yield references, not payloads."""
        for node in reversed(order):
            want = self.references.get(id(node), False)
            if isinstance(node, Shuffle | ShuffleRepeat | Skip | Shard | Select):
                want = True
            elif isinstance(node, Batch | Cache | Unbatch | PaddedBatch | READS_ALL) or (
                isinstance(node, Map) and node.traced is None
            ):
                want = False
            for source in node.sources:
                self.references[id(source)] = self.references.get(id(source), False) or want

    def _node(self, node: Node) -> Pending:
        lowering = LOWERINGS.get(type(node))
        if lowering is not None:
            return lowering(self, node)
        match node:
            case Param() | Tensors() | Slices() | Range() | Files() | FromGenerator() | Records():
                return self._source(node)
            case Map():
                return self._map(node)
            case Filter():
                return self._filter(node)
            case FlatMap():
                return self._flat_map(node)
            case Batch():
                return self._batch(node)
            case PaddedBatch():
                return self._padded_batch(node)
            case Unbatch():
                return self._unbatch(node)
            case Cache():
                return self._cache(node)
            case Zip():
                return self._zip(node)
            case Concatenate():
                return self._concatenate(node)
            case Enumerate():
                return self._enumerate(node)
            case WithOptions():
                return self.done[id(node.source)]
            case _:
                return self._transparent(node)

    # ---- sources

    def _source(self, node: Node) -> Pending:
        text = node.describe()
        match node:
            case Param():
                return Pending.columns_of(ParamFlow(), node.element)
            case Tensors(leaves=leaves):
                flow: Flow = SlicesFlow(leaves, whole=True)
            case Slices(leaves=leaves, names=names):
                flow = SlicesFlow(leaves, names=names)
            case Range():
                flow = RangeFlow(range(node.start, node.stop, node.step), node.dtype)
            case Files(paths=paths, names=names):
                flow = FilesFlow(paths, Names(names))
            case FromGenerator():
                signature = node.signature
                structure = signature.structure if signature.structure is not None else None
                flow = generated = GeneratorFlow(node.generator, node.args, structure, signature.specs)
                return self.learned(node, flow, (text,), lambda: structure or generated.learned(), generated.seen)
            case Records():
                held = self.references.get(id(node), False) and not node.compression
                inner = self.done[id(node.source)].flow
                flow = RecordsFlow(inner, node.leaf, node.compression, held, self.ahead, node.index)
                text += " as references (file, offset, length)" if held else ""
                return Pending.columns_of(flow, node.element, (text,), references=held)
            case _:
                raise PlanError(f"{text} is no source")
        return Pending.columns_of(flow, node.element, (text,))

    def learned(
        self,
        node: Node,
        flow: Flow,
        steps: tuple[str, ...],
        structure: Callable[[], Any],
        seen: list[Structure] | None = None,
    ) -> Pending:
        """A chain whose elements only the first one can tell: look at it, and keep it.

        Args:
            node: the step.
            flow: gives its elements.
            steps: the chain in words.
            structure: that of the elements, once there was one.
            seen: where the step keeps it.
        """
        element = node.element
        if element.known or (self.at is None and element.structure is not None):
            return Pending.columns_of(flow, element, steps)
        if self.at is None:
            return Pending.columns_of(flow, Element(LEAF, (TensorSpec(None, None),)), steps)
        if id(node) in self.numbers:
            self.looked_at.append(node)
            known = self.known.get(self.numbers[id(node)])
            if known is not None:
                if seen is not None and not seen and known.structure is not None:
                    seen.append(known.structure)
                return Pending.columns_of(PrimedFlow(flow), known, steps)  # which knows states of one that looked
        primed = PrimedFlow(flow)
        specs = primed.look(self.contexts.get(id(node), self.at))
        if specs is None:  # there is no element: whatever stands above will never see one
            return Pending.columns_of(primed, Element(LEAF, (TensorSpec(None, None),)), steps)
        learned = Element(structure(), specs)
        if element.structure is not None:  # what was declared stays, and the first element fills the gaps
            merged = [
                s
                if type(s) is not TensorSpec
                else TensorSpec(
                    d.shape if d.shape is not None else s.shape, d.dtype if d.dtype is not None else s.dtype, d.layout
                )
                for d, s in zip(element.specs, specs, strict=True)
            ]
            learned = Element(element.structure, tuple(merged), element.batched)
        return Pending.columns_of(primed, learned, steps)

    # ---- functions

    def _map(self, node: Map) -> Pending:
        source = self.done[id(node.source)]
        traced = node.traced
        if node.pending and self.at is not None:
            traced = self._trace_now(node, source)
        if traced is not None:
            return self._traced_map(node, source, traced)
        placed = self.placer.place(source, label="map")
        structure = placed.element.structure or LEAF
        declared = node.result
        result = None
        if declared is not None and declared.structure is not None:
            result = (declared.structure, declared.specs)
        site = f"map#{dict(node.source.counts).get('map', 0)}"
        function = PythonFunction(node.fn, structure, "map", result, node.rng, site)
        calls = self.settings.threads if node.calls < 0 else node.calls
        deterministic = self.settings.deterministic if node.deterministic is None else node.deterministic
        flow: Flow = PythonMapFlow(placed.flow, function, calls, deterministic)
        kind = "threads"
        if node.workers == "process":
            lasts = self.settings.persistent_workers and not self.passing
            home = node.kept if lasts else None
            flow = ProcessMapFlow(placed.flow, function, calls, deterministic, node.line, home)
            kind = f"processes, which {'end with the iterator' if home is None else 'wait for the next iterator'}"
        text = f"{node.describe()}{f' in {calls} {kind}' if calls else ''}"
        return self.learned(node, flow, (*placed.steps, text), function.learned, function.seen)

    def _traced_map(self, node: Map, source: Pending, traced: Traced) -> Pending:
        batched = source.element.batched
        if batched and source.batch is None and not source.unstack and not picks(traced.outputs):
            rows = source.element.rows()
            source = replace(source, values=tuple(Input(i, spec) for i, spec in enumerate(rows)), unstack=True)
        values = substitute(traced.outputs, source.values)
        size = next((spec.shape[0] for spec in source.element.specs if spec.shape), None) if batched else None
        specs = tuple(value.spec.batched(size) if batched else value.spec for value in traced.outputs)
        element = Element(traced.structure, specs, batched)
        pending = replace(source, values=values, element=element, steps=(*source.steps, node.describe()))
        if self._computed_at_once("deferral"):
            return self.placer.place(pending, label="map")
        self.placer.count({"deferral": 1})
        return pending

    def _computed_at_once(self, rule: str) -> bool:
        """Whether maps are computed where they stand, because a rule is off.

        Never under "replace": there a bad row's stand-in is drawn under the bad row's key, which needs expressions.
        """
        return rule in self.settings.disabled_rules and self.settings.on_error != "replace"

    def _trace_now(self, node: Map, source: Pending) -> Traced | None:
        """Trace a map whose input is known since its first element."""
        element = source.element
        if not element.known:
            return None
        try:
            assert element.structure is not None
            return trace(
                node.fn,
                element.structure,
                element.rows(),
                batched=element.batched,
                counts=node.source.counts,
                who="map",
            )
        except PlanError as error:
            raise type(error)(f"{error} (in the map at {node.line})") from error

    def _filter(self, node: Filter) -> Pending:
        source = self.done[id(node.source)]
        if node.traced is None or source.batch is not None or source.unstack:
            placed = self.placer.place(source, label="filter")
            structure = placed.element.structure or LEAF
            function = PythonFunction(node.fn, structure, "filter")
            flow: Flow = PythonFilterFlow(placed.flow, function, where(node))
            return replace(placed, flow=flow, steps=(*placed.steps, node.describe()))
        predicate = substitute(node.traced.outputs, source.values)
        if any(map(is_image, topological(predicate))):  # it looks at pixels: they are computed first
            placed = self.placer.place(source, label="filter")
            predicate = substitute(node.traced.outputs, placed.values)
            if any(map(is_image, topological(predicate))):
                function = PythonFunction(node.fn, placed.element.structure or LEAF, "filter")
                flow = PythonFilterFlow(placed.flow, function, where(node))
                return replace(placed, flow=flow, steps=(*placed.steps, node.describe()))
            source = placed
        predicate, _ = optimize_values(predicate, self.settings.disabled_rules)
        flow = FilterFlow(source.flow, HostProgram(predicate, self.settings.max_pixels), where(node))
        return replace(source, flow=flow, steps=(*source.steps, f"{node.describe()} before anything is decoded"))

    def _flat_map(self, node: FlatMap) -> Pending:
        source = self.placer.place(self.done[id(node.source)], label=node.name)
        calls = node.calls if isinstance(node, Interleave) else 0
        if node.inner is None or (self.at is not None and node.inner.element.structure is None):
            # Only a first element tells what the inner datasets hold, and there is none without an outer one.
            dynamic = DynamicInner(node, source.element, self.lower_inner)
            self.placer.made = self.placer.made or id(node) in self.delivered
            flow = self._outer(node, source.flow, Inner(dynamic))
            pending = dynamic.batched(self.learned(node, flow, (*source.steps, node.describe()), dynamic.learned))
            dynamic.expect(pending.element)
            return pending
        below = Lowerer(self.settings, self.placer, None, delivers=id(node) in self.delivered)
        below.reads = reader(node, self.users) or self.reads
        below.references = {id(node.inner): self.references.get(id(node), False)}
        below.zipped = {id(node.inner)} if id(node) in self.zipped else set()
        below.ahead = calls != 0
        pending = below.run(node.inner)
        self.placer.at = node if below.reads is None else below.reads
        if pending.batch is not None or pending.unstack or not node.inner.element.known:
            pending = self.placer.place(pending, below.delivers, node.name)
        flow = self._outer(node, source.flow, Inner(StaticInner(pending.flow), pending.flow))
        steps = (*source.steps, node.describe(), *(f"  each: {step}" for step in pending.steps))
        return replace(pending, flow=flow, steps=steps)

    def lower_inner(self, node: Node, plan: Node, at: Context) -> Pending:
        """Lower a dataset that was made while running. Its stages are its own: nobody explains them."""
        deliver = id(node) in self.delivered
        below = Lowerer(self.settings, Placer(self.settings), at, passing=True, delivers=deliver)
        below.ahead = isinstance(node, Interleave) and node.calls != 0
        if not at.run.any_order and any_order(plan, self.settings.deterministic):
            at.run.surprise = f"{node.describe()} at {node.line} makes datasets with such a step"
        plan, _ = rewrite(plan, disabled_rules(self.settings))
        below.zipped = {id(plan)} if id(node) in self.zipped else set()
        return below.placer.place(below.run(plan), deliver, node.name)

    def _outer(self, node: FlatMap, source: Flow, inner: Inner) -> Flow:
        if not isinstance(node, Interleave):
            return FlatMapFlow(source, inner, where(node))
        deterministic = self.settings.deterministic if node.deterministic is None else node.deterministic
        threads = min(self.settings.threads if node.calls < 0 else node.calls, node.cycle)
        return InterleaveFlow(source, inner, node.cycle, node.block, deterministic, where(node), threads)

    # ---- batches

    def _batch(self, node: Batch) -> Pending:
        source = self.done[id(node.source)]
        if source.batch is not None or source.unstack:
            source = self.placer.place(source, label="batch")
        element = Element(
            source.element.structure,
            tuple(spec.batched(node.size if node.drop else None) for spec in source.element.specs),
            batched=True,
        )
        if self._computed_at_once("map_and_batch"):
            source = self.placer.place(source, label="map")
        elif not source.placed:
            self.placer.count({"map_and_batch": 1})
        aligned = node.places or id(node) in self.zipped
        steps = (*source.steps, node.describe())
        return replace(source, batch=(node.size, node.drop), aligned=aligned, element=element, steps=steps)

    def _padded_batch(self, node: PaddedBatch) -> Pending:
        source = self.placer.place(self.done[id(node.source)], label="padded_batch")
        element = source.element
        names = element.structure.leaf_names() if element.structure else [""]
        shapes, values = padding(node, element)
        aligned = node.places or id(node) in self.zipped
        flow = PaddedBatchFlow(source.flow, node.size, node.drop, shapes, values, tuple(names), aligned)
        specs = []
        for spec, shape in zip(element.specs, shapes, strict=True):
            padded = (
                spec
                if shape is None
                else TensorSpec(tuple(None if n < 0 else n for n in shape), spec.dtype, spec.layout)
            )
            specs.append(padded.batched(node.size if node.drop else None))
        out = Element(element.structure, tuple(specs), batched=True)
        return Pending.columns_of(flow, out, (*source.steps, node.describe()))

    def _unbatch(self, node: Unbatch) -> Pending:
        source = self.placer.place(self.done[id(node.source)], label="unbatch")
        element = source.element
        names = tuple(element.structure.leaf_names()) if element.structure else ("",)
        rows = tuple(spec.row() if spec.shape else spec for spec in element.specs)
        return Pending.columns_of(
            UnbatchFlow(source.flow, names), Element(element.structure, rows), (*source.steps, node.describe())
        )

    def _cache(self, node: Cache) -> Pending:
        if self._filled(node):
            element = node.store.find(self.settings).element
            return Pending.columns_of(CacheFlow(None, node.store, element), element, ("a filled cache in memory",))
        source = self.placer.place(self.done[id(node.source)], label="cache")
        flow = CacheFlow(source.flow, node.store, source.element, arrival(node.source, self.settings.deterministic))
        return Pending.columns_of(flow, source.element, (*source.steps, "cache in memory"))

    # ---- joins

    def _zip(self, node: Zip) -> Pending:
        inputs = [self._flat(node, source) for source in node.inputs]
        total = sum(pending.columns for pending in inputs)
        values: list[Value] = []
        references, on_gpu, shift = set[int](), set[int](), 0
        for j, pending in enumerate(inputs):
            own = Identity(total + j - 1) if j else None
            values += renumber(pending.values, shift, own)
            references |= {shift + column for column in pending.references}
            on_gpu |= {shift + column for column in pending.on_gpu}
            shift += pending.columns
        specs = tuple(spec for pending in inputs for spec in pending.element.specs)
        structure = graft(node.structure, [pending.element.structure or LEAF for pending in inputs])
        rows = {spec.shape[0] for spec in specs if spec.shape}
        element = Element(structure, specs, all(pending.element.batched for pending in inputs) and len(rows) <= 1)
        flow = ZipFlow(tuple(pending.flow for pending in inputs), node.number)
        steps = (*(f"  {j}: {step}" for j, pending in enumerate(inputs) for step in pending.steps), node.describe())
        return Pending(
            flow,
            total + len(inputs) - 1,
            tuple(values),
            element,
            references=frozenset(references),
            on_gpu=frozenset(on_gpu),
            steps=steps,
        )

    def _flat(self, node: Zip | Enumerate, source: Node) -> Pending:
        """An input whose physical elements are its elements: batches are computed."""
        pending = self.done[id(source)]
        if pending.batch is not None or pending.unstack:
            return self.placer.place(pending, id(node) in self.delivered, node.name)
        return pending

    def _concatenate(self, node: Concatenate) -> Pending:
        inputs = in_one_order([self.done[id(source)] for source in node.inputs])
        first = inputs[0]
        same = all(p.values == first.values and p.columns == first.columns and p.batch is None for p in inputs)
        if not same or any(p.unstack for p in inputs) or len({p.references for p in inputs}) > 1:
            deliver = id(node) in self.delivered
            inputs = [self.placer.place(p, deliver, "concatenate") for p in inputs]
        inputs = on_one_device(inputs, self.placer)
        first = inputs[0]
        flow = ConcatenateFlow(tuple(p.flow for p in inputs), node.first_branches())
        element = node.element
        if element.structure is None:
            element = common("concatenate", node.line, [p.element for p in inputs])
        steps = (*(f"  {j}: {step}" for j, p in enumerate(inputs) for step in p.steps), node.describe())
        if not same:
            return replace(Pending.columns_of(flow, element, steps), on_gpu=first.on_gpu)
        return replace(first, flow=flow, element=element, steps=steps)

    # ---- nodes that do not look at values

    def _enumerate(self, node: Enumerate) -> Pending:
        source = self._flat(node, node.source)
        spec = TensorSpec((), "int64")
        element = enumerated(source.element)
        values = (Input(0, spec), *renumber(source.values, 1))
        return replace(
            source,
            flow=EnumerateFlow(source.flow, node.start),
            columns=source.columns + 1,
            values=values,
            element=element,
            references=frozenset(column + 1 for column in source.references),
            on_gpu=frozenset(column + 1 for column in source.on_gpu),
            steps=(*source.steps, node.describe()),
        )

    def _transparent(self, node: Node) -> Pending:
        source = self.done[id(node.sources[0])]
        if isinstance(node, Prefetch) and source.batch is not None and not source.above:
            ready = max(source.ready, AHEAD if node.size < 0 else node.size)
            return replace(source, ready=ready, steps=(*source.steps, node.describe()))
        return source.through(transparent_step(node), node.describe() + held(node, source))


def padding(node: PaddedBatch, element: Element) -> tuple[tuple[tuple[int, ...] | None, ...], tuple[Any, ...]]:
    """Target shape and fill value for every leaf, defaults filled in.

    Raises:
        PlanError: what the user gave does not fit elements that were not known when the chain was written.
    """
    found = given_padding(node.given, element, f"{node.name} at {node.line}")
    if found is not None:
        return found
    shapes: list[tuple[int, ...] | None] = []
    values = []
    for i, spec in enumerate(element.specs):
        shape = node.shapes[i] if node.shapes else None
        if shape is None and spec.shape is not None:
            shape = tuple(-1 if n is None else n for n in spec.shape)
        shapes.append(shape)
        value = node.values[i] if node.values else None
        if value is None:
            value = b"" if spec.dtype is bytes else 0 if spec.dtype is None else np.zeros((), spec.dtype)[()]
        values.append(value)
    return tuple(shapes), tuple(values)
