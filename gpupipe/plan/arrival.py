"""arrival: the step of a chain that yields elements as they become ready, and whether the chain still has a state."""

from __future__ import annotations

from ..options import Settings
from .index import Select, asked_of
from .maps import Interleave, Map
from .node import Node, walk

__all__ = ["any_order", "refusal"]


def any_order(root: Node, deterministic: bool) -> Node | None:
    """Find the first step that yields elements as they become ready; None if all come in the order of the plan.

    Args:
        root: the chain.
        deterministic: `Options.deterministic`.
    """
    for node in walk(root):
        if _overtakes(node, deterministic):
            return node
        found = None if node.made is None else any_order(node.made, deterministic)
        if found is not None:
            return found
    return None


def refusal(root: Node, settings: Settings) -> str | None:
    """Say why a chain has no state; None where it has one.

    A state records positions, not which elements came first. So the elements that a step held are read again, which
    requires the same order; except for records, which are read at their file offsets. The places that came from an
    iterator cannot be asked for again.
    """
    for node in walk(root):
        if isinstance(node, Select) and (asked := asked_of(node.order)) is not None and asked.once:
            return (
                f"{node.describe()} at {node.line} has its places from an iterator, which gives them once; give it a "
                "list, or a function that returns an iterator of the same places each time"
            )
    first, step = any_order(root, settings.deterministic), _holder(root, settings.deterministic)
    if first is None or (step is None and settings.on_error != "replace"):
        return None
    if step is None:
        return f'on_error="replace" holds the last good element, and {first.describe()} gives what is ready first'
    return (
        f"{step.describe()} at {step.line} holds elements of {first.describe()} at {first.line}, which gives what is "
        "ready first; use deterministic=True there, or reorder the steps"
    )


def _holder(root: Node, deterministic: bool) -> Node | None:
    """Find the first step that holds elements of one that yields them as they become ready."""
    mixed: set[int] = set()
    for node in walk(root):
        below = any(id(source) in mixed for source in node.sources)
        if (below and node.holds_elements) or (node.made is not None and any_order(node.made, deterministic)):
            return node
        if below or _overtakes(node, deterministic):
            mixed.add(id(node))
    return None


def _overtakes(node: Node, deterministic: bool) -> bool:
    """Whether a step yields elements as they become ready."""
    if isinstance(node, Interleave) or (isinstance(node, Map) and node.calls):
        return not (deterministic if node.deterministic is None else node.deterministic)
    return False
