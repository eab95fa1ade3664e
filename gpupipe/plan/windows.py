"""windows: nodes that gather elements: nested datasets, groups by key, ragged batches and batches of other sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..graph.classify import name_of
from ..ragged import RaggedSpec
from ..spec import LEAF, DatasetSpec, TensorSpec
from .node import ANYTHING, INFINITE, UNKNOWN_CARDINALITY, Element, Facts, Node, Step
from .padding import padding

__all__ = ["Bucketed", "GroupByWindow", "Held", "RaggedBatch", "Rebatch", "Window", "ragged_ranks"]

Maker = Callable[[Node], Any]
"""Makes the dataset of a plan, for a function of the user's or for the user."""


@dataclass(frozen=True, slots=True, eq=False)
class Held(Node):
    """Elements that were gathered: one leaf of a window, or a group of whole elements.

    Attributes:
        elements: columns, stream and position of each; never changed.
        type: of the elements.
        base: the key of the element that the dataset is. Opened in that context (by `flat_map`), or by itself, it gives
            its elements with the identities they came with; in any other context they are keyed by both.
        origin: what tells these elements from any others: equal for equal chains, seeds, epochs and places.
    """

    facts = Facts()

    elements: tuple[Any, ...] = field(compare=False)
    type: Element = field(compare=False)
    base: int = field(compare=False)
    origin: bytes

    def infer(self, *inputs: Element) -> Element:
        return self.type

    def _cardinality(self) -> int:
        return len(self.elements)

    @property
    def name(self) -> str:
        return "window"

    def describe(self) -> str:
        return f"window of {len(self.elements)} elements"


@dataclass(frozen=True, slots=True, eq=False)
class Window(Step):
    """Datasets of `size` elements each, `stride` apart; each begins `shift` elements behind the one before.

    Attributes:
        make: makes the dataset of a plan.
    """

    facts = Facts(gathers=True)

    size: int
    shift: int
    stride: int = 1
    drop: bool = False
    make: Maker | None = field(default=None, compare=False)

    @property
    def span(self) -> int:
        """How many elements of the input a window reaches over."""
        return (self.size - 1) * self.stride + 1

    def infer(self, *inputs: Element) -> Element:
        return Element(inputs[0].structure, tuple(DatasetSpec(spec) for spec in inputs[0].specs))

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
    """The elements of `fn(key, dataset)` for each group of elements of one key.

    Attributes:
        key: gives the key of an element.
        fn: makes a dataset of a key and the dataset of its group.
        size: elements of a group; 0 where `size_fn` gives it for a key.
        make: makes the dataset of a plan.
    """

    facts = Facts(gathers=True)

    key: Callable[..., Any]
    fn: Callable[..., Any]
    size: int = 0
    size_fn: Callable[..., Any] | None = None
    make: Maker | None = field(default=None, compare=False)

    def infer(self, *inputs: Element) -> Element:
        return ANYTHING

    def _cardinality(self) -> int:
        return INFINITE if self.source.cardinality == INFINITE else UNKNOWN_CARDINALITY

    @property
    def name(self) -> str:
        return "group_by_window"

    def describe(self) -> str:
        size = name_of(self.size_fn) if self.size_fn is not None else self.size
        return f"group_by_window({name_of(self.key)}, {name_of(self.fn)}, {size})"


@dataclass(frozen=True, slots=True, eq=False)
class Bucketed(Step):
    """Batches of elements of about one length, padded or not.

    Attributes:
        length: gives the length of an element.
        boundaries: bucket b holds ``boundaries[b - 1] <= length < boundaries[b]``.
        sizes: of the batches of each bucket; one more than boundaries.
        shapes: per leaf the target shape, -1 for the largest of the batch; None pads the unknown dimensions.
        values: per leaf what to fill with.
        given: (padded_shapes, padding_values) as the user wrote them, where only the first element tells what they
            mean.
        to_boundary: -1 stands for the bucket's boundary - 1.
        pad: False stacks elements as they are.
        drop: leave out batches that are short.
    """

    facts = Facts(gathers=True)

    length: Callable[..., Any]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...] | None, ...] | None = None
    values: tuple[Any, ...] | None = None
    given: tuple[Any, Any] | None = None
    to_boundary: bool = False
    pad: bool = True
    drop: bool = False

    def infer(self, *inputs: Element) -> Element:
        size = _rows(self.sizes, self.drop)
        specs = padding(self, inputs[0]).specs if self.pad else inputs[0].specs
        return Element(inputs[0].structure, tuple(spec.batched(size) for spec in specs), batched=True)

    def _cardinality(self) -> int:
        return INFINITE if self.source.cardinality == INFINITE else UNKNOWN_CARDINALITY

    @property
    def name(self) -> str:
        return "bucket_by_sequence_length"

    def describe(self) -> str:
        return f"bucket_by_sequence_length({name_of(self.length)}, {list(self.boundaries)}, {list(self.sizes)})"


