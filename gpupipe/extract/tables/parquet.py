"""parquet: Parquet files; a block is a row group, of which only the chosen columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gpupipe.errors import DataError, RecordError
from gpupipe.extract.storage.files import OpenFile
from gpupipe.extract.tables.arrow import ENCODED, arrow, chosen, column_of
from gpupipe.extract.tables.byte_file import ByteFile
from gpupipe.extract.tables.columns import Column, Nulls
from gpupipe.extract.tables.table import MOST_BYTES, Format, Table

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
        try:
            opened = parquet.ParquetFile(
                arrow(self.name).PythonFile(ByteFile(file), "r"),
                pre_buffer=False,  # other threads would read without the time limits of this one
                page_checksum_verification=True,
                thrift_string_size_limit=_STRINGS,
                thrift_container_size_limit=_LISTS,
            )
            schema = opened.schema_arrow
        except DataError:
            raise
        except Exception as error:
            raise self.damaged(file, f"one without a sound footer ({error})") from error
        return _Parquet(self, file, opened, schema, names)


class _Parquet(Table):
    def __init__(self, form: Parquet, file: OpenFile, opened: Any, schema: Any, names: Sequence[str] | None) -> None:
        self._opened = opened
        found, columns = chosen(schema, names)
        is_struct = arrow(form.name).types.is_struct
        typed = [name for name in found if not isinstance(columns[name], str)]
        self._read = [f"{name}.{ENCODED}" if is_struct(schema.field(name).type) else name for name in typed]
        metadata = opened.metadata
        wanted = set(self._read)
        leaves = [
            i
            for i, column in enumerate(metadata.schema.column(i) for i in range(metadata.num_columns))
            if column.path in wanted or column.path.partition(".")[0] in wanted
        ]
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        self._bytes = [sum(group.column(i).total_uncompressed_size for i in leaves) for group in groups]
        rows = [group.num_rows for group in groups]
        each = sum(max(size, 0) for size in self._bytes) / max(sum(rows), 1)
        super().__init__(file, columns, rows, each, form.defaults)

    def load(self, block: int) -> Sequence[tuple[Column, Nulls]]:
        if not 0 <= self._bytes[block] <= MOST_BYTES:
            raise RecordError(
                f"a row group of at most {MOST_BYTES} bytes in the chosen columns is needed, got {self._bytes[block]}; "
                "write the file again with smaller row groups"
            )
        table = self._opened.read_row_group(block, columns=self._read, use_threads=False)
        return [column_of(table.column(name)) for name in self.columns]
