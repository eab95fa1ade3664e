"""memory: how much a large shuffle buffer adds to a process's resident memory, file pages included."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork
from benchmarks.job import Job
from benchmarks.no_worse import PAIRS, cpu_us, no_worse, own
from benchmarks.pairs import spawn

__all__ = ["GOAL_MB", "shuffle_memory", "write_records"]

GOAL_MB = 50.0
_BYTES = 110_000  # of a record's payload
_SHARDS = 8
_BATCH = 50


def write_records(folder: Path, count: int, size: int = _BYTES) -> list[Path]:
    """Write `count` Examples whose "image/encoded" is `size` bytes of noise, with gpupipe's own writer."""
    from gpupipe.io import TFRecordWriter, encode_example

    noise = random.Random(0)
    paths = [folder / f"noise-{i:05d}-of-{_SHARDS:05d}.tfrecord" for i in range(_SHARDS)]
    for i, path in enumerate(paths):
        with TFRecordWriter(path) as file:
            for label in range(i, count, _SHARDS):
                file.write(encode_example({"image/encoded": noise.randbytes(size), "image/class/label": label}))
    return paths


def shuffle_memory(
    folder: Path,
    out: Path,
    *,
    contestants: tuple[str, ...] = (),
    records: int,
    shuffle: int,
    threads: int,
    size: int = _BYTES,
    checkout: Path | None = None,
    pairs: int = PAIRS,
) -> Path:
    """Run every shuffle contestant, each in its own process; print a table and return the result file.

    Args:
        folder: where the shards are written, 110 KB a record, and removed again.
        out: folder of the result file.
        contestants: names; empty means all that shuffle.
        records: records in one pass.
        shuffle: records in the buffer.
        threads: CPU threads of a contestant.
        size: bytes of a record's payload.
        checkout: another one of gpupipe, with which gpupipe's contestants are compared; without it all run once.
        pairs: with that checkout.

    Raises:
        ContestantFailed: if one of them ends without a report.
        UnequalWork: a name is not that of a contestant that shuffles.
    """
    settings = {"records": records, "bytes": size, "shuffle": shuffle, "threads": threads, "batch": _BATCH}
    job = Job("", (), "memory", batch=_BATCH, threads=threads, warmup=20, shuffle=shuffle)
    if checkout is not None:
        names, absent = own("shuffle", contestants)
        with _written(folder, records, size) as files:
            return no_worse(
                "shuffle-memory",
                {CONTESTANTS[name].label: replace(job, contestant=name, files=files) for name in names},
                checkout,
                out,
                pairs=pairs,
                settings=settings,
                # A shuffle buffer that adds next to nothing counts as a megabyte: a ratio needs a divisor.
                figures={"CPU-us/record": cpu_us, "MB of memory": lambda run: max(run["rise_mb"], 1.0)},
                absent=absent,
            )
    known = [name for name, one in CONTESTANTS.items() if one.work == "shuffle"]
    if wrong := [name for name in contestants if name not in known]:
        raise UnequalWork(f"shuffle-memory needs contestants out of {', '.join(known)}, got {', '.join(wrong)}")
    found: dict[str, Any] = {}
    absent = {}
    with _written(folder, records, size) as files:
        for name, one in CONTESTANTS.items():
            if one.work != "shuffle" or (contestants and name not in contestants):
                continue
            if why := missing(one):
                absent[name] = why
                continue
            found[name], _ = spawn(replace(job, contestant=name, files=files))
            _say(f"{name}: {found[name]['rise_mb']:.1f} MB")
    print(_table(found, absent, shuffle))
    document = {**report.header("shuffle-memory", settings), "not_measured": absent, "runs": found, "goal_mb": GOAL_MB}
    return report.write(document, out)


@contextmanager
def _written(folder: Path, records: int, size: int) -> Iterator[tuple[str, ...]]:
    """Write the shards; remove them at the end, since they are large."""
    _say(f"writing {records} records of {size} bytes ...")
    paths = write_records(folder, records, size)
    try:
        yield tuple(map(str, paths))
    finally:
        for path in paths:
            path.unlink()


def _table(found: dict[str, Any], absent: dict[str, str], shuffle: int) -> str:
    lines = [f"rise of VmRSS through shuffle({shuffle}), MB: all = own memory + file pages + shared"]
    for name, one in found.items():
        parts = ", ".join(f"{part} {one[part]:.1f}" for part in ("anonymous_mb", "file_mb", "shared_mb"))
        verdict = ""
        if name.startswith("gpupipe"):
            verdict = f"  goal < {GOAL_MB:.0f}: {'met' if one['rise_mb'] < GOAL_MB else 'NOT met'}"
        lines.append(f"{CONTESTANTS[name].label:<34}{one['rise_mb']:>9.1f}  ({parts}; {one['items']} records){verdict}")
    lines += [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()]
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