def _rows(sizes: tuple[int, ...], full: bool) -> int | None:
    """The static number of rows of batches whose sizes are cycled, where none of them is short."""
    return sizes[0] if full and len(set(sizes)) == 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch(Step):
    """`size` consecutive elements; leaves with unknown dimensions become ragged, others are stacked.

    Attributes:
        splits: the dtype of row splits, "int64" or "int32".
    """

    facts = Facts(gathers=True)

    size: int
    drop: bool = False
    splits: str = "int64"

    def infer(self, *inputs: Element) -> Element:
        inner = inputs[0]
        size = self.size if self.drop else None
        specs: list[TensorSpec] = []
        for spec, rank in zip(inner.specs, ragged_ranks(inner), strict=True):
            if rank and type(spec) is TensorSpec and spec.shape is not None:
                loose = (None,) * rank + spec.shape[rank:]
                specs.append(RaggedSpec((size, *loose), spec.dtype, ragged_rank=rank, row_splits_dtype=self.splits))
            else:
                specs.append(spec.batched(size))
        return Element(inner.structure, tuple(specs), batched=True)

    def _cardinality(self) -> int:
        n = self.source.cardinality
        return n if n < 0 else n // self.size if self.drop else -(-n // self.size)

    @property
    def name(self) -> str:
        return "ragged_batch"

    def describe(self) -> str:
        return f"ragged_batch({self.size}{', drop_remainder=True' if self.drop else ''})"


def ragged_ranks(element: Element) -> tuple[int, ...]:
    """Per leaf how many dimensions of a row are ragged: all up to the last unknown one; 0 where all are known."""
    shapes = [spec.shape if type(spec) is TensorSpec and spec.shape else () for spec in element.specs]
    return tuple(max((axis + 1 for axis, n in enumerate(shape) if n is None), default=0) for shape in shapes)


@dataclass(frozen=True, slots=True, eq=False)
class Rebatch(Step):
    """The rows of batches in batches of other sizes, which are cycled."""

    facts = Facts(gathers=True, may_stall=True)

    sizes: tuple[int, ...]
    drop: bool = False

    def infer(self, *inputs: Element) -> Element:
        inner = inputs[0]
        known = [spec.shape[0] for spec in inner.specs if spec.shape and spec.shape[0] is not None]
        size = _rows(self.sizes, self.drop or (bool(known) and known[0] % self.sizes[0] == 0))
        specs = []
        for spec in inner.specs:
            row = spec.row() if spec.shape else spec
            new = row.batched(size)
            if isinstance(spec, RaggedSpec) and spec.shape is not None:
                new = replace(spec, shape=(size, *spec.shape[1:]))
            specs.append(new)
        return Element(inner.structure or LEAF, tuple(specs), batched=True)

    def _cardinality(self) -> int:
        n = self.source.cardinality
        rows = next((spec.shape[0] for spec in self.source.element.specs if spec.shape and spec.shape[0]), None)
        if n == INFINITE and rows:
            return INFINITE
        if n < 0 or rows is None:
            return UNKNOWN_CARDINALITY
        cycles, rest = divmod(n * rows, sum(self.sizes))
        count = cycles * len(self.sizes)
        for size in self.sizes:
            if rest < size:
                return count + (rest > 0 and not self.drop)
            rest -= size
            count += 1
        return count

    def describe(self) -> str:
        sizes = self.sizes[0] if len(self.sizes) == 1 else list(self.sizes)
        return f"rebatch({sizes}{', drop_remainder=True' if self.drop else ''})"
