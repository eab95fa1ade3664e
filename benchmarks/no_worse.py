"""no_worse: what the gpupipe beside these benchmarks costs over that of another checkout, in alternating pairs.

Both run the same contestants with the same seeds. The first contestant is also paired with itself: that is the noise. A
contestant is no worse if the median of its ratios is at most `LIMIT`, or as near to 1 as that of the noise.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.checkout import ROOT
from benchmarks.contestants import CONTESTANTS, missing
from benchmarks.equal import UnequalWork
from benchmarks.job import Job
from benchmarks.machine import commit
from benchmarks.pairs import ContestantFailed, alternate, spawn
from benchmarks.stop import Stopped
from gpupipe.comparison.ratios import Spread, ratios

__all__ = ["LIMIT", "PAIRS", "Report", "cpu_us", "no_worse", "own", "verdict"]

LIMIT = 1.02
PAIRS = 9
"""For which `LIMIT` is meant; with fewer the verdict says how many there were."""
NOISE = "noise"
_WORK = ("items", "shape", "dtype")
"""What the reports of both checkouts have to agree in, where they have it."""

Report = Mapping[str, Any]
"""What a run prints about itself."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The reports of two runs right after one another; for the noise both are of this checkout."""

    new: Report
    old: Report
    old_first: bool


def cpu_us(run: Report) -> float:
    """CPU-microseconds an item."""
    return float(run["cpu_seconds"]) / int(run["items"]) * 1e6


