"""python -m tests [--all] [arguments of pytest]: tests in one process more than there are cores, then those alone.

They are a selection that takes minutes (see tests/selection.py), with `--all` every test.

A test marked `alone` reads clocks or memory, or sends signals: beside others it would find what is theirs. One marked
`gpu` needs memory of the GPU, which would not suffice for many processes. Each of the two runs prints its own ten
slowest tests. `-n 0` among the arguments, for `-s` and `--pdb`, makes both of them run in one process.

Answers the exit status of the first run that went wrong; to select no test is wrong only where both select none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

MOST = 8
"""Processes: each collects all tests by itself, which takes 20 seconds and 0.3 GB."""

NOTHING_WRONG = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main(arguments: Sequence[str], cores: int) -> int:
    """Run pytest twice; answer the exit status."""
    if name := os.environ.pop("GPUPIPE_PASSED", ""):  # an option: what tests start has none
        # one word: a second, once there is such a file, pytest would take for a file of tests
        arguments = [*arguments, f"--passed={name}"]
    if "--all" in arguments:
        arguments = [word for word in arguments if word != "--all"]
    else:
        os.environ["GPUPIPE_QUICK"] = "1"
    # one more than there are cores, since many tests wait for what they start; worksteal: neighbours stay together, and
    # so do the fixtures that they share
    first = _pytest(["-n", str(min(cores + 1, MOST)), "--dist", "worksteal", "--alone", "without", *arguments])
    if first not in (*NOTHING_WRONG, pytest.ExitCode.TESTS_FAILED):  # interrupted, say by -x; or a wrong argument
        return first
    print("\nthe tests that run alone:", flush=True)
    second = _pytest(["--alone", "only", *arguments, "-n", "0"])
    wrong = [status for status in (first, second) if status not in NOTHING_WRONG]
    return wrong[0] if wrong else min(first, second)


def _pytest(arguments: Sequence[str]) -> int:
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments])
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # pytest has heard Ctrl-C, too: it tidies up, and says what it has seen
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1))
