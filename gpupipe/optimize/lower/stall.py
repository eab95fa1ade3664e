"""stall: watches steps that may take elements forever and yield none; see `flow.stall`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...flow.stall import StallWatch, Watch, Where
from ...plan.node import Node
from ..pending import Pending

__all__ = ["watched", "where"]

_SHOWN = 8
"""How many steps of a chain are named; the others, in its middle, are counted."""


def where(node: Node) -> Where:
    """Describe a step and the chain below it, for a message."""
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
    """Lower a node, with a watch around it if it may stall and does not check the clock itself."""
    if not node.facts.may_stall:
        return lower(*inputs)
    watch = Watch(where(node))
    (source,) = inputs
    return _around(lower(_around(source, watch, given=False)), watch, given=True)


def _around(pending: Pending, watch: Watch, given: bool) -> Pending:
    """Put one side of the watch on top of a chain; `explain()` does not show it."""
    return replace(pending.through(lambda flow: StallWatch(flow, watch, given), ""), steps=pending.steps)
