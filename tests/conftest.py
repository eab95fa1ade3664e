"""What all tests start with: Ctrl-C as a terminal gives it, and a machine without a GPU unless a test is about one.

A shell starts background jobs with SIGINT ignored, and children inherit that. `--alone` parts the tests that need the
machine for themselves from the others, which `python -m tests` runs several at a time; all of them have ids that are
the same in every process, or pytest-xdist refuses to run them.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest

from gpupipe.dataset import epochs
from gpupipe.errors import MissingDependencyError
from gpupipe.transform import machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--alone", choices=("with", "without", "only"), default="with", help="what to do with tests marked alone"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select by the mark `alone`; not with -m, so that an -m of one's own goes on working."""
    wanted = config.getoption("--alone")
    if wanted != "with":
        parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            parts[_alone(item) == (wanted == "only")].append(item)
        items[:] = parts[True]
        config.hook.pytest_deselected(items=parts[False])


def pytest_collection_finish() -> None:
    """Keep what all tests are made of out of collections of garbage: a million objects, 0.7 s for each `gc.collect`."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let `-x` interrupt in one process, too, as it does in those of pytest-xdist: no second run follows then."""
    if session.shouldfail and session.config.getoption("--alone") == "without":
        session.exitstatus = pytest.ExitCode.INTERRUPTED


def _alone(item: pytest.Item) -> bool:
    """Whether a test needs the machine for itself: one on a GPU does, which has memory for few processes."""
    return any(item.get_closest_marker(name) is not None for name in ("alone", "gpu"))


def pytest_configure() -> None:
    """Take Python's own handler back, so that the processes which tests interrupt can be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that needs DALI where it is not installed: there are no wheels for some Pythons and systems.

    Not in CI, which installs it.
    """
    try:
        return (yield)
    except MissingDependencyError as error:
        if machine.has_dali() or "dali" not in str(error).lower() or os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "auto" mean the CPU on a machine with a GPU, too, so that a test is the same everywhere."""
    on_stand_in = request.config.pluginmanager.hasplugin("tests.stand_in_gpu")
    if not on_stand_in and request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(machine, "installed", lambda: (0, None))


@pytest.fixture(autouse=True)
def _no_chain_was_built_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be a program of its own: the same lines of another one have built no chain."""
    monkeypatch.setattr(epochs, "_LAST_AT", {})
    monkeypatch.setattr(epochs, "_WARNED", {})
