"""Fixtures of the tests that break things."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chains.data import Spy


@pytest.fixture
def no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not left, f"threads left behind: {sorted(thread.name for thread in left)}"


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "gpupipe")


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy().install(monkeypatch)
