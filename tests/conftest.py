"""What all tests start with: Ctrl-C as a terminal gives it, and a machine without a GPU unless a test is about one.

A shell starts background jobs with SIGINT ignored, and children inherit that.
"""

from __future__ import annotations

import signal
from collections import OrderedDict

import pytest

from gpupipe.dataset import epochs
from gpupipe.transform import machine


def pytest_configure() -> None:
    """Take Python's own handler back, so that the processes which tests interrupt can be interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "auto" mean the CPU on a machine with a GPU, too, so that a test is the same everywhere."""
    on_stand_in = request.config.pluginmanager.hasplugin("tests.stand_in_gpu")
    if not on_stand_in and request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(machine, "installed", lambda: (0, None))


@pytest.fixture(autouse=True)
def _no_chain_was_built_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test be a program of its own: the same lines of another one have built no chain."""
    monkeypatch.setattr(epochs, "_LAST_AT", OrderedDict())
    monkeypatch.setattr(epochs, "_WARNED", OrderedDict())
