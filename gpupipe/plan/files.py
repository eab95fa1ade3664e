"""files: nodes that read text and fixed-length records, and those that keep elements in files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..options import Settings
from ..spec import LEAF, DatasetSpec
from .node import Element, Facts, Node
from .sources import OneFile
from .steps import Cache

__all__ = ["FileCache", "FixedRecords", "Lines", "Saved", "SavedFiles"]


@dataclass(frozen=True, slots=True, eq=False)
class Lines(OneFile):
    """The lines of one text file."""

    facts = Facts()

    @property
    def name(self) -> str:
        return "TextLineDataset"

    def describe(self) -> str:
        return f"TextLineDataset({self.compression or 'uncompressed'})"


@dataclass(frozen=True, slots=True, eq=False)
class FixedRecords(OneFile):
    """The records of one file of fixed-length records.

    Attributes:
        record: bytes of a record.
        header: bytes before the first.
        footer: bytes behind the last.
    """

    facts = Facts()

    record: int = 1
    header: int = 0
    footer: int = 0

    @property
    def name(self) -> str:
        return "FixedLengthRecordDataset"

    def describe(self) -> str:
        parts = [f"{self.record} bytes", self.compression or "uncompressed"]
        parts += [f"header {self.header}"] if self.header else []
        parts += [f"footer {self.footer}"] if self.footer else []
        return f"FixedLengthRecordDataset({', '.join(parts)})"


@dataclass(frozen=True, slots=True, eq=False)
class FileCache(Cache):
    """The elements of the first full pass, kept in a file.

    Attributes:
        path: as the user gave it; the file's own name adds what the elements depend on.
        method: the method that made it, for messages.
    """

    facts = Facts(payload="reads", one_by_one=True, as_long=True)
    located = ("path",)

    path: str = ""
    method: str = field(default="cache", compare=False)

    @property
    def name(self) -> str:
        return self.method

    def describe(self) -> str:
        return f"{self.method}({self.path!r})"

    def resume_cost(self, settings: Settings) -> str:
        return "goes on without a file if it was half written"


@dataclass(frozen=True, slots=True, eq=False)
class Saved(Node):
    """The elements that `save` wrote.

    Attributes:
        folder: as the user named it.
        paths: of the files, in order.
        saved: the type of the elements.
        count: how many there are.
        compression: "" or "GZIP".
        run: which `save` it was: two of them are two data sets.
        sites: the `counts` of the chain that was saved: random calls go on counting, as if it were still there.
    """

    facts = Facts()
    located = ("paths", "folder", "run")

    folder: str
    paths: tuple[str, ...]
    saved: Element
    count: int
    compression: str = ""
    run: str = ""
    sites: tuple[tuple[str, int], ...] = ()

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.sites

    def infer(self, *inputs: Element) -> Element:
        return self.saved

    def _cardinality(self) -> int:
        return self.count

    @property
    def name(self) -> str:
        return "load"

    def describe(self) -> str:
        return f"load({self.folder!r}) of {self.count} elements in {len(self.paths)} files"

    def named_files(self) -> tuple[tuple[str, str], ...]:
        return tuple((path, os.path.basename(path)) for path in self.paths)


@dataclass(frozen=True, slots=True, eq=False)
class SavedFiles(Node):
    """The files that `save` wrote as a dataset of datasets, for a `reader_func`.

    Attributes:
        files: one for each.
        make: makes the dataset of a plan.
    """

    facts = Facts()

    files: tuple[Saved, ...]
    make: Callable[[Node], Any] = field(compare=False)

    def _identity(self) -> Iterator[Any]:
        yield from (file.fingerprint for file in self.files)

    def _counts(self, below: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return self.files[0].counts

    def infer(self, *inputs: Element) -> Element:
        return Element(LEAF, (DatasetSpec(self.files[0].element.nested),))

    def _cardinality(self) -> int:
        return len(self.files)

    @property
    def name(self) -> str:
        return "load"

    def describe(self) -> str:
        return f"load({self.files[0].folder!r}) of {len(self.files)} files"
