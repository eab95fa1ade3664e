"""mixing: steps that mix the elements of several datasets, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..classes import dataclass
from .joins import OneStream, relaxed
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, ElementType, Facts, Node

__all__ = ["ChooseFrom", "Mixture", "SampleFrom"]


@dataclass(frozen=True, slots=True, eq=False)
class Mixture(OneStream):
    """Elements of several datasets, one at a time.

    Attributes:
        stop: end when an exhausted dataset is picked; otherwise skip those until all are exhausted.
    """

    stop: bool

    @property
    def picks(self) -> Node | None:
        """The dataset that says which input is next, if there is one; opened as one more input, after the last."""
        return None

    @property
    def sources(self) -> tuple[Node, ...]:
        return self.inputs if self.picks is None else (*self.inputs, self.picks)

    def infer(self, *inputs: ElementType) -> ElementType:
        return relaxed(inputs[: len(self.inputs)])

    def declared(self) -> ElementType:
        given = [node.element for node in self.inputs]
        return relaxed(given) if all(element.structure is not None for element in given) else ANYTHING

    def input_context(self, at: Any, index: int) -> Any:
        return at.in_mixture(self.first_branches()[index])


@dataclass(frozen=True, slots=True, eq=False)
class SampleFrom(Mixture):
    """The next input is drawn by weight.

    Attributes:
        weights: one per input, > 0; None where `by` gives them.
        by: a dataset of weights, with new ones for every element.
        seed: of this node, mixed with the chain's.
        rerandomize: draw differently in every epoch and pass.
    """

    facts = Facts(name="sample_from_datasets", as_they_are=True)

    weights: tuple[float, ...] | None = None
    by: Node | None = None
    seed: int | None = None
    rerandomize: bool = False

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
        return self.rerandomize

    def describe(self) -> str:
        weights = "" if self.weights is None else f", weights={[round(weight, 4) for weight in self.weights]}"
        weights = weights if self.by is None else ", weights from a dataset"
        return f"sample_from_datasets({len(self.inputs)} datasets{weights}, seed={self.seed})"


@dataclass(frozen=True, slots=True, eq=False)
class ChooseFrom(Mixture):
    """A dataset of numbers says which input is next."""

    facts = Facts(name="choose_from_datasets", as_they_are=True)

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

    def describe(self) -> str:
        return f"choose_from_datasets({len(self.inputs)} datasets)"
