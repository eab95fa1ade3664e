"""choose: choose the executor of a chain from its options and the machine, without importing DALI.

The order of "auto" is fixed and not timed at run time, because executors differ in the last bit of some pixels: DALI
on a GPU, then DALI on the CPU, then NumPy. On the CPU DALI comes first because it stops decoding below the crop
window, where NumPy decodes the whole image: 1.60 against 1.75 CPU-ms for a 500x375 JPEG that is cropped, resized to
224x224 and normalised (batch 64, 2 threads). A stage on the CPU that decodes nothing runs in NumPy: 1.01 against 1.56
CPU-ms for a decoded image that is cropped and resized in the same way, 0.02 against 0.04 for one of 32x32.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import MissingDependencyError, PlanError
from ..graph.values import Apply
from ..log import logger
from ..options import DecoderOptions, Settings, parse_device
from .machine import dali_cuda, driver_cuda, gpu_count, gpu_of_rank, has_dali, threads_of_rank
from .program import Executor, Program

__all__ = [
    "Choice",
    "choose_for",
    "dali_extra",
    "make_executor",
    "refuse_unsupported",
    "resolve_device",
    "threads_of",
    "unsupported",
]


@dataclass(frozen=True, slots=True)
class Choice:
    """The executor of a chain.

    Attributes:
        executor: its kind.
        device_id: ordinal of the GPU among those that CUDA shows this process; None on the CPU.
        why: the reason in a few words, for `explain()`.
        fallback: whether the machine's hardware would allow a better one; logged once.
    """

    executor: Literal["dali-gpu", "dali-cpu", "numpy"]
    device_id: int | None
    why: str
    fallback: bool = False

    @property
    def label(self) -> str:
        """The name that `explain()` prints; equal to the executor's label."""
        if self.executor == "numpy":
            return "NumPy on CPU"
        return "DALI on CPU" if self.device_id is None else f"DALI on GPU {self.device_id}"


def resolve_device(settings: Settings) -> Choice:
    """Choose from options and machine. Deterministic; reads no data and imports nothing heavy.

    Raises:
        PlanError: a GPU was requested and there is none, or the backend is NumPy.
        MissingDependencyError: DALI was requested and is not installed.
    """
    kind, number = parse_device(settings.device)
    dali = has_dali()
    if settings.backend == "dali" and not dali:
        raise MissingDependencyError(
            "Options(backend='dali') needs nvidia-dali, which is not installed; "
            f"pip install '{dali_extra()}', or use backend='auto'"
        )
    if kind == "gpu":
        return _gpu(settings, number, dali)
    if settings.backend == "numpy":
        return Choice("numpy", None, "backend='numpy'")
    gpus = gpu_count() if kind == "auto" else 0
    trouble = _unfit() if gpus and dali else ""
    if gpus and dali and not trouble:
        device_id, where = gpu_of_rank(gpus)
        return Choice("dali-gpu", device_id, ", ".join(filter(None, (f"{_gpus(gpus)} and DALI found", where))))
    reason = "device='cpu'" if kind == "cpu" else f"{_gpus(gpus)} found" if gpus else "no GPU found"
    if trouble:
        return Choice("dali-cpu", None, f"{reason}, but {trouble}", fallback=True)
    if dali:
        return Choice("dali-cpu", None, f"{reason}, DALI found")
    return Choice("numpy", None, f"{reason}, DALI is not installed (pip install '{dali_extra()}')", fallback=True)


def choose_for(program: Program, choice: Choice, settings: Settings) -> Choice:
    """The executor of one stage of a chain: under "auto", NumPy instead of DALI on the CPU where nothing is decoded."""
    if settings.backend != "auto" or choice.executor != "dali-cpu":
        return choice
    if any(isinstance(value, Apply) and value.op.decodes for value in program.values):
        return choice
    arrays = replace(choice, executor="numpy", why=f"{choice.why}; nothing is decoded, and NumPy needs no pipeline")
    return choice if unsupported(arrays, program) else arrays


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


def dali_extra() -> str:
    """The pip requirement that installs DALI for this machine."""
    return f"gpupipe[{f'cuda{13 if (driver_cuda() or 12) >= 13 else 12}' if gpu_count() else 'cpu'}]"


def _unfit() -> str:
    """Why the installed DALI cannot use this machine's driver; "" if it can, or if either version is unknown."""
    needs, has = dali_cuda(), driver_cuda()
    if needs is None or has is None or has >= needs:
        return ""
    return (
        f"the installed DALI is built for CUDA {needs} and the driver supports CUDA {has}: "
        f"pip install '{dali_extra()}' in an environment without nvidia-dali-cuda{needs}0, or update the driver"
    )


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
            f"pip install '{dali_extra()}', or use device='cpu'"
        )
    if trouble := _unfit():
        raise MissingDependencyError(f"Options(device={settings.device!r}) cannot run: {trouble}")
    if number is not None and number >= gpus:
        raise PlanError(f"Options(device={settings.device!r}) needs GPU {number}, found {gpus} (numbered from 0)")
    device_id, where = gpu_of_rank(gpus) if number is None else (number, "")
    return Choice("dali-gpu", device_id, ", ".join(filter(None, (f"device={settings.device!r}", where))))


def threads_of(choice: Choice, settings: Settings) -> tuple[int, str]:
    """CPU threads of an executor, and the reason for the number; "" if it comes from the options."""
    if choice.executor == "numpy":
        return settings.threads, ""
    if choice.device_id is None:
        return settings.dali_threads, ""
    return threads_of_rank(gpu_count()) if settings.gpu_threads is None else (settings.gpu_threads, "")


def unsupported(choice: Choice, program: Program) -> list[str]:
    """Names of the ops of a program that the chosen executor cannot run."""
    method = "reference" if choice.executor == "numpy" else "dali"
    ops = {v.op.name: v.op for v in program.values if isinstance(v, Apply)}
    before = choice.executor != "numpy"
    return [name for name, op in ops.items() if not (op.supports(method) or (before and op.before_graph))]


def refuse_unsupported(choice: Choice, program: Program) -> None:
    """Check that the chosen executor can run every op.

    Raises:
        PlanError: an op has no form for it.
    """
    missing = unsupported(choice, program)
    if missing:
        other = "dali" if choice.executor == "numpy" else "numpy"
        raise PlanError(
            f"{', '.join(missing)} cannot run as {choice.label}: the op has no such form; "
            f"use Options(device='cpu', backend={other!r})"
        )


def make_executor(
    choice: Choice,
    program: Program,
    batch_size: int,
    threads: int,
    decoding: DecoderOptions | None = None,
    verifies: bool = False,
) -> Executor:
    """Create the executor of a program.

    Args:
        choice: the kind of executor.
        program: what to compute.
        batch_size: the largest batch.
        threads: CPU threads.
        decoding: options of decoders on a GPU.
        verifies: whether feeds name rows whose decoded images are to be compared with the host's.

    Raises:
        PlanError: an op has no form for it.
    """
    refuse_unsupported(choice, program)
    if choice.fallback:
        _log_once(choice.label, choice.why)
    if choice.executor == "numpy":
        from .numpy import NumpyExecutor

        return NumpyExecutor(program, batch_size, threads)
    from .before_graph import BeforeGraph, calls_before
    from .dali.executor import DaliExecutor

    def dali(graph: Program) -> Executor:
        return DaliExecutor(graph, batch_size, threads, choice.device_id, decoding, verifies)

    return BeforeGraph(program, batch_size, threads, dali) if calls_before(program) else dali(program)


@functools.cache
def _log_once(label: str, why: str) -> None:
    logger.warning("images are computed by %s: %s", label, why)
