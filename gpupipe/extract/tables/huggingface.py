"""huggingface: datasets of Hugging Face's library ``datasets``: its Arrow tables, row by row or as a stream.

The library is never imported: whoever hands in one of its datasets has done so. It is asked for parts of a table in
its format "arrow", which follows `select`, `shuffle` and `filter`, and neither decodes images nor unpickles anything.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from gpupipe.errors import RecordError
from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.tables.arrow import ENCODED, arrow, check_shared, chosen, column_of
from gpupipe.extract.tables.columns import Column, Filled, Nulls
from gpupipe.extract.tables.table import Format, Handed, Table
from gpupipe.spec import TensorSpec

from ...classes import dataclass

__all__ = ["PATH", "STREAMED", "HuggingFace", "HuggingFaceStream", "filed"]

PATH = "\0path"
"""Ends the name of the column that holds the paths of files which a column of images or sounds names."""

STREAMED = 64
"""Rows of a stream that are asked for at a time."""

_BLOCK = 256 << 10
"""Bytes of a block: a row is read with its block."""

_ROWS, _CHOSEN = 1024, 16
"""Rows of a block at most; where the library looks each of them up, after `select` or `shuffle`."""


@dataclass(frozen=True)
class HuggingFace(Format):
    """A dataset with an index, whose table is in memory or mapped into it.

    Attributes:
        get: its `__getitem__`, which identifies it.
        number: different for each dataset of this process.
        filed: the columns whose values may be files.
    """

    name: ClassVar[str] = "HuggingFaceDataset"

    get: Any = None
    number: int = field(default=0, compare=False)
    filed: tuple[str, ...] = ()

    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        arrow(self.name)
        return _View(self, path, names)


class _View(Table):
    """Some columns of a dataset, in blocks of about `_BLOCK` bytes."""

    def __init__(self, form: HuggingFace, path: str, names: Sequence[str] | None) -> None:
        dataset = form.get.__self__
        self._filed = form.filed
        columns = typed(dataset.data.schema, names)
        shown = list(dict.fromkeys(name.removesuffix(PATH) for name in columns))
        self._rows = dataset.select_columns(shown).with_format("arrow")
        self._places = getattr(dataset, "_indices", None)  # of the rows in the table, if some were selected
        count, data = len(dataset), self._rows.data
        most = _ROWS if self._places is None else _CHOSEN
        size = max(1, min(most, _BLOCK * data.num_rows // max(data.nbytes, 1)))
        sizes = [*repeat(size, count // size), *filter(None, [count % size])]
        super().__init__(Handed(path, str(form.number)), columns, sizes, form.defaults)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        start, stop = self.starts[block : block + 2].tolist()
        if self._places is not None:  # the library takes them modulo the number of rows
            last = max(self._places.column(0)[start:stop].to_pylist())
            if last >= self._rows.data.num_rows:
                raise RecordError(f"a place in a table of {self._rows.data.num_rows} rows is needed, got {last}")
        return leaves(self._rows[start:stop], list(self.columns), self._filed)


@dataclass(frozen=True)
class HuggingFaceStream:
    """A dataset that can only be iterated over.

    Attributes:
        each: its `__iter__`, which identifies it.
        filed: the columns whose values may be files.
        defaults: the value that replaces a null, for some columns.
    """

    each: Any
    filed: tuple[str, ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def resumes(self) -> bool:
        """Whether the library goes on after a state exactly.

        It loses what a shuffle buffer holds, and may skip a batch of a batched `map`. What is not known does not.
        """
        stack: list[Any] = [getattr(self.each.__self__, "_ex_iterable", None)]
        while stack:
            step = stack.pop()
            if not hasattr(step, "state_dict") or "Shuffled" in type(step).__name__ or getattr(step, "batched", False):
                return False
            stack += getattr(step, "ex_iterables", [])
            stack += [step.ex_iterable] if hasattr(step, "ex_iterable") else []
        return True

    def schema(self) -> Any:
        """The types of all columns in Arrow's words; where the dataset does not tell them, its first rows do."""
        dataset = self.each.__self__
        if dataset.features is not None:
            return dataset.features.arrow_schema
        return next((table.schema for table, _ in self.tables(None, None)), arrow("").schema([]))

    def tables(self, names: Sequence[str] | None, state: Any) -> Iterator[tuple[Any, Any]]:
        """Tables of `STREAMED` rows, each with the library's state before it; None at the start.

        Raises:
            Exception: whatever the library raises.
        """
        dataset = self.each.__self__
        epoch = dataset.epoch
        if names is not None:
            dataset = dataset.select_columns(list(dict.fromkeys(name.removesuffix(PATH) for name in names)))
        dataset = dataset.with_format("arrow")
        dataset.set_epoch(epoch)
        dataset._ex_iterable = _COPIES.made(dataset._ex_iterable)  # its steps hold the state of a loop
        if state is not None:
            dataset.load_state_dict(state)
        for table in dataset.iter(batch_size=STREAMED):
            yield table, state
            state = dataset.state_dict()

    def rows(self, table: Any, label: str, names: Sequence[str]) -> Table:
        """A table of rows that were read."""
        return _Read(self, table, label, names)


