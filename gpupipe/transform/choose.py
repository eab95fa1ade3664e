"""choose: which executor runs a chain, decided from its options and the machine, without importing DALI.

The order of "auto" is fixed, never raced at run time, because executors differ in the last bit of some pixels: a GPU
with DALI, then DALI on the CPU, then NumPy. On the CPU DALI comes first because it stops decoding below the crop
window, where NumPy decodes the whole image: 1.60 against 1.75 CPU-ms for a 500x375 JPEG that is cropped, resized to
224x224 and normalised (batch 64, 2 threads).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import MissingDependencyError, PlanError
from ..graph import Apply
from ..log import logger
from ..options import Settings, parse_device
from .program import Executor, Program

__all__ = ["Choice", "make_executor", "refuse_unsupported", "resolve_device", "unsupported"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The executor of a chain.

    Attributes:
        executor: which one.
        device_id: ordinal of the GPU among those that CUDA shows this process; None on the CPU.
        why: the reason in a few words, for `explain()`.
        fallback: whether it is not what the machine's hardware would allow; logged once.
    """

    executor: Literal["dali-gpu", "dali-cpu", "numpy"]
    device_id: int | None
    why: str
    fallback: bool = False

    @property
    def label(self) -> str:
        """What `explain()` prints; equal to the executor's own label."""
        if self.executor == "numpy":
            return "NumPy on CPU"
        return "DALI on CPU" if self.device_id is None else f"DALI on GPU {self.device_id}"


def resolve_device(settings: Settings) -> Choice:
    """Decide from options and machine. Reads no data, imports nothing heavy and answers the same every time.

    Raises:
        PlanError: a GPU was asked for and there is none, or with the NumPy backend.
        MissingDependencyError: DALI was asked for and is not installed.
    """
    kind, number = parse_device(settings.device)
    dali = has_dali()
    if settings.backend == "dali" and not dali:
        raise MissingDependencyError(
            "Options(backend='dali') needs nvidia-dali, which is not installed; "
            f"pip install '{_extra()}', or use backend='auto'"
        )
    if kind == "gpu":
        return _gpu(settings, number, dali)
    if settings.backend == "numpy":
        return Choice("numpy", None, "backend='numpy'")
    gpus = gpu_count() if kind == "auto" else 0
    if gpus and dali:
        return Choice("dali-gpu", _local_rank(gpus), f"{gpus} GPU{'s' * (gpus > 1)} and DALI found")
    reason = "device='cpu'" if kind == "cpu" else f"{gpus} GPUs found" if gpus else "no GPU found"
    if dali:
        return Choice("dali-cpu", None, f"{reason}, DALI found")
    return Choice("numpy", None, f"{reason}, DALI is not installed (pip install '{_extra()}')", fallback=True)


def _extra() -> str:
    """What brings DALI to this machine."""
    return f"gpupipe[{'cuda12' if gpu_count() else 'cpu'}]"


def _gpu(settings: Settings, number: int | None, dali: bool) -> Choice:
    if settings.backend == "numpy":
        raise PlanError(
            "the NumPy backend runs on the CPU, got Options(device='gpu'); use backend='auto' or device='cpu'"
        )
    gpus = gpu_count()
    if not gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
        raise PlanError(
            f"Options(device={settings.device!r}) needs an NVIDIA GPU and its driver, found none{hint}; "
            f"use device='auto', which takes the CPU here"
        )
    if not dali:
        raise MissingDependencyError(
            f"Options(device={settings.device!r}) needs nvidia-dali, which is not installed; "
            f"pip install 'gpupipe[cuda12]', or use device='cpu'"
        )
    if number is not None and number >= gpus:
        raise PlanError(f"Options(device={settings.device!r}) needs GPU {number}, found {gpus} (numbered from 0)")
    device_id = _local_rank(gpus) if number is None else number
    rank = os.environ.get("LOCAL_RANK")
    why = f"device={settings.device!r}" + (f", LOCAL_RANK={rank}" if number is None and rank else "")
    return Choice("dali-gpu", device_id, why)


def _local_rank(gpus: int) -> int:
    """The GPU of this process: LOCAL_RANK as torchrun sets it, else 0."""
    text = os.environ.get("LOCAL_RANK") or "0"
    if not text.isdigit():
        raise PlanError(
            f"LOCAL_RANK needs an integer >= 0, got {text!r}; unset it or name the GPU, e.g. device='gpu:0'"
        )
    if gpus == 1:
        return 0  # launchers that give each rank its own GPU through CUDA_VISIBLE_DEVICES
    if int(text) >= gpus:
        raise PlanError(
            f"LOCAL_RANK={text} needs {int(text) + 1} GPUs, found {gpus}; start fewer processes on this machine"
        )
    return int(text)


def has_dali() -> bool:
    """Whether DALI is installed, without importing it."""
    if "nvidia.dali" in sys.modules:
        return True
    try:
        return importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # there is no package `nvidia` at all
        return False


def gpu_count() -> int:
    """Number of GPUs that CUDA will show this process; 0 without a driver.

    Asks NVML, not CUDA: a process that called cuInit can no longer fork children that use CUDA.
    """
    if sys.platform != "linux":
        return 0  # DALI has wheels for Linux only
    return _visible(_installed(), os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _installed() -> int:
    """GPUs of this machine (or container), whatever CUDA_VISIBLE_DEVICES says."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0  # no driver, or a container without the capability "compute"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # a container without the capability "utility"
        return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    count = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0:
        return 0
    failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0
    nvml.nvmlShutdown()
    return 0 if failed else count.value


def _visible(installed: int, visible: str | None) -> int:
    """How many of them CUDA_VISIBLE_DEVICES leaves: as CUDA reads it, up to the first entry that is not valid."""
    if visible is None:
        return installed
    seen: set[str] = set()
    for entry in (part.strip() for part in visible.split(",")):
        number = entry.isdigit() and int(entry) < installed
        if entry in seen or not (number or entry.startswith(("GPU-", "MIG-"))):
            break
        seen.add(entry)
    return min(len(seen), installed) if not any(entry.startswith("MIG-") for entry in seen) else 1


def unsupported(choice: Choice, program: Program) -> list[str]:
    """Names of the ops of a program that the chosen executor cannot run."""
    method = "reference" if choice.executor == "numpy" else "dali"
    ops = {v.op.name: v.op for v in program.values if isinstance(v, Apply)}
    return [name for name, op in ops.items() if not op.supports(method)]


def refuse_unsupported(choice: Choice, program: Program) -> None:
    """Make sure that the chosen executor can run every op.

    Raises:
        PlanError: an op has no form for it.
    """
    missing = unsupported(choice, program)
    if missing:
        other = "dali" if choice.executor == "numpy" else "numpy"
        raise PlanError(
            f"{', '.join(missing)} cannot run as {choice.label}: there is no such form of the op; "
            f"use Options(device='cpu', backend={other!r})"
        )


def make_executor(choice: Choice, program: Program, batch_size: int, threads: int) -> Executor:
    """The executor of a program.

    Raises:
        PlanError: an op has no form for it.
    """
    refuse_unsupported(choice, program)
    if choice.fallback:
        _log_once(choice.why)
    if choice.executor == "numpy":
        from .numpy import NumpyExecutor

        return NumpyExecutor(program, batch_size, threads)
    from .dali import DaliExecutor

    return DaliExecutor(program, batch_size, threads, choice.device_id)


@functools.cache
def _log_once(why: str) -> None:
    logger.warning("images are computed by NumPy on the CPU: %s", why)
