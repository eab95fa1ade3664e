"""outcomes: a pytest plugin that records how each test ended at once, so that a crash of pytest loses nothing.

`GPU_DAY_OUTCOMES` names the file: one line of JSON when a test starts, and one when it has ended.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["VARIABLE", "read"]

VARIABLE = "GPU_DAY_OUTCOMES"


class _Notes:
    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the process is

    def _write(self, **line: str) -> None:
        print(json.dumps(line), file=self._file, flush=True)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(test=nodeid, outcome="began")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        last = [line for line in report.longreprtext.splitlines() if line.strip()][-1:] if report.failed else []
        self._write(test=report.nodeid, outcome=report.outcome, said="".join(last)[:300])

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(test=report.nodeid, outcome="failed", said="it cannot be collected")

    def pytest_unconfigure(self) -> None:
        self._file.close()


def pytest_configure(config: Any) -> None:
    """Record outcomes; the workers of xdist do so, too, and the lines of their parent come last."""
    if VARIABLE in os.environ:
        config.pluginmanager.register(_Notes(os.environ[VARIABLE]))


def read(path: Path) -> dict[str, Any]:
    """Count the outcomes in a file.

    Returns:
        passed, skipped: how many. failed: name -> last line of the report. unfinished: names.
    """
    outcomes: dict[str, tuple[str, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        found = json.loads(line)
        if outcomes.get(found["test"], ("", ""))[0] != "failed":  # a test may pass and its teardown fail
            outcomes[found["test"]] = (found["outcome"], found.get("said", ""))
    kinds = [outcome for outcome, _ in outcomes.values()]
    return {
        "passed": kinds.count("passed"),
        "skipped": kinds.count("skipped"),
        "failed": {test: said for test, (outcome, said) in outcomes.items() if outcome == "failed"},
        "unfinished": [test for test, (outcome, _) in outcomes.items() if outcome == "began"],
    }
