"""resume_costs: the work that steps repeat after `load_state_dict`, for `explain()`."""

from __future__ import annotations

from ...options import Settings
from ...plan.node import Node, walk

__all__ = ["resuming"]


def resuming(root: Node, settings: Settings) -> list[str]:
    """One line for each step of a chain that repeats work after `load_state_dict`."""
    found: dict[str, None] = {}
    for node in walk(root):
        for part in (node, *walk(node.made)) if node.made is not None else (node,):
            text = part.resume_cost(settings)
            if text:
                found[f"{part.describe()} {text}"] = None
    return list(found)
