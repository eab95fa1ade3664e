"""batches: steps that make batches and take them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..classes import dataclass
from ..graph.classify import name_of
from ..options import Settings
from ..ragged import RaggedSpec
from ..spec import LEAF, TensorSpec
from .node import INFINITE, UNKNOWN_CARDINALITY, Buffer, ElementType, Facts, Node, Step
from .padding import padding

__all__ = [
    "Batch",
    "Bucketed",
    "OfOneSize",
    "PaddedBatch",
    "RaggedBatch",
    "Rebatch",
    "Unbatch",
    "last_batch",
    "ragged_ranks",
]


@dataclass(frozen=True, slots=True, eq=False)
class OfOneSize(Step):
    """Batches of `size` consecutive elements.

    Attributes:
        size: rows per batch.
        drop: leave out a short last batch.
    """

    size: int
    drop: bool = False

    @property
    def never_short(self) -> bool:
        """Whether no batch is short, as far as is known without reading data."""
        n = self.source.cardinality
        return self.drop or n == INFINITE or (n >= 0 and n % self.size == 0)

    def _cardinality(self) -> int:
        n = self.source.cardinality
        return n if n < 0 else n // self.size if self.drop else -(-n // self.size)

    def describe(self) -> str:
        return f"{self.name}({self.size}{', drop_remainder=True' if self.drop else ''})"


@dataclass(frozen=True, slots=True, eq=False)
class Batch(OfOneSize):
    """`size` consecutive elements, stacked.

    Attributes:
        places: a rewrite chose the rows by index: a batch with a bad row is left out as a whole.
    """

    facts = Facts(payload="reads", holds_nothing=True, by_index=True, as_long=True, keeps_rows=True)

    places: bool = False

    def infer(self, *inputs: ElementType) -> ElementType:
        size = self.size if self.drop else None
        return ElementType(inputs[0].structure, tuple(spec.batched(size) for spec in inputs[0].specs), batched=True)


@dataclass(frozen=True, slots=True, eq=False)
class PaddedBatch(OfOneSize):
    """`size` consecutive elements, padded to one shape and stacked.

    Attributes:
        shapes: the target shape of each leaf, -1 for the largest of the batch; None pads the unknown dimensions.
        values: the fill value of each leaf.
        given: (padded_shapes, padding_values) as the user wrote them, where only the first element tells what they
            mean.
        places: see `Batch`.
    """

    facts = Facts(payload="reads", holds_nothing=True, by_index=True, as_long=True, keeps_rows=True)

    shapes: tuple[tuple[int, ...] | None, ...] | None = None
    values: tuple[Any, ...] | None = None
    given: tuple[Any, Any] | None = None
    places: bool = False

    def infer(self, *inputs: ElementType) -> ElementType:
        size = self.size if self.drop else None
        specs = tuple(spec.batched(size) for spec in padding(self, inputs[0]).specs)
        return ElementType(inputs[0].structure, specs, batched=True)


@dataclass(frozen=True, slots=True, eq=False)
class Unbatch(Step):
    """The rows of each element."""

    facts = Facts(payload="reads", may_stall=True)

    def infer(self, *inputs: ElementType) -> ElementType:
        # A scalar that only the first element reveals is an error of that element.
        return ElementType(inputs[0].structure, tuple(spec.row() if spec.shape else spec for spec in inputs[0].specs))

    def _cardinality(self) -> int:
        sizes = [spec.shape[0] for spec in self.source.element.specs if spec.shape]
        size = next((n for n in sizes if n is not None), None)
        n = self.source.cardinality
        if n == INFINITE:  # endless batches without rows never end either
            return INFINITE
        return UNKNOWN_CARDINALITY if n < 0 or size is None else n * size


@dataclass(frozen=True, slots=True, eq=False)
class Bucketed(Step):
    """Batches of elements of similar length, padded or not.

    Attributes:
        length: computes the length of an element.
        boundaries: bucket b holds ``boundaries[b - 1] <= length < boundaries[b]``.
        sizes: the batch size of each bucket; one more than boundaries.
        shapes: the target shape of each leaf, -1 for the largest of the batch; None pads the unknown dimensions.
        values: the fill value of each leaf.
        given: (padded_shapes, padding_values) as the user wrote them, where only the first element tells what they
            mean.
        to_boundary: -1 means the bucket's boundary - 1.
        pad: False stacks elements as they are.
        drop: leave out short batches.
    """

    facts = Facts(name="bucket_by_sequence_length", gathers=True)

    length: Callable[..., Any]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    shapes: tuple[tuple[int, ...] | None, ...] | None = None
    values: tuple[Any, ...] | None = None
    given: tuple[Any, Any] | None = None
    to_boundary: bool = False
    pad: bool = True
    drop: bool = False

    def infer(self, *inputs: ElementType) -> ElementType:
        size = _rows(self.sizes, self.drop)
        specs = padding(self, inputs[0]).specs if self.pad else inputs[0].specs
        return ElementType(inputs[0].structure, tuple(spec.batched(size) for spec in specs), batched=True)

    def _cardinality(self) -> int:
        return INFINITE if self.source.cardinality == INFINITE else UNKNOWN_CARDINALITY

    def buffer(self, settings: Settings) -> Buffer:
        return Buffer(self.name, sum(self.sizes))

    def describe(self) -> str:
        return f"bucket_by_sequence_length({name_of(self.length)}, {list(self.boundaries)}, {list(self.sizes)})"


def _rows(sizes: tuple[int, ...], full: bool) -> int | None:
    """The number of rows of every batch, None where it varies; `sizes` are used in rotation, `full`: none is short."""
    return sizes[0] if full and len(set(sizes)) == 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch(OfOneSize):
    """`size` consecutive elements; leaves with unknown dimensions become ragged, others are stacked.

    Attributes:
        splits: the dtype of row splits, "int64" or "int32".
    """

    facts = Facts(gathers=True)

    splits: str = "int64"

    def infer(self, *inputs: ElementType) -> ElementType:
        inner = inputs[0]
        size = self.size if self.drop else None
        specs: list[TensorSpec] = []
        for spec, rank in zip(inner.specs, ragged_ranks(inner), strict=True):
            if rank and type(spec) is TensorSpec and spec.shape is not None:
                loose = (None,) * rank + spec.shape[rank:]
                specs.append(RaggedSpec((size, *loose), spec.dtype, ragged_rank=rank, row_splits_dtype=self.splits))
            else:
                specs.append(spec.batched(size))
        return ElementType(inner.structure, tuple(specs), batched=True)


def ragged_ranks(element: ElementType) -> tuple[int, ...]:
    """For each leaf, how many dimensions of a row are ragged: all up to the last unknown one; 0 where all are known."""
    shapes = [spec.shape if type(spec) is TensorSpec and spec.shape else () for spec in element.specs]
    return tuple(max((axis + 1 for axis, n in enumerate(shape) if n is None), default=0) for shape in shapes)


@dataclass(frozen=True, slots=True, eq=False)
class Rebatch(Step):
    """The rows of batches in batches of other sizes, which are used in rotation."""

    facts = Facts(gathers=True, may_stall=True)

    sizes: tuple[int, ...]
    drop: bool = False

    def infer(self, *inputs: ElementType) -> ElementType:
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
        return ElementType(inner.structure or LEAF, tuple(specs), batched=True)

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


def last_batch(node: Node) -> OfOneSize | None:
    """The step that makes the batches of a chain; None if another step than maps and the like follows it."""
    while not isinstance(node, OfOneSize) and node.facts.keeps_rows and len(node.sources) == 1:
        node = node.sources[0]
    return node if isinstance(node, OfOneSize) else None
