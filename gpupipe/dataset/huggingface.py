"""huggingface: the rows of datasets of Hugging Face's library."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, ClassVar, Literal

from ..classes import dataclass
from ..errors import GpupipeError, PlanError, PlanTypeError, RecordError, shown_cause
from ..extract.tables.huggingface import PATH, STREAMED, HuggingFace, HuggingFaceStream, filed, typed
from ..graph.op import Op
from ..graph.symbols import apply
from ..io import ReadFile
from ..plan.handed import HandedRows, HandedStream
from ..plan.node import ElementType, Node
from ..spec import LEAF, Structure, TensorSpec
from .core import Dataset
from .tables import checked_defaults, chosen_columns, type_of_columns

__all__ = ["HuggingFaceDataset"]

_NUMBERS = count(1)


class HuggingFaceDataset(Dataset):
    """The rows of a dataset of Hugging Face's library ``datasets``, as dicts of their columns.

    Values are those of `ParquetDataset`: numbers are NumPy scalars, text is bytes, lists are arrays. Columns of images
    or sounds are the encoded bytes, which `ops.decode_image` takes in a `map`; where the dataset names files, these are
    read. Nothing is decoded or unpickled, and columns that are not chosen are not read.

    A ``datasets.Dataset`` has an index: `len(ds)`, `ds[i]` and `shuffle(gp.ALL)` read the rows that they need, and a
    state continues at its row. Its `select`, `filter` and `shuffle` count; gpupipe's `shuffle` costs less. A row is
    identified by its number in the dataset as it is handed in. A state knows the number of rows and the columns; that
    they are the same rows is for you to see to.

    An ``IterableDataset`` is a stream: it cannot be indexed. A state continues with the library's own where that is
    exact; after its `shuffle`, whose buffer the library forgets, or a batched `map`, the stream is read again from its
    start, and `explain()` says so. Its `set_epoch` counts if it is called before the iterator is made.

    A row with a null and no default is a bad element. So is each row of a block (256 KB) whose table is damaged, as far
    as Arrow notices: it has no checksums. The library maps files into memory, and one that becomes shorter meanwhile
    ends the process. An error of a stream is one bad element, and the rest is lost, see `Options.lost_files`.

    Args:
        dataset: a ``datasets.Dataset`` or ``datasets.IterableDataset``, of one split and without a `set_transform`.
        columns: names of the columns to read, in this order; one name as a string gives its values alone; None reads
            all that its format has.
        defaults: the values that replace nulls, by column; floats are rounded.

    Raises:
        PlanTypeError: another object.
        PlanError: a column that is not there or whose type is not supported, or a dataset with a transform.
        RecordError: a stream that does not tell its columns, and whose first rows cannot be read.
    """

    def __init__(
        self, dataset: Any, columns: str | Sequence[str] | None = None, *, defaults: Mapping[str, Any] | None = None
    ) -> None:
        who = "HuggingFaceDataset"
        names = chosen_columns(who, columns)
        stream = _is_stream(who, dataset)
        label = f"{who}({dataset.split})" if dataset.split else who
        if stream:
            form: Any = HuggingFaceStream(dataset.__iter__)
            schema = _schema_of(form, label)
        else:
            form, schema = HuggingFace(get=dataset.__getitem__, number=next(_NUMBERS)), dataset.data.schema
            names = names or tuple(dataset.format["columns"])
        found = type_of_columns(who, typed(schema, names), names, label, isinstance(columns, str))
        read = names or tuple(schema.names)
        of_files = filed(schema, read, None if stream else dataset.data)
        filled = checked_defaults(who, defaults, read, found.specs)
        leaves = (*read, *(name + PATH for name in of_files))
        kind = _with_paths(found, leaves)
        plan: Node
        if stream:
            plan = HandedStream(HuggingFaceStream(dataset.__iter__, of_files, filled), leaves, kind, label)
        else:
            form = HuggingFace(filled, dataset.__getitem__, form.number, of_files)
            plan = HandedRows(form, leaves, kind, len(dataset), label)
        if of_files:
            plan = Dataset(plan).map(_Files(read, of_files, isinstance(columns, str)).merged, traced=True).plan
        super().__init__(plan)


def _is_stream(who: str, dataset: Any) -> bool:
    """Whether a dataset can only be iterated over.

    Raises:
        PlanTypeError: it is another object.
        PlanError: it has a transform.
    """
    library = sys.modules.get("datasets")  # whoever has a dataset of it has imported it
    rows, stream = (getattr(library, name, ()) for name in ("Dataset", "IterableDataset"))
    if isinstance(dataset, Mapping):
        raise PlanTypeError(f"{who} needs one split, got {', '.join(map(str, dataset))}; hand in one: dataset[split]")
    if not isinstance(dataset, (rows, stream)):
        raise PlanTypeError(
            f"{who} needs a Dataset or an IterableDataset of the library datasets, got {type(dataset).__name__}"
        )
    if isinstance(dataset, stream):
        return True
    if dataset.format["type"] == "custom":
        raise PlanError(
            f"{who} reads tables and runs no transform, got a dataset with one; take it off with "
            "dataset.with_format(None), or use from_indexable, which calls it"
        )
    return False


def _schema_of(form: HuggingFaceStream, label: str) -> Any:
    """The types of all columns of a stream.

    Raises:
        RecordError: its first rows have to tell them, and cannot be read.
    """
    try:
        return form.schema()
    except GpupipeError:
        raise
    except Exception as error:  # of the library, or of the user's generator
        reason = f"the first {STREAMED} rows are needed for the columns, got {type(error).__name__}: {error}"[:500]
        raise RecordError(reason, file=label, offset=0, stage="read", unit="row") from shown_cause(error)


def _with_paths(found: ElementType, leaves: tuple[str, ...]) -> ElementType:
    """The type of the rows that are read: with the paths of files a dict, even of one column."""
    if len(leaves) == len(found.specs):
        return found
    paths = (TensorSpec((), bytes),) * (len(leaves) - len(found.specs))
    return ElementType(Structure(dict, leaves, (LEAF,) * len(leaves), len(leaves)), (*found.specs, *paths))


@dataclass(frozen=True)
class _Files:
    """Takes the contents of files for the values that are their paths.

    Attributes:
        names: the columns.
        of_files: those whose values may be files.
        one: whether the element is the value of the one column.
    """

    names: tuple[str, ...]
    of_files: tuple[str, ...]
    one: bool

    def merged(self, row: Any) -> Any:
        """The row without the paths."""
        merged = {
            name: apply(_ReadUnlessHere(), row[name], row[name + PATH]) if name in self.of_files else row[name]
            for name in self.names
        }
        return merged[self.names[0]] if self.one else merged


@dataclass(frozen=True, slots=True)
class _ReadUnlessHere(Op):
    """Read a file, unless its content is here.

    Shapes: ``bytes, bytes -> bytes``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0]

    def reference(self, x: Any, path: Any) -> bytes:
        return bytes(x) if x or not path else ReadFile().reference(path)
