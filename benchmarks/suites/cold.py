"""cold: a first epoch from a local disk, whose pages are not in memory: through a shuffle, beside a plain read.

Records of 110 KB lie in shards. Before each run their pages are dropped, which any user may do. The reference reads the
files from front to back in blocks of a megabyte and does nothing with them: what the disk gives at best. The others
read records in turn from 8 files through a shuffle of 10,000. Seconds of the clock count, as the disk is what limits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.equal import UnequalWork
from benchmarks.process import environment
from benchmarks.suites.cold_reads import READERS
from benchmarks.tfrecord import write_record
from gpupipe.comparison.ratios import Spread, pair_order, ratios

__all__ = ["GOALS", "add_options", "cold"]

REFERENCE = "plain"
GOALS: Mapping[str, float] = {"gpupipe's rate over a plain read's": 0.5}
SHARDS, BYTES = 16, 110_000
_ROOT = Path(__file__).parents[2]


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("cold", help="a first epoch from disk through a shuffle, beside a plain read")
    parser.set_defaults(run=_run)
    parser.add_argument("--records", type=int, default=12_000, help="of 110 KB (%(default)s)")
    parser.add_argument("--shuffle", type=int, default=10_000, help="records in the buffer (%(default)s)")
    parser.add_argument("--pairs", type=int, default=9, help="of each contestant with the plain read (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = tuple(options.contestants.split(",")) if options.contestants else ("gpupipe", "tfdata")
    how = {"records": options.records, "shuffle": options.shuffle, "pairs": options.pairs, "threads": options.threads}
    print(f"written to {cold(options.out, folder, names, **how).name}")
    return 0


def cold(
    out: Path, folder: Path, names: Sequence[str], *, records: int, shuffle: int, pairs: int, threads: int
) -> Path:
    """Measure, print a table, and write the result file.

    Args:
        out: folder of the result file.
        folder: the shards are written here: it has to be on a disk.
        names: in `READERS`.
        records: of `BYTES` bytes each, at least `SHARDS`.
        shuffle: records in the buffer.
        pairs: of each contestant with the plain read.
        threads: of a contestant.

    Raises:
        UnequalWork: an unknown name.
    """
    if wrong := [name for name in names if name not in READERS or name == REFERENCE]:
        raise UnequalWork(f"cold needs contestants out of {', '.join(READERS)}, got {', '.join(wrong)}")
    files = _written(folder, records)
    runs: dict[str, list[dict[str, Any]]] = {}
    absent: dict[str, str] = {}
    for name in names:
        own: list[dict[str, Any]] = []
        reference: list[dict[str, Any]] = []
        for number in range(pairs):
            for which in pair_order(number):
                one = _run_of((name, REFERENCE)[which], shuffle, threads, files)
                if isinstance(one, str):
                    absent[name] = one
                    break
                (own, reference)[which].append(one)
                print(f"{(name, REFERENCE)[which]} {one['seconds']:.2f} s", file=sys.stderr, flush=True)
            if name in absent:
                break
        else:
            runs[name], runs[f"{REFERENCE} beside {name}"] = own, reference
    of_disk = any(one["of_disk"] for some in runs.values() for one in some)
    if not of_disk:
        print("nothing was read from a disk, so these are figures of memory: choose another folder with --scratch")
    summary = {name: _summary(runs[name], runs[f"{REFERENCE} beside {name}"]) for name in names if name in runs}
    print(_table(summary, absent))
    settings = {"records": records, "bytes": BYTES, "shards": SHARDS, "shuffle": shuffle, "pairs": pairs}
    document = report.header("cold", {**settings, "threads": threads, "of_disk": of_disk})
    document |= {"goals": dict(GOALS), "reference": REFERENCE, "not_measured": absent, "summary": summary, "runs": runs}
    return report.write(document, out)


def _written(folder: Path, records: int) -> tuple[str, ...]:
    """Shards of records of random bytes, which no file system compresses."""
    target = folder / "cold"
    target.mkdir()
    files = [target / f"{n:02d}.tfrecord" for n in range(SHARDS)]
    for n, path in enumerate(files):
        with open(path, "wb") as file:
            for _ in range(n, records, SHARDS):
                write_record(file, os.urandom(BYTES))
    return tuple(map(str, files))


def _run_of(kind: str, shuffle: int, threads: int, files: Sequence[str]) -> dict[str, Any] | str:
    """One run in a process of its own; or why there is none."""
    words = [sys.executable, "-m", "benchmarks.suites.cold_reads", kind, str(shuffle), str(threads), *files]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=_ROOT, env=environment(), check=False, timeout=1800
    )
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2][:200] or f"exit status {done.returncode}"
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def _summary(own: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def rates(some: Sequence[Mapping[str, Any]]) -> list[float]:
        return [one["bytes"] / one["seconds"] / 1e6 for one in some]

    return {
        "mb_per_s": asdict(Spread.of(rates(own))),
        "reference_mb_per_s": asdict(Spread.of(rates(reference))),
        "rate_ratio": asdict(ratios(rates(own), rates(reference))),
        "cpu_s": asdict(Spread.of([one["cpu_s"] for one in own])),
        "of_disk_share": asdict(Spread.of([one["of_disk"] / one["bytes"] for one in own])),
    }


def _table(summary: Mapping[str, Mapping[str, Any]], absent: Mapping[str, str]) -> str:
    (goal,) = GOALS.values()
    lines = [f"{'a first epoch from disk':<26}{'MB/s':>8}{'plain':>8}{'ratio':>8}{'CPU s':>8}{'of disk':>9}"]
    for name, one in summary.items():
        ratio = one["rate_ratio"]["median"]
        met = f"   goal >= {goal:g}: {'met' if ratio >= goal else 'NOT met'}" if name == "gpupipe" else ""
        cells = one["mb_per_s"]["median"], one["reference_mb_per_s"]["median"]
        lines.append(
            f"{name:<26}{cells[0]:>8.0f}{cells[1]:>8.0f}{ratio:>8.2f}{one['cpu_s']['median']:>8.2f}"
            f"{one['of_disk_share']['median']:>9.2f}{met}"
        )
    return "\n".join([*lines, *(f"{name}: {why}" for name, why in absent.items())])
