"""lowerer: lowers a plan into flows and stages, inputs first, by deferral (see `pending`) and a table of functions.

Nothing is read: where a type is known only from the first element of a step, lowering yields a request for that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from typing import TypeVar

from ...classes import dataclass
from ...flow.maps.peek import PeekedFlow
from ...flow.run import Context
from ...options import Settings
from ...plan.arrival import any_order
from ...plan.node import ElementType, Node, walk
from ...spec import TensorSpec
from ...tuned import start_of
from ..pending import UNKNOWN, Learns, Pending
from ..place.placer import Placer
from ..rules.plan_rules import disabled_rules, rewrite
from .annotate import Above, Marks, annotate, contexts, passes, reader
from .measure import measured_step
from .stall import watched

__all__ = ["Lowerer", "Lowering", "NeedsFirstElement", "Steps", "answered"]

Lowering = Callable[..., Pending]
"""Lowers a node: called with the `Lowerer`, the node and its lowered inputs (none for a full cache)."""

Specs = tuple[TensorSpec, ...] | None

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class NeedsFirstElement:
    """A step whose first element is needed to continue: the specs of its leaves, or None if it has no element.

    Attributes:
        node: the step.
        flow: yields its elements, and keeps the pass that was started to peek.
        order: all nodes of the plan, inputs first.
    """

    node: Node
    flow: PeekedFlow
    order: list[Node]


Steps = Generator[NeedsFirstElement, Specs, _T]
"""A lowering in progress: yields requests for first elements, is sent their specs, and returns the result."""


def answered(steps: Steps[_T], at: Context | None = None) -> _T:
    """Run a lowering to its end: peek at each first element it needs, in the context that will need it first.

    Args:
        steps: the lowering.
        at: the context in which the chain will be opened; None where no first element is needed.

    Raises:
        DataError: so many elements failed that there may never be a good one; the first of their errors.
    """
    found: dict[int, Context] = {}
    try:
        need = next(steps)
        while True:
            assert at is not None
            found = found or contexts(need.order, at)
            need = steps.send(need.flow.peek(found.get(id(need.node), at)))
    except StopIteration as done:
        result: _T = done.value
        return result


@dataclass
class Lowerer:
    """Lowers node by node, inputs first, with a table instead of recursion.

    Attributes:
        settings: of the run.
        placer: computes pending expressions.
        lowerings: the function that lowers each class of nodes.
        above: the use of the plan's elements.
        asks: first elements may be requested; otherwise types that depend on them stay unknown.
        known: types learned from first elements earlier, by the number of the step.
        numbers: of the steps, by id; steps of a dataset that was made at run time have none.
        learned: types learned from first elements, by the number of the step.
        done: the lowered nodes, by id.
        marks: facts about the nodes that follow from those above them.
        tuned: the steps whose numbers AUTOTUNE chooses, in words.
    """

    settings: Settings
    placer: Placer
    lowerings: Mapping[type[Node], Lowering]
    above: Above = field(default_factory=Above)
    asks: bool = False
    known: Mapping[int, ElementType] = field(default_factory=dict)
    numbers: Mapping[int, int] = field(default_factory=dict)
    learned: dict[int, ElementType] = field(default_factory=dict)
    done: dict[int, Pending] = field(default_factory=dict)
    marks: Marks = field(default_factory=Marks)
    tuned: list[str] = field(default_factory=list)

    def steps(self, root: Node) -> Steps[Pending]:
        """Lower a plan and everything below it."""
        order = walk(root, lambda node: node.full(self.settings))
        self.marks = annotate(order, self.above, self.settings)
        for node in order:
            self.placer.at = self._reader(node)
            inputs = [self.done[id(source)] for source in node.sources if id(source) in self.done]
            pending = watched(node, inputs, lambda *given, node=node: self.lowerings[type(node)](self, node, *given))
            pending = measured_step(node, inputs, pending)
            if pending.learns is not None and self.asks:
                pending = yield from self._told(node, pending, pending.learns, order)
            self.done[id(node)] = pending
        return self.done[id(root)]

    def run(self, root: Node) -> Pending:
        """Lower a plan that needs no first element, or will not run."""
        return answered(self.steps(root))

    def _reader(self, node: Node) -> Node:
        """The step that reads the values computed for a node: the reason if they have to be on the host."""
        passing = any(passes(node, source) for source in node.sources)
        return (reader(node, self.marks.users) or self.above.reads or node) if passing else node

    def _told(self, node: Node, pending: Pending, learns: Learns, order: list[Node]) -> Steps[Pending]:
        """The chain with the type that its first element has; that element is kept."""
        flow, number = PeekedFlow(pending.flow), self.numbers.get(id(node), -1)
        element = self.known.get(number)
        if element is None:
            element = first_type(node.element, learns, (yield NeedsFirstElement(node, flow, order)))
        else:  # a PeekedFlow even so: its snapshots are those of the earlier run
            learns.expect(element)
        if number >= 0 and element.known:
            self.learned[number] = element
        return Pending.columns_of(flow, element, pending.steps)

    def number(self, node: Node, given: int, default: int) -> tuple[int, bool]:
        """The number that a step starts with, and whether it may change: where AUTOTUNE, -1, is given."""
        if given >= 0:
            return given, False
        self.tuned.append(node.describe())
        return start_of(self.settings.tuned, node.describe(), node.line, default), True

    def placed(self, node: Node, source: Pending) -> Pending:
        """An input of a node, with every leaf computed."""
        return self.placer.place(source, label=node.name)

    def flat(self, node: Node, source: Pending) -> Pending:
        """An input of a node whose physical elements are its elements: pending batches are computed."""
        if source.batch is None and not source.unstack:
            return source
        return self.placer.place(source, self.delivered(node), node.name)

    def delivered(self, node: Node) -> bool:
        """Whether no step reads the elements of a node on their way to the user."""
        return id(node) in self.marks.delivered

    def zipped(self, node: Node) -> bool:
        """Whether something is zipped to the elements of a node."""
        return id(node) in self.marks.zipped

    def references(self, node: Node) -> bool:
        """Whether references to records are enough for the readers of a node."""
        return id(node) in self.marks.references

    def computes_at_once(self, rule: str) -> bool:
        """Whether maps are computed where they were written, because a rule is disabled.

        Never under "replace": there the replacement of a bad row is drawn under its key, which needs expressions.
        """
        return rule in self.settings.disabled_rules and self.settings.on_error != "replace"

    def inner(self, node: Node, inner: Node) -> Pending:
        """Lower the traced plan of a function; its computation is part of this chain."""
        above = Above(
            self.delivered(node),
            reader(node, self.marks.users) or self.above.reads,
            self.references(node),
            self.zipped(node),
            ahead=getattr(node, "calls", 0) != 0,
        )
        pending = Lowerer(self.settings, self.placer, self.lowerings, above).run(inner)
        self.placer.at = above.reads or node
        if pending.batch is not None or pending.unstack or not inner.element.known:
            pending = self.placer.place(pending, above.delivers, node.name)
        return pending

    def made(self, node: Node, plan: Node, at: Context) -> Pending:
        """Lower a dataset that a function made at run time. It has stages of its own, which `explain()` cannot show."""
        ahead = getattr(node, "calls", 0) != 0
        above = Above(self.delivered(node), zipped=self.zipped(node), ahead=ahead, passing=True)
        first = any_order(plan, self.settings.deterministic)
        if first is not None:
            at.run.stateless = (
                f"{node.describe()} at {node.line} makes datasets with {first.describe()}, which gives what is ready "
                "first, and only the run knows them; use deterministic=True there"
            )
        plan, _ = rewrite(plan, disabled_rules(self.settings))
        below = Lowerer(self.settings, Placer(self.settings), self.lowerings, above, asks=True)
        return below.placer.place(answered(below.steps(plan), at), above.delivers, node.name)


def first_type(declared: ElementType, learns: Learns, specs: Specs) -> ElementType:
    """The type of elements after a first one of these specs: it fills the gaps of what was declared."""
    if specs is None:  # there is no element: the steps above will never get one
        return UNKNOWN
    if declared.structure is None:
        element = ElementType(learns.structure(), specs)
        return ElementType(element.structure, specs, element.known and learns.batched())
    merged = [
        found
        if type(found) is not TensorSpec
        else TensorSpec(
            found.shape if given.shape is None else given.shape,
            found.dtype if given.dtype is None else given.dtype,
            given.layout,
        )
        for given, found in zip(declared.specs, specs, strict=True)
    ]
    return ElementType(declared.structure, tuple(merged), declared.batched)
