"""cold_reads: one pass over files whose pages were dropped, as a process of its own, and what it took.

    python -m benchmarks.suites.cold_reads gpupipe 10000 2 FILE...

A process remembers where records start; so each run is a new one.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["READERS", "drop_pages", "read_of_disk"]

BLOCK = 1 << 20
"""Bytes of one plain read."""


def drop_pages(files: Sequence[str]) -> None:
    """Drop the pages of files from memory, as any user may; what was just written is written out first."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def read_of_disk() -> int:
    """Bytes that this process has had read from disks so far; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split(":")[1]) for line in lines if line.startswith("read_bytes")), 0)


def plain(files: Sequence[str], shuffle: int, threads: int) -> Iterator[int]:
    """Read the files from front to back, one after another."""
    buffer = bytearray(BLOCK)
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while got := file.readinto(buffer):
                yield got


def gpupipe(files: Sequence[str], shuffle: int, threads: int) -> Iterator[int]:
    """Records of the files in turn, shuffled; each is read, and its checksum verified."""
    import gpupipe as gp

    ds = (
        gp.Dataset.list_files(list(files), seed=1)
        .interleave(gp.TFRecordDataset, cycle_length=8, num_parallel_calls=gp.AUTOTUNE)
        .shuffle(shuffle)
        .with_options(gp.Options(device="cpu", threads=threads))
    )
    for record in ds:
        yield len(record)


def tfdata(files: Sequence[str], shuffle: int, threads: int) -> Iterator[int]:
    """The same in tf.data, which holds the records themselves in its buffer."""
    tf: Any = importlib.import_module("tensorflow")
    names = tf.data.Dataset.from_tensor_slices(list(files)).shuffle(len(files), seed=1)
    ds = names.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    for size in ds.shuffle(shuffle).map(tf.strings.length).batch(64).with_options(options):
        yield int(size.numpy().sum())


READERS: Mapping[str, Callable[[Sequence[str], int, int], Iterator[int]]] = {
    "plain": plain,
    "gpupipe": gpupipe,
    "tfdata": tfdata,
}
"""Each yields the bytes that it has come by."""


def _main(kind: str, shuffle: str, threads: str, *files: str) -> None:
    if kind == "tfdata":
        importlib.import_module("tensorflow")
    elif kind == "gpupipe":
        import gpupipe

        list(gpupipe.Dataset.range(1).batch(1))
    drop_pages(files)
    disk, cpu, started = read_of_disk(), time.process_time(), time.perf_counter()
    total = sum(READERS[kind](files, int(shuffle), int(threads)))
    seconds = time.perf_counter() - started
    took = {"seconds": seconds, "cpu_s": time.process_time() - cpu, "bytes": total, "of_disk": read_of_disk() - disk}
    print(json.dumps(took))


if __name__ == "__main__":
    _main(*sys.argv[1:])
