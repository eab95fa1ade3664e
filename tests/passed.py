"""passed: tests that passed before are not run again.

`GPUPIPE_PASSED` names a file of their ids for `python -m tests`, `--passed` for pytest: tests in it are left out, and
those that pass are added. `.ci/run` runs `make test` first, with no more than that installs; once the libraries are
there, tests that need none of them need not run again. One marked `installed` looks at what is installed: it always
runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["Passed"]


class Passed:
    """A plugin of pytest: the file of ids, of the process that reports (a worker of pytest-xdist reports nothing)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = set(path.read_text().splitlines()) if path.exists() else set[str]()
        self._outcomes: dict[str, bool] = {}

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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add the ids to the file."""
        if not hasattr(session.config, "workerinput"):
            with self._path.open("a") as file:
                file.writelines(f"{name}\n" for name, passed in self._outcomes.items() if passed)
