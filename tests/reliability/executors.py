"""executors: those that a test runs on, as parameters. Where there is no GPU, its tests are not collected."""

from __future__ import annotations

import pytest

from gpupipe.transform.machine import gpu_count, has_dali

EXECUTORS = [
    pytest.param("numpy", id="numpy"),
    pytest.param("dali", id="dali", marks=pytest.mark.skipif(not has_dali(), reason="DALI is not installed")),
    *([pytest.param("gpu", id="gpu", marks=pytest.mark.gpu)] if gpu_count() and has_dali() else []),
]
