"""training: a loop with a step of a given length after each batch: which share of the time does it wait for batches?

The step sleeps, as a host does whose accelerator computes: every core is free for the next batches. A loader that keeps
up makes the loop wait not at all; one that does not, by what it takes longer than the step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import data, report
from benchmarks.compare import Comparison, audited, present
from benchmarks.contestants import CONTESTANTS
from benchmarks.job import Job
from benchmarks.pairs import ContestantFailed, spawn
from gpupipe.comparison.ratios import Spread

__all__ = ["STEPS", "add_options", "table", "training"]

STEPS = (50, 100, 200, 400)
"""Milliseconds of a step of 64 images."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("training", help="a training step of a given length: the share of time spent waiting")
    parser.set_defaults(run=_run)
    parser.add_argument("--data", default="", help="a glob of TFRecord shards; default: procedural photographs")
    steps = ",".join(map(str, STEPS))
    parser.add_argument("--steps", default=steps, help="milliseconds of a step, separated by commas (%(default)s)")
    parser.add_argument("--pairs", type=int, default=5, help="runs of each contestant and step (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="rows in a batch (%(default)s)")
    parser.add_argument("--batches", type=int, default=40, help="steps in the window (%(default)s)")
    parser.add_argument("--warmup", type=int, default=10, help="steps before it (%(default)s)")
    parser.add_argument("--probes", type=int, default=40, help="passes over 512 probes (%(default)s)")
    parser.add_argument("--shuffle", type=int, default=1000, help="records in the buffer (%(default)s)")
    parser.add_argument("--dry", action="store_true", help="few probes: print what differs instead of refusing it")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = tuple(options.contestants.split(",")) if options.contestants else ()
    what = Comparison(
        "chain", options.data, names, pairs=options.pairs, batch=options.batch, batches=options.batches,
        warmup=options.warmup, threads=options.threads, shuffle=options.shuffle, probes=options.probes, dry=options.dry,
    )  # fmt: skip
    steps = [float(one) for one in options.steps.split(",")]
    print(f"written to {training(what, steps, folder, options.out).name}")
    return 0


def training(what: Comparison, steps: Sequence[float], folder: Path, out: Path) -> Path:
    """Run the loop for each contestant and length of a step, print a table, and write the result file.

    Raises:
        UnequalWork: contestants that cannot be compared.
    """
    names, absent = present(what)
    shards = data.load(what.data, folder, what.size)

    def failed(error: ContestantFailed) -> None:
        print(f"{error.contestant} takes no part: {error}", file=sys.stderr, flush=True)
        absent[error.contestant] = f"failed: {error.reason}"

    needed = (what.warmup + what.batches) * what.batch + what.shuffle + 8 * what.batch
    job = Job(
        what.reference, data.repeated(shards.files, shards.records, needed), batch=what.batch, threads=what.threads,
        warmup=what.warmup, batches=what.batches, shuffle=what.shuffle, timeout=what.timeout,
    )  # fmt: skip
    audits, _ = audited(what, names, folder, job, failed)
    runs: list[dict[str, Any]] = []
    for number in range(what.pairs):
        here = [name for name in names if name not in absent]
        for name in here[:: -1 if number % 2 else 1]:
            for step in steps:
                try:
                    one, _ = spawn(replace(job, contestant=name, mode="training", step=step / 1e3, seed=number))
                except ContestantFailed as error:
                    failed(error)
                    break
                runs.append({"contestant": name, "step_ms": step, **one})
                print(f"{name}, {step:g} ms: waits {one['waited']:.1%}", file=sys.stderr, flush=True)
    found = summary([run for run in runs if run["contestant"] not in absent])
    print(table(found, steps, absent))
    settings = {**asdict(what), **shards.describe(), "steps_ms": list(steps)}
    document = {
        **report.header("training", settings),
        "not_measured": absent,
        "audits": [asdict(one) for one in audits],
        "summary": {name: {step: report.plain(one) for step, one in by.items()} for name, by in found.items()},
        "runs": runs,
    }
    return report.write(document, out)


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, dict[str, Spread]]]]:
    """Summarise the runs by contestant and step."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(run["contestant"] for run in runs):
        of = [run for run in runs if run["contestant"] == name]
        found[name] = {
            f"{step:g}": {"measured": {key: Spread.of([run[key] for run in of if run["step_ms"] == step])
                                       for key in ("waited", "images_per_s", "cpu_ms_per_item")}}
            for step in dict.fromkeys(run["step_ms"] for run in of)
        }  # fmt: skip
    return found


def table(found: Mapping[str, Mapping[str, Any]], steps: Sequence[float], absent: Mapping[str, str]) -> str:
    """The share of the time that is spent waiting, and images per second, by length of the step."""
    lines = [f"{'waits (images/s), by step':<30}" + "".join(f"{f'{step:g} ms':>18}" for step in steps)]
    for name, by in found.items():
        ones = [by[f"{step:g}"]["measured"] for step in steps if f"{step:g}" in by]
        cells = [f"{one['waited'].median:.1%} ({one['images_per_s'].median:.0f})" for one in ones]
        lines.append(f"{CONTESTANTS[name].label:<30}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines + [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()])