class _Read(Table):
    """Rows of a stream: one block."""

    def __init__(self, form: HuggingFaceStream, table: Any, label: str, names: Sequence[str]) -> None:
        self._table, self._filed = table, form.filed
        super().__init__(Handed(label, ""), typed(table.schema, names), [table.num_rows], form.defaults)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        return leaves(self._table, list(self.columns), self._filed)


class _Copies:
    """Copies the steps of datasets, one at a time: they may change while they are copied."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        renew_lock(self)

    def made(self, steps: Any) -> Any:
        with self._lock:
            return copy.deepcopy(steps)


_COPIES = _Copies()


def typed(schema: Any, names: Sequence[str] | None) -> dict[str, TensorSpec | str]:
    """The types of some columns or of all; those that the schema lacks are left out."""
    columns = chosen(schema, None)[1]
    wanted = list(columns) if names is None else [n for n in names if n.removesuffix(PATH) in columns]
    return {name: TensorSpec((), bytes) if name.endswith(PATH) else columns[name] for name in wanted}


def filed(schema: Any, names: Sequence[str], table: Any = None) -> tuple[str, ...]:
    """Which columns hold images or sounds that may be files: a table tells whether any of its values is one."""
    is_ = arrow("").types

    def named(name: str) -> bool:
        kind = schema.field(name).type
        if not is_.is_struct(kind) or {kind.field(i).name for i in range(kind.num_fields)} != {ENCODED, "path"}:
            return False
        return table is None or _field(table.column(name), ENCODED).null_count > 0

    return tuple(name for name in names if schema.names.count(name) == 1 and named(name))


def leaves(table: Any, names: Sequence[str], of_files: Sequence[str]) -> list[tuple[Column, Nulls]]:
    """The columns of an Arrow table. A value that may be a file is two: its bytes, or the path of the file."""
    table.validate(full=True)  # offsets are read below without further checks
    check_shared(table.column(name) for name in dict.fromkeys(name.removesuffix(PATH) for name in names))
    found = []
    for name in names:
        values = table.column(name.removesuffix(PATH))
        found.append(_of_file(values, name) if name.removesuffix(PATH) in of_files else column_of(values))
    return found


def _of_file(values: Any, name: str) -> tuple[Column, Nulls]:
    encoded, path = _field(values, ENCODED), _field(values, "path")
    missing, unnamed = (np.asarray(x.is_null().to_numpy(zero_copy_only=False), bool) for x in (encoded, path))
    if name.endswith(PATH):
        return Filled(column_of(path)[0], unnamed, b""), Nulls()
    bad = missing & unnamed
    return Filled(column_of(encoded)[0], missing, b""), Nulls(bad if bad.any() else None)


def _field(values: Any, name: str) -> Any:
    """A field of a column of structs; null where the struct is."""
    return arrow("", "pyarrow.compute").struct_field(values, name)
