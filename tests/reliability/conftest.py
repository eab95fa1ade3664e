"""Fixtures of the tests that break things."""

from __future__ import annotations

import dataclasses
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpupipe.extract.records.index import INDEXES
from gpupipe.extract.storage import retry
from gpupipe.extract.storage.files import LOCAL
from gpupipe.flow import run
from tests.chains.data import Spy


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 20
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not left, f"threads left behind: {sorted(thread.name for thread in left)}"


@pytest.fixture(scope="module")
def small_heap() -> Iterator[None]:
    """What other tests imported is not looked through again each time that garbage is collected."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "gpupipe")


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy().install(monkeypatch)


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is left of what other tests read, and nobody waits long before another try."""
    monkeypatch.setattr(retry, "PAUSE", 0.001)
    forgotten = (LOCAL.close, INDEXES.clear, retry.GIVEN_UP.clear, run.TOLD.clear)
    for forget in forgotten:
        forget()
    yield
    for forget in forgotten:
        forget()


@pytest.fixture
def other_dali(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts other things in the place of some of DALI's; no pipeline comes from another test or stays for one."""
    from gpupipe.transform.dali import library

    real = library.import_dali()

    def install(**parts: Any) -> None:
        library.release_memory()
        monkeypatch.setattr(library, "import_dali", lambda: dataclasses.replace(real, **parts))

    install()
    yield install
    monkeypatch.undo()
    library.release_memory()
