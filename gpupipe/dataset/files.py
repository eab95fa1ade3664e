"""files: datasets of what files hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import file_name, integer, place_of_index
from ..errors import PlanError, PlanTypeError, TraceError, shown_name
from ..extract.records.compression import checked_compression
from ..extract.storage.patterns import is_url, stable_names
from ..extract.storage.remote import storage_of
from ..graph.symbols import Symbol
from ..options import AUTOTUNE
from ..plan.maps import FlatMap, Interleave
from ..plan.node import ElementType, Node
from ..plan.sources import Files, FixedRecords, Lines, Param, Records
from ..spec import LEAF, TensorSpec
from .core import Dataset

__all__ = ["FixedLengthRecordDataset", "TFRecordDataset", "TextLineDataset"]


class _FileDataset(Dataset):
    """What the files that somebody names hold, one file after the other or in turn."""

    def __init__(
        self, filenames: Any, buffer_size: Any, num_parallel_reads: Any, inner: Callable[[Node, int], Node]
    ) -> None:
        who = type(self).__name__
        if buffer_size is not None and integer(who, "buffer_size", buffer_size) < 0:
            raise PlanError(f"{who} needs buffer_size >= 0, got {buffer_size}")
        if isinstance(filenames, Symbol):
            super().__init__(inner(*_of_symbol(who, filenames)))
            return
        source = filenames if isinstance(filenames, Dataset) else Dataset(_listed(who, filenames))
        spec = source.element_spec
        if not isinstance(spec, TensorSpec) or spec.dtype not in (bytes, None) or spec.shape not in ((), None):
            raise PlanTypeError(f"{who} needs a dataset of single file names, got {spec}")
        one = inner(Param(ElementType(LEAF, (TensorSpec((), bytes),)), 0, source.plan.random_calls), 0)
        plan: Node
        if num_parallel_reads is None:
            plan = FlatMap(source.plan, type(self), one)
        else:
            reads = integer(who, "num_parallel_reads", num_parallel_reads)
            if reads == 0 or reads < AUTOTUNE:
                raise PlanError(f"{who} needs num_parallel_reads >= 1 or AUTOTUNE, got {reads}")
            cycle = 16 if reads == AUTOTUNE else reads
            plan = Interleave(source.plan, type(self), one, cycle=cycle, calls=reads)
        super().__init__(plan, source._counter, source._epoch)


class TFRecordDataset(_FileDataset):
    """The records of TFRecord files, as bytes.

    A record whose payload is damaged is one bad element. Behind a damaged length the next good header is searched, and
    the error says how many bytes were passed over; so a bad place does not cost the rest of its file. Where no header
    begins within 256 MiB, as in a hole of a terabyte, it does, and the error says how many bytes are left unread.
    Reads that fail for a moment are made again. Of a local file that is not compressed, a read that fails for good
    costs the records that it hides, each a bad element, as far as their headers or an index tell them. Where they do
    not, and of other files, the rest of the file is lost: see `Options.lost_files`.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        compression_type: "", "GZIP" or "ZLIB".
        buffer_size: accepted for compatibility; blocks are as large as measured best.
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads file after file.
        index: where the index is kept that `len(ds)`, `ds[i]` and `shuffle(gp.ALL)` make of an uncompressed local
            file, in one pass over its headers: ``"memory"``, 8 bytes a record; ``"beside"`` saves it beside each file
            too, anything else in a folder of that name. A saved index is used only for the file as it was.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        index: str | os.PathLike[str] = "memory",
    ) -> None:
        compression = checked_compression(compression_type)
        where = place_of_index("TFRecordDataset", index)

        def records(source: Node, leaf: int) -> Node:
            return Records(source, leaf, compression, where)

        super().__init__(filenames, buffer_size, num_parallel_reads, records)


