"""steps: nodes with one input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import PlanError
from ..graph.classify import name_of
from ..graph.trace import Traced
from ..graph.values import Draw, topological
from ..options import Options, Settings
from ..spec import LEAF, Structure, TensorSpec
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, Buffer, Element, Facts, Node, Step, draws, walk
from .padding import padding

__all__ = [
    "WHOLE",
    "Batch",
    "Cache",
    "Enumerate",
    "Filter",
    "FlatMap",
    "Interleave",
    "Map",
    "PaddedBatch",
    "Prefetch",
    "Repeat",
    "Shard",
    "Shuffle",
    "Skip",
    "Take",
    "Unbatch",
    "WithOptions",
    "buffer_name",
    "never_ends",
    "options_of",
    "refuse_options",
]


@dataclass(frozen=True, slots=True, eq=False)
class Map(Step):
    """A function of each element.

    Attributes:
        fn: the user's function.
        traced: its graph; None for ordinary Python.
        pending: a candidate for tracing whose input is not known before the first element.
        result: what `spec=` says a Python function returns.
        calls: parallel calls, 0 for none, -1 for AUTOTUNE.
        deterministic: whether results keep the order of their inputs.
        rng: whether a Python function is handed a generator.
        workers: what runs a Python function in parallel, "thread" or "process".
        kept: where processes wait between two iterators; shared by every rewritten form of this node.
    """

    facts = Facts(one_by_one=True, by_index=True, as_long=True, keeps_rows=True)

    fn: Callable[..., Any]
    traced: Traced | None = None
    pending: bool = False
    result: Element | None = None
    calls: int = 0
    deterministic: bool | None = None
    rng: bool = False
    workers: str = "thread"
    kept: Any = field(default=None, compare=False)

    def infer(self, *inputs: Element) -> Element:
        return self.declared() if self.traced is None else traced_type(self.traced, inputs[0])

    def declared(self) -> Element:
        return self.result if self.result is not None else ANYTHING

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        if self.traced is not None:
            return self.traced.counts
        before = dict(below)  # a Python function may draw too, and is a site of its own
        return tuple(sorted({**before, "map": before.get("map", 0) + 1}.items()))

    def describe(self) -> str:
        how = "traced" if self.traced else "traced at the first element" if self.pending else "Python"
        return f"map({name_of(self.fn)}) [{how}]"

    @property
    def draws(self) -> bool:
        if self.traced is None:
            return self.rng
        return any(isinstance(value, Draw) and value.site for value in topological(self.traced.outputs))

    def parallel(self, settings: Settings) -> int:
        """How many calls run at a time; 0 for none beside the flow thread."""
        return settings.threads if self.calls < 0 else self.calls

    def buffer(self, settings: Settings) -> Buffer | None:
        if self.workers != "process":
            return None
        return Buffer("map(workers='process')", 2 * self.parallel(settings), sized=False)


def traced_type(traced: Traced, source: Element) -> Element:
    """The type of what a graph makes of elements, or of the rows of batches."""
    size = next((spec.shape[0] for spec in source.specs if spec.shape), None)
    specs = tuple(value.spec.batched(size) if source.batched else value.spec for value in traced.outputs)
    return Element(traced.structure, specs, source.batched)


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Step):
    """The elements for which a predicate holds."""

    facts = Facts(one_by_one=True)

    fn: Callable[..., Any]
    traced: Traced | None = None

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def describe(self) -> str:
        return f"filter({name_of(self.fn)}) [{'traced' if self.traced else 'Python'}]"


@dataclass(frozen=True, slots=True, eq=False)
class FlatMap(Step):
    """The elements of a dataset made from each element, one dataset after the other.

    Attributes:
        inner: the plan of the function over a `Param`; None where it must be called for each element.
    """

    facts = Facts(one_by_one=True)

    fn: Callable[..., Any]
    inner: Node | None = None

    def infer(self, *inputs: Element) -> Element:
        return self.declared()

    def declared(self) -> Element:
        return ANYTHING if self.inner is None else self.inner.element

    @property
    def draws(self) -> bool:
        return self.inner is not None and draws(self.inner)

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return below if self.inner is None else self.inner.counts

    @property
    def name(self) -> str:
        return "flat_map"

    def describe(self) -> str:
        return f"flat_map({name_of(self.fn)})"


@dataclass(frozen=True, slots=True, eq=False)
class Interleave(FlatMap):
    """The elements of `cycle` such datasets in turn, `block` at a time.

    Attributes:
        cycle: datasets that are open at a time.
        block: elements taken from each in turn.
        calls: 0 reads on the flow thread; otherwise readers run ahead, and so many threads call Python functions.
        deterministic: False takes whatever is ready first.
    """

    facts = Facts(one_by_one=True)

    cycle: int = 16
    block: int = 1
    calls: int = 0
    deterministic: bool | None = None

    @property
    def name(self) -> str:
        return "interleave"

    def describe(self) -> str:
        ahead = ", readers run ahead" if self.calls else ""
        return f"interleave({name_of(self.fn)}, cycle_length={self.cycle}, block_length={self.block}{ahead})"


WHOLE = 1 << 62
"""The size of a shuffle's buffer that holds everything, however much it is."""


def buffer_name(size: int) -> str:
    """The size of a shuffle's buffer as the user wrote it."""
    return "UNKNOWN_CARDINALITY" if size == WHOLE else str(size)


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle(Step):
    """A uniform choice from a buffer of `size` elements; `WHOLE` holds them all."""

    facts = Facts(payload="holds", one_by_one=True, as_they_are=True, as_long=True)

    size: int
    seed: int | None = None
    reshuffle: bool = True

    def describe(self) -> str:
        same = "" if self.reshuffle else ", the same order every time"
        return f"shuffle({buffer_name(self.size)}, seed={self.seed}{same})"

    @property
    def draws(self) -> bool:
        return self.reshuffle

    def buffer(self, settings: Settings) -> Buffer:
        return shuffle_buffer(self.size, self.source)


def shuffle_buffer(size: int, source: Node) -> Buffer:
    """The buffer of a shuffle."""
    count = source.cardinality
    most = min(size, count) if count >= 0 else None if size == WHOLE else size
    return Buffer(f"shuffle({buffer_name(size)})", most)


@dataclass(frozen=True, slots=True, eq=False)
class Repeat(Step):
    """The input `count` times over; endlessly for a negative count."""

    facts = Facts(one_by_one=True, by_index=True, as_they_are=True)

    count: int = -1

    def _number(self, below: int) -> int:
        return below + 1

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if self.count == 0 or n == 0:
            return 0
        if n == UNKNOWN_CARDINALITY:  # it may be empty, and nothing for ever is no endless dataset: see `never_ends`
            return UNKNOWN_CARDINALITY
        return INFINITE if self.count < 0 or n == INFINITE else n * self.count

    def describe(self) -> str:
        return f"repeat({'' if self.count < 0 else self.count})"


def _batches(n: int, size: int, drop: bool) -> int:
    return n if n < 0 else n // size if drop else -(-n // size)


@dataclass(frozen=True, slots=True, eq=False)
class Batch(Step):
    """`size` consecutive elements, stacked.

    Attributes:
        places: a rewrite chose the rows by their places: a batch with a bad row is left out as a whole.
    """

    facts = Facts(payload="reads", by_index=True, as_long=True, keeps_rows=True)

    size: int
    drop: bool = False
    places: bool = False

    def infer(self, *inputs: Element) -> Element:
        size = self.size if self.drop else None
        return Element(inputs[0].structure, tuple(spec.batched(size) for spec in inputs[0].specs), batched=True)

    def _cardinality(self) -> int:
        return _batches(self.source.cardinality, self.size, self.drop)

    def describe(self) -> str:
        return f"batch({self.size}{', drop_remainder=True' if self.drop else ''})"


@dataclass(frozen=True, slots=True, eq=False)
class PaddedBatch(Step):
    """`size` consecutive elements, padded to one shape and stacked.

    Attributes:
        shapes: per leaf the target shape, -1 for the largest of the batch; None pads the unknown dimensions.
        values: per leaf what to fill with.
        given: (padded_shapes, padding_values) as the user wrote them, where only the first element tells what they
            mean.
        places: as of `Batch`.
    """

    facts = Facts(payload="reads", by_index=True, as_long=True, keeps_rows=True)

    size: int
    drop: bool = False
    shapes: tuple[tuple[int, ...] | None, ...] | None = None
    values: tuple[Any, ...] | None = None
    given: tuple[Any, Any] | None = None
    places: bool = False

    def infer(self, *inputs: Element) -> Element:
        size = self.size if self.drop else None
        specs = tuple(spec.batched(size) for spec in padding(self, inputs[0]).specs)
        return Element(inputs[0].structure, specs, batched=True)

    def _cardinality(self) -> int:
        return _batches(self.source.cardinality, self.size, self.drop)

    @property
    def name(self) -> str:
        return "padded_batch"

    def describe(self) -> str:
        return f"padded_batch({self.size}{', drop_remainder=True' if self.drop else ''})"


