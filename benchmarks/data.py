"""data: the shards that are read, and how often, so that a pass is longer than the measured window."""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.large import write_shards as write_large
from benchmarks.tfrecord import frames

__all__ = ["Data", "load", "repeated"]


@dataclass(frozen=True, slots=True)
class Data:
    """Some shards: their files, records, and mean bytes in a record."""

    files: tuple[str, ...]
    records: int
    mean_bytes: int
    made: bool

    def describe(self) -> dict[str, object]:
        """Describe the data for the results, without paths."""
        kind = "procedural photographs" if self.made else "files given with --data"
        return {"data": kind, "shards": len(self.files), "records": self.records, "mean_bytes": self.mean_bytes}


def load(pattern: str, folder: Path, large: bool = False) -> Data:
    """Find the shards of a pattern, or make 400 procedural photographs in `folder` if it is "", or 32 `large` ones.

    Raises:
        FileNotFoundError: if nothing matches.
    """
    if pattern:
        files = sorted(glob.glob(pattern))
    elif large:
        files = write_large(folder)
    else:
        from gpupipe.comparison.photographs import write_shards

        files = [str(path) for path in write_shards(folder)]
    if not files:
        raise FileNotFoundError(f"a benchmark needs TFRecord shards, got none for {pattern!r}; correct --data")
    lengths = [length for path in files for _, length in frames(path)]
    if not lengths:
        raise FileNotFoundError(f"a benchmark needs records, got {len(files)} empty shards; correct --data")
    return Data(tuple(files), len(lengths), round(sum(lengths) / len(lengths)), not pattern)


def repeated(files: Sequence[str], records: int, needed: int) -> tuple[str, ...]:
    """Repeat the list of files until one pass has `needed` records."""
    return tuple(files) * max(1, math.ceil(needed / records))
