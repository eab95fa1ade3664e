"""parquet: images in Parquet files, as Hugging Face's image data sets have them.

Rows of a Parquet file cannot be read one by one: a page holds many. So the images are first copied, one after another,
to a file that has random access.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gpupipe.errors import MissingDependencyError, PlanError, shown_cause, shown_name
from gpupipe.extract.storage.replacing import replacing
from gpupipe.missing import LIBRARIES
from gpupipe.tools.pack.inputs import Inputs, Progress, check_classes, digest_of, numbered, read_exactly, stamp

from ...classes import dataclass

__all__ = ["Parquet", "find_parquet"]

_ROWS = 64  # that are decoded at a time


@dataclass(frozen=True)
class Parquet(Inputs):
    """The images of Parquet files.

    Attributes:
        files: with the number of rows of each.
        column: of the encoded images: ``image`` or ``image.bytes``.
    """

    files: Sequence[tuple[str, int]]
    column: str

    def where(self, i: int) -> str:
        row = i
        for file, rows in self.files:
            if row < rows:
                return f"{file} row {row}"
            row -= rows
        raise IndexError(i)

    def reader(self, scratch: Path, progress: Progress) -> Callable[[int], bytes]:
        scratch.unlink(missing_ok=True)  # of a run that was killed: the copy is as large as the images
        ends = [0]
        with replacing(scratch, own=True) as out:
            for data in self._images():
                out.write(data)
                ends.append(ends[-1] + len(data))
                progress("copying images out of Parquet", len(ends) - 1, len(self))
        at = np.array(ends, np.int64)
        return lambda i: read_exactly(str(scratch), int(at[i]), int(at[i + 1] - at[i]))

    def in_turn(self) -> Iterator[Callable[[], bytes]]:
        return (partial(bytes, data) for data in self._images())

    def _images(self) -> Iterator[memoryview]:
        for file, _ in self.files:
            for batch in _parquet(file).iter_batches(_ROWS, columns=[self.column]):
                values = batch.column(0)
                for value in values.field("bytes") if "." in self.column else values:
                    buffer = value.as_buffer()
                    yield memoryview(b"" if buffer is None else buffer)


def find_parquet(
    files: Sequence[str],
    image_column: str | None,
    label_column: str | None,
    progress: Progress,
    who: str = "pack",
    left_out: Mapping[str, int] = MappingProxyType({}),
) -> Parquet:
    """Find the images of Parquet files; their other columns and the labels are read, the images are not.

    Args:
        files: with equal columns.
        image_column: a column of binary values, or of structs with a binary field "bytes"; None for the only one.
        label_column: a column of integers or strings; None for "label", or the only one of integers, if there is one.
        progress: is told how many rows were found.
        who: needs them, for messages; labels are read for "pack" alone.
        left_out: what was left out beside the files.

    Raises:
        PlanError: not Parquet, no such columns, several that could be meant, a label that is null.
        MissingDependencyError: pyarrow is not installed.
        OSError: a file cannot be read.
    """
    schema = _parquet(files[0], who).schema_arrow
    column, path = _image_column(schema, image_column, files[0], who)
    label = _label_column(schema, label_column, files[0]) if who == "pack" else None
    counts, names, values = [], list[str](), list[int | str]()
    for file in files:
        opened = _parquet(file, who)
        if not opened.schema_arrow.equals(schema):
            raise PlanError(f"{who} needs Parquet files with equal columns, got {files[0]!r} and {file!r} with others")
        rows = opened.metadata.num_rows
        stem = os.path.basename(file)
        paths = _values(opened, path) if path else [None] * rows
        names.extend(f"{stem}/{row}" if name is None else name for row, name in enumerate(paths))
        values.extend(_values(opened, label) if label else ())
        counts.append((file, rows))
        progress("looking for images", len(names), 0)
    if not names:
        raise PlanError(f"{who} needs Parquet files with rows, got {files[0]!r} with none")
    if None in values:
        row = values.index(None)  # type: ignore[arg-type]
        raise PlanError(f"pack needs a label in every row, got null in {label!r} of row {row} of {files[0]!r}")
    labels, classes = numbered(values, f"the column {label!r}") if label else (None, ())
    classes = classes or _class_names(schema, label)  # names in the metadata number labels that are integers
    check_classes(classes, files[0])
    digest = digest_of([column, path, label, *(stamp(file) for file in files)])
    return Parquet(names, labels, classes, left_out, digest, counts, column)


def _parquet(file: str, who: str = "pack") -> Any:
    """Open a file as a `pyarrow.parquet.ParquetFile`."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingDependencyError(
            f"Parquet files need pyarrow, which is not installed, for {file!r}; "
            f"install it with: pip install {LIBRARIES['parquet']}"
        ) from error
    try:
        return pyarrow.parquet.ParquetFile(file)
    except pyarrow.ArrowException as error:
        raise PlanError(f"{who} needs Parquet files, got {file!r}, which is none or damaged: {error}") from shown_cause(
            error
        )


def _image_column(schema: Any, wanted: str | None, file: str, who: str) -> tuple[str, str | None]:
    """The column with the encoded images, and that with their names; fields of structs are written with a dot."""
    import pyarrow.types as types

    def binary(kind: Any) -> bool:
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    def image(kind: Any) -> bool:
        return binary(kind) or (
            types.is_struct(kind) and any(part.name == "bytes" and binary(part.type) for part in kind)
        )

    found = [field.name for field in schema if image(field.type)]
    name = wanted or ("image" if "image" in found else found[0] if len(found) == 1 else None)
    if name is None or name not in found:
        option = {"pack": "--image-column", "verify": "--feature"}.get(who, "")
        asked = f"; pass {option} NAME" if option else ""
        raise PlanError(
            f"{who} needs a column of encoded images (binary, or a struct with a binary field 'bytes') and its name "
            f"where there are several, got {file!r} with {_columns(schema)}"
            + (f" and {option} {wanted!r}" if wanted else asked)
        )
    kind = schema.field(name).type
    if binary(kind):
        return name, None
    paths = [part.name for part in kind if part.name == "path" and types.is_string(part.type)]
    return f"{name}.bytes", f"{name}.path" if paths else None


def _label_column(schema: Any, wanted: str | None, file: str) -> str | None:
    import pyarrow.types as types

    integers = [field.name for field in schema if types.is_integer(field.type)]
    usable = integers + [
        field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)
    ]
    name = wanted or ("label" if "label" in schema.names else integers[0] if len(integers) == 1 else None)
    if (name is None and integers) or (name is not None and name not in usable):
        raise PlanError(
            f"pack needs the name of the column with the labels (integers or strings), got {file!r} with "
            f"{_columns(schema)}" + (f" and --label-column {wanted!r}" if wanted else "; pass --label-column NAME")
        )
    return name


def _columns(schema: Any) -> str:
    return shown_name(", ".join(f"{field.name}: {field.type}" for field in schema)[:500])


def _values(opened: Any, column: str) -> list[Any]:
    values = opened.read(columns=[column]).column(0).combine_chunks()
    return list((values.field("path") if "." in column else values).to_pylist())


def _class_names(schema: Any, label: str | None) -> Sequence[str]:
    """The names that Hugging Face's `datasets` keeps beside the columns, if it does."""
    try:
        about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        names = about["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()  # these names are an extra, and nothing says that they are there
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()
