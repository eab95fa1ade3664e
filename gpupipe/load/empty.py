"""empty: a warning where an epoch ends without an element, so that a training on nothing does not look like success."""

from __future__ import annotations

from ..log import logger
from ..plan.node import Node, walk

__all__ = ["log_empty"]


def log_empty(root: Node) -> None:
    """Log that an epoch gave nothing, once for each chain; not of one that says so itself: `range(0)`, `take(0)`."""
    drops = [node for node in walk(root) if getattr(node, "drop", False)]
    none = [node for node in drops if node.cardinality == 0 and node.sources[0].cardinality != 0]
    if root.cardinality == 0 and not none:
        return
    blamed = (none or drops)[-1:]
    how = "leaves out" if none else "may leave out"
    why = "".join(f"; {node.describe()} at {node.line} {how} all, as a batch that is not full" for node in blamed)
    logger.warning_once("an epoch of the chain that ends at %s gave no element%s", root.line, why)
