"""joins: nodes with several inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ..classes import dataclass
from ..spec import LEAF, Structure
from .node import INFINITE, UNKNOWN_CARDINALITY, ElementType, Facts, Node

__all__ = ["Concatenate", "Join", "OneStream", "Zip", "relaxed"]


@dataclass(frozen=True, slots=True, eq=False)
class Join(Node):
    """A node with several inputs. The keys of their elements depend on `branch`.

    Attributes:
        inputs: in the order in which elements are taken from them.
    """

    inputs: tuple[Node, ...]

    @property
    def sources(self) -> tuple[Node, ...]:
        return self.inputs

    def with_sources(self, sources: Sequence[Node]) -> Node:
        return replace(self, inputs=tuple(sources))

    def _branch(self, below: int) -> int:
        return below + 1


@dataclass(frozen=True, slots=True, eq=False)
class OneStream(Join):
    """A node whose elements come from one input at a time."""

    def _branches(self, below: Sequence[int]) -> int:
        return sum(below)

    def first_branches(self) -> tuple[int, ...]:
        """For each input, how many branches there are before it."""
        return tuple(accumulate((node.branches for node in self.sources[:-1]), initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class Zip(Join):
    """Elements of several inputs side by side, as many as the shortest input has.

    Attributes:
        structure: how they are nested, with one leaf for each input.
    """

    facts = Facts(by_index=True, as_they_are=True)

    structure: Structure

    def infer(self, *inputs: ElementType) -> ElementType:
        structure = graft(self.structure, [element.structure or LEAF for element in inputs])
        specs = tuple(spec for element in inputs for spec in element.specs)
        rows = {spec.shape[0] for spec in specs if spec.shape}
        return ElementType(structure, specs, all(element.batched for element in inputs) and len(rows) <= 1)

    def _cardinality(self) -> int:
        sizes = [node.cardinality for node in self.inputs]
        if UNKNOWN_CARDINALITY in sizes:
            return UNKNOWN_CARDINALITY
        return min((n for n in sizes if n != INFINITE), default=INFINITE)

    def input_context(self, at: Any, index: int) -> Any:
        return at.in_zip(self.branch, index)

    def describe(self) -> str:
        return f"zip({len(self.inputs)} datasets)"


def graft(structure: Structure, inner: Sequence[Structure]) -> Structure:
    """Replace every leaf by the structure of an input, in order."""
    return _graft(structure, iter(inner))


def _graft(structure: Structure, inner: Iterator[Structure]) -> Structure:
    if structure.kind is None:
        return next(inner)
    if structure.kind is type(None):
        return structure
    children = tuple(_graft(child, inner) for child in structure.children)
    return Structure(structure.kind, structure.keys, children, sum(child.count for child in children))


def relaxed(inputs: Sequence[ElementType]) -> ElementType:
    """The narrowest type that covers those of all inputs, which have one structure."""
    first, *rest = inputs
    for other in rest:
        specs = tuple(a.relax(b) for a, b in zip(first.specs, other.specs, strict=True))
        first = ElementType(first.structure, specs, first.batched and other.batched)
    return first


@dataclass(frozen=True, slots=True, eq=False)
class Concatenate(OneStream):
    """The elements of one input after those of another."""

    facts = Facts(holds_nothing=True, by_index=True, as_they_are=True)

    def infer(self, *inputs: ElementType) -> ElementType:
        return relaxed(inputs)

    def _cardinality(self) -> int:
        sizes = [node.cardinality for node in self.inputs]
        if INFINITE in sizes:
            return INFINITE
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in sizes else sum(sizes)

    def input_context(self, at: Any, index: int) -> Any:
        return at.in_branch(self.first_branches()[index])

    def describe(self) -> str:
        return f"concatenate({len(self.inputs)} datasets)"
