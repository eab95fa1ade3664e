"""soak: what a process holds after very many batches and very many iterators. Run as a program, one per executor.

    python -m tests.reliability.soak dali 100000 5000 50

runs 100,000 batches, the first 5,000 to warm up, and 50 iterators. It prints one line of JSON: figures in bytes, counts
of threads and of file descriptors. Small images, as what grows with each batch has nothing to do with their size.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.flow.bad import records as bad_records
from tests.chains import damage
from tests.chains.damage import bad_scan, cut
from tests.chains.data import on, parse

FILES, RECORDS = 4, 32
"""Few enough that a file is opened for every eighth batch."""

REMEMBERED = 500
"""Bad elements that an iterator remembers here, instead of 10,000: all of them are there when the warm-up ends."""


class _Mallinfo(ctypes.Structure):
    """glibc's `struct mallinfo2`: what its allocator has, in all arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def in_use() -> int:
    """Bytes that were allocated and not freed, whatever the allocator holds besides; 0 where it does not tell.

    Python's own allocator is no part of it, unless PYTHONMALLOC=malloc.
    """
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return int(found.uordblks) + int(found.hblkhd)


@dataclass(frozen=True)
class Held:
    """What this process holds at a moment.

    Attributes:
        live: bytes that were allocated and not freed, see `in_use`.
        rss: bytes of resident memory.
        threads: of this process, those of libraries too.
        files: open file descriptors.
    """

    live: int
    rss: int
    threads: int
    files: int

    @classmethod
    def now(cls) -> Held:
        """Look, after what is garbage is gone."""
        gc.collect()
        with open("/proc/self/status") as lines:
            status = dict(line.split(":", 1) for line in lines)
        rss, threads = int(status["VmRSS"].split()[0]) * 1024, int(status["Threads"])
        return cls(in_use(), rss, threads, len(os.listdir("/proc/self/fd")))


def write(folder: Path, bad: Mapping[int, Callable[[bytes], bytes]]) -> str:
    """Shards of images of 16 x 16 pixels, some of them broken; answer their pattern."""
    folder.mkdir()
    images = [damage.jpeg(i, 16, 16) for i in range(RECORDS)]
    records = [damage.example(i, bad[i](image) if i in bad else image) for i, image in enumerate(images)]
    for shard in range(FILES):
        damage.write(folder / f"part-{shard}", records[shard * RECORDS // FILES : (shard + 1) * RECORDS // FILES])
    return str(folder / "part-*")


def records(pattern: str) -> Dataset:
    return Dataset.list_files(pattern, seed=1).interleave(gp.TFRecordDataset, 2, num_parallel_calls=gp.AUTOTUNE)


def images(pattern: str, options: gp.Options, size: int = 8) -> Dataset:
    """Batches of two images, without end."""

    def example(record: Any) -> Any:
        encoded, label = parse(record)
        image = ops.random_crop(ops.decode_jpeg(encoded, channels=3), (size, 8, 3))
        return ops.random_flip_left_right(image), label

    return records(pattern).shuffle(16).repeat().map(example).batch(2).prefetch(2).with_options(options)


def numbers(pattern: str, passes: int) -> Dataset:
    """Batches that need no executor, with a Python function in threads, from every kind of buffer."""
    parsed = records(pattern).map(lambda record: parse(record)[1])
    ds = (
        parsed.cache()
        .shuffle(16)
        .repeat(passes)
        .map(lambda x: int(x) + 1, num_parallel_calls=2, spec=gp.TensorSpec((), "int64"))
    )
    return Dataset.zip(ds, ds.skip(1)).batch(4).rebatch(2).prefetch(2)


def quarters(begin: int, end: int) -> set[int]:
    """Where to look: at the beginning, three times on the way, and at the end."""
    return {begin + (end - begin) * i // 4 for i in range(5)}


LOOKS = 16
"""Batches, up to one, of which the smallest figure counts: records in a buffer keep blocks of a megabyte alive."""


def many_batches(ds: Dataset, count: int, warm: int, every: int) -> dict[str, Any]:
    """One iterator, `count` batches long; the figures from batch `warm` on. Each `every`-th time its state is taken."""
    looks: dict[int, list[Held]] = {at: [] for at in sorted(quarters(warm, count))}
    began = time.perf_counter()
    with ds.iterator(epoch=0) as items:
        for n, batch in enumerate(items, 1):
            assert len(batch[0]) == 2
            del batch
            if not n % every:
                json.dumps(items.state_dict())
            for at, held in looks.items():
                if at - LOOKS < n <= at:
                    held.append(Held.now())
            if n == count:
                break
    least = [min(held, key=lambda one: (one.live, one.rss)) for held in looks.values()]
    return {"held": [asdict(one) for one in least], "seconds": time.perf_counter() - began}


def many_iterators(chains: Iterator[Dataset], count: int, warm: int, take: int, state: bool) -> dict[str, Any]:
    """`count` iterators behind the `warm` first: closed, left to the collector, or run to their end, in turn."""
    held: list[Held] = []
    at = quarters(warm, warm + count)
    began = time.perf_counter()
    for n, ds in zip(range(warm + count + 1), chains, strict=False):
        if n in at:
            held.append(Held.now())
        items = iter(ds)
        for _, batch in zip(range(take), items, strict=False):
            if state:
                json.dumps(items.state_dict())
            del batch
        if n % 2:
            items.close()
        del items
    return {"held": [asdict(one) for one in held], "seconds": time.perf_counter() - began}


def soak(executor: str, batches: int, warm: int, iterators: int) -> dict[str, Any]:
    """Run everything on one executor.

    Returns:
        "batches": one long iterator. "repairs": one over data with two bad images in 32, one of which only the decoder
        finds. "iterators": many over one chain. "chains": many over chains that differ, so that DALI has to build each
        of them. "host" has "batches", with a state behind each, and "iterators".
    """
    with TemporaryDirectory() as folder:
        pattern = write(Path(folder) / "good", {})
        if executor == "host":
            ds = numbers(pattern, 2)
            return {
                "batches": many_batches(numbers(pattern, -1), batches // 5, warm // 5, 1),
                "iterators": many_iterators(iter(lambda: ds, None), iterators, iterators // 4, 12, state=True),
                "threads": threading.active_count(),
            }
        ds = images(pattern, on(executor, threads=2))
        found: dict[str, Any] = {"batches": many_batches(ds, batches, warm, 50)}
        damaged = write(Path(folder) / "bad", {3: cut, 21: bad_scan})
        ds_bad = images(damaged, on(executor, threads=2, on_error="skip"))
        # After 400 repairs the allocator still grows by 0.1 to 0.7 MB, after 1,000 by less than 0.15.
        found["repairs"] = many_batches(ds_bad, batches // 2, warm // 2, 10)
        found["iterators"] = many_iterators(iter(lambda: ds, None), iterators, 20, 3, state=False)
        sizes = (images(pattern, on(executor, threads=2), 1 + n % 15) for n in range(iterators + 21))
        found["chains"] = many_iterators(sizes, iterators, 20, 3, state=False)
        found["threads"] = threading.active_count()
        return found


def main(executor: str, *counts: str) -> None:
    """Run from the command line."""
    bad_records.KEPT = REMEMBERED
    print(json.dumps(soak(executor, *map(int, counts))))


if __name__ == "__main__":
    main(*sys.argv[1:])
