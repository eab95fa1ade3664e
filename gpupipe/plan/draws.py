"""draws: whether what a chain gives depends on the number of the epoch."""

from __future__ import annotations

from ..graph.values import Draw, topological
from .indexed import Everything, Rows, Select
from .mixing import RandomNumbers, SampleFrom
from .node import Node, walk
from .scanning import RejectionResample
from .steps import Map, Shuffle

__all__ = ["draws"]


def draws(root: Node) -> bool:
    """Whether a chain draws other numbers in another epoch, as far as the plan tells without reading data."""
    return any(_draws(node) for node in walk(root))


def _draws(node: Node) -> bool:
    inner = getattr(node, "inner", None)
    if isinstance(inner, Node) and draws(inner):
        return True
    match node:
        case Shuffle():
            return node.reshuffle
        case Select(order=Everything() as order) | Select(order=Rows(order=Everything() as order)):
            return order.reshuffle
        case SampleFrom() | RandomNumbers():
            return node.anew
        case RejectionResample():
            return True
        case Map(traced=None):
            return node.rng
        case Map(traced=traced) if traced is not None:
            return any(isinstance(value, Draw) and value.site for value in topological(traced.outputs))
        case _:
            return False
