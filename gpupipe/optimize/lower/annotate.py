"""annotate: facts about each node that follow from the steps above it, found before a plan is lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ...classes import dataclass
from ...flow.run import Context
from ...graph.values import Input, Value
from ...options import Settings
from ...plan.joins import Zip
from ...plan.maps import IgnoreErrors
from ...plan.mixing import Mixture
from ...plan.node import Node

__all__ = ["Above", "Marks", "annotate", "contexts", "passes", "picks", "reader"]

Users = Mapping[int, Sequence[Node]]
"""The nodes that read from a node, by its id."""


@dataclass(frozen=True, slots=True)
class Above:
    """The use of a plan's elements: at the end of the chain, or by a step whose function makes the plan.

    Attributes:
        delivers: elements of the plan reach the user unchanged.
        reads: the step that reads them otherwise; None where that is the user.
        references: references to records are enough.
        zipped: something is zipped to them.
        ahead: readers run ahead.
        passing: the plan was made at run time and is short-lived.
    """

    delivers: bool = False
    reads: Node | None = None
    references: bool = False
    zipped: bool = False
    ahead: bool = False
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """Sets of nodes of a plan, by id.

    Attributes:
        users: the nodes that read from each.
        references: nodes whose records are held or skipped: they yield references, not payloads.
        zipped: nodes that something is zipped to.
        delivered: nodes whose elements no step reads on their way to the user.
    """

    users: dict[int, list[Node]] = field(default_factory=dict)
    references: set[int] = field(default_factory=set)
    zipped: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)


def annotate(order: Sequence[Node], above: Above, settings: Settings) -> Marks:
    """Mark the nodes of a plan.

    Args:
        order: all nodes, inputs first.
        above: the use of its elements.
        settings: of the run.
    """
    root = id(order[-1])
    marks = Marks(
        references={root} if above.references else set(),
        zipped={root} if above.zipped else set(),
        delivered={root} if above.delivers else set(),
    )
    for node in reversed(order):
        here, below = id(node), [id(source) for source in node.sources]
        users = marks.users.get(here, ())
        if above.delivers and users and all(id(u) in marks.delivered and passes(u, node) for u in users):
            marks.delivered.add(here)
        if node.payload == "holds" or (node.payload == "passes" and here in marks.references):
            marks.references.update(below)
        # After a batch, `ignore_errors` leaves out the whole batch, which keeps its position as if it were zipped.
        ignored = isinstance(node, IgnoreErrors) and settings.on_error == "raise"
        if isinstance(node, Zip) or ignored or here in marks.zipped:
            marks.zipped.update(below)
        for source in below:
            marks.users.setdefault(source, []).append(node)
    return marks


def contexts(order: Sequence[Node], at: Context) -> dict[int, Context]:
    """The context in which each node will be opened first, by id."""
    found: dict[int, Context] = {}
    for node in reversed(order):
        here = found.get(id(node), at)
        for j, source in enumerate(node.sources):
            if id(source) not in found:
                found[id(source)] = node.input_context(here, j)
    return found


def passes(node: Node, source: Node) -> bool:
    """Whether a node passes elements of one of its inputs on unchanged."""
    if node.outputs:
        return picks(node.outputs)
    return node.facts.as_they_are and not (isinstance(node, Mixture) and source is node.picks)


def picks(values: Sequence[Value]) -> bool:
    """Whether values are leaves of the input element, each at most once: then whole batches can be passed on."""
    return all(isinstance(value, Input) for value in values) and len(set(values)) == len(values)


def reader(node: Node, users: Users) -> Node | None:
    """Find the first step that reads the elements of a node; None where they reach the end of the plan."""
    waiting = [(user, node) for user in users.get(id(node), ())]
    while waiting:
        user, source = waiting.pop()
        if not passes(user, source):
            return user
        waiting += [(above, user) for above in users.get(id(user), ())]
    return None
