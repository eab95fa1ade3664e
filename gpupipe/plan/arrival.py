"""arrival: which step of a chain gives what is ready first, and whether the chain has a state nevertheless."""

from __future__ import annotations

from ..options import Settings
from .maps import Interleave, Map
from .node import Node, walk

__all__ = ["any_order", "refusal"]


def any_order(root: Node, deterministic: bool) -> Node | None:
    """The step of a chain that gives what is ready first; None where all come in the order of the plan.

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
    """Why a chain has no state, None where it has one.

    A state says where a step stands, not what came first. So what a step holds is read again for it, and that has to
    come in the same order; but for records, which files have at their offsets.
    """
    first, step = any_order(root, settings.deterministic), _holder(root, settings.deterministic)
    if first is None or (step is None and settings.on_error != "replace"):
        return None
    if step is None:
        return f'on_error="replace" holds the last good element, and {first.describe()} gives what is ready first'
    return (
        f"{step.describe()} at {step.line} holds elements of {first.describe()} at {first.line}, which gives what is "
        "ready first; use deterministic=True there, or another order of the steps"
    )


def _holder(root: Node, deterministic: bool) -> Node | None:
    """The first step that holds elements of one that gives what is ready first."""
    mixed: set[int] = set()
    for node in walk(root):
        below = any(id(source) in mixed for source in node.sources)
        if (below and node.holds_elements) or (node.made is not None and any_order(node.made, deterministic)):
            return node
        if below or _overtakes(node, deterministic):
            mixed.add(id(node))
    return None


def _overtakes(node: Node, deterministic: bool) -> bool:
    """Whether a step gives what is ready first."""
    if isinstance(node, Interleave) or (isinstance(node, Map) and node.calls):
        return not (deterministic if node.deterministic is None else node.deterministic)
    return False
