"""length: the number of elements of a chain whose files must be counted."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context

from ...extract.storage.waiting import LIMITS
from ...flow.access import access
from ...flow.run import Context, Run
from ...options import Settings
from ...plan.index import ENDLESS, blocker
from ...plan.node import INFINITE, UNKNOWN_CARDINALITY, Node, walk
from ...plan.sources import Counted
from ..place.placer import Placer
from .compile import LOWERINGS
from .lowerer import Lowerer

__all__ = ["is_known", "length"]


def length(root: Node, settings: Settings) -> int:
    """Count the elements of a chain by the headers of its files; `UNKNOWN_CARDINALITY` where those do not tell.

    Sources of records are counted, and every node above computes its own cardinality from theirs. Files are read in
    the order of epoch 0.

    Raises:
        LengthError: a file could not be read to its end, and `lost_files` is "raise"; otherwise this is logged.
    """
    return _length(root, lambda node: copy_context().run(_counted, node, settings))


def is_known(root: Node) -> bool:
    """Whether `length` tells the number of elements; nothing is read."""
    return _length(root, lambda node: 1) != UNKNOWN_CARDINALITY


def _length(root: Node, count: Callable[[Node], int]) -> int:
    done: dict[int, Node] = {}
    for node in walk(root, lambda node: node.cardinality != UNKNOWN_CARDINALITY or _countable(node)):
        if node.cardinality != UNKNOWN_CARDINALITY:
            done[id(node)] = node
        elif _countable(node):
            done[id(node)] = Counted(node.element, count(node), line=node.line)
        elif not node.sources:
            return UNKNOWN_CARDINALITY
        else:
            done[id(node)] = node.with_sources([done[id(source)] for source in node.sources])
    return done[id(root)].cardinality


def _countable(node: Node) -> bool:
    return node.facts.flattens and blocker(node) is None


def _counted(node: Node, settings: Settings) -> int:
    """Count the elements of all datasets of the outer elements. Call it in a context of its own: it sets limits."""
    run = Run(settings, counting=True)
    try:
        LIMITS.set(run.limits)
        flow = Lowerer(settings, Placer(settings, dry=True), LOWERINGS).run(node).flow
        size = access(flow, Context(run)).size
        return INFINITE if size == ENDLESS else size
    finally:
        run.close()
