"""A GPU for tests of what is delivered where: the machine's own, else the stand-in, for one test at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from gpupipe.transform import array, dali, machine
from tests import stand_in_gpu

__all__ = ["a_gpu"]


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
            (array, "has_cupy"),
            *((dali, name) for name in ("_import_dali", "Lowering", "copy_to_gpu", "copy_on_gpu")),
            (dali.DaliExecutor, "__init__"),
        ):
            patch.setattr(owner, name, getattr(owner, name))
        patch.setitem(sys.modules, "cupy", sys.modules.get("cupy"))
        stand_in_gpu.install()
        yield
        dali.release_memory()  # what waits in the pool believes in this GPU
