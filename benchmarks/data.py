"""data: the shards that are read, and how often, so that a pass is longer than the measured window."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.large import write_shards as write_large
from benchmarks.tfrecord import frames

__all__ = ["SIZES", "Data", "load", "repeated"]


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


SIZES: Mapping[float, tuple[int, int, int]] = {1.0: (96, 864, 1152), 3.0: (32, 1536, 2048)}
"""Photographs that are drawn, by megapixels: how many, height, width. At 0.2 there are 400 of many sizes."""


def load(pattern: str, folder: Path, megapixels: float = 0.2) -> Data:
    """Find the shards of a pattern, or, if it is "", draw photographs in `folder`.

    Raises:
        FileNotFoundError: if nothing matches.
    """
    if pattern:
        files = sorted(map(os.path.abspath, glob.glob(pattern)))  # a contestant's process has another working folder
    elif megapixels in SIZES:
        count, height, width = SIZES[megapixels]
        files = write_large(folder, count, height=height, width=width)
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
