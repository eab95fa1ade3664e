"""What all tests start with: Ctrl-C as a terminal gives it, and a machine without a GPU unless a test is about one.

A shell starts background jobs with SIGINT ignored, and children inherit that. `--alone` parts the tests that need the
machine for themselves from the others, which `python -m tests` runs several at a time; all of them have ids that are
the same in every process, or pytest-xdist refuses to run them.
"""

from __future__ import annotations

import gc
import re
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gpupipe.dataset import epochs
from gpupipe.errors import MissingDependencyError
from gpupipe.log import logger
from gpupipe.transform import machine
from tests.asked import Questions
from tests.libraries import ALL_LIBRARIES, fail_without_library
from tests.passed import Passed
from tests.selection import QUICK, selected

MARKED = re.compile(r"pytest\.mark\.(alone|gpu)\b|import .*\bEXECUTORS\b")
"""What a file holds that may have tests which run alone."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--passed", metavar="FILE", help="tests that need not run again: see tests/passed.py")
    which = ("with", "without", "only")
    parser.addoption("--alone", choices=which, default="with", help="what to do with tests marked alone")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read files without a test that runs alone, where only those run: they are nine tenths of all."""
    if config.getoption("--alone") != "only" or collection_path.suffix != ".py":
        return None
    return None if MARKED.search(collection_path.read_text(encoding="utf-8")) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select by the mark `alone`, not with -m, so that an -m of one's own goes on working; then the quick ones.

    What needs a GPU is left out where there is none, unless it brings a stand-in.
    """
    wanted = config.getoption("--alone")
    kept = [item for item in items if wanted == "with" or _alone(item) == (wanted == "only")]
    if not machine.gpu_count():
        kept = [x for x in kept if x.get_closest_marker("gpu") is None or "a_gpu" in getattr(x, "fixturenames", ())]
    kept = selected(kept) if QUICK else kept
    if len(kept) < len(items):
        here = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in here])
        items[:] = kept


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


def pytest_configure(config: pytest.Config) -> None:
    """Take back what signals do, so that processes which tests interrupt can be: `&` and `nohup` ignore some."""
    if not config.pluginmanager.hasplugin("tests.stand_in_gpu"):
        config.pluginmanager.register(Questions(), "questions")
    if name := config.getoption("--passed"):
        config.pluginmanager.register(Passed(Path(name)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that needs DALI where it is not installed: there are no wheels for some Pythons and systems."""
    try:
        return (yield)
    except MissingDependencyError as error:
        if machine.has_dali() or "dali" not in str(error).lower() or ALL_LIBRARIES:
            raise
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Fail where a library is missing that has to be there: a test, or a whole file."""
    report = yield
    fail_without_library(report)
    return report


pytest_make_collect_report = pytest_runtest_makereport


@pytest.fixture(autouse=True)
def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "auto" mean the CPU on a machine with a GPU, too, so that a test is the same everywhere."""
    questions = request.config.pluginmanager.get_plugin("questions")
    if questions is not None and request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(questions, "gpus", lambda: (0, None))


@pytest.fixture(autouse=True)
def _no_chain_was_built_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be a program of its own: the same lines of another one have built no chain."""
    monkeypatch.setattr(epochs, "_LAST_AT", {})
    monkeypatch.setattr(logger, "_warned", {})


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Generator[None]:
    """Fail the test that leaves a thread of gpupipe behind, not a later one that counts threads.

    `pytest.raises(...) as caught` makes a cycle of a test's frame and the error, and an iterator among the locals is in
    it: only a collection of garbage closes such a one.
    """
    before = set(threading.enumerate())
    yield
    if not _threads_since(before):
        return
    gc.collect()
    deadline = time.monotonic() + 30  # a thread ends behind the read or the decode that it is in
    while (left := _threads_since(before)) and time.monotonic() < deadline:
        time.sleep(0.002)
    assert not left, f"the test leaves threads behind: {', '.join(thread.name for thread in left)}"


def _threads_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [x for x in threading.enumerate() if x not in before and x.name.startswith("gpupipe")]
