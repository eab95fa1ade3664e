"""first: how long until the first batch, from the start of the process and of the iterator; and what an import costs.

The chain of the README with a shuffle buffer, which has to be filled first; each run is a process of its own, in pairs
with hand-written DALI. `chain` audits that their work is equal. Importing is timed as a whole process: `import gpupipe`
and `import numpy` in turn, with bytecode from a run before. Two checkouts are compared by CPU time.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import checkout, data, report
from benchmarks.compare import Comparison, present
from benchmarks.contestants import CONTESTANTS
from benchmarks.job import Job
from benchmarks.no_worse import Report, no_worse, own
from benchmarks.pairs import ContestantFailed, Pair, run_pairs, spawn
from benchmarks.process import environment
from gpupipe.comparison.ratios import Spread, pair_order

__all__ = ["CONTEST", "GOALS", "add_options", "apart", "first_batch", "first_batch_checkouts", "imports"]

REFERENCE = "dali"
CONTEST = (REFERENCE, "gpupipe-dali", "gpupipe-fast", "gpupipe-numpy", "tfdata")
GOALS: Mapping[str, float] = {"first batch after DALI's, s": 0.1, "import over NumPy's, s": 0.15}
_ROOT = Path(__file__).parents[2]
_IMPORT = "import gpupipe"
_IMPORTS = 5
"""Processes whose CPU time is one figure, where two checkouts are compared."""


def add_options(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("first-batch", help="time to the first batch, and of import gpupipe")
    parser.set_defaults(run=_run)
    parser.add_argument("--data", default="", help="a glob of TFRecord shards; default: procedural photographs")
    parser.add_argument("--pairs", type=int, default=9, help="of each contestant, and of imports (%(default)s)")
    parser.add_argument("--batch", type=int, default=64, help="rows in a batch (%(default)s)")
    parser.add_argument("--shuffle", type=int, default=1000, help="records in the buffer (%(default)s)")


def _run(options: argparse.Namespace, folder: Path) -> int:
    names = tuple(options.contestants.split(",")) if options.contestants else ()
    what = Comparison(
        "chain", options.data, names, pairs=options.pairs, batch=options.batch, shuffle=options.shuffle,
        threads=options.threads, warmup=1, batches=1,
    )  # fmt: skip
    if options.checkout is None:
        path = first_batch(replace(what, contestants=names or CONTEST), folder, options.out)
    else:
        path = first_batch_checkouts(what, options.checkout, folder, options.out)
    print(f"written to {path.name}")
    return 0


def first_batch(what: Comparison, folder: Path, out: Path) -> Path:
    """Measure, print a table, and write the result file.

    Raises:
        UnequalWork: an unknown name, or hand-written DALI cannot take part.
        ContestantFailed: hand-written DALI ends without a report.
    """
    names, absent = present(what)
    shards = data.load(what.data, folder)
    job = _job(what, shards)

    def failed(error: ContestantFailed) -> None:
        absent[error.contestant] = f"failed: {error.reason}"

    pairs: list[Pair] = []
    for pair in run_pairs(job, names, what.reference, what.pairs, on_failure=failed):
        pairs.append(pair)
        print(f"{pair.contestant} {pair.run.first_batch_s:.2f} s", file=sys.stderr, flush=True)
    pairs = [pair for pair in pairs if pair.contestant not in absent]
    imported = imports(what.pairs)
    over = {name: apart(pairs, name) for name in names if name not in absent}
    print(table(pairs, over, absent))
    print(_imported(imported))
    settings = {**asdict(what), **shards.describe()}
    document = report.document("first-batch", settings, pairs, what.reference, (), absent)
    document["goals"] = dict(GOALS)
    document["after_reference_s"] = {name: {key: asdict(one) for key, one in both.items()}
                                     for name, both in over.items()}  # fmt: skip
    document["imports"] = {name: asdict(Spread.of(values)) for name, values in imported.items()}
    return report.write(document, out)


def first_batch_checkouts(what: Comparison, other: Path, folder: Path, out: Path) -> Path:
    """Compare the CPU time of processes up to the first batch, and of `import gpupipe`, with another checkout's."""
    names, absent = own(what.work, what.contestants)
    shards = data.load(what.data, folder)
    job = _job(what, shards)
    jobs = {CONTESTANTS[name].label: replace(job, contestant=name) for name in names}
    return no_worse(
        "first-batch",
        {**jobs, _IMPORT: Job(_IMPORT, ())},
        other,
        out,
        pairs=what.pairs,
        settings={**asdict(what), **shards.describe(), "imports_in_a_run": _IMPORTS},
        figures={"CPU-ms to the first batch": lambda run: run["first_cpu_seconds"] * 1e3},
        measure=lambda job: _import_cpu(job.checkout) if job.contestant == _IMPORT else spawn(job)[0],
        absent=absent,
    )


