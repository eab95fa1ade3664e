"""cache: nodes that cache elements, and those that read what `save` wrote; the type of elements as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..options import Settings
from ..serial.structures import (
    Malformed,
    imported_class,
    spec_from_json,
    spec_to_json,
    structure_from_json,
    structure_to_json,
)
from ..spec import LEAF, DatasetSpec
from .named_files import NamedFiles
from .node import ElementType, Facts, Node, Step

__all__ = ["CYCLE", "Cache", "FileCache", "GpuCache", "Saved", "SavedFiles", "element_from_json", "element_to_json"]

CYCLE = 16
"""Files of saved elements that are interleaved at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Cache(Step):
    """The elements of the first full pass, kept in memory.

    Attributes:
        store: holds them; shared by every rewritten form of this node.
    """

    facts = Facts(payload="reads", by_index=True, as_long=True, in_memory=True, work="storage")

    store: Any = field(default=None, compare=False)

    def full(self, settings: Settings) -> bool:
        return self.store.find(settings) is not None

    def input_context(self, at: Any, index: int) -> Any:
        return at.neutral()

    def resume_cost(self, settings: Settings) -> str:
        return "starts empty: a pass that was filling it continues without it, one that was reading it reads its input"


@dataclass(frozen=True, slots=True, eq=False)
class GpuCache(Cache):
    """The elements of the first full pass, their images in GPU memory. How much of it is no matter of the elements."""

    facts = Facts(name="cache", payload="reads", by_index=True, as_long=True, in_memory=True, work="storage")

    def describe(self) -> str:
        return str(self.store.label)


@dataclass(frozen=True, slots=True, eq=False)
class FileCache(Cache):
    """The elements of the first full pass, kept in a file.

    Attributes:
        path: as the user gave it; the file's own name adds a key of what the elements depend on.
        method: the method that made the node, for messages.
    """

    facts = Facts(payload="reads", holds_nothing=True, as_long=True, work="storage")
    located = ("path",)

    path: str = ""
    method: str = field(default="cache", compare=False)

    @property
    def name(self) -> str:
        return self.method

    def describe(self) -> str:
        return f"{self.method}({self.path!r})"

    def resume_cost(self, settings: Settings) -> str:
        return "continues without a file if that was half written"


@dataclass(frozen=True, slots=True, eq=False)
class Saved(Node):
    """The elements that `save` wrote.

    Attributes:
        folder: as the user named it.
        paths: the files, in order.
        saved: the type of the elements.
        counts: how many each file has.
        compression: "" or "GZIP".
        run: identifies the call of `save`: two calls make two datasets.
        sites: the `random_calls` of the chain that was saved: the counts continue as if that chain were still there.
        indexed: whether the files have an index.
    """

    facts = Facts(name="load", work="storage")
    located = ("paths", "folder", "run")

    folder: str
    paths: tuple[str, ...]
    saved: ElementType
    counts: tuple[int, ...]
    compression: str = ""
    run: str = ""
    sites: tuple[tuple[str, int], ...] = ()
    indexed: bool = False

    @property
    def by_index(self) -> bool:
        return self.indexed and len(self.paths) <= CYCLE

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.sites

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.saved

    def _cardinality(self) -> int:
        return sum(self.counts)

    def describe(self) -> str:
        return f"load({self.folder!r}) of {sum(self.counts)} elements in {len(self.paths)} files"

    def resume_cost(self, settings: Settings) -> str:
        return "" if self.indexed else "reads its elements again from the start"

    def named_files(self) -> NamedFiles:
        return NamedFiles(self.paths, list(map(os.path.basename, self.paths)))


@dataclass(frozen=True, slots=True, eq=False)
class SavedFiles(Node):
    """The files that `save` wrote as a dataset of datasets, for a `reader_func`.

    Attributes:
        files: one node for each file.
        make: makes a dataset of a plan.
    """

    facts = Facts(name="load", work="storage")

    files: tuple[Saved, ...]
    make: Callable[[Node], Any] = field(compare=False)

    def _identity(self) -> Iterator[Any]:
        yield from (file.fingerprint for file in self.files)

    def _random_calls(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.files[0].random_calls

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (DatasetSpec(self.files[0].element.nested),))

    def _cardinality(self) -> int:
        return len(self.files)

    def describe(self) -> str:
        return f"load({self.files[0].folder!r}) of {len(self.files)} files"


def element_to_json(element: ElementType) -> dict[str, Any]:
    """Write the type of an element as JSON.

    Raises:
        PlanError: files cannot hold elements of this type.
    """
    structure = element.structure if element.structure is not None else LEAF
    specs = [spec_to_json(spec) for spec in element.specs]
    return {"structure": structure_to_json(structure), "specs": specs, "batched": element.batched}


def element_from_json(given: Any, find: Callable[[str, str, list[Any]], Any] = imported_class) -> ElementType:
    """Read the type of an element.

    Args:
        given: JSON, which may hold anything.
        find: finds its classes, see `structure_from_json`.

    Raises:
        Malformed: the JSON holds something else.
    """
    if not isinstance(given, dict) or not isinstance(given.get("specs"), list):
        raise Malformed("not the type of an element")
    structure = structure_from_json(given.get("structure"), find)
    specs = tuple(spec_from_json(spec) for spec in given["specs"])
    if structure.count != len(specs):
        raise Malformed(f"{structure.count} leaves, {len(specs)} specs")
    return ElementType(structure, specs, bool(given.get("batched")))
