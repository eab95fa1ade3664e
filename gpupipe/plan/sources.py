"""sources: where elements come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..extract.storage.names import Names
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec, spec_of
from .node import UNKNOWN_CARDINALITY, Element, Facts, Node, Step

__all__ = ["Files", "FromGenerator", "OneFile", "Param", "Range", "Records", "Slices", "Tensors"]


@dataclass(frozen=True, slots=True, eq=False)
class Tensors(Node):
    """One element."""

    facts = Facts(by_index=True)

    leaves: tuple[Any, ...]
    structure: Structure

    def infer(self, *inputs: Element) -> Element:
        return Element(self.structure, tuple(map(spec_of, self.leaves)))

    def named_files(self) -> tuple[tuple[str, str], ...]:
        texts = [leaf for leaf in self.leaves if isinstance(leaf, bytes) and len(leaf) < 4096 and 0 not in leaf]
        return tuple((text.decode(errors="surrogateescape"),) * 2 for text in texts)

    def _cardinality(self) -> int:
        return 1

    @property
    def name(self) -> str:
        return "from_tensors"


@dataclass(frozen=True, slots=True, eq=False)
class Slices(Node):
    """The slices of dimension 0 of every leaf.

    Attributes:
        names: where the first leaf is a list of paths, what identifies each of them in any directory; else None.
    """

    facts = Facts(by_index=True)

    leaves: tuple[Any, ...]
    structure: Structure
    names: Names | None = field(default=None, compare=False)

    def infer(self, *inputs: Element) -> Element:
        return Element(self.structure, tuple(spec_of(leaf).row() for leaf in self.leaves))

    def _cardinality(self) -> int:
        return len(self.leaves[0])

    def parameters(self, places: bool = True) -> Iterator[tuple[str, Any]]:
        kept = self.leaves if places or self.names is None else self.leaves[1:]
        return iter((("leaves", kept), ("structure", self.structure)))

    def named_files(self) -> tuple[tuple[str, str], ...]:
        paths = () if self.names is None else self.leaves[0]
        return tuple(
            (path.decode(errors="surrogateescape"), name) for path, name in zip(paths, self.names or (), strict=True)
        )

    @property
    def name(self) -> str:
        return "from_tensor_slices"

    def describe(self) -> str:
        return f"from_tensor_slices({', '.join(str(spec_of(leaf)) for leaf in self.leaves)})"


@dataclass(frozen=True, slots=True, eq=False)
class Range(Node):
    """Python's range, as numbers of one dtype."""

    facts = Facts(by_index=True)

    start: int
    stop: int
    step: int
    dtype: np.dtype[Any]

    def infer(self, *inputs: Element) -> Element:
        return Element(LEAF, (TensorSpec((), self.dtype),))

    def _cardinality(self) -> int:
        return len(range(self.start, self.stop, self.step))

    def describe(self) -> str:
        return f"range({self.start}, {self.stop}, {self.step})"


@dataclass(frozen=True, slots=True, eq=False)
class FromGenerator(Node):
    """What a Python generator yields; called anew for every pass."""

    facts = Facts()

    generator: Callable[..., Any]
    args: tuple[Any, ...]
    signature: Element

    def infer(self, *inputs: Element) -> Element:
        return self.signature

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY

    @property
    def name(self) -> str:
        return "from_generator"

    def describe(self) -> str:
        return f"from_generator({getattr(self.generator, '__qualname__', '...')})"

    def resume_cost(self, settings: Settings) -> str:
        return "is called anew, and what it gave before is passed over"


@dataclass(frozen=True, slots=True, eq=False)
class Files(Node):
    """File names, in the order listed.

    Attributes:
        paths: as they are opened.
        names: what identifies each of them: independent of the directory the data lies in.
        method: the method that listed them, for messages.
    """

    facts = Facts(by_index=True)
    located = ("paths", "names")

    paths: tuple[str, ...]
    names: tuple[str, ...]
    method: str = field(default="list_files", compare=False)

    def infer(self, *inputs: Element) -> Element:
        return Element(LEAF, (TensorSpec((), bytes),))

    def _cardinality(self) -> int:
        return len(self.paths)

    def named_files(self) -> tuple[tuple[str, str], ...]:
        return tuple(zip(self.paths, self.names, strict=True))

    @property
    def name(self) -> str:
        return self.method

    def describe(self) -> str:
        return f"{self.method}({len(self.paths)} files)"


@dataclass(frozen=True, slots=True, eq=False)
class Param(Node):
    """The outer element of an `interleave` or `flat_map`, inside the plan of its function."""

    facts = Facts(by_index=True)

    outer: Element
    depth: int
    below: tuple[tuple[str, int], ...]

    def infer(self, *inputs: Element) -> Element:
        return self.outer

    def _cardinality(self) -> int:
        return 1

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.below


@dataclass(frozen=True, slots=True, eq=False)
class OneFile(Step):
    """What one file holds, whose path is the one leaf of `source` (a `Param`)."""

    leaf: int = 0
    compression: str = ""

    def infer(self, *inputs: Element) -> Element:
        return Element(LEAF, (TensorSpec((), bytes),))

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, slots=True, eq=False)
class Records(OneFile):
    """The records of one TFRecord file.

    Attributes:
        index: where indexes of files are kept: "memory", "beside" or a folder.
    """

    facts = Facts()

    index: str = field(default="memory", compare=False)

    @property
    def name(self) -> str:
        return "TFRecordDataset"

    def describe(self) -> str:
        return f"TFRecordDataset({self.compression or 'uncompressed'})"

    def resume_cost(self, settings: Settings) -> str:
        return "decompresses its file from the begin again" if self.compression else ""
