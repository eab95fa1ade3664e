"""order: steps that pass elements of their input on unchanged; they choose which, in what order and how often."""

from __future__ import annotations

from ..classes import dataclass
from ..errors import PlanError
from ..options import Options, Settings
from ..spec import LEAF, Structure, TensorSpec
from ..tuned import MOST_AHEAD
from .batches import Batch, PaddedBatch
from .node import INFINITE, UNKNOWN_CARDINALITY, Buffer, ElementType, Facts, Node, Step, walk
from .sources import Files

__all__ = [
    "WHOLE",
    "Enumerate",
    "Prefetch",
    "Repeat",
    "Shard",
    "Shuffle",
    "Skip",
    "Take",
    "WithOptions",
    "buffer_name",
    "never_ends",
    "options_of",
    "refuse_options",
    "shuffle_buffer",
    "without_last_steps",
]


WHOLE = 1 << 62
"""The size of a shuffle buffer that holds every element."""


def buffer_name(size: int) -> str:
    """The size of a shuffle buffer as the user wrote it."""
    return "UNKNOWN_CARDINALITY" if size == WHOLE else str(size)


@dataclass(frozen=True, slots=True, eq=False)
class Take(Step):
    """The first `count` elements; all of them for a negative count."""

    facts = Facts(holds_nothing=True, by_index=True, as_they_are=True)

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

    facts = Facts(payload="holds", holds_nothing=True, by_index=True, as_they_are=True, as_long=True)

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
    """Every `shards`-th element, starting with number `index`.

    Attributes:
        even: gives all shards the same number of elements: "drop" leaves out an incomplete last round, "wrap" completes
            it with the first elements; None leaves them uneven.
    """

    facts = Facts(payload="holds", holds_nothing=True, by_index=True, as_they_are=True, as_long=True)

    shards: int
    index: int
    even: str | None = None

    @property
    def holds_elements(self) -> bool:
        return self.even is not None

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

    def infer(self, *inputs: ElementType) -> ElementType:
        inner = inputs[0].structure or LEAF
        structure = Structure(tuple, (), (LEAF, inner), 1 + inner.count)
        return ElementType(structure, (TensorSpec((), "int64"), *inputs[0].specs))

    def describe(self) -> str:
        return f"enumerate({self.start or ''})"


@dataclass(frozen=True, slots=True, eq=False)
class Repeat(Step):
    """The input `count` times over; forever for a negative count."""

    facts = Facts(holds_nothing=True, by_index=True, as_they_are=True)

    count: int = -1

    def _branch(self, below: int) -> int:
        return below + 1

    def _cardinality(self) -> int:
        n = self.source.cardinality
        if self.count == 0 or n == 0:
            return 0
        if n == UNKNOWN_CARDINALITY:  # it may be empty, and then it is not endless: see `never_ends`
            return UNKNOWN_CARDINALITY
        return INFINITE if self.count < 0 or n == INFINITE else n * self.count

    def describe(self) -> str:
        return f"repeat({'' if self.count < 0 else self.count})"


@dataclass(frozen=True, slots=True, eq=False)
class Shuffle(Step):
    """A uniform choice from a buffer of `size` elements; `WHOLE` holds them all."""

    facts = Facts(payload="holds", holds_nothing=True, as_they_are=True, as_long=True)

    size: int
    seed: int | None = None
    reshuffle: bool = True

    def describe(self) -> str:
        same = "" if self.reshuffle else ", the same order every time"
        return f"shuffle({buffer_name(self.size)}, seed={self.seed}{same})"

    @property
    def holds_elements(self) -> bool:
        return [spec.dtype for spec in self.source.element.specs] != [bytes]  # else they are records

    @property
    def by_index(self) -> bool:
        return isinstance(self.source, Files)  # names are in memory: their order is cheap to compute

    @property
    def shuffles(self) -> bool:
        return True

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
class Prefetch(Step):
    """Elements made ahead; -1 lets gpupipe choose how many."""

    facts = Facts(holds_nothing=True, by_index=True, as_they_are=True, as_long=True, keeps_rows=True, work="queue")

    size: int = -1

    def describe(self) -> str:
        return f"prefetch({'AUTOTUNE' if self.size < 0 else self.size})"

    def buffer(self, settings: Settings) -> Buffer:
        most = MOST_AHEAD if settings.autotune else 2
        return Buffer(self.describe(), most if self.size < 0 else self.size)

    @property
    def holds_elements(self) -> bool:
        below: Node = self
        while below.facts.holds_nothing and not isinstance(below, (Batch, PaddedBatch)) and below.sources:
            below = below.sources[0]
        return not isinstance(below, (Batch, PaddedBatch))  # a checkpoint for every single element costs too much


@dataclass(frozen=True, slots=True, eq=False)
class WithOptions(Step):
    """The elements of the input, computed with other options."""

    facts = Facts(holds_nothing=True, by_index=True, as_they_are=True, as_long=True, keeps_rows=True)

    options: Options

    def describe(self) -> str:
        given = ", ".join(
            f"{f}={getattr(self.options, f)!r}" for f in Options.__slots__ if getattr(self.options, f) is not None
        )
        return f"with_options({given})"


def never_ends(node: Node) -> bool:
    """Whether a chain is endless or empty: its cardinality is unknown if only reading it shows which."""
    while node.cardinality == UNKNOWN_CARDINALITY and node.facts.as_long:
        node = node.sources[0]
    return node.cardinality == INFINITE or (isinstance(node, Repeat) and node.count < 0 and node.cardinality != 0)


def refuse_options(who: str, inner: Node) -> None:
    """Refuse options on a dataset inside another one: a chain runs with one set of options.

    Raises:
        PlanError: the inner dataset has options; the message names their line.
    """
    for node in walk(inner):
        if isinstance(node, WithOptions):
            raise PlanError(f"{who} needs with_options on the whole chain, got it inside its function at {node.line}")


def without_last_steps(root: Node) -> tuple[Node, list[Prefetch | WithOptions]]:
    """A plan without the prefetches and options at its end, and those, the last one first."""
    steps: list[Prefetch | WithOptions] = []
    while isinstance(root, Prefetch | WithOptions):
        steps.append(root)
        root = root.source
    return root, steps


def options_of(root: Node) -> Options:
    """The options of a chain, merged along it; the last one wins."""
    merged = Options()
    for node in walk(root):
        if isinstance(node, WithOptions):
            merged = merged.merge(node.options)
    return merged
