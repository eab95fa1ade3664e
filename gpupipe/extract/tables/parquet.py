"""parquet: Parquet files; a block is a row group, of which only the chosen columns are read.

No number of bytes is too small for a number of rows: 134 million equal values take a few. So where the footer says that
there are more than 8 rows for each byte of the file, a column of each row group is decoded once, in pieces, and its
values are counted. The headers of pages would be cheaper to read, but they too only say how many values there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.arrow import ENCODED, arrow, chosen, columns_of
from gpupipe.extract.tables.byte_file import ByteFile
from gpupipe.extract.tables.columns import Column, Nulls
from gpupipe.extract.tables.sound import SOUND
from gpupipe.extract.tables.table import Format, Table

from ...classes import dataclass

__all__ = ["Parquet"]

_STRINGS, _LISTS = 64 << 20, 1 << 22
"""Bytes of the longest text, and items of the longest list, in the footer of a file."""

_ROWS = 8
"""Rows for each byte of a file that are believed without a look at them."""

_COUNTED = 4096
"""Rows that are decoded at a time to count them."""


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet, read by pyarrow. Checksums of pages are verified where the file has them."""

    name: ClassVar[str] = "ParquetDataset"

    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        arrow(self.name)
        file = self.opened(path)
        with self.opening(file, "one without a sound footer"):
            opened = self._opened(file)
            schema = opened.schema_arrow
        table = _Parquet(self, file, opened, schema, names)
        if table.size > _ROWS * file.size:
            with self.opening(file, "one with more rows than can be read"):
                self._count(table, file, opened)
        return table

    def _count(self, table: Table, file: OpenFile, opened: Any) -> None:
        """Check that the row groups have as many rows as the footer says.

        Raises:
            RecordError: one has not.
            Exception: it cannot be read.
        """
        key = file.path, file.tag, "rows"
        column = _countable(opened.schema_arrow, table.columns)
        if column is None or key in SOUND:
            return
        every = [opened.schema.column(i) for i in range(len(opened.schema))]
        texts = [
            leaf.path
            for leaf in every
            if leaf.physical_type == "BYTE_ARRAY" and (leaf.path == column or leaf.path.startswith(f"{column}."))
        ]
        opened = self._opened(file, read_dictionary=texts)  # a text is not repeated for each of its rows then
        for group, rows in enumerate(np.diff(table.starts).tolist()):
            pieces = opened.iter_batches(_COUNTED, row_groups=[group], columns=[column], use_threads=False)
            found = sum(map(len, pieces))
            if found != rows:
                raise self.damaged(
                    file,
                    f"one with a row group that says it has {rows} rows, and of which {found} can be read; "
                    "copy the file again, or write it anew",
                )
        SOUND.add(key)

    def _opened(self, file: OpenFile, **options: Any) -> Any:
        return arrow(self.name, "pyarrow.parquet").ParquetFile(
            arrow(self.name).PythonFile(ByteFile(file), "r"),
            pre_buffer=False,  # other threads would read without the time limits of this one
            page_checksum_verification=True,
            thrift_string_size_limit=_STRINGS,
            thrift_container_size_limit=_LISTS,
            **options,
        )


def _countable(schema: Any, chosen: Iterable[str]) -> str | None:
    """The column whose values are counted: a chosen one if there is one, and of numbers rather than of bytes or lists.

    None if the file has no columns: it may say any number of rows then.
    """
    is_, names = arrow("").types, [name for name in schema.names if schema.names.count(name) == 1]
    ranks = (is_.is_primitive, lambda kind: not is_.is_nested(kind), lambda _: True)
    among = [name for name in chosen if name in names]
    for wanted in (among, names):
        for rank in ranks:
            for name in wanted:
                if rank(schema.field(name).type):
                    return name
    return None


class _Parquet(Table):
    def __init__(self, form: Parquet, file: OpenFile, opened: Any, schema: Any, names: Sequence[str] | None) -> None:
        self._opened = opened
        found, columns = chosen(schema, names)
        is_struct = arrow(form.name).types.is_struct
        typed = [name for name in found if not isinstance(columns[name], str)]
        self._read = [f"{name}.{ENCODED}" if is_struct(schema.field(name).type) else name for name in typed]
        metadata = opened.metadata
        # Nothing is asked of the columns of a row group: pyarrow ends the process where their statistics are damaged.
        rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        super().__init__(file, columns, rows, form.defaults)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        table = self._opened.read_row_group(block, columns=self._read, use_threads=False)
        return columns_of(table.column(name) for name in self.columns)
