"""passed: tests that passed before are not run again.

`GPUPIPE_PASSED` names a file of their ids for `python -m tests`, `--passed` for pytest: tests in it are left out, and
those that pass are added. `.ci/run` runs `make test` first, with no more than that installs; once the libraries are
there, tests that need none of them need not run again. One marked `installed` looks at what is installed: it always
runs.

Behind the id of a test that asks whether there is a GPU the file says so: see tests/asked.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.asked import ASKED

__all__ = ["Passed", "passed_on_host"]

MARK = f"\t{ASKED}"
"""Behind an id; no id has a tab."""


def passed_on_host(path: Path) -> set[str]:
    """The tests of a file of ids that never asked for a GPU: they passed, and would with one."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return set(lines) - {line.removesuffix(MARK) for line in lines if line.endswith(MARK)}


class Passed:
    """A plugin of pytest: the file of ids, of the process that reports (a worker of pytest-xdist reports nothing)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._before = {line.removesuffix(MARK) for line in lines}
        self._outcomes: dict[str, bool] = {}
        self._asked = set[str]()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what passed."""
        again = [x for x in items if x.nodeid not in self._before or x.get_closest_marker("installed") is not None]
        if len(again) < len(items):
            kept = set(again)
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = again

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test passes where its call passed, and nothing before or after it went wrong."""
        passed = report.passed if report.when == "call" else not (report.failed or report.skipped)
        self._outcomes[report.nodeid] = self._outcomes.get(report.nodeid, True) and passed
        if (ASKED, True) in map(tuple, report.user_properties):
            self._asked.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add the ids to the file."""
        if not hasattr(session.config, "workerinput"):
            with self._path.open("a", encoding="utf-8") as file:
                found = [name for name, passed in self._outcomes.items() if passed]
                file.writelines(f"{name}{MARK * (name in self._asked)}\n" for name in found)
