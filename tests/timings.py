"""timings: a plugin of pytest that writes timings.json, which tests/selection.py reads.

`python -m tests --all -p tests.timings` renews it. CPU-seconds are those of the process that runs a test and of the
children that ended in it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.selection import BUDGET, TIMINGS, function_of

BEGAN: dict[str, float] = {}
FOUND: dict[str, list[float]] = defaultdict(list)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    BEGAN[nodeid] = _cpu()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "teardown":
        report.user_properties.append(("cpu", _cpu() - BEGAN.pop(item.nodeid)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect; with pytest-xdist in the process that reports, too, where only its numbers are written."""
    seconds = (float(str(value)) for name, value in report.user_properties if name == "cpu")
    FOUND[function_of(report.nodeid)].extend(seconds)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return
    known: dict[str, float] = json.loads(TIMINGS.read_text(encoding="utf-8")) if TIMINGS.exists() else {}
    known = {x: value for x, value in known.items() if x not in FOUND and Path(x.partition("::")[0]).exists()}
    known |= {name: round(sum(all_) / len(all_), 4) for name, all_ in FOUND.items() if sum(all_) > BUDGET}
    TIMINGS.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n", encoding="utf-8")


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
