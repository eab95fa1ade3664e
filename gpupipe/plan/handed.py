"""handed: nodes that read the rows of a dataset of another library, which the user handed in."""

from __future__ import annotations

from ..classes import dataclass
from ..errors import shown_name
from ..extract.tables.huggingface import PATH, HuggingFace, HuggingFaceStream
from ..options import Settings
from .node import Buffer, ElementType, Facts, Node

__all__ = ["HandedRows", "HandedStream"]


@dataclass(frozen=True, slots=True, eq=False)
class HandedRows(Node):
    """The rows of a dataset with an index.

    Attributes:
        format: reads them.
        names: of the columns that are read, in the order of the leaves.
        type: of a row.
        count: rows when the chain was written.
        label: what the dataset is called in messages.
    """

    facts = Facts(name="HuggingFaceDataset", by_index=True)

    format: HuggingFace
    names: tuple[str, ...]
    type: ElementType
    count: int
    label: str

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.type

    def _cardinality(self) -> int:
        return self.count

    def describe(self) -> str:
        return f"{self.name}({_shown(self.names)}; {self.count} rows)"

    def buffer(self, settings: Settings) -> Buffer | None:
        return Buffer(self.name, None, sized=False)


@dataclass(frozen=True, slots=True, eq=False)
class HandedStream(Node):
    """The rows of a dataset that can only be iterated over.

    Attributes:
        form: reads them.
        names: of the columns that are read, in the order of the leaves.
        type: of a row.
        label: what the dataset is called in messages.
    """

    facts = Facts(name="HuggingFaceDataset", uncounted=True, work="storage")

    form: HuggingFaceStream
    names: tuple[str, ...]
    type: ElementType
    label: str

    def infer(self, *inputs: ElementType) -> ElementType:
        return self.type

    def describe(self) -> str:
        return f"{self.name}({_shown(self.names)}; a stream)"

    def resume_cost(self, settings: Settings) -> str:
        return "" if self.form.resumes else "is read again from its start, as its own state is not exact"


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(shown_name(name) for name in names if not name.endswith(PATH))
