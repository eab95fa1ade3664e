"""files: datasets of what files hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import integer
from ..errors import PlanError, PlanTypeError, TraceError
from ..extract.compression import checked_compression
from ..extract.patterns import stable_names
from ..options import AUTOTUNE
from ..plan.node import Element, Node
from ..plan.sources import Files, Param, Records
from ..plan.steps import FlatMap, Interleave
from ..spec import LEAF, TensorSpec
from ..trace import Symbol
from .core import Dataset

__all__ = ["TFRecordDataset"]


class TFRecordDataset(Dataset):
    """The records of TFRecord files, as bytes.

    Args:
        filenames: a path, a (nested) list of paths, or a dataset of paths.
        compression_type: "", "GZIP" or "ZLIB".
        buffer_size: accepted for compatibility; blocks are as large as measured best.
        num_parallel_reads: files read in turn, one record each; `AUTOTUNE` is 16; None reads file after file.
    """

    def __init__(
        self,
        filenames: Any,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        if buffer_size is not None and integer("TFRecordDataset", "buffer_size", buffer_size) < 0:
            raise PlanError(f"TFRecordDataset needs buffer_size >= 0, got {buffer_size}")
        compression = checked_compression(compression_type)
        if isinstance(filenames, Symbol):
            super().__init__(_symbolic_records(filenames, compression))
            return
        source = filenames if isinstance(filenames, Dataset) else Dataset(_listed(filenames))
        spec = source.element_spec
        if not isinstance(spec, TensorSpec) or spec.dtype not in (bytes, None) or spec.shape not in ((), None):
            raise PlanTypeError(f"TFRecordDataset needs a dataset of single file names, got {spec}")
        inner = Records(Param(Element(LEAF, (TensorSpec((), bytes),)), 0, source.plan.counts), 0, compression)
        plan: Node
        if num_parallel_reads is None:
            plan = FlatMap(source.plan, TFRecordDataset, inner)
        else:
            reads = integer("TFRecordDataset", "num_parallel_reads", num_parallel_reads)
            if reads == 0 or reads < AUTOTUNE:
                raise PlanError(f"TFRecordDataset needs num_parallel_reads >= 1 or AUTOTUNE, got {reads}")
            cycle = 16 if reads == AUTOTUNE else reads
            plan = Interleave(source.plan, TFRecordDataset, inner, cycle=cycle, calls=reads)
        super().__init__(plan, source._passes)


def _symbolic_records(path: Symbol, compression: str) -> Node:
    """The records of the file that the parameter of an `interleave` function names."""
    leaf = path.leaf_of_param()
    if leaf is None:
        raise TraceError("TFRecordDataset needs the path itself here, not a value computed from it")
    param, index = leaf
    return Records(param, index, compression)


def _listed(filenames: Any) -> Node:
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
            raise PlanTypeError(f"TFRecordDataset needs file names, got {item!r}")

    add(filenames)
    return Files(tuple(paths), tuple(stable_names(paths)), "TFRecordDataset")
