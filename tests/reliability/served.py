"""served: the same records in a file of each format, as a server has them, and what reads them by URL.

    python -m tests.reliability.served http://127.0.0.1:8000/

reads all of them, and prints the most memory that this took, in bytes. That there are errors does not matter.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import gpupipe as gp
from gpupipe.errors import GpupipeError
from gpupipe.extract.records.manifest_writer import write_manifest
from gpupipe.extract.storage import retry
from gpupipe.extract.tables import numpy as numpy_files
from gpupipe.flow.sources import far_records
from gpupipe.flow.sources import readers as flow_readers
from tests.extract.archives import archive
from tests.tools.damage import write

__all__ = ["RANGES", "READERS", "events", "records", "write_files"]

COUNT, SIZE = 40, 2000
BLOCK = 16 << 10
RANGES = ((flow_readers, "REMOTE_BLOCK"), (far_records, "RANGE"), (numpy_files, "_BLOCK"))
"""What says how many bytes are asked for at a time; with `BLOCK` each file takes several requests."""

NEW = b"#"


def records(fill: bytes = b".") -> list[bytes]:
    """The records, all of which differ; with another `fill` they are as long."""
    return [(b"%04d" % i).ljust(SIZE, fill) for i in range(COUNT)]


def _plain(ds: gp.Dataset) -> gp.Dataset:
    return ds.map(lambda x: np.asarray(x).tobytes(), traced=False)


def _csv(url: str) -> gp.Dataset:
    return gp.CsvDataset(url, [b""]).map(lambda x: x)


READERS: dict[str, Callable[[str], gp.Dataset]] = {
    "a.tfrecord": gp.TFRecordDataset,
    "ahead.tfrecord": lambda url: gp.TFRecordDataset([url], num_parallel_reads=2),
    "a.tfrecord.gz": lambda url: gp.TFRecordDataset(url, "GZIP"),
    "a.txt": gp.TextLineDataset,
    "a.txt.gz": lambda url: gp.TextLineDataset(url, "GZIP"),
    "a.bin": lambda url: gp.FixedLengthRecordDataset(url, SIZE, 100, 10),
    "a.csv": _csv,
    "a.npy": lambda url: _plain(gp.NumpyDataset(url)),
    "a.npz": lambda url: _plain(gp.NumpyDataset(url, columns="x")),
    "a.tar": lambda url: gp.WebDataset(url, "bin"),
    "a.tar.gz": lambda url: gp.WebDataset(url, "bin"),
    "whole.bin": lambda url: gp.Dataset.from_tensors(url).map(gp.io.read_file),
    "a.manifest": gp.TFRecordDataset.from_manifest,
}
"""What reads a file, by its name."""


def write_files(folder: Path) -> None:
    """Write a file for each reader, and beside it one of other records, which is as long, as ``NAME.new``."""
    for name in (*READERS, "listed.tfrecord"):
        for path, fill in ((folder / name, b"."), (folder / f"{name}.new", NEW)):
            _write(path, name.partition(".")[2], records(fill))
    for manifest in ("a.manifest", "a.manifest.new"):
        write_manifest([str(folder / "listed.tfrecord")], str(folder / manifest), 1)


def _write(path: Path, form: str, values: list[bytes]) -> None:
    match form.removesuffix(".gz"):
        case "manifest":
            return
        case "tfrecord":
            write(path, values)
        case "txt" | "csv":
            path.write_bytes(b"".join(value + b"\n" for value in values))
        case "bin":
            ends = (b"", b"") if path.name.startswith("whole") else (bytes(100), bytes(10))
            path.write_bytes(ends[0] + b"".join(values) + ends[1])
        case "tar":
            archive(path, [(f"{i}.bin", value) for i, value in enumerate(values)])
        case _:
            array = np.frombuffer(b"".join(values), np.uint8).reshape(COUNT, SIZE)
            with path.open("wb") as out:
                np.save(out, array) if form == "npy" else np.savez(out, x=array)
    if form.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes(), 0))


def events(name: str, url: str, **options: Any) -> tuple[list[bytes], list[GpupipeError], int]:
    """What a reader gives: its elements, the errors in between, and how many are left out or replaced."""
    good: list[bytes] = []
    bad: list[GpupipeError] = []
    try:
        items = iter(READERS[name](url).with_options(gp.Options(**options)))
    except GpupipeError as error:  # of those that look at the first file before there is an iterator
        return good, [error], 0
    with items:
        while True:
            try:
                got = next(items)
                data = bytes(got[0] if isinstance(got, tuple) else got)
                good += [data[at : at + SIZE] for at in range(0, len(data), SIZE)]
            except StopIteration:
                return good, bad, sum(one.action != "raised" for one in items.errors)
            except gp.DataError as error:
                bad.append(error)


def main(url: str) -> None:
    """Run from the command line."""
    retry.PAUSE = 0.001
    for module, name in RANGES:
        setattr(module, name, BLOCK)
    for name in READERS:
        events(name, url + name)
    with open("/proc/self/status") as lines:
        print(int(re.findall(r"VmHWM:\s+(\d+) kB", lines.read())[0]) << 10)


if __name__ == "__main__":
    main(*sys.argv[1:])
