"""shards: datasets of samples in tar archives, as the webdataset library groups them, and of LMDB databases."""

from __future__ import annotations

import os
from typing import Any

from ..arguments import index_location
from ..errors import PlanError, PlanTypeError, shown_name
from ..extract.records.compression import checked_compression
from ..extract.shards.names import BY_NAME, KEY
from ..extract.storage.patterns import is_url
from ..plan.files import Entries, Samples
from ..plan.node import Node, walk
from ..plan.sources import Files
from ..structure import flatten
from .files import FileDataset

__all__ = ["LMDBDataset", "WebDataset"]


class WebDataset(FileDataset):
    """The samples of tar archives: consecutive members with the same key, which is their path up to the first dot.

    ``n01/5.jpg`` and ``n01/5.cls`` are one sample, of key ``n01/5`` and the extensions ``jpg`` and ``cls``, whose case
    does not matter. Each element holds the bytes of the members that `keys` names, in its nesting; members that no key
    takes are skipped without being read. Directories, names without an extension or with a leading dot, and what lies
    below ``__name__`` belong to no sample.

    A sample that lacks a member, or whose member is a link, a sparse file or there twice, is a bad element. After a
    damaged header the next good one is searched, 512 bytes at a time up to 256 MiB: the damage is one bad element, and
    the samples before and after it may lack members. Archives joined by ``cat`` are read to their end. Headers have a
    checksum, payloads have none. Reads that fail temporarily are retried; after a permanent failure of a header the
    rest of the archive is lost: see `Options.lost_files`.

    The offset of a sample in its archive is its identity, as keys may be there twice.

    Labels are bytes as well: in a map that is traced, ``ops.py_function(int, [label], gp.TensorSpec((), "int64"))``
    makes numbers of them, in one that is not, ``int``.

    Args:
        filenames: a path or URL, a (nested) list of them, or a dataset of them.
        keys: an extension, or a tuple or dict of them: ``("jpg", "cls")``. Alternatives as in ``"jpg;png;jpeg"``: the
            first that a sample has. ``"__key__"`` is the sample's key.
        num_parallel_reads: archives read in turn, one sample each; `AUTOTUNE` is 16; None reads one after the other.
        compression_type: "", "GZIP" or "ZLIB"; None: GZIP where the name ends with ``.gz`` or ``.tgz``.
        index: where to keep the index of an uncompressed local archive, which `len(ds)`, `ds[i]` and `shuffle(gp.ALL)`
            build in one pass over its headers, as `TFRecordDataset` does; it takes 16 bytes a sample.

    Raises:
        PlanError: keys that are not extensions, a pattern where a name is needed, or an unknown compression.
        PlanTypeError: names that are not paths, keys that are not text.
    """

    def __init__(
        self,
        filenames: Any,
        keys: Any,
        num_parallel_reads: int | None = None,
        *,
        compression_type: str | None = None,
        index: str | os.PathLike[str] = "memory",
    ) -> None:
        who = "WebDataset"
        leaves, structure = flatten(keys)
        columns = tuple(_names(leaf) for leaf in leaves)
        compression = BY_NAME if compression_type is None else checked_compression(compression_type)
        where = index_location(who, index)

        def samples(source: Node, leaf: int) -> Node:
            return Samples(source, leaf, compression, columns, structure, where)

        super().__init__(filenames, None, num_parallel_reads, samples)


class LMDBDataset(FileDataset):
    """The entries of LMDB databases: (key, value) as bytes, in the order of the keys.

    Databases are opened read-only and without a lock, once in each process; they must not be written to meanwhile. A
    value has no checksum, and LMDB trusts its pages: a database that is missing, no database or shorter than it says is
    an error, but one whose pages were overwritten, or that is truncated while it is read, may end the process. After an
    error the rest of a database is lost: see `Options.lost_files`. Needs lmdb: ``pip install lmdb``.

    The key of an entry is its identity. `len(ds)` asks the database; `ds[i]` and `shuffle(gp.ALL)` list its keys, which
    takes their bytes and 8 for each in memory, and refuse more than 512 MiB of them.

    Args:
        filenames: a path, a (nested) list of them, or a dataset of them: of a file, or of a folder with ``data.mdb``.
        num_parallel_reads: databases read in turn, one entry each; `AUTOTUNE` is 16; None reads one after the other.

    Raises:
        MissingDependencyError: lmdb is not installed.
        PlanError: a pattern where a name is needed, or a URL.
        PlanTypeError: names that are not paths.
    """

    def __init__(self, filenames: Any, num_parallel_reads: int | None = None) -> None:
        from ..extract.shards.lmdb import need_lmdb

        need_lmdb()
        super().__init__(filenames, None, num_parallel_reads, Entries)
        for path in (path for node in walk(self.plan) if isinstance(node, Files) for path in node.paths):
            if is_url(path):
                raise PlanError(
                    f"LMDBDataset needs databases on a local disk, got {shown_name(path)!r}: LMDB maps them into "
                    "memory; copy it there"
                )


def _names(key: Any) -> tuple[bytes, ...]:
    """The extensions in a key, the preferred one first."""
    if not isinstance(key, str):
        raise PlanTypeError(f'WebDataset needs extensions as text, like keys=("jpg;png", "cls"), got {key!r}')
    names = tuple(name.strip().lower().encode() for name in key.split(";"))
    for name in names:
        if not name or name.startswith(b".") or set(b"/*?") & set(name):
            raise PlanError(
                f'WebDataset needs extensions as they follow the first dot, like "jpg" or "seg.png", got {key!r}'
            )
        if name == KEY and len(names) > 1:
            raise PlanError(f"WebDataset needs {KEY.decode()!r} alone, got {key!r}")
    return names