@dataclass(frozen=True, slots=True, eq=False)
class Unbatch(Step):
    """The rows of each element."""

    facts = Facts(payload="reads", one_by_one=True, may_stall=True)

    def infer(self, *inputs: Element) -> Element:
        # A scalar that only the first element told is an error of that element.
        return Element(inputs[0].structure, tuple(spec.row() if spec.shape else spec for spec in inputs[0].specs))

    def _cardinality(self) -> int:
        sizes = [spec.shape[0] for spec in self.source.element.specs if spec.shape]
        size = next((n for n in sizes if n is not None), None)
        n = self.source.cardinality
        if n == INFINITE:  # batches without rows, for ever, never end either
            return INFINITE
        return UNKNOWN_CARDINALITY if n < 0 or size is None else n * size


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch(Step):
    """Elements made ahead; -1 lets gpupipe choose how many."""

    facts = Facts(one_by_one=True, by_index=True, as_they_are=True, as_long=True, keeps_rows=True)

    size: int = -1

    def describe(self) -> str:
        return f"prefetch({'AUTOTUNE' if self.size < 0 else self.size})"

    def buffer(self, settings: Settings) -> Buffer:
        return Buffer(f"prefetch({self.size})", 2 if self.size < 0 else self.size)


@dataclass(frozen=True, slots=True, eq=False)
class Cache(Step):
    """The elements of the first full pass, kept in memory.

    Attributes:
        store: where they are kept; shared by every rewritten form of this node.
    """

    facts = Facts(payload="reads", one_by_one=True, by_index=True, as_long=True)

    store: Any = field(default=None, compare=False)

    def resume_cost(self, settings: Settings) -> str:
        return "begins empty: a pass that was filling it goes on without it, one over a full one reads its input anew"


@dataclass(frozen=True, slots=True, eq=False)
class Take(Step):
    """The first `count` elements; all of them for a negative count."""

    facts = Facts(by_index=True, as_they_are=True)

    count: int

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if self.count < 0 or n == UNKNOWN_CARDINALITY:
            return n
        return self.count if n == INFINITE else min(n, self.count)

    def describe(self) -> str:
        return f"take({self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class Skip(Step):
    """All but the first `count` elements; none for a negative count."""

    facts = Facts(payload="holds", by_index=True, as_they_are=True, as_long=True)

    count: int

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if self.count < 0:
            return 0
        return n if n < 0 else max(0, n - self.count)

    def describe(self) -> str:
        return f"skip({self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class Shard(Step):
    """Every `shards`-th element, beginning with number `index`.

    Attributes:
        even: gives every shard equally many elements: "drop" leaves out a last round that is not whole, "wrap" fills it
            up with the first elements; None is uneven.
    """

    facts = Facts(payload="holds", by_index=True, as_they_are=True, as_long=True)

    shards: int
    index: int
    even: str | None = None

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if n < 0 or self.even is None:
            return n if n < 0 else len(range(self.index, n, self.shards))
        return -(-n // self.shards) if self.even == "wrap" else n // self.shards

    def describe(self) -> str:
        return f"shard({self.shards}, {self.index}{'' if self.even is None else f', even={self.even!r}'})"


@dataclass(frozen=True, slots=True, eq=False)
class Enumerate(Step):
    """Pairs of a running number and the element."""

    facts = Facts(by_index=True, as_they_are=True, as_long=True)

    start: int = 0

    def infer(self, *inputs: Element) -> Element:
        inner = inputs[0].structure or LEAF
        structure = Structure(tuple, (), (LEAF, inner), 1 + inner.count)
        return Element(structure, (TensorSpec((), "int64"), *inputs[0].specs))

    def describe(self) -> str:
        return f"enumerate({self.start or ''})"


@dataclass(frozen=True, slots=True, eq=False)
class WithOptions(Step):
    """The same elements, run with other options."""

    facts = Facts(one_by_one=True, by_index=True, as_they_are=True, as_long=True, keeps_rows=True)

    options: Options

    @property
    def name(self) -> str:
        return "with_options"

    def describe(self) -> str:
        given = ", ".join(
            f"{f}={getattr(self.options, f)!r}" for f in Options.__slots__ if getattr(self.options, f) is not None
        )
        return f"with_options({given})"


def never_ends(node: Node) -> bool:
    """Whether a chain has no end, or no element at all: where only reading tells which, its cardinality is unknown."""
    while node.cardinality == UNKNOWN_CARDINALITY and node.facts.as_long:
        node = node.sources[0]
    return node.cardinality == INFINITE or (isinstance(node, Repeat) and node.count < 0 and node.cardinality != 0)


def refuse_options(who: str, inner: Node) -> None:
    """Refuse options on a dataset inside another one: a chain runs with one set of options.

    Raises:
        PlanError: there are some; names the line.
    """
    for node in walk(inner):
        if isinstance(node, WithOptions):
            raise PlanError(f"{who} needs with_options on the whole chain, got it inside its function at {node.line}")


def options_of(root: Node) -> Options:
    """The options of a chain, merged along it; the last one wins."""
    merged = Options()
    for node in walk(root):
        if isinstance(node, WithOptions):
            merged = merged.merge(node.options)
    return merged
