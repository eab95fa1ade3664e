"""read_files: which lists of texts a chain reads as the names of files, as far as the plan tells.

A list of texts may name files or be captions. Each leaf is followed from the list through the chain: where a step that
reads files takes it, the texts are names. Behind a Python function any leaf may be any of its texts. Which of them the
function itself opens is not known: what it reads with gpupipe is noticed when it does (`Limits.opened`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..classes import dataclass
from ..graph.values import Apply, Input, Value, topological
from ..io import ReadFile
from .batches import Bucketed, OfOneSize, Rebatch, Unbatch
from .files import OneFile
from .image_buckets import ImageBuckets
from .joins import OneStream, Zip
from .maps import FlatMap, Map, PadToCardinality
from .node import Node, walk
from .order import Enumerate
from .ranks import ByRank
from .sources import Param, Slices, Tensors
from .windows import Window

__all__ = ["unread_texts"]

_Lists = frozenset[int]
"""Ids of nodes that are lists of texts."""

_SAME_LEAVES = (OfOneSize, Unbatch, Rebatch, Bucketed, Window, ByRank, ImageBuckets, PadToCardinality)
"""Steps whose elements have the leaves of their input, of other types, and perhaps others behind them."""


@dataclass(frozen=True, slots=True)
class _Texts:
    """The lists of which an element may have texts.

    Attributes:
        leaves: those of each leaf; None where any leaf may be any of `all`.
        all: those of all leaves.
    """

    leaves: tuple[_Lists, ...] | None
    all: _Lists

    @classmethod
    def of(cls, leaves: Sequence[_Lists]) -> _Texts:
        return cls(tuple(leaves), _Lists().union(*leaves))

    @classmethod
    def anywhere(cls, inputs: Sequence[_Texts]) -> _Texts:
        return cls(None, _Lists().union(*(one.all for one in inputs)))

    def leaf(self, index: int) -> _Lists:
        return self.all if self.leaves is None else self.leaves[index]


def unread_texts(root: Node) -> _Lists:
    """The ids of the nodes of a chain, inner ones included, whose texts no step reads as the names of files."""
    found = _Reading()
    found.follow(root, ())
    return _Lists(found.lists - found.read)


class _Reading:
    """Follows texts through a chain.

    Attributes:
        lists: the lists of texts that were met.
        read: those of them that a step reads as names.
    """

    def __init__(self) -> None:
        self.lists: set[int] = set()
        self.read: set[int] = set()

    def follow(self, root: Node, outer: tuple[_Texts, ...]) -> _Texts:
        """The texts in the elements of a chain.

        Args:
            root: the chain.
            outer: those of the elements that functions around it are called with, the outermost first.
        """
        done: dict[int, _Texts] = {}
        for node in walk(root):
            below = [done[id(source)] for source in node.sources]
            done[id(node)] = self._behind(node, below, outer)
        return done[id(root)]

    def _behind(self, node: Node, below: Sequence[_Texts], outer: tuple[_Texts, ...]) -> _Texts:
        """The texts behind a step, given those before it."""
        specs = node.element.specs
        match node:
            case Slices() | Tensors():
                self.lists.add(id(node))
                own = _Lists((id(node),))
                return _Texts.of([own if i == 0 or isinstance(node, Tensors) else _Lists() for i in range(len(specs))])
            case Param() if outer:
                # A function inside of another one may count its own element as the outermost.
                first = outer[node.depth] if node.depth < len(outer) else outer[-1]
                return first if first is outer[-1] else _Texts.anywhere((first, outer[-1]))
            case OneFile():
                self.read |= below[0].leaf(node.leaf)
                return _Texts(None, _Lists())
            case FlatMap() if node.inner is not None:
                return self.follow(node.inner, (*outer, below[0]))
            case Map() if node.traced is not None:
                return _Texts.of(self._computed(node.traced.outputs, below[0]))
            case Enumerate() if below[0].leaves is not None:
                return _Texts.of([_Lists(), *below[0].leaves])
            case Zip() if all(one.leaves is not None for one in below):
                return _Texts.of([leaf for one in below for leaf in one.leaves or ()])
            case OneStream() if len({len(one.leaves or ()) for one in below}) == 1 and all(one.leaves for one in below):
                columns = zip(*(one.leaves or () for one in below), strict=True)
                return _Texts.of([_Lists().union(*column) for column in columns])
            case _:
                traced = getattr(node, "traced", None)
                if traced is not None:  # a predicate
                    self._computed(traced.outputs, below[0])
                if node.same_leaves:
                    return below[0]
                if isinstance(node, _SAME_LEAVES) and len(specs) >= len(leaves := below[0].leaves or ()) > 0:
                    return _Texts.of([*leaves, *[_Lists()] * (len(specs) - len(leaves))])
                return _Texts.anywhere(below)

    def _computed(self, outputs: Sequence[Value], given: _Texts) -> list[_Lists]:
        """The texts in the results of a traced function; contents of files are none."""
        found: dict[Value, _Lists] = {}
        for value in topological(outputs):
            below = _Lists().union(*(found[x] for x in value.inputs))
            if isinstance(value, Input):
                below = given.leaf(value.index)
            elif isinstance(value, Apply) and isinstance(value.op, ReadFile):
                self.read |= below
                below = _Lists()
            found[value] = below
        return [found[value] for value in outputs]
