"""cores: the chain on 1 to n cores, with as many threads: rate, CPU time, and how far from n times one core's rate.

The processes of a contestant are bound to that many cores, so that no thread of a library has more than it is given.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import data, report
from benchmarks.compare import Comparison, audited, present
from benchmarks.contestants import CONTESTANTS
from benchmarks.equal import UnequalWork
from benchmarks.job import Job
from benchmarks.machine import cores
from benchmarks.pairs import ContestantFailed, Pair, run_pairs

__all__ = ["add_options", "bound", "on_cores", "some"]


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("cores", help="the chain on 1, 2, 4 ... cores with as many threads")
    parser.set_defaults(run=_run)
    parser.add_argument("--data", default="", help="a glob of TFRecord shards; default: procedural photographs")
    parser.add_argument("--cores", default="", help="numbers, separated by commas; default: 1, 2, 4 ... and all")
    parser.add_argument("--pairs", type=int, default=5, help="for each contestant and number (%(default)s)")
    parser.add_argument("--batches", type=int, default=40, help="in the window, for each core (%(default)s)")
    parser.add_argument("--probes", type=int, default=40, help="passes over 512 probes (%(default)s)")
    parser.add_argument("--shuffle", type=int, default=1000, help="records in the buffer (%(default)s)")
    parser.add_argument("--dry", action="store_true", help="few probes: print what differs instead of refusing it")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = tuple(options.contestants.split(",")) if options.contestants else ()
    numbers = [int(one) for one in options.cores.split(",")] if options.cores else some(cores())
    what = Comparison(
        "chain", options.data, names, pairs=options.pairs, batches=options.batches, threads=max(numbers),
        shuffle=options.shuffle, probes=options.probes, dry=options.dry,
    )  # fmt: skip
    print(f"written to {on_cores(what, numbers, folder, options.out).name}")
    return 0


def some(most: int) -> list[int]:
    """Return 1, 2, 4 ... up to `most`, which is the last."""
    return sorted({*(1 << n for n in range(most.bit_length())), most})


def on_cores(what: Comparison, numbers: Sequence[int], folder: Path, out: Path) -> Path:
    """Measure the chain on each number of cores, print a table, and write the result file.

    Raises:
        UnequalWork: more cores than there are, or contestants that cannot be compared.
        ContestantFailed: the reference ends without a report.
    """
    if wrong := [n for n in numbers if not 1 <= n <= cores()]:
        raise UnequalWork(f"cores needs numbers from 1 to {cores()}, the cores of this machine, got {wrong}")
    names, absent = present(what)
    shards = data.load(what.data, folder, what.size)

    def failed(error: ContestantFailed) -> None:
        if error.contestant == what.reference:
            raise error
        absent[error.contestant] = f"failed: {error.reason}"

    most = max(numbers)
    needed = (what.warmup + most * what.batches) * what.batch + what.shuffle + 8 * what.batch
    files = data.repeated(shards.files, shards.records, needed)
    job = Job(what.reference, files, batch=what.batch, warmup=what.warmup, shuffle=what.shuffle, timeout=what.timeout)
    audits, _ = audited(what, names, folder, replace(job, threads=most), failed)
    pairs: list[tuple[int, Pair]] = []
    for number in numbers:
        with bound(number):
            some_job = replace(job, threads=number, batches=what.batches * number)
            here = [name for name in names if name not in absent]
            for pair in run_pairs(some_job, here, what.reference, what.pairs, on_failure=failed):
                pairs.append((number, pair))
                print(f"{number} cores: {pair.contestant} {pair.run.rate:.0f} images/s", file=sys.stderr, flush=True)
    pairs = [(number, pair) for number, pair in pairs if pair.contestant not in absent]
    found = {n: report.summary([pair for number, pair in pairs if number == n], what.reference) for n in numbers}
    print(table(found, absent))
    settings = {**asdict(what), **shards.describe(), "cores": list(numbers)}
    document = report.document("cores", settings, [pair for _, pair in pairs], what.reference, audits, absent)
    document["summary"] = {str(n): report.plain(one) for n, one in found.items()}
    for entry, (number, _) in zip(document["pairs"], pairs, strict=True):
        entry["cores"] = number
    return report.write(document, out)


@contextmanager
def bound(count: int) -> Iterator[None]:
    """Bind the processes that are started inside to the first `count` cores of this one."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def table(found: Mapping[int, Mapping[str, Mapping[str, Any]]], absent: Mapping[str, str]) -> str:
    """Rates by the number of cores, as a share of that many times the rate of the fewest, and CPU-milliseconds."""
    numbers = list(found)
    fewest = min(numbers)
    lines = [f"{'images/s (share of linear), CPU-ms':<30}" + "".join(f"{f'{n} cores':>26}" for n in numbers)]
    for name in found[fewest]:
        cells = []
        for n in numbers:
            if name not in found[n]:
                continue
            rate, alone = found[n][name]["items_per_s"].median, found[fewest][name]["items_per_s"].median
            cpu = found[n][name]["cpu_ms_per_item"].median
            cells.append(f"{rate:.0f} ({rate * fewest / n / alone:.2f}), {cpu:.2f}")
        lines.append(f"{CONTESTANTS[name].label:<30}" + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines + [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()])
