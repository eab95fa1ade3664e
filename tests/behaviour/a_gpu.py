"""A GPU for tests of what is delivered where: the machine's own, else the stand-in, for one test at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpupipe.transform import array, machine
from gpupipe.transform.dali import copying, library
from gpupipe.transform.dali import executor as dali
from tests import stand_in_gpu

__all__ = ["a_gpu", "is_same"]

DECODING = 8
"""Of 255: decoders of a GPU round chroma in their own way."""


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, ``device="gpu"`` runs."""
    pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    if machine.gpu_count():
        yield
        return
    with monkeypatch.context() as patch:
        for owner, name in (
            (machine, "installed"),
            (library, "import_dali"),
            (dali, "Lowering"),
            (copying, "copy_to_gpu"),
            (copying, "copy_on_gpu"),
            (dali.DaliExecutor, "__init__"),
        ):
            patch.setattr(owner, name, getattr(owner, name))
        patch.setitem(sys.modules, "cupy", sys.modules.get("cupy"))
        patch.setattr(array, "has_cupy", lambda: True)  # asked once in a process, perhaps before
        stand_in_gpu.install()
        yield
        library.release_memory()  # what waits in the pool believes in this GPU


def is_same(got: Any, expected: Any) -> None:
    """Compare what a GPU gave with what the CPU gives, leaf by leaf: bit for bit on the stand-in, which is a CPU."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            is_same(one, other)
        return
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    exact = getattr(sys.modules.get("cupy"), "ndarray", None) is stand_in_gpu.DeviceNumbers
    np.testing.assert_allclose(got.astype(float), expected.astype(float), atol=0 if exact else DECODING)
