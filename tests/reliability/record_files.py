"""record_files: files of numbered records of one size, of each kind, and chains that read them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpupipe as gp
from gpupipe import Dataset, Options
from gpupipe.extract.records.writer import TFRecordWriter
from tests.extract.archives import archive

SIZE = 3000

READERS: dict[str, Callable[[Any], Dataset]] = {
    "records": gp.TFRecordDataset,
    "gzip": lambda name: gp.TFRecordDataset(name, "GZIP"),
    "samples": lambda name: gp.WebDataset(name, "bin"),
    "lines": gp.TextLineDataset,
    "fixed": lambda name: gp.FixedLengthRecordDataset(name, SIZE, 100, 10),
}


def payloads(file: int, count: int) -> list[bytes]:
    """The records of a file: its number and theirs."""
    return [f"{file:02d}.{i:05d}".encode().ljust(SIZE, b".") for i in range(count)]


def write(path: Path, kind: str, records: Sequence[bytes]) -> None:
    """Write a file. A compressed one is read block by block, and as large as what is in it."""
    if kind.startswith("samples"):
        archive(path, [(f"{i}.bin", record) for i, record in enumerate(records)])
    elif kind == "lines":
        path.write_bytes(b"".join(record + b"\n" for record in records))
    elif kind == "fixed":
        path.write_bytes(b"h" * 100 + b"".join(records) + b"f" * 10)
    else:
        with TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    if kind.endswith("gzip"):
        path.write_bytes(gzip.compress(path.read_bytes(), 0))


def chain(
    paths: Sequence[str], kind: str = "records", calls: int | None = None, cycle: int = 1, **options: Any
) -> Dataset:
    """All records, file by file unless `cycle` says otherwise."""
    made = Dataset.from_tensor_slices(list(paths)).interleave(READERS[kind], cycle, num_parallel_calls=calls)
    return made.with_options(Options(**options))


def taken(items: Any) -> tuple[list[bytes], list[gp.DataError]]:
    """Everything there is, with the errors in between."""
    good: list[bytes] = []
    bad: list[gp.DataError] = []
    while True:
        try:
            good.append(bytes(next(items)))
        except StopIteration:
            return good, bad
        except gp.DataError as error:
            bad.append(error)


def all_of(ds: Dataset) -> tuple[list[bytes], list[gp.DataError], Any]:
    """Everything there is in epoch 0, the errors in between, and the iterator."""
    with ds.iterator(epoch=0) as items:
        return *taken(items), items
