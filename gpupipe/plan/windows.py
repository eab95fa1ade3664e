"""windows: nodes that gather elements into datasets: windows and groups by key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..graph.classify import name_of
from ..options import Settings
from ..spec import DatasetSpec
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, Buffer, ElementType, Facts, Node, Step

__all__ = ["GroupByWindow", "NestedElements", "Window"]


Maker = Callable[[Node], Any]
"""Makes a dataset of a plan, for the user or a function of theirs."""


@dataclass(frozen=True, slots=True, eq=False)
class NestedElements(Node):
    """Elements that were gathered: one leaf of a window, or a group of whole elements.

    Attributes:
        elements: columns, stream and position of each; never changed.
        type: of the elements.
        base: the key of the element that this dataset is. Opened in its context (by `flat_map`), or by itself, the
            dataset yields elements with their own identities; in any other context both make the key.
        origin: identifies the elements: equal for equal chains, seeds, epochs and positions.
    """

    facts = Facts(name="window")

    elements: tuple[Any, ...] = field(compare=False)
    type: ElementType = field(compare=False)
    base: int = field(compare=False)
    origin: bytes

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.type

    def _cardinality(self) -> int:
        return len(self.elements)

    def describe(self) -> str:
        return f"window of {len(self.elements)} elements"


@dataclass(frozen=True, slots=True, eq=False)
class Window(Step):
    """Datasets of `size` elements each, `stride` apart; each starts `shift` elements after the one before.

    Attributes:
        make: makes a dataset of a plan.
    """

    facts = Facts(gathers=True)

    size: int
    shift: int
    stride: int
    drop: bool
    make: Maker = field(compare=False)

    @property
    def span(self) -> int:
        """How many consecutive elements of the input a window spans."""
        return (self.size - 1) * self.stride + 1

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(inputs[0].structure, tuple(DatasetSpec(spec) for spec in inputs[0].specs))

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if n < 0:
            return n
        return max(0, (n - self.span) // self.shift + 1) if self.drop else -(-n // self.shift)

    def describe(self) -> str:
        drop = ", drop_remainder=True" if self.drop else ""
        return f"window({self.size}, shift={self.shift}, stride={self.stride}{drop})"


@dataclass(frozen=True, slots=True, eq=False)
class GroupByWindow(Step):
    """The elements of `fn(key, dataset)` for each group of elements with one key.

    Attributes:
        key: computes the key of an element.
        fn: makes a dataset of a key and the dataset of its group.
        size: elements per group; 0 where `size_fn` computes it from the key.
        make: makes a dataset of a plan.
    """

    facts = Facts(gathers=True)

    key: Callable[..., Any]
    fn: Callable[..., Any]
    size: int
    size_fn: Callable[..., Any] | None
    make: Maker = field(compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return ANYTHING

    def _cardinality(self) -> int:
        return INFINITE if self.source.cardinality == INFINITE else UNKNOWN_CARDINALITY

    @property
    def makes_datasets(self) -> bool:
        return True

    def buffer(self, settings: Settings) -> Buffer:
        return Buffer(self.name, None)

    def describe(self) -> str:
        size = name_of(self.size_fn) if self.size_fn is not None else self.size
        return f"group_by_window({name_of(self.key)}, {name_of(self.fn)}, {size})"
