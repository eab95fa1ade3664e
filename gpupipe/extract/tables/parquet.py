"""parquet: Parquet files; a block is a row group, of which only the chosen columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.arrow import ENCODED, arrow, chosen, column_of
from gpupipe.extract.tables.byte_file import ByteFile
from gpupipe.extract.tables.columns import Column, Nulls
from gpupipe.extract.tables.table import Format, Table

from ...classes import dataclass

__all__ = ["Parquet"]

_STRINGS, _LISTS = 64 << 20, 1 << 22
"""Bytes of the longest text, and items of the longest list, in the footer of a file."""


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet, read by pyarrow. Checksums of pages are verified where the file has them."""

    name: ClassVar[str] = "ParquetDataset"

    def open(self, path: str, names: Sequence[str] | None = None) -> Table:
        parquet = arrow(self.name, "pyarrow.parquet")
        file = self.opened(path)
        with self.opening(file, "one without a sound footer"):
            opened = parquet.ParquetFile(
                arrow(self.name).PythonFile(ByteFile(file), "r"),
                pre_buffer=False,  # other threads would read without the time limits of this one
                page_checksum_verification=True,
                thrift_string_size_limit=_STRINGS,
                thrift_container_size_limit=_LISTS,
            )
            schema = opened.schema_arrow
        return _Parquet(self, file, opened, schema, names)


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
        return [column_of(table.column(name)) for name in self.columns]
