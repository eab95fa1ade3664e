"""sources: nodes without inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import numpy as np

from ..classes import dataclass
from ..extract.storage.names import Names
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec, spec_of
from ..urls import identity
from .named_files import NamedFiles
from .node import INFINITE, UNKNOWN_CARDINALITY, ElementType, Facts, Node

__all__ = [
    "Counted",
    "Counter",
    "Files",
    "FromGenerator",
    "FromIndexable",
    "Listed",
    "Param",
    "RandomNumbers",
    "Range",
    "Request",
    "Slices",
    "Tensors",
]


@dataclass(frozen=True, slots=True, eq=False)
class Tensors(Node):
    """One element."""

    facts = Facts(name="from_tensors", by_index=True, in_memory=True)

    leaves: tuple[Any, ...]
    structure: Structure

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(self.structure, tuple(map(spec_of, self.leaves)))

    def named_files(self) -> NamedFiles:
        texts = [leaf for leaf in self.leaves if isinstance(leaf, bytes) and len(leaf) < 4096 and 0 not in leaf]
        paths = [text.decode(errors="surrogateescape") for text in texts]
        return NamedFiles(paths, list(map(identity, paths)))

    def _cardinality(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, eq=False)
class Slices(Node):
    """The slices of every leaf along dimension 0.

    Attributes:
        names: where the first leaf is a list of paths, the name that identifies each in any directory; else None.
    """

    facts = Facts(name="from_tensor_slices", by_index=True, in_memory=True)

    leaves: tuple[Any, ...]
    structure: Structure
    names: Names | None = field(default=None, compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(self.structure, tuple(spec_of(leaf).row() for leaf in self.leaves))

    def _cardinality(self) -> int:
        return len(self.leaves[0])

    def parameters(self, paths: bool = True) -> Iterator[tuple[str, Any]]:
        kept = self.leaves if paths or self.names is None else self.leaves[1:]
        return iter((("leaves", kept), ("structure", self.structure)))

    def named_files(self) -> NamedFiles:
        return NamedFiles() if self.names is None else NamedFiles(self.leaves[0], self.names)

    def describe(self) -> str:
        return f"from_tensor_slices({', '.join(str(spec_of(leaf)) for leaf in self.leaves)})"


@dataclass(frozen=True, slots=True, eq=False)
class Listed(Node):
    """The elements of a Python list.

    Attributes:
        columns: for each leaf, its values in all elements.
        structure: of an element.
        specs: one per leaf, which all its values fit.
        names: where the first leaf is a path, the name that identifies each in any directory; else None.
    """

    facts = Facts(name="from_list", in_memory=True)

    columns: tuple[tuple[Any, ...], ...]
    structure: Structure
    specs: tuple[TensorSpec, ...]
    names: Names | None = field(default=None, compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(self.structure, self.specs)

    def _cardinality(self) -> int:
        return len(self.columns[0])

    def describe(self) -> str:
        return f"from_list({len(self.columns[0])} elements)"


@dataclass(frozen=True, slots=True, eq=False)
class Range(Node):
    """Python's range, as numbers of one dtype."""

    facts = Facts(by_index=True)

    start: int
    stop: int
    step: int
    dtype: np.dtype[Any]

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (TensorSpec((), self.dtype),))

    def _cardinality(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def describe(self) -> str:
        return f"range({self.start}, {self.stop}, {self.step})"


@dataclass(frozen=True, slots=True, eq=False)
class Counter(Node):
    """The numbers start, start + step, ... without end, in one dtype."""

    facts = Facts()

    start: Any
    step: Any
    dtype: np.dtype[Any]

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (TensorSpec((), self.dtype),))

    def _cardinality(self) -> int:
        return INFINITE

    def describe(self) -> str:
        return f"counter({self.start}, {self.step})"


@dataclass(frozen=True, slots=True, eq=False)
class RandomNumbers(Node):
    """Numbers in [0, 2**32), without end.

    Attributes:
        seed: mixed with the chain's.
        rerandomize: draw different numbers in every epoch and pass.
    """

    facts = Facts(name="random")

    seed: int | None = None
    rerandomize: bool = False

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (TensorSpec((), "int64"),))

    def _cardinality(self) -> int:
        return INFINITE

    @property
    def draws(self) -> bool:
        return self.rerandomize

    def describe(self) -> str:
        return f"random(seed={self.seed}{', rerandomized' if self.rerandomize else ''})"


@dataclass(frozen=True, slots=True, eq=False)
class FromGenerator(Node):
    """The elements that a Python generator yields; it is called again for every pass."""

    facts = Facts(uncounted=True, work="python")

    generator: Callable[..., Any]
    args: tuple[Any, ...]
    signature: ElementType

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.signature

    def describe(self) -> str:
        return f"from_generator({getattr(self.generator, '__qualname__', '...')})"

    def resume_cost(self, settings: Settings) -> str:
        return "is called again, and the elements it gave before are skipped"


@dataclass(frozen=True, slots=True, eq=False)
class FromIndexable(Node):
    """The items of an object with `__len__` and `__getitem__`.

    Attributes:
        items: the object.
        get: its `__getitem__`; identifies the object.
        count: its length when the chain was written.
        signature: type of the items, as far as it is known.
        calls: parallel calls, 0 for none, -1 for AUTOTUNE.
    """

    facts = Facts(by_index=True)

    items: Any = field(compare=False)
    get: Any
    count: int
    signature: ElementType
    calls: int = 0

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.signature

    def _cardinality(self) -> int:
        return self.count

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return (("map", 1),)  # a Python function that may draw is a site of its own

    def describe(self) -> str:
        return f"from_indexable({type(self.items).__name__}, {self.count} items)"


@dataclass(frozen=True, slots=True, eq=False)
class Counted(Node):
    """A placeholder for a source that was counted, used to compute cardinalities. It never runs."""

    facts = Facts()

    like: ElementType
    count: int

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.like

    def _cardinality(self) -> int:
        return self.count


@dataclass(frozen=True, slots=True, eq=False)
class Files(Node):
    """File names, in the order listed.

    Attributes:
        paths: as they are opened.
        names: what identifies each file, independent of the directory that the data is in.
        method: the method that listed them, for messages.
    """

    facts = Facts(by_index=True)
    located = ("paths", "names")

    paths: tuple[str, ...]
    names: tuple[str, ...]
    method: str = field(default="list_files", compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (TensorSpec((), bytes),))

    def _cardinality(self) -> int:
        return len(self.paths)

    def named_files(self) -> NamedFiles:
        return NamedFiles(self.paths, self.names)

    @property
    def name(self) -> str:
        return self.method

    def describe(self) -> str:
        return f"{self.method}({len(self.paths)} files)"


@dataclass(frozen=True, slots=True, eq=False)
class Param(Node):
    """The outer element of an `interleave` or `flat_map`, inside the plan of its function.

    Attributes:
        files: some of the files that its first leaf names, to look at, as far as the plan tells.
    """

    facts = Facts(by_index=True)

    outer: ElementType
    depth: int
    below: tuple[tuple[str, int], ...]
    files: tuple[str, ...] = field(default=(), compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.outer

    def _cardinality(self) -> int:
        return 1

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.below


@dataclass(frozen=True, slots=True, eq=False)
class Request(Node):
    """The images that a call of a `Preprocessor` is given: each call opens the chain again.

    Attributes:
        image: the type of one image.
    """

    facts = Facts(name="preprocessor", uncounted=True)

    image: ElementType

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.image

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY
