"""asked: which tests ask whether this machine has a GPU, or CuPy. All others run the same code on the simulated one.

Nothing believes in a GPU but what asks `machine.installed` or `array.has_cupy`. So `make test-stand-in` need not run a
test again that passed and asked neither (`--passed-on-host`, see tests/stand_in_gpu.py). One counts as asking, too,
that uses a fixture of a module or session which asked when it was set up, that brings the simulated GPU itself, or that
forks: a child asks unseen. Programs that tests start have no simulated GPU, whatever they ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any

import pytest

from gpupipe.transform import array, machine

__all__ = ["ASKED", "Questions"]

ASKED = "asks for a GPU"
"""The property of the report of a test that asks."""


class Questions:
    """A plugin of pytest: counts questions, and says so in the report of a test.

    Attributes:
        gpus: answers `machine.installed`: how many GPUs there are, and the CUDA version of the driver.
    """

    def __init__(self) -> None:
        self.gpus: Callable[[], tuple[int, int | None]] = machine.installed
        self._has_cupy = array.has_cupy
        self._count, self._before = 0, 0
        self._asking = {"a_gpu"}  # names of fixtures
        # once for all tests: fixtures of modules and sessions are set up before anything is patched for a test
        machine.installed = self.installed  # type: ignore[assignment]
        array.has_cupy = self.has_cupy  # type: ignore[assignment]
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._note)

    def installed(self) -> tuple[int, int | None]:
        """The question after GPUs."""
        self._note()
        return self.gpus()

    def has_cupy(self) -> bool:
        """The question after CuPy."""
        self._note()
        return self._has_cupy()

    def _note(self) -> None:
        self._count += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Remember which fixtures of several tests ask: those that come later use what the first has set up."""
        before = self._count
        try:
            return (yield)
        finally:
            if self._count > before and fixturedef.scope != "function":
                self._asking.add(fixturedef.argname)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """A test begins."""
        self._before = self._count

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say it at a test's end; in its report, since workers of pytest-xdist hand over nothing else."""
        report = yield
        asked = self._count > self._before or not self._asking.isdisjoint(getattr(item, "fixturenames", ()))
        if call.when == "teardown" and asked:
            report.user_properties.append((ASKED, True))
        return report
