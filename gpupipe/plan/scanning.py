"""scanning: steps that go through their input element by element and keep little: a state, a count, what was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.classify import name_of
from ..graph.trace import Traced
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, Element, Facts, Step

__all__ = [
    "AssertCardinality",
    "IgnoreErrors",
    "PadToCardinality",
    "RejectionResample",
    "Scan",
    "TakeWhile",
    "Unique",
    "acceptance",
]


@dataclass(frozen=True, slots=True, eq=False)
class TakeWhile(Step):
    """The elements before the first one for which a predicate does not hold."""

    facts = Facts()

    fn: Callable[..., Any]
    traced: Traced | None = None

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    @property
    def name(self) -> str:
        return "take_while"

    def describe(self) -> str:
        return f"take_while({name_of(self.fn)}) [{'traced' if self.traced else 'Python'}]"


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Step):
    """A function of a running state and each element.

    Attributes:
        leaves: of the initial state.
        structure: of the state.
        fn: called with (state, element); returns (new state, output).
        result: what `spec=` says the outputs are.
    """

    facts = Facts(payload="reads")

    leaves: tuple[Any, ...]
    structure: Structure
    fn: Callable[..., Any]
    result: Element | None = None

    def infer(self, *inputs: Element) -> Element:
        return self.declared()

    def declared(self) -> Element:
        return ANYTHING if self.result is None else self.result

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return one_more(below, "scan")  # ops called eagerly inside draw: each scan is a site of its own

    def describe(self) -> str:
        return f"scan({name_of(self.fn)}) [Python]"

    def resume_cost(self, settings: Settings) -> str:
        return "sees its elements again if its state is larger than 4 KB"


def one_more(counts: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    """The counts of random calls with one more of this name."""
    before = dict(counts)
    return tuple(sorted({**before, name: before.get(name, 0) + 1}.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Unique(Step):
    """The first occurrence of each value."""

    facts = Facts(payload="reads", may_stall=True)

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def resume_cost(self, settings: Settings) -> str:
        return "sees its elements again from the begin of the pass"


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreErrors(Step):
    """The elements that did not fail.

    Attributes:
        log: log every one that is left out, not only the first ten and then every tenfold.
    """

    facts = Facts(payload="reads", one_by_one=True, as_they_are=True, may_stall=True)

    log: bool = False

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    @property
    def name(self) -> str:
        return "ignore_errors"


@dataclass(frozen=True, slots=True, eq=False)
class AssertCardinality(Step):
    """The same elements; an error where there are not `count` of them (`INFINITE`: where they end)."""

    facts = Facts(as_they_are=True)

    count: int

    def _cardinality(self) -> int:
        return self.count

    @property
    def name(self) -> str:
        return "assert_cardinality"

    def describe(self) -> str:
        return f"assert_cardinality({'endless' if self.count == INFINITE else self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class PadToCardinality(Step):
    """Elements of zeros behind the last one, up to `count`; a leaf says which are real.

    Attributes:
        count: how many there are then.
        key: under which the mask stands in the dict that an element is.
    """

    facts = Facts(payload="reads", gathers=True)

    count: int
    key: Any = "valid"

    def infer(self, *inputs: Element) -> Element:
        old = inputs[0].structure or LEAF
        structure = Structure(dict, (*old.keys, self.key), (*old.children, LEAF), old.count + 1)
        return Element(structure, (*inputs[0].specs, TensorSpec((), bool)))

    def _cardinality(self) -> int:
        return self.count

    @property
    def name(self) -> str:
        return "pad_to_cardinality"

    def describe(self) -> str:
        return f"pad_to_cardinality({self.count}, mask_key={self.key!r})"


@dataclass(frozen=True, slots=True, eq=False)
class RejectionResample(Step):
    """Some of the elements, so that their classes come in other proportions; each as (class, element).

    Attributes:
        fn: gives the class of an element, an integer.
        traced: its graph; None for ordinary Python.
        target: the proportions wanted, one number per class.
        initial: those of the input; None estimates them on the way.
        seed: tells the draws of this step from those of another; None counts such steps along the chain.
    """

    facts = Facts(may_stall=True)

    fn: Callable[..., Any]
    traced: Traced | None
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int | None = None

    def infer(self, *inputs: Element) -> Element:
        inner = inputs[0].structure or LEAF
        spec = TensorSpec((), None) if self.traced is None else self.traced.outputs[0].spec
        return Element(Structure(tuple, (), (LEAF, inner), 1 + inner.count), (spec, *inputs[0].specs))

    @property
    def draws(self) -> bool:
        return True

    def _cardinality(self) -> int:
        n = self.source.cardinality
        keeps_all = self.initial is not None and min(acceptance(self.target, self.initial)) == 1
        return n if n in (0, INFINITE) or keeps_all else UNKNOWN_CARDINALITY

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return one_more(below, "rejection_resample")

    @property
    def name(self) -> str:
        return "rejection_resample"

    def describe(self) -> str:
        how = "estimated" if self.initial is None else "given"
        return f"rejection_resample({name_of(self.fn)}, {len(self.target)} classes, initial distribution {how})"


def acceptance(target: Sequence[float], initial: Sequence[float]) -> list[float]:
    """With which probability an element of each class is kept: target over initial, the largest of them 1.

    Among the elements kept, class c then has a share proportional to ``initial[c] * target[c] / initial[c]``.
    """
    tiny = float(np.finfo(np.float64).tiny)  # a class that never comes divides nothing by zero
    ratios = [float(t) / (float(i) + tiny) for t, i in zip(target, initial, strict=True)]
    largest = max(ratios)
    return [ratio / largest for ratio in ratios]