def _job(what: Comparison, shards: data.Data) -> Job:
    files = data.repeated(shards.files, shards.records, 2 * what.batch + what.shuffle)
    return Job(what.reference, files, batch=what.batch, threads=what.threads, warmup=1, batches=1, shuffle=what.shuffle)


def apart(pairs: Sequence[Pair], name: str) -> dict[str, Spread]:
    """How many seconds later than the reference's the first batch came, pair by pair."""
    own = [pair for pair in pairs if pair.contestant == name]
    return {
        "from the iterator": Spread.of([pair.run.first_batch_s - pair.reference.first_batch_s for pair in own]),
        "from the process": Spread.of([pair.run.start_s - pair.reference.start_s for pair in own]),
    }


def table(pairs: Sequence[Pair], over: Mapping[str, Mapping[str, Spread]], absent: Mapping[str, str]) -> str:
    """Seconds to the first batch, how much later than the reference's, and the goal."""
    found = report.summary(pairs, REFERENCE)
    limit = GOALS["first batch after DALI's, s"]
    lines = [
        f"{'seconds to the first batch':<30}{'iterator':>10}{'process':>10}   later than {REFERENCE}, from the iterator"
    ]
    for name, later in over.items():
        one, by = found[name], later["from the iterator"]
        goal = _goal(by, limit) if name.startswith("gpupipe") else ""
        cells = f"{one['first_batch_s'].median:>10.2f}{one['start_s'].median:>10.2f}"
        lines.append(f"{CONTESTANTS[name].label:<30}{cells}   {by}{goal}")
    return "\n".join(lines + [f"{CONTESTANTS[name].label}: {why}" for name, why in absent.items()])


def imports(count: int = 9) -> dict[str, list[float]]:
    """Time processes that import gpupipe, and NumPy alone, in alternating pairs after one of each for the bytecode.

    Returns:
        Seconds of whole processes by module, and "over NumPy's": the difference in each pair.
    """
    took: dict[str, list[float]] = {"gpupipe": [], "numpy": []}
    for module in took:
        _import(module)
    for number in range(count):
        for which in pair_order(number):
            module = ("gpupipe", "numpy")[which]
            took[module].append(_import(module))
    return {**took, "over NumPy's": [a - b for a, b in zip(took["gpupipe"], took["numpy"], strict=True)]}


def _import(module: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, cwd=_ROOT, env=environment())
    return time.perf_counter() - start


def _import_cpu(folder: str) -> Report:
    """CPU time of a process that imports the gpupipe of a checkout: the mean of a few, since one is short."""
    code = "import sys, gpupipe; from benchmarks.checkout import verify; verify(sys.argv[1])"
    try:
        with checkout.place(folder) as (cwd, variables):
            subprocess.run([sys.executable, "-c", code, folder], check=True, cwd=cwd, env=variables)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            for _ in range(_IMPORTS):
                subprocess.run([sys.executable, "-c", _IMPORT], check=True, cwd=cwd, env=variables)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    except subprocess.CalledProcessError as error:  # its text is on stderr
        raise ContestantFailed(_IMPORT, f"ended with {error.returncode}", f"{_IMPORT} failed: {error}") from error
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"first_cpu_seconds": used / _IMPORTS}


def _imported(found: Mapping[str, Sequence[float]]) -> str:
    over, limit = Spread.of(found["over NumPy's"]), GOALS["import over NumPy's, s"]
    return f"import gpupipe over import numpy: {over} s{_goal(over, limit)}"


def _goal(found: Spread, limit: float) -> str:
    return f"   goal <= {limit:g}: {'met' if found.median <= limit else 'NOT met'}"
