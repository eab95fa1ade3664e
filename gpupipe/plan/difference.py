"""difference: the first difference of two plans that one function made when it was called twice."""

from __future__ import annotations

from typing import Any

from ..graph.difference import Difference, difference, same, shown
from ..graph.trace import Traced
from .node import Node, walk
from .sources import FromGenerator

__all__ = ["plan_difference"]


def plan_difference(first: Node, second: Node) -> Difference | None:
    """Compare two plans step by step; None if they are equal.

    The arguments of a generator are not constants of a graph, and tf.data's own guide numbers generators with a counter
    there: such a difference is only reported, not refused, and only where there is no other.
    """
    if first.fingerprint == second.fingerprint:
        return None
    before, after = walk(first), walk(second)
    told = None
    for a, b in zip(before, after, strict=False):
        found = _of_step(a, b)
        if found is not None and not found.told:
            return found
        told = told or found
    if len(before) != len(after):
        extra = (before if len(before) > len(after) else after)[min(len(before), len(after))]
        return Difference(f"{extra.name} one time only", extra.line)
    return told


def _of_step(a: Node, b: Node) -> Difference | None:
    if type(a) is not type(b) or len(a.sources) != len(b.sources):
        return Difference(f"{a.name}, then {b.name}", a.line)
    for (name, before), (_, after) in zip(a.parameters(), b.parameters(), strict=True):
        found = _of_field(a, name, before, after)
        if found is not None:
            return found
    return None


def _of_field(step: Node, name: str, before: Any, after: Any) -> Difference | None:
    """Compare one parameter of a step; its inputs are compared as steps of their own."""
    if isinstance(before, Traced) and isinstance(after, Traced):
        return difference(before.outputs, after.outputs)
    if isinstance(before, Node) and isinstance(after, Node):
        return None if any(before is source for source in step.sources) else plan_difference(before, after)
    if isinstance(before, tuple) and before and isinstance(before[0], Node):
        return None
    if same(before, after):
        return None
    told = isinstance(step, FromGenerator) and name == "args"
    return Difference(f"{step.name} with {name}={shown(before)}, then {shown(after)}", step.line, told)
