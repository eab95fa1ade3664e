"""registry: how a node is lowered, where its family has a module of its own (`lower_*.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...plan.node import Node
from ..pending import Pending

if TYPE_CHECKING:
    from .lowerer import Lowerer

__all__ = ["LOWERINGS", "Lowering", "lowers"]

Lowering = Callable[["Lowerer", Any], Pending]


LOWERINGS: dict[type[Node], Lowering] = {}
"""By the class of the node."""


def lowers(*kinds: type[Node]) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of these nodes. It finds its lowered inputs in `lowerer.done[id(source)]`."""

    def register(lowering: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(kinds, lowering))
        return lowering

    return register
