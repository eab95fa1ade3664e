"""files: nodes that read the file that an outer element names."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ..classes import dataclass
from ..errors import shown_name
from ..extract.shards.names import BY_NAME
from ..extract.storage.patterns import stable_names
from ..options import Settings
from ..spec import LEAF, Structure, TensorSpec
from .named_files import NamedFiles, decoded
from .node import UNKNOWN_CARDINALITY, Buffer, ElementType, Facts, Node, Step

if TYPE_CHECKING:
    from ..extract.records.manifest import Manifest
    from ..extract.tables.csv_layout import CsvLayout
    from ..extract.tables.table import Format

__all__ = [
    "Csv",
    "Entries",
    "FarRecords",
    "FixedRecords",
    "Lines",
    "OneFile",
    "Records",
    "Samples",
    "TableRows",
    "first_files",
]


@dataclass(frozen=True, slots=True, eq=False)
class OneFile(Step):
    """The content of one file, whose path is leaf number `leaf` of `source` (a `Param`)."""

    leaf: int = 0
    compression: str = ""

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (TensorSpec((), bytes),))

    def describe(self) -> str:
        return f"{self.name}({self.compression or 'uncompressed'})"

    def _cardinality(self) -> int:
        return UNKNOWN_CARDINALITY


@dataclass(frozen=True, slots=True, eq=False)
class Records(OneFile):
    """The records of one TFRecord file.

    Attributes:
        index: where indexes of files are stored: "memory", "beside" or a folder.
    """

    facts = Facts(name="TFRecordDataset")

    index: str = field(default="memory", compare=False)

    @property
    def by_index(self) -> bool:
        return not self.compression

    def resume_cost(self, settings: Settings) -> str:
        return "decompresses its file from the start again" if self.compression else ""


@dataclass(frozen=True, slots=True, eq=False)
class FarRecords(Node):
    """The records of the TFRecord files that a manifest lists, one file after the other.

    Attributes:
        digest: of the names, sizes and numbers of records.
        manifest: of the files.
    """

    facts = Facts(name="from_manifest", by_index=True, work="storage")

    digest: str
    manifest: Manifest = field(compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(LEAF, (TensorSpec((), bytes),))

    def _cardinality(self) -> int:
        return len(self.manifest)

    def named_files(self) -> NamedFiles:
        paths = self.manifest.paths
        return NamedFiles(paths, stable_names(paths), sizes=dict(zip(paths, self.manifest.sizes.tolist(), strict=True)))

    def describe(self) -> str:
        return f"from_manifest({len(self.manifest)} records in {len(self.manifest.paths)} files)"


@dataclass(frozen=True, slots=True, eq=False)
class Lines(OneFile):
    """The lines of one text file."""

    facts = Facts(name="TextLineDataset")


@dataclass(frozen=True, slots=True, eq=False)
class FixedRecords(OneFile):
    """The records of one file of fixed-length records.

    Attributes:
        record: bytes of a record.
        header: bytes before the first.
        footer: bytes after the last.
    """

    facts = Facts(name="FixedLengthRecordDataset")

    record: int = 1
    header: int = 0
    footer: int = 0

    def describe(self) -> str:
        parts = [f"{self.record} bytes", self.compression or "uncompressed"]
        parts += [f"header {self.header}"] if self.header else []
        parts += [f"footer {self.footer}"] if self.footer else []
        return f"FixedLengthRecordDataset({', '.join(parts)})"


@dataclass(frozen=True, slots=True, eq=False)
class Samples(OneFile):
    """The samples of one tar archive.

    Attributes:
        columns: for each leaf, the extensions of the member that it may come from, or the key.
        structure: how the leaves are nested.
        index: where indexes of archives are stored: "memory", "beside" or a folder.
    """

    facts = Facts(name="WebDataset")

    columns: tuple[tuple[bytes, ...], ...] = ()
    structure: Structure = LEAF
    index: str = field(default="memory", compare=False)

    def infer(self, *inputs: ElementType) -> ElementType:
        return ElementType(self.structure, (TensorSpec((), bytes),) * len(self.columns))

    @property
    def by_index(self) -> bool:
        return self.compression in ("", BY_NAME)

    def describe(self) -> str:
        columns = ", ".join(b";".join(names).decode() for names in self.columns)
        return f"WebDataset({columns}{'' if self.by_index else f', {self.compression}'})"

    def resume_cost(self, settings: Settings) -> str:
        return "" if self.by_index else "decompresses its file from the start again"


@dataclass(frozen=True, slots=True, eq=False)
class Entries(OneFile):
    """The entries (key, value) of one LMDB database."""

    facts = Facts(name="LMDBDataset", by_index=True)

    def infer(self, *inputs: ElementType) -> ElementType:
        spec = TensorSpec((), bytes)
        return ElementType(Structure(tuple, children=(LEAF, LEAF), count=2), (spec, spec))

    def describe(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Csv(OneFile):
    """The records of one CSV file, as tuples of the chosen columns."""

    facts = Facts(name="CsvDataset")

    layout: CsvLayout = field(kw_only=True)

    def infer(self, *inputs: ElementType) -> ElementType:
        kinds = self.layout.kinds
        return ElementType(
            Structure(tuple, (), (LEAF,) * len(kinds), len(kinds)), tuple(TensorSpec((), k) for k in kinds)
        )


@dataclass(frozen=True, slots=True, eq=False)
class TableRows(OneFile):
    """The rows of one tabular file.

    Attributes:
        format: opens the file.
        names: of the columns that are read, in the order of the leaves.
        type: of a row.
    """

    facts = Facts(name="rows")

    format: Format = field(kw_only=True)
    names: tuple[str, ...] = field(kw_only=True)
    type: ElementType = field(kw_only=True)

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.type

    @property
    def name(self) -> str:
        return self.format.name

    @property
    def by_index(self) -> bool:
        return self.format.indexed

    def describe(self) -> str:
        return f"{self.name}({', '.join(map(shown_name, filter(None, self.names)))})"

    def buffer(self, settings: Settings) -> Buffer | None:
        return Buffer(self.name, None, sized=False)


def first_files(node: Node, most: int = 8) -> tuple[str, ...]:
    """Some of the files that the first leaf of a chain's elements names: none where a step may have changed it."""
    while node.same_leaves:
        node = node.sources[0]
    return tuple(map(decoded, node.named_files().paths[:most]))
