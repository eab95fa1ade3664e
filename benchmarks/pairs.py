"""pairs: run jobs in processes of their own, and contestants in alternating pairs."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, TypeVar

from benchmarks import tied
from benchmarks.checkout import place
from benchmarks.job import Audit, Job, Run
from benchmarks.process import PeakMemory, ending, ends
from gpupipe.comparison.ratios import pair_order

__all__ = ["ContestantFailed", "Pair", "alternate", "audit", "notices_damage", "run_pairs", "spawn"]

T = TypeVar("T")
CHILD = "benchmarks.child"
"""The module run in a contestant's process: a job on stdin, a report as the last line of stdout."""


class ContestantFailed(Exception):
    """A contestant's process ended without a report; the text holds the end of its stderr.

    Attributes:
        contestant: its name.
        reason: why, in one line.
    """

    def __init__(self, contestant: str, reason: str, text: str) -> None:
        super().__init__(text)
        self.contestant, self.reason = contestant, reason


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs right after one another: a contestant's, and the reference's."""

    contestant: str
    run: Run
    reference: Run
    reference_first: bool


def spawn(job: Job) -> tuple[dict[str, Any], int]:
    """Run one job; return its report and the peak memory of its process tree in bytes.

    Raises:
        ContestantFailed: if it does not report, or not within `job.timeout`: then whatever it started is killed.
    """
    # Files instead of pipes: a grandchild may hold these open forever, and they need no reader while it runs.
    with (
        place(job.checkout) as (folder, variables),
        tempfile.TemporaryFile() as order,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        order.write(replace(job, started=time.monotonic()).to_json().encode() + b"\n")
        order.seek(0)
        process = subprocess.Popen(
            tied.command(CHILD),
            stdin=order,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=variables,
            start_new_session=True,
        )
        watch = PeakMemory(process.pid)
        try:
            if not ends(process.pid, job.timeout):
                late = f"needs to finish within {job.timeout:.0f} s, got no end; run it alone, or give it more time"
                raise ContestantFailed(job.contestant, f"no end within {job.timeout:.0f} s", f"{job.contestant} {late}")
        finally:
            peak = watch.stop()
            os.killpg(process.pid, signal.SIGKILL)  # and its children, while no other process can have its number
            status = process.wait()
        said, errors = _text(out), _text(err)
    if status or not said.strip():
        how = ending(status) or "ended without a report"
        last = next((line.strip() for line in reversed(errors.splitlines()) if line.strip()), "it said nothing")
        raise ContestantFailed(
            job.contestant, f"{how}: {last[:300]}", f"{job.contestant} {how} and this text:\n{errors[-3000:]}"
        )
    report: dict[str, Any] = json.loads(said.splitlines()[-1])
    return report, peak


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def audit(job: Job) -> Audit:
    """Run a contestant over the probe files of `job` and describe its output."""
    report, _ = spawn(replace(job, mode="audit"))
    return Audit(**{**report, "shape": tuple(report["shape"])})


def notices_damage(job: Job) -> bool:
    """Whether a contestant raises an error on a record with a wrong checksum.

    Call it after a successful audit: then only the checksum can be wrong.
    """
    report, _ = spawn(replace(job, mode="damaged"))
    return bool(report["error"])


def measure(job: Job) -> Run:
    """Run one job; its peak memory is the larger of what the kernel and the watcher saw."""
    report, peak = spawn(job)
    run = Run(**{**report, "shape": tuple(report["shape"])})
    return replace(run, peak_rss_mb=max(run.peak_rss_mb, peak / 1e6))


def run_pairs(
    job: Job,
    contestants: Sequence[str],
    reference: str,
    count: int,
    measure: Callable[[Job], Run] = measure,
    one_seed: bool = False,
    on_failure: Callable[[ContestantFailed], None] | None = None,
    until: float = math.inf,
) -> Iterator[Pair]:
    """Yield `count` pairs of each contestant with the reference; the reference is also paired with itself.

    Each round has all contestants, so that a slow minute of the machine affects all of them, and every second pair
    runs the reference first. Every run has a seed of its own: over 2,560 images the windows of one seed have up to 4 %
    more pixels than those of another, which is more work. With `one_seed` the two runs of a pair share their seed: then
    one library does the same work twice, with an option and without.

    A contestant that fails is passed to `on_failure` and left out from then on. The first round is always run, a later
    one only if it would end before `until` (of `time.monotonic()`), should it take as long as the longest so far.

    Raises:
        ContestantFailed: the reference failed, or there is no `on_failure`.
    """

    def failed(name: str, error: ContestantFailed) -> None:
        if error.contestant == reference or on_failure is None:
            raise error
        on_failure(error)

    names = (reference, *(name for name in contestants if name != reference))
    rows = [(name, replace(job, contestant=name), replace(job, contestant=reference)) for name in names]
    for name, run, other, second_first in alternate(rows, count, measure, failed, one_seed, until):
        yield Pair(name, run, other, reference_first=second_first)


def alternate(
    rows: Sequence[tuple[str, Job, Job]],
    count: int,
    measure: Callable[[Job], T],
    on_failure: Callable[[str, ContestantFailed], None],
    one_seed: bool = False,
    until: float = math.inf,
) -> Iterator[tuple[str, T, T, bool]]:
    """Measure the two jobs of each row `count` times in alternating order; `run_pairs` says what the arguments mean.

    Yields:
        The name of the row, what was measured for its first job and for its second, and whether the second ran first.
    """
    left, longest = list(rows), 0.0
    for i in range(count):
        begun = time.monotonic()
        if i and begun + longest > until:
            return
        for row in tuple(left):
            name, *both = row
            jobs = [replace(job, seed=job.seed + 2 * i + which * (not one_seed)) for which, job in enumerate(both)]
            found: dict[int, T] = {}
            try:
                for which in pair_order(i):
                    found[which] = measure(jobs[which])
            except ContestantFailed as error:
                on_failure(name, error)
                left.remove(row)
                continue
            yield name, found[0], found[1], pair_order(i)[0] == 1
        longest = max(longest, time.monotonic() - begun)
