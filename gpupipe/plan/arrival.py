"""arrival: whether elements come in the order of the plan, or as they are ready."""

from __future__ import annotations

from enum import IntEnum

from .maps import Interleave, Map
from .node import Node, walk

__all__ = ["Arrival", "any_order", "arrival"]


class Arrival(IntEnum):
    """How the elements of a chain come."""

    FIXED = 0
    """In the order of the plan."""

    MIXED = 1
    """As they are ready. Which elements they are does not depend on it, so their identities can put them in order."""

    FREE = 2
    """As they are ready, and what they are depends on it: rows of a batch, the first n, running numbers."""


def any_order(root: Node, deterministic: bool) -> bool:
    """Whether some step of a chain gives what is ready first; see `arrival`."""
    return arrival(root, deterministic) is not Arrival.FIXED


def arrival(root: Node, deterministic: bool) -> Arrival:
    """How the elements of a chain come.

    Args:
        root: the chain.
        deterministic: `Options.deterministic`. Where it is False, a dataset that only the run makes may have any step.
    """
    found: dict[int, Arrival] = {}
    for node in walk(root):
        below = max((found[id(source)] for source in node.sources), default=Arrival.FIXED)
        if node.made is not None:
            below = max(below, arrival(node.made, deterministic))
        elif node.makes_datasets and not deterministic:
            below = Arrival.FREE
        if below is not Arrival.FIXED and not node.facts.one_by_one:
            below = Arrival.FREE
        if _overtakes(node, deterministic):
            below = max(below, Arrival.MIXED)
        found[id(node)] = below
    return found[id(root)]


def _overtakes(node: Node, deterministic: bool) -> bool:
    """Whether a step gives what is ready first."""
    if isinstance(node, Interleave) or (isinstance(node, Map) and node.calls):
        return not (deterministic if node.deterministic is None else node.deterministic)
    return False