class TextLineDataset(_FileDataset):
    r"""The lines of text files, as bytes without their ends.

    ``\n`` and ``\r\n`` end a line; empty lines are elements; what follows the last newline is one if it is not empty.
    Any other ``\r`` is kept (TensorFlow drops every one). A line of more than 64 MiB is a bad element, and the lines
    behind it follow. Reads that fail for a moment are made again; behind one that fails for good the rest of the file
    is lost, see `Options.lost_files`.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        compression_type: "", "GZIP" or "ZLIB".
        buffer_size: accepted for compatibility.
        num_parallel_reads: files read in turn, one line each; `AUTOTUNE` is 16; None reads file after file.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        compression = checked_compression(compression_type)

        def lines(source: Node, leaf: int) -> Node:
            return Lines(source, leaf, compression)

        super().__init__(filenames, buffer_size, num_parallel_reads, lines)


class FixedLengthRecordDataset(_FileDataset):
    """The records of files that hold a header, records of one length and a footer (CIFAR's files, say), as bytes.

    A file whose body is no multiple of `record_bytes` is a bad element that names all sizes. A plain one gives nothing
    else; of a compressed one, whose length is known at its end only, the whole records come first. Reads that fail for
    a moment are made again; where one fails for good, each record of a plain file that cannot be read is a bad element.
    A file that is missing, and the rest of a compressed one, are lost: see `Options.lost_files`.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        record_bytes: of each record, >= 1.
        header_bytes: passed over at the begin of each file; 0 for None.
        footer_bytes: left unread at its end; 0 for None.
        buffer_size: accepted for compatibility.
        compression_type: "", "GZIP" or "ZLIB".
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads file after file.
    """

    def __init__(
        self,
        filenames: Any,
        record_bytes: int,
        header_bytes: int | None = None,
        footer_bytes: int | None = None,
        buffer_size: int | None = None,
        compression_type: str | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        who = "FixedLengthRecordDataset"
        compression = checked_compression(compression_type)
        record = integer(who, "record_bytes", record_bytes)
        if record < 1:
            raise PlanError(f"{who} needs record_bytes >= 1, got {record}")
        header = 0 if header_bytes is None else integer(who, "header_bytes", header_bytes)
        footer = 0 if footer_bytes is None else integer(who, "footer_bytes", footer_bytes)
        if header < 0 or footer < 0:
            raise PlanError(f"{who} needs header_bytes and footer_bytes >= 0, got {header} and {footer}")

        def records(source: Node, leaf: int) -> Node:
            return FixedRecords(source, leaf, compression, record, header, footer)

        super().__init__(filenames, buffer_size, num_parallel_reads, records)


def _of_symbol(who: str, path: Symbol) -> tuple[Any, int]:
    """The parameter of an `interleave` function that names a file, and which leaf of it does."""
    leaf = path.leaf_of_param()
    if leaf is None:
        raise TraceError(f"{who} needs the path itself here, not a value computed from it")
    return leaf


def _listed(who: str, filenames: Any) -> Node:
    paths: list[str] = []

    def add(item: Any) -> None:
        if isinstance(item, bytes):
            paths.append(item.decode(errors="surrogateescape"))
        elif isinstance(item, str):
            paths.append(str(item))
        elif hasattr(item, "__fspath__"):
            add(item.__fspath__())
        elif isinstance(item, (list, tuple, np.ndarray)):
            for inner in item:
                add(inner)
        else:
            raise PlanTypeError(f"{who} needs file names, got {item!r}")

    add(filenames)
    for path in paths:
        file_name(who, path)
        if any(mark in path for mark in "*?") and not is_url(path) and not os.path.lexists(path):
            raise PlanError(
                f"{who} needs names of files, got the pattern {shown_name(path)!r}; "
                f"Dataset.list_files(pattern).interleave({who}) reads what matches it"
            )
        if is_url(path):
            storage_of(path)  # what is not installed is an error on the user's line
    return Files(tuple(paths), tuple(stable_names(paths)), who)