def own(work: str, asked: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return gpupipe's contestants of a kind of work that can take part, and why the others cannot.

    Raises:
        UnequalWork: a name is not one of them, or none can take part.
    """
    known = [name for name, one in CONTESTANTS.items() if one.work == work and "gpupipe" in one.needs]
    if wrong := [name for name in asked if name not in known]:
        raise UnequalWork(f"--checkout needs contestants out of {', '.join(known)}, got {', '.join(wrong)}")
    absent = {name: why for name in asked or known if (why := missing(CONTESTANTS[name]))}
    if not (names := [name for name in asked or known if name not in absent]):
        raise UnequalWork(f"--checkout needs a contestant, got {', '.join(absent)}: {'; '.join(absent.values())}")
    return names, absent


def no_worse(
    name: str,
    jobs: Mapping[str, Job],
    checkout: Path,
    out: Path,
    *,
    pairs: int,
    settings: Report,
    figures: Mapping[str, Callable[[Report], float]],
    measure: Callable[[Job], Report] = lambda job: spawn(job)[0],
    absent: Mapping[str, str] | None = None,
    until: float = math.inf,
) -> Path:
    """Measure every job with both checkouts, print a table with a verdict for each, and return the result file.

    Args:
        name: of the benchmark.
        jobs: of the contestants, by their labels in the table.
        checkout: the folder of the other checkout.
        out: folder of the result file.
        pairs: of each contestant.
        settings: for the result file, without paths.
        figures: what is compared, from the report of a run.
        measure: runs a job with the gpupipe of its `checkout`.
        absent: contestants that take no part, and why.
        until: when to leave out further rounds, of `time.monotonic()`.

    Raises:
        ContestantFailed: the first contestant fails in this checkout, or all of them do in the other.
        UnequalWork: the checkouts do not deliver the same.
        Stopped: a signal has ended it. If each contestant had a pair, the table was printed and the result written.
    """
    new, old = str(ROOT), str(checkout.resolve())
    for side in (new, old):
        _compile(side)
    rows = [(label, replace(job, checkout=new), replace(job, checkout=old)) for label, job in jobs.items()]
    rows.insert(0, (NOISE, rows[0][1], rows[0][1]))
    failures: dict[str, ContestantFailed] = {}
    found: dict[str, list[Pair]] = {}
    end: Stopped | None = None

    def failed(label: str, error: ContestantFailed) -> None:
        failures[label] = error
        if label == NOISE or failures.keys() >= jobs.keys():
            raise error
        found.pop(label, None)
        _say(f"{label} takes no part: {error}")

    try:
        for label, one, other, old_first in alternate(rows, pairs, partial(_told, measure), failed, True, until):
            _check(label, one, other)
            found.setdefault(label, []).append(Pair(one, other, old_first))
            costs = "; ".join(f"{what} {cost(one):.2f}, {cost(other):.2f}" for what, cost in figures.items())
            _say(f"{label}, pair {len(found[label])} of {pairs}: {costs}")
    except Stopped as stopped:
        if len(found) + len(failures) < len(rows):
            raise
        end = stopped
    document: dict[str, Any] = {
        **report.header(f"checkout-{name}", {**settings, "pairs": pairs}),
        "checkout": commit(checkout),
        "limit": LIMIT,
        "noise_of": next(iter(jobs)),
        "not_measured": {**(absent or {}), **{label: f"failed: {error.reason}" for label, error in failures.items()}},
        "summary": {what: summary(found, cost) for what, cost in figures.items()},
        "pairs": [{"contestant": label, **asdict(pair)} for label, some in found.items() for pair in some],
    }
    if end is not None or any(len(some) < pairs for some in found.values()):
        why = "the end of the minutes" if end is None else end.signal
        document["stopped"] = f"{why} in round {len(found[NOISE])} of {pairs}"
    text = table(document)
    document["summary"] = {what: report.plain(rows) for what, rows in document["summary"].items()}
    path = report.write(document, out)  # before it is printed, which a signal may end
    print(text)
    if end is not None:
        raise end
    return path


def summary(found: Mapping[str, Sequence[Pair]], cost: Callable[[Report], float]) -> dict[str, dict[str, Any]]:
    """Summarise a figure of each contestant, and of the noise: both checkouts, their ratio, and the verdict on it."""
    rows: dict[str, dict[str, Any]] = {}
    for label, some in found.items():
        new, old = [cost(pair.new) for pair in some], [cost(pair.old) for pair in some]
        rows[label] = {"new": Spread.of(new), "old": Spread.of(old), "ratio": ratios(new, old)}
    for label in found.keys() - {NOISE}:
        rows[label]["verdict"] = verdict(rows[label]["ratio"], rows[NOISE]["ratio"])
    return rows


def verdict(ratio: Spread, noise: Spread) -> str:
    """Say whether new over old is no worse: at most `LIMIT`, or as near to 1 as the noise."""
    fine = ratio.median <= max(LIMIT, noise.median, 1 / noise.median)
    few = f", {ratio.count} of {PAIRS} pairs" if ratio.count < PAIRS else ""
    return f"{'no worse' if fine else 'worse'}: {ratio}, noise {noise.median:.3f}{few}"


def table(document: Mapping[str, Any]) -> str:
    """Lay out the commits, each figure of each contestant with its verdict, and the contestants that are missing."""
    lines = [f"new: {document['commit']}, old: {document['checkout']}"]
    for what, rows in document["summary"].items():
        lines.append(f"{what:<36}{'new':>12}{'old':>12}   new / old, pair by pair: median (min-max)")
        for label, one in rows.items():
            name = f"{document['noise_of']}, with itself" if label == NOISE else label
            said = one.get("verdict") or f"the noise: {one['ratio']}"
            lines.append(f"{name:<36}{one['new'].median:>12.2f}{one['old'].median:>12.2f}   {said}")
    lines += [f"{label}: {why}" for label, why in document["not_measured"].items()]
    lines.append(f"no worse: a median of {PAIRS} pairs of at most {LIMIT:g}, or as near to 1 as that of the noise")
    return "\n".join(lines)


def _compile(folder: str) -> None:
    """Write the bytecode of a checkout, so that no run has to."""
    packages = [f"{folder}/gpupipe", f"{folder}/gpupipe/ops"]  # a link to a folder is not followed, unless it is named
    done = subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        raise UnequalWork(f"a checkout needs bytecode before it is measured, got an error: {said}")


def _told(measure: Callable[[Job], Report], job: Job) -> Report:
    """Measure a job; a failure says which checkout it is of."""
    try:
        return measure(job)
    except ContestantFailed as error:
        where = "in this checkout" if job.checkout == str(ROOT) else "in the other checkout"
        raise ContestantFailed(error.contestant, f"{where}: {error.reason}", f"{where}: {error}") from error


def _check(label: str, new: Report, old: Report) -> None:
    """Refuse two checkouts that do not deliver the same."""
    ours, theirs = ({key: run[key] for key in _WORK if key in run} for run in (new, old))
    if ours != theirs:
        raise UnequalWork(f"{label} needs equal work of both checkouts, got {ours}, and of the other one {theirs}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
