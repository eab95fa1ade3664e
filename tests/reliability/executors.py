"""executors: those that a test runs on, as parameters; what is not here is skipped with a reason."""

from __future__ import annotations

import pytest

from gpupipe.transform.machine import gpu_count, has_dali

__all__ = ["EXECUTORS"]

EXECUTORS = [
    pytest.param("numpy", id="numpy"),
    pytest.param("dali", id="dali", marks=pytest.mark.skipif(not has_dali(), reason="DALI is not installed")),
    pytest.param(
        "gpu",
        id="gpu",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not (gpu_count() and has_dali()), reason="needs an NVIDIA GPU, its driver and DALI"),
        ],
    ),
]
