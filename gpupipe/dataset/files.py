"""files: datasets of the contents of files: TFRecords, lines of text, records of one length."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import index_location, integer, parallel_calls
from ..errors import PlanError, PlanTypeError, TraceError, shown_name
from ..extract.records.compression import checked_compression
from ..extract.storage.patterns import file_name, is_url, stable_names
from ..extract.storage.remote import storage_of
from ..graph.symbols import Symbol
from ..graph.trace import require_no_symbols
from ..options import AUTOTUNE
from ..plan.files import FarRecords, FixedRecords, Lines, Records, first_files
from ..plan.maps import FlatMap, Interleave
from ..plan.node import ElementType, Node
from ..plan.sources import Files, Param
from ..spec import LEAF, TensorSpec
from .base import new
from .core import Dataset

__all__ = ["FileDataset", "FixedLengthRecordDataset", "TFRecordDataset", "TextLineDataset"]


class FileDataset(Dataset):
    """Datasets over named files, read one after the other or in turn."""

    def __init__(
        self, filenames: Any, buffer_size: Any, num_parallel_reads: Any, inner: Callable[[Node, int], Node]
    ) -> None:
        who = type(self).__name__
        if buffer_size is not None:
            integer(who, "buffer_size", buffer_size, 0)
        if isinstance(filenames, Symbol):
            super().__init__(inner(*_of_symbol(who, filenames)))
            return
        source = filenames if isinstance(filenames, Dataset) else Dataset(_listed(who, filenames))
        spec = source.element_spec
        named = isinstance(spec, TensorSpec) and (spec.dtype is None or spec.dtype is bytes)
        if not named or spec.shape not in ((), None):
            raise PlanTypeError(f"{who} needs a dataset of single file names, got {spec}")
        name = ElementType(LEAF, (TensorSpec((), bytes),))
        one = inner(Param(name, 0, source.plan.random_calls, first_files(source.plan)), 0)
        plan: Node
        if num_parallel_reads is None:
            plan = FlatMap(source.plan, type(self), one)
        else:
            reads = parallel_calls(who, num_parallel_reads, "num_parallel_reads")
            cycle = 16 if reads == AUTOTUNE else reads
            plan = Interleave(source.plan, type(self), one, cycle=cycle, calls=reads)
        super().__init__(plan, source._counter, source._epoch)


class TFRecordDataset(FileDataset):
    """The records of TFRecord files, as bytes.

    A record with a damaged payload is one bad element. After a damaged length the reader searches for the next good
    header, and the error says how many bytes it skipped; so damage does not cost the rest of the file. Only where no
    header starts within 256 MiB, as in a hole of a terabyte, the rest is left unread; the error says how many bytes.
    Reads that fail temporarily are retried. In an uncompressed local file, a permanent failure costs the records that
    it hides, each a bad element, as far as headers or an index locate them. Otherwise the rest of the file is lost: see
    `Options.lost_files`.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        compression_type: "", "GZIP" or "ZLIB"; None is "".
        buffer_size: accepted for compatibility; the sizes of blocks were chosen by measurement.
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads one file after the other.
        index: where to keep the index of an uncompressed local file, which `len(ds)`, `ds[i]` and `shuffle(gp.ALL)`
            build in one pass over its headers: ``"memory"``, 8 bytes a record; ``"beside"`` also saves it next to each
            file; anything else is a folder to save it in. A saved index is used only while its file has the same size
            and time, and each record is compared with it.

    Raises:
        PlanError: a pattern where a name is needed, or an unknown compression.
        PlanTypeError: names that are not paths.
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
        where = index_location("TFRecordDataset", index)

        def records(source: Node, leaf: int) -> Node:
            return Records(source, leaf, compression, where)

        super().__init__(filenames, buffer_size, num_parallel_reads, records)

    @staticmethod
    def from_manifest(manifest: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Dataset:
        """Read the records of the files that a manifest lists, one file after the other; ``gpupipe index`` writes it.

        The elements are those of ``TFRecordDataset(files)``, with equal draws of random ops. In addition all is known
        at the start: `len(ds)`, `ds[i]`, `split`, `by_rank` and `shuffle(gp.ALL)` work over URLs, a state asks for no
        file, and a rank of many starts after two or three requests, whatever the number of files. Names and sizes are
        read here; where records start is read when they are needed, 8 bytes a record, and not kept for long.

        Records that come next are requested ahead. In file order, and with ``shuffle(gp.ALL, streams=, window=)``
        where the windows of a rank fit into a fourth of `Options.host_memory`, a request is for 4 MiB; else each record
        is one. A file that has another size, time or version than when it was indexed is an error of each of its
        records, which says so.

        Args:
            manifest: a path or URL. It is checked as what a stranger wrote: it names no file outside of `folder`.
            folder: where the files are, a path or URL; default: the folder that the manifest is in.

        Raises:
            PlanTypeError: not a path.
            DataError: the manifest is missing (MissingFileError), damaged, or something else.
        """
        path = _one_path("manifest", manifest)
        require_no_symbols("from_manifest", path)
        from ..extract.records.manifest import read_manifest

        found = read_manifest(path, None if folder is None else _one_path("folder", folder))
        return new(FarRecords(found.digest, found))


class TextLineDataset(FileDataset):
    r"""The lines of text files, as bytes without their ends.

    ``\n`` and ``\r\n`` end a line; empty lines are elements; text after the last newline is an element if not empty.
    Any other ``\r`` is kept (TensorFlow drops every one). A line of more than 64 MiB is a bad element, and the lines
    after it follow. Reads that fail temporarily are retried; after a permanent failure the rest of the file is lost,
    see `Options.lost_files`.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        compression_type: "", "GZIP" or "ZLIB"; None is "".
        buffer_size: accepted for compatibility.
        num_parallel_reads: files read in turn, one line each; `AUTOTUNE` is 16; None reads one file after the other.
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


class FixedLengthRecordDataset(FileDataset):
    """The records of files with a header, records of one length and a footer (such as CIFAR's), as bytes.

    A file whose body is not a multiple of `record_bytes` is a bad element that names all sizes. An uncompressed one
    gives nothing else; a compressed one, whose length is known only at its end, gives its whole records first. Reads
    that fail temporarily are retried; after a permanent failure each unreadable record of an uncompressed file is a bad
    element. A missing file, and the rest of a compressed one, are lost: see `Options.lost_files`.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        record_bytes: bytes of a record, >= 1.
        header_bytes: bytes to skip at the start of each file; None is 0.
        footer_bytes: bytes to leave unread at its end; None is 0.
        buffer_size: accepted for compatibility.
        compression_type: "", "GZIP" or "ZLIB"; None is "".
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads one file after the other.

    Raises:
        PlanError: sizes out of range, or an unknown compression.
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
        record = integer(who, "record_bytes", record_bytes, 1)
        header = 0 if header_bytes is None else integer(who, "header_bytes", header_bytes, 0)
        footer = 0 if footer_bytes is None else integer(who, "footer_bytes", footer_bytes, 0)

        def records(source: Node, leaf: int) -> Node:
            return FixedRecords(source, leaf, compression, record, header, footer)

        super().__init__(filenames, buffer_size, num_parallel_reads, records)


def _one_path(name: str, given: Any) -> str:
    if not isinstance(given, (str, bytes)) and not hasattr(given, "__fspath__"):
        raise PlanTypeError(f"from_manifest needs a {name} that is a path or URL, got {given!r}")
    path = file_name("from_manifest", os.fsdecode(given))
    if is_url(path):
        storage_of(path)  # a missing dependency is an error on the user's line
        return path
    return os.path.abspath(os.path.expanduser(path)).replace(os.sep, "/")


def _of_symbol(who: str, path: Symbol) -> tuple[Any, int]:
    """The parameter of a traced function, and which leaf of it is the path."""
    leaf = path.leaf_of_param()
    if leaf is None:
        raise TraceError(f"{who} needs the path itself here, got a value computed from it")
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
            storage_of(path)  # a missing dependency is an error on the user's line
    return Files(tuple(paths), tuple(stable_names(paths)), who)
