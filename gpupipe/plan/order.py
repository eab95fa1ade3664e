"""order: whether elements come in the order of the plan, or as they are ready."""

from __future__ import annotations

from collections.abc import Iterator

from .node import Node, walk
from .steps import FlatMap, Interleave, Map
from .windows import GroupByWindow

__all__ = ["any_order"]


def any_order(root: Node, deterministic: bool) -> bool:
    """Whether some step of a chain gives what is ready first.

    Under ``deterministic=False`` this holds too for a chain with datasets that only its run makes: any step may be in
    them.
    """
    return any(_free(node, deterministic) for node in _all(root))


def _all(root: Node) -> Iterator[Node]:
    """The nodes of a chain and those of the datasets inside of it."""
    for node in walk(root):
        yield node
        inner = getattr(node, "inner", None)
        if isinstance(inner, Node):
            yield from _all(inner)


def _free(node: Node, deterministic: bool) -> bool:
    if isinstance(node, (FlatMap, GroupByWindow)) and getattr(node, "inner", None) is None and not deterministic:
        return True
    if isinstance(node, Interleave) or (isinstance(node, Map) and node.calls):
        return not (deterministic if node.deterministic is None else node.deterministic)
    return False
