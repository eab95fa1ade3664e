"""length: how many elements a chain has whose files must be counted."""

from __future__ import annotations

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

__all__ = ["length"]


def length(root: Node, settings: Settings) -> int:
    """How many elements a chain has, where the headers of its files tell; `UNKNOWN_CARDINALITY` where they do not.

    Sources of records are counted, and every node above computes its own number from theirs. Files are taken in the
    order of epoch 0.

    Raises:
        LengthError: a file could not be read to its end, and `lost_files` is "raise". Else it is said in the log.
    """
    done: dict[int, Node] = {}
    for node in walk(root, lambda node: node.cardinality != UNKNOWN_CARDINALITY or _countable(node)):
        if node.cardinality != UNKNOWN_CARDINALITY:
            done[id(node)] = node
        elif _countable(node):
            done[id(node)] = Counted(node.element, copy_context().run(_counted, node, settings), line=node.line)
        elif not node.sources:
            return UNKNOWN_CARDINALITY
        else:
            done[id(node)] = node.with_sources([done[id(source)] for source in node.sources])
    return done[id(root)].cardinality


def _countable(node: Node) -> bool:
    return node.facts.flattens and blocker(node) is None


def _counted(node: Node, settings: Settings) -> int:
    """How many elements the datasets of the outer elements have together. For a context of its own."""
    run = Run(settings, counting=True)
    try:
        LIMITS.set(run.limits)
        flow = Lowerer(settings, Placer(settings, dry=True), LOWERINGS).run(node).flow
        size = access(flow, Context(run)).size
        return INFINITE if size == ENDLESS else size
    finally:
        run.close()
