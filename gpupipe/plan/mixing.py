"""mixing: elements of several datasets in one, and the small sources that such datasets are chosen by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..extract.storage.names import Names
from ..spec import LEAF, Structure, TensorSpec
from .joins import first_branches, relaxed
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, Element, Facts, Node

__all__ = ["ChooseFrom", "Counter", "Listed", "Mixture", "RandomNumbers", "SampleFrom"]


@dataclass(frozen=True, slots=True, eq=False)
class Mixture(Node):
    """Elements of several datasets, one at a time.

    Attributes:
        inputs: the datasets.
        stop: end where one that is empty is picked; otherwise it is passed over until all are.
    """

    inputs: tuple[Node, ...]
    stop: bool

    @property
    def picks(self) -> Node | None:
        """The dataset that says which input is next, if one does; opened as the input behind the last."""
        return None

    @property
    def sources(self) -> tuple[Node, ...]:
        return self.inputs if self.picks is None else (*self.inputs, self.picks)

    def infer(self, *inputs: Element) -> Element:
        return relaxed(inputs[: len(self.inputs)])

    def declared(self) -> Element:
        given = [node.element for node in self.inputs]
        return relaxed(given) if all(element.structure is not None for element in given) else ANYTHING

    def _number(self, below: int) -> int:
        return below + 1

    def _branches(self, below: Sequence[int]) -> int:
        return sum(below)

    def first_branches(self) -> tuple[int, ...]:
        """For each input how many branches there are in front of it."""
        return first_branches(self.sources)


@dataclass(frozen=True, slots=True, eq=False)
class SampleFrom(Mixture):
    """The next input is drawn by weight.

    Attributes:
        weights: one per input, > 0; None where `by` gives them.
        by: a dataset of weights, new ones for every element.
        seed: of this node, mixed with the chain's.
        anew: other draws in every epoch and pass.
    """

    facts = Facts(as_they_are=True)

    weights: tuple[float, ...] | None = None
    by: Node | None = None
    seed: int | None = None
    anew: bool = False

    @property
    def picks(self) -> Node | None:
        return self.by

    def with_sources(self, sources: Sequence[Node]) -> Node:
        count = len(self.inputs)
        return replace(self, inputs=tuple(sources[:count]), by=None if self.by is None else sources[count])

    def _cardinality(self) -> int:
        sizes = [node.cardinality for node in self.inputs]
        if self.by is not None:
            return INFINITE if self.by.cardinality == INFINITE and set(sizes) == {INFINITE} else UNKNOWN_CARDINALITY
        if self.stop:
            return INFINITE if set(sizes) == {INFINITE} else UNKNOWN_CARDINALITY
        if INFINITE in sizes:
            return INFINITE
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in sizes else sum(sizes)

    @property
    def draws(self) -> bool:
        return self.anew

    @property
    def name(self) -> str:
        return "sample_from_datasets"

    def describe(self) -> str:
        weights = "" if self.weights is None else f", weights={[round(weight, 4) for weight in self.weights]}"
        weights = weights if self.by is None else ", weights from a dataset"
        return f"sample_from_datasets({len(self.inputs)} datasets{weights}, seed={self.seed})"


@dataclass(frozen=True, slots=True, eq=False)
class ChooseFrom(Mixture):
    """A dataset of numbers says which input is next."""

    facts = Facts(as_they_are=True)

    choice: Node

    @property
    def picks(self) -> Node | None:
        return self.choice

    def with_sources(self, sources: Sequence[Node]) -> Node:
        *inputs, choice = sources
        return replace(self, inputs=tuple(inputs), choice=choice)

    def _cardinality(self) -> int:
        endless = {node.cardinality for node in self.inputs} == {INFINITE}
        return self.choice.cardinality if endless else UNKNOWN_CARDINALITY

    @property
    def name(self) -> str:
        return "choose_from_datasets"

    def describe(self) -> str:
        return f"choose_from_datasets({len(self.inputs)} datasets)"


@dataclass(frozen=True, slots=True, eq=False)
class Counter(Node):
    """start, start + step, ... without end, in one dtype."""

    facts = Facts()

    start: Any
    step: Any
    dtype: np.dtype[Any]

    def infer(self, *inputs: Element) -> Element:
        return Element(LEAF, (TensorSpec((), self.dtype),))

    def _cardinality(self) -> int:
        return INFINITE

    def describe(self) -> str:
        return f"counter({self.start}, {self.step})"


@dataclass(frozen=True, slots=True, eq=False)
class RandomNumbers(Node):
    """Numbers in [0, 2**32), without end.

    Attributes:
        seed: mixed with the chain's.
        anew: other numbers in every epoch and pass.
    """

    facts = Facts()

    seed: int | None = None
    anew: bool = False

    def infer(self, *inputs: Element) -> Element:
        return Element(LEAF, (TensorSpec((), "int64"),))

    def _cardinality(self) -> int:
        return INFINITE

    @property
    def draws(self) -> bool:
        return self.anew

    @property
    def name(self) -> str:
        return "random"

    def describe(self) -> str:
        return f"random(seed={self.seed}{', rerandomized' if self.anew else ''})"


@dataclass(frozen=True, slots=True, eq=False)
class Listed(Node):
    """Elements that were listed.

    Attributes:
        columns: for each leaf its value in every element.
        structure: of an element.
        specs: one per leaf, which all its values fit.
        names: where the first leaf is a path, what identifies each of them in any directory; else None.
    """

    facts = Facts()

    columns: tuple[tuple[Any, ...], ...]
    structure: Structure
    specs: tuple[TensorSpec, ...]
    names: Names | None = field(default=None, compare=False)

    def infer(self, *inputs: Element) -> Element:
        return Element(self.structure, self.specs)

    def _cardinality(self) -> int:
        return len(self.columns[0])

    @property
    def name(self) -> str:
        return "from_list"

    def describe(self) -> str:
        return f"from_list({len(self.columns[0])} elements)"
