"""order: where a chain whose elements come in any order has no state."""

from __future__ import annotations

from .node import Node, walk
from .scanning import Unique
from .steps import Cache, FlatMap, Interleave, Map, Repeat, Shuffle, Unbatch
from .windows import Bucketed, GroupByWindow, RaggedBatch, Rebatch, Window

__all__ = ["any_order", "stateless"]

_HOLDS = (
    Shuffle, Window, GroupByWindow, Bucketed, RaggedBatch, Rebatch, Unbatch, Unique, Cache, FlatMap, Interleave,
)  # fmt: skip


def any_order(root: Node, deterministic: bool) -> bool:
    """Whether some step of a chain gives what is ready first."""
    return any(_free(part, deterministic) for node in walk(root) for part in (node, *_inside(node)))


def stateless(root: Node, deterministic: bool, replaces: bool) -> str | None:
    """Why a chain has no state, in words; None where it has one.

    Args:
        root: the chain.
        deterministic: `Options.deterministic`.
        replaces: bad elements are replaced by the last good one, so batches and the iterator hold one too.

    What a step in any order has chosen is kept while it is open. A step that holds elements makes them again from where
    they came; if others were opened since then, by `repeat` or for an element of `interleave`, their choices are not
    known there.
    """
    free: dict[int, Node | None] = {}  # the step in any order below a node,
    again: dict[int, Node | None] = {}  # ... and that one if it is opened anew below the node
    for node in walk(root):
        below = next((free[id(source)] for source in node.sources if free[id(source)] is not None), None)
        opened = next((again[id(source)] for source in node.sources if again[id(source)] is not None), None)
        if opened is not None and isinstance(node, _HOLDS):
            return (
                f"{opened.describe()} at {opened.line} gives what is ready first and is opened again and again below "
                f"{node.describe()}, which holds elements; use deterministic=True there, or put {node.name} before it"
            )
        inside = next((part for part in _inside(node) if _free(part, deterministic)), None)
        if isinstance(node, Repeat):
            opened = opened or below
        free[id(node)] = node if _free(node, deterministic) else below
        again[id(node)] = opened or inside
    opened = again[id(root)]
    if opened is None or not replaces:
        return None
    return (
        f"{opened.describe()} at {opened.line} gives what is ready first and is opened again and again, where "
        f'on_error="replace" needs the last good element; use deterministic=True there'
    )


def _free(node: Node, deterministic: bool) -> bool:
    """Whether a step gives what is ready first."""
    if isinstance(node, Interleave):
        return not (deterministic if node.deterministic is None else node.deterministic)
    if isinstance(node, Map) and node.calls:
        return not (deterministic if node.deterministic is None else node.deterministic)
    return False


def _inside(node: Node) -> list[Node]:
    inner = getattr(node, "inner", None)
    return walk(inner) if isinstance(inner, Node) else []
