"""library: DALI itself, imported once, and the pipelines that are built with it. Nobody else imports it."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any

from ...errors import DeviceError, MissingDependencyError
from ..pool import ENDINGS, PipelinePool

__all__ = ["POOL", "import_dali", "refuse_fork", "release_memory"]

POOL = PipelinePool()


_ON_GPU: list[int] = []
"""The process that first built a pipeline on a GPU, as its id; its forked children inherit the list."""


_NO_LONGER_SHIPPED = r"nvidia-dali-cuda\d+ is no longer shipped with"
"""How DALI begins its warnings of libraries of CUDA that its wheel leaves out."""


@functools.cache
def import_dali() -> Any:
    """Import what is needed of DALI, once.

    Raises:
        MissingDependencyError: naming the extra that brings it.
    """
    try:
        from nvidia.dali import backend, fn, math, tensors, types
        from nvidia.dali.pipeline import Pipeline
    except ImportError as error:
        raise MissingDependencyError(
            f"the DALI executor needs nvidia-dali, which cannot be imported ({error}); "
            f"pip install 'gpupipe[cuda12]', or run with Options(backend='numpy')"
        ) from error
    # Building the first GPU pipeline warns of cuFFT and NPP, which only operators need that no op here uses.
    warnings.filterwarnings("ignore", message=_NO_LONGER_SHIPPED)
    # Registered after DALI's own handlers, hence run before them: what is idle goes while DALI is whole.
    atexit.register(_end)
    return _Dali(Pipeline, backend, fn, math, tensors, types)


def _end() -> None:
    for ending in ENDINGS:
        ending()
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
    """Destroy idle pipelines and return DALI's unused memory, of the host and of GPUs, to the system."""
    POOL.clear()
    if "nvidia.dali" in sys.modules:
        import_dali().backend.ReleaseUnusedMemory()


def refuse_fork(label: str) -> None:
    """Make sure that CUDA can work in this process.

    Raises:
        DeviceError: its parent used a GPU before it was forked.
    """
    if not _ON_GPU:
        _ON_GPU.append(os.getpid())
    if _ON_GPU[0] != os.getpid():
        raise DeviceError(
            f"{label} cannot run in a process that was forked from one that used a GPU: CUDA does not survive a fork; "
            "start it with multiprocessing's 'spawn' (torch: DataLoader(multiprocessing_context='spawn')), or use "
            "Options(device='cpu') in it"
        )
