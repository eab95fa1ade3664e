"""stall: the watch over steps that may take elements forever and give none. See `flow.stall`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...flow.stall import GivenFlow, TakenFlow, Watch, Watched, Where
from ...plan.node import Node
from ..pending import Pending

__all__ = ["watched", "where"]

_SHOWN = 8
"""Steps of a chain that are named; those in the middle of a longer one are counted."""


def where(node: Node) -> Where:
    """A step in words."""
    names: list[str] = []
    at: Node | None = node
    while at is not None:
        names.append(at.name if len(at.sources) < 2 else f"{at.name} of {len(at.sources)}")
        at = at.sources[0] if at.sources else None
    names.reverse()
    if len(names) > _SHOWN:
        names[_SHOWN // 2 : -_SHOWN // 2] = [f"{len(names) - _SHOWN} more"]
    return Where(node.describe(), node.line, " > ".join(names))


def watched(node: Node, inputs: list[Pending], lower: Callable[..., Pending]) -> Pending:
    """Lower a node, with a watch around it if it is one that may stall and does not watch itself."""
    if not node.facts.may_stall:
        return lower(*inputs)
    shared = Watched(Watch(where(node)))
    (source,) = inputs
    return _around(lower(_around(source, lambda flow: TakenFlow(flow, shared))), lambda flow: GivenFlow(flow, shared))


def _around(pending: Pending, step: Callable[..., TakenFlow | GivenFlow]) -> Pending:
    """A chain with a step on top that `explain()` does not show."""
    return replace(pending.through(step, ""), steps=pending.steps)
