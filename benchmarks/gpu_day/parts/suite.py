"""suite: the tests that need a GPU, folder by folder."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tied
from benchmarks.contestants import has_module
from benchmarks.gpu_day import outcomes
from benchmarks.gpu_day.day import ROOT, Day
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["FOLDERS", "PART", "questions", "run", "summary"]

PART = Part("suite", "the tests marked gpu", 400, 180, least=60, needs=("nvidia.dali", "pytest", "pytest_timeout"))

FOLDERS = (
    "tests/conformance", "tests/transform", "tests/ops", "tests/reliability", "tests/behaviour"
)  # fmt: skip
"""Every folder with a test marked gpu, the most important first."""
_LEFT_OUT = ("tests/reliability/test_soak.py",)
"""Takes minutes, and tells nothing new on the first day."""
_ON_STAND_IN = ("tests/conformance/test_fused.py", "tests/reliability/test_stand_ins.py")
_ENDING = 15
"""Seconds of a question that are reserved for its answer."""


def questions(day: Day) -> Questions:
    """Return a question for each folder; a dry run takes two files, on the stand-in for a GPU."""
    if day.dry:
        return {"the stand-in": lambda: run(day, "dry", ("-m", "gpu", "-p", "tests.stand_in_gpu", *_ON_STAND_IN))}
    parallel = ("-n", str(min(8, day.threads))) if has_module("xdist") else ()
    without = [word for name in _LEFT_OUT for word in ("--deselect", name)]
    return {
        folder: partial(run, day, folder.replace("/", "-"), ("-m", "gpu", *parallel, *without, folder))
        for folder in FOLDERS
    }


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return counts, and the tests that failed."""
    lines = []
    for folder, one in answers.items():
        lines.append(f"{folder}: {one['passed']} passed, {len(one['failed'])} failed, {one['skipped']} skipped, "
                     f"{len(one['unfinished'])} unfinished ({one['ended']})")  # fmt: skip
        lines += [f"failed: {test}: {said}" for test, said in one["failed"].items()]
        lines += [f"unfinished: {test}" for test in one["unfinished"]]
    return lines


def run(day: Day, name: str, words: Sequence[str]) -> dict[str, Any]:
    """Run pytest on some tests; return their outcomes, however pytest itself ends.

    Raises:
        RuntimeError: no test was run at all.
    """
    notes = Path(day.folder, f"{name}.outcomes")
    notes.unlink(missing_ok=True)
    # pytest-benchmark, where it is installed, warns if tests run in several processes, and here a warning is an error.
    usual = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "-p", outcomes.__name__, "--timeout", "60")
    command = tied.command("pytest", *usual, *words)
    environment = day.environment(**{outcomes.VARIABLE: str(notes)})
    try:
        status = subprocess.run(command, cwd=ROOT, env=environment, timeout=PART.limits(day)[1] - _ENDING).returncode
        ended = f"pytest ended with {status}"
    except subprocess.TimeoutExpired:
        ended = "pytest took too long"
    found = {**outcomes.read(notes), "ended": ended}
    if not found["passed"] and not found["failed"] and not found["unfinished"] and not found["skipped"]:
        raise RuntimeError(f"no test was run: {ended}; what it printed is kept with this part")
    return found
