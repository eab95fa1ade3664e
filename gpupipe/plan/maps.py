"""maps: steps that call a function on each element, and others that handle one element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..classes import dataclass
from ..graph.classify import name_of
from ..graph.trace import Traced
from ..graph.values import Draw, Value, topological
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, Buffer, ElementType, Facts, Node, Step, draws

__all__ = [
    "AssertCardinality",
    "Filter",
    "FlatMap",
    "IgnoreErrors",
    "Interleave",
    "Map",
    "PadToCardinality",
    "RejectionResample",
    "Scan",
    "TakeWhile",
    "Unique",
    "acceptance",
    "traced_type",
]


@dataclass(frozen=True, slots=True, eq=False)
class Map(Step):
    """A function of each element.

    Attributes:
        fn: the user's function.
        traced: its graph; None for ordinary Python.
        pending: a candidate for tracing whose input type is not known before the first element.
        result: the result type that `spec=` declares for a Python function.
        calls: parallel calls, 0 for none, -1 for AUTOTUNE.
        deterministic: whether results keep the order of their inputs; None follows the options.
        rng: whether a Python function is passed a generator.
        workers: what runs a Python function in parallel, "thread" or "process".
        kept: holds idle worker processes between two iterators; shared by every rewritten form of this node.
    """

    facts = Facts(holds_nothing=True, by_index=True, as_long=True, keeps_rows=True)

    fn: Callable[..., Any]
    traced: Traced | None = None
    pending: bool = False
    result: ElementType | None = None
    calls: int = 0
    deterministic: bool | None = None
    rng: bool = False
    workers: str = "thread"
    kept: Any = field(default=None, compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.declared() if self.traced is None else traced_type(self.traced, inputs[0])

    def declared(self) -> ElementType:
        return self.result if self.result is not None else ANYTHING

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        if self.traced is not None:
            return self.traced.random_calls
        return one_more(below, "map")  # a Python function may draw too, and is a site of its own

    def describe(self) -> str:
        how = "traced" if self.traced else "traced at the first element" if self.pending else "Python"
        return f"map({name_of(self.fn)}) [{how}]"

    @property
    def payload(self) -> str:
        return "reads" if self.traced is None else "passes"

    @property
    def holds_elements(self) -> bool:
        return self.calls != 0

    @property
    def outputs(self) -> tuple[Value, ...]:
        return () if self.traced is None else self.traced.outputs

    @property
    def draws(self) -> bool:
        return self.rng or any(isinstance(value, Draw) and value.site for value in topological(self.outputs))

    def parallel(self, settings: Settings) -> int:
        """How many calls run at a time; 0 runs them on the flow thread."""
        return settings.threads if self.calls < 0 else self.calls

    def buffer(self, settings: Settings) -> Buffer | None:
        if self.workers != "process":
            return None
        return Buffer("map(workers='process')", 2 * self.parallel(settings), sized=False)


def traced_type(traced: Traced, source: ElementType) -> ElementType:
    """The type of the results of a graph that runs on elements, or on the rows of batches."""
    size = next((spec.shape[0] for spec in source.specs if spec.shape), None)
    specs = tuple(value.spec.batched(size) if source.batched else value.spec for value in traced.outputs)
    return ElementType(traced.structure, specs, source.batched)


@dataclass(frozen=True, slots=True, eq=False)
class WithPredicate(Step):
    """A step that calls a predicate on each element.

    Attributes:
        fn: the user's function.
        traced: its graph; None for ordinary Python.
    """

    fn: Callable[..., Any]
    traced: Traced | None = None

    def describe(self) -> str:
        return f"{self.name}({name_of(self.fn)}) [{'traced' if self.traced else 'Python'}]"


@dataclass(frozen=True, slots=True, eq=False)
class Filter(WithPredicate):
    """The elements for which a predicate holds."""

    facts = Facts(holds_nothing=True, uncounted=True)


@dataclass(frozen=True, slots=True, eq=False)
class TakeWhile(WithPredicate):
    """The elements before the first one for which a predicate does not hold."""

    facts = Facts(uncounted=True)


@dataclass(frozen=True, slots=True, eq=False)
class FlatMap(Step):
    """The elements of the datasets made from each element, one dataset after the other.

    Attributes:
        inner: the plan of the function over a `Param`; None where it must be called for each element.
    """

    facts = Facts(flattens=True, uncounted=True)

    fn: Callable[..., Any]
    inner: Node | None = None

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.declared()

    def declared(self) -> ElementType:
        return ANYTHING if self.inner is None else self.inner.element

    @property
    def by_index(self) -> bool:
        return self.inner is not None

    @property
    def made(self) -> Node | None:
        return self.inner

    @property
    def makes_datasets(self) -> bool:
        return self.inner is None

    @property
    def draws(self) -> bool:
        return self.inner is not None and draws(self.inner)

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return below if self.inner is None else self.inner.random_calls

    def describe(self) -> str:
        return f"flat_map({name_of(self.fn)})"


@dataclass(frozen=True, slots=True, eq=False)
class Interleave(FlatMap):
    """The elements of `cycle` such datasets in rotation, `block` at a time.

    Attributes:
        cycle: datasets that are open at a time.
        block: consecutive elements taken from each.
        calls: 0 reads on the flow thread; otherwise readers run ahead, and this many threads call Python functions.
        deterministic: False takes elements as they become ready; None follows the options.
    """

    cycle: int = 16
    block: int = 1
    calls: int = 0
    deterministic: bool | None = None

    def describe(self) -> str:
        ahead = ", readers run ahead" if self.calls else ""
        return f"interleave({name_of(self.fn)}, cycle_length={self.cycle}, block_length={self.block}{ahead})"


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Step):
    """A function of a running state and each element.

    Attributes:
        leaves: of the initial state.
        structure: of the state.
        fn: called with (state, element); returns (new state, output).
        result: the type of outputs that `spec=` declares.
    """

    facts = Facts(payload="reads")

    leaves: tuple[Any, ...]
    structure: Structure
    fn: Callable[..., Any]
    result: ElementType | None = None

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.declared()

    def declared(self) -> ElementType:
        return ANYTHING if self.result is None else self.result

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return one_more(below, "scan")  # ops called eagerly in it draw: each scan is a site of its own

    def describe(self) -> str:
        return f"scan({name_of(self.fn)}) [Python]"

    def resume_cost(self, settings: Settings) -> str:
        return "reads its elements again if its state is larger than 4 KB"


def one_more(random_calls: tuple[tuple[str, int], ...], name: str) -> tuple[tuple[str, int], ...]:
    """The counts of random calls with one more of this name."""
    before = dict(random_calls)
    return tuple(sorted({**before, name: before.get(name, 0) + 1}.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Unique(Step):
    """The first occurrence of each value."""

    facts = Facts(payload="reads", may_stall=True, uncounted=True)

    def resume_cost(self, settings: Settings) -> str:
        return "reads its elements again from the start of the pass"


@dataclass(frozen=True, slots=True, eq=False)
class IgnoreErrors(Step):
    """The elements that did not fail.

    Attributes:
        log: log every element left out, not only those that `BadRecords.log` chooses.
    """

    facts = Facts(payload="reads", holds_nothing=True, as_they_are=True, may_stall=True, uncounted=True)

    log: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AssertCardinality(Step):
    """The elements, with an error where there are not `count` of them (`INFINITE`: where they end)."""

    facts = Facts(as_they_are=True)

    count: int

    def _cardinality(self) -> int:
        return self.count

    def describe(self) -> str:
        return f"assert_cardinality({'endless' if self.count == INFINITE else self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class PadToCardinality(Step):
    """The elements, then elements of zeros up to `count`; a leaf says which are real.

    Attributes:
        count: how many there are in total.
        key: of the mask, in the dict that an element is.
    """

    facts = Facts(payload="reads", gathers=True)

    count: int
    key: Any = "valid"

    def infer(self, *inputs: ElementType) -> ElementType:
        old = inputs[0].structure or LEAF
        structure = Structure(dict, (*old.keys, self.key), (*old.children, LEAF), old.count + 1)
        return ElementType(structure, (*inputs[0].specs, TensorSpec((), bool)))

    def _cardinality(self) -> int:
        return self.count

    def describe(self) -> str:
        return f"pad_to_cardinality({self.count}, mask_key={self.key!r})"


@dataclass(frozen=True, slots=True, eq=False)
class RejectionResample(Step):
    """Some of the elements, so that their classes have the target proportions; each as (class, element).

    Attributes:
        fn: computes the class of an element, an integer.
        traced: its graph; None for ordinary Python.
        target: the proportions wanted, one number per class.
        initial: those of the input; None estimates them while running.
        seed: separates the draws of this step from those of others; None numbers such steps along the chain.
    """

    facts = Facts(may_stall=True)

    fn: Callable[..., Any]
    traced: Traced | None
    target: tuple[float, ...]
    initial: tuple[float, ...] | None
    seed: int | None = None

    def infer(self, *inputs: ElementType) -> ElementType:
        inner = inputs[0].structure or LEAF
        spec = TensorSpec((), None) if self.traced is None else self.traced.outputs[0].spec
        return ElementType(Structure(tuple, (), (LEAF, inner), 1 + inner.count), (spec, *inputs[0].specs))

    @property
    def draws(self) -> bool:
        return True

    def _cardinality(self) -> int:
        n = self.source.cardinality
        keeps_all = self.initial is not None and min(acceptance(self.target, self.initial)) == 1
        return n if n in (0, INFINITE) or keeps_all else UNKNOWN_CARDINALITY

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return one_more(below, "rejection_resample")

    def describe(self) -> str:
        how = "estimated" if self.initial is None else "given"
        return f"rejection_resample({name_of(self.fn)}, {len(self.target)} classes, initial distribution {how})"


def acceptance(target: Sequence[float], initial: Sequence[float]) -> list[float]:
    """The probability of keeping an element of each class: target over initial, scaled so that the largest is 1.

    Among the elements kept, class c then has a share proportional to ``initial[c] * target[c] / initial[c]``.
    """
    tiny = float(np.finfo(np.float64).tiny)  # avoids a division by zero for a class that never occurs
    ratios = [float(t) / (float(i) + tiny) for t, i in zip(target, initial, strict=True)]
    largest = max(ratios)
    return [ratio / largest for ratio in ratios]
