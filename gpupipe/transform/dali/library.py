"""library: imports DALI, as the only module, and holds the pool of its idle pipelines."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import warnings
from typing import Any

from ...classes import dataclass
from ...errors import DeviceError, MissingDependencyError
from ..machine import dali_libraries
from ..pool import EXIT_HOOKS, PipelinePool

__all__ = ["POOL", "import_dali", "refuse_fork", "release_memory"]

POOL = PipelinePool()


_ON_GPU: list[int] = []
"""Id of the process that first built a GPU pipeline; forked children inherit the list."""


_NO_LONGER_SHIPPED = r"nvidia-dali-cuda\d+ is no longer shipped with"
"""Start of DALI's warnings about CUDA libraries that its wheel does not include."""


@functools.cache
def import_dali() -> Any:
    """Import the parts of DALI that are used, once.

    Raises:
        MissingDependencyError: DALI cannot be imported, for whatever reason: its libraries may not find those of the
            driver. The message says what installs it.
    """
    try:
        from nvidia.dali import backend, fn, math, tensors, types
        from nvidia.dali.pipeline import Pipeline
    except Exception as error:
        raise MissingDependencyError(
            f"the DALI executor needs nvidia-dali, which cannot be imported ({type(error).__name__}: {error}); "
            f"pip install {dali_libraries()}, or run with Options(backend='numpy')"
        ) from error
    # Building the first GPU pipeline warns about cuFFT and NPP, which no op here needs.
    warnings.filterwarnings("ignore", message=_NO_LONGER_SHIPPED)
    # Registered after DALI's own handlers, hence run before them, while pipelines can still be destroyed.
    atexit.register(_at_exit)
    return _Dali(Pipeline, backend, fn, math, tensors, types)


def _at_exit() -> None:
    for hook in EXIT_HOOKS:
        hook()
    POOL.clear()


@dataclass(frozen=True, slots=True)
class _Dali:
    pipeline: Any
    backend: Any
    fn: Any
    math: Any
    tensors: Any
    types: Any


def release_memory() -> None:
    """Destroy idle pipelines and return DALI's unused host and GPU memory to the system."""
    POOL.clear()
    if "nvidia.dali" in sys.modules:
        import_dali().backend.ReleaseUnusedMemory()


def refuse_fork(label: str) -> None:
    """Check that CUDA can work in this process.

    Raises:
        DeviceError: the process was forked after its parent used a GPU.
    """
    if not _ON_GPU:
        _ON_GPU.append(os.getpid())
    if _ON_GPU[0] != os.getpid():
        raise DeviceError(
            f"{label} cannot run in a process that was forked from one that used a GPU: CUDA does not survive a fork; "
            "start it with multiprocessing's 'spawn' (torch: DataLoader(multiprocessing_context='spawn')), or use "
            "Options(device='cpu') in it"
        )
