"""choose: choose the executor of a chain from its options and the machine, without importing DALI.

The order of "auto" is fixed and not timed at run time, because executors differ in the last bit of some pixels: DALI
on a GPU; then "fast" where it has at most 6 threads or DALI is not installed, its libraries are, and every op has a
form in NumPy; then DALI on the CPU, then NumPy. Where photographs are decoded, cropped, resized and normalised, "fast"
needs 0.64 of the CPU-time of a pipeline of DALI on 2 threads (benchmarks/results/chain-2026-11-28-10.json), but Python
and the copies of images hold the GIL. In a simulation of more threads (gil-2026-11-28.json) its rate is above DALI's,
if that grows in proportion, on 6 of them (3,953 images/s against 3,621) and no longer on 8, and above NumPy's on every
number. A stage that decodes nothing runs in NumPy rather than DALI, which needs three times its CPU-time for a crop,
flip and normalisation of 32x32 pixels (cifar-2026-11-28-3.json).
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

from ..classes import dataclass
from ..errors import GpupipeError, MissingDependencyError, PlanError
from ..extract.storage.forking import no_forks
from ..graph.host_values import is_image
from ..graph.values import Apply, topological
from ..log import logger
from ..options import DecoderOptions, Settings, parse_device
from ..plan.maps import Map
from ..plan.node import Node, walk
from .machine import (
    dali_cuda,
    dali_libraries,
    dali_missing,
    driver_cuda,
    fast_trouble,
    gpu_count,
    gpu_of_rank,
    has_dali,
    has_fast,
    threads_of_rank,
)
from .program import Executor, Program

__all__ = [
    "Choice",
    "choose_for",
    "executor_of",
    "load_libraries",
    "make_executor",
    "refuse_unsupported",
    "resolve_device",
    "threads_of",
    "unsupported",
]


FEW_THREADS = 6
"""Threads up to which "auto" takes "fast" rather than DALI on the CPU."""

_LABELS = {"numpy": "NumPy on CPU", "fast": "fast libraries on CPU"}
"""Labels of the executors that run without DALI."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The executor of a chain.

    Attributes:
        executor: its kind.
        device_id: ordinal of the GPU among those that CUDA shows this process; None on the CPU.
        why: the reason in a few words, for `explain()`.
        fallback: whether the machine's hardware would allow a better one; logged once.
    """

    executor: Literal["dali-gpu", "dali-cpu", "fast", "numpy"]
    device_id: int | None
    why: str
    fallback: bool = False

    @property
    def runs_dali(self) -> bool:
        """Whether it is a DALI graph."""
        return self.executor not in _LABELS

    @property
    def label(self) -> str:
        """The name that `explain()` prints; equal to the executor's label."""
        if self.executor in _LABELS:
            return _LABELS[self.executor]
        return "DALI on CPU" if self.device_id is None else f"DALI on GPU {self.device_id}"


def resolve_device(settings: Settings, fast: bool = True) -> Choice:
    """Choose from options and machine. Deterministic; reads no data, and imports nothing but the libraries of `fast`.

    Args:
        settings: of the chain.
        fast: whether "auto" may choose "fast".

    Raises:
        PlanError: a GPU was requested and there is none, or the backend is NumPy.
        MissingDependencyError: DALI was requested and is not installed.
    """
    kind, number = parse_device(settings.device)
    dali = has_dali()
    if settings.backend == "dali" and not dali:
        raise MissingDependencyError(f"Options(backend='dali') cannot run: {dali_missing()}; or use backend='auto'")
    if kind == "gpu":
        return _gpu(settings, number, dali)
    if settings.backend == "fast" and (unusable := fast_trouble()):
        raise MissingDependencyError(f"Options(backend='fast') cannot run: {unusable}; or use backend='auto'")
    if settings.backend == "fast":
        return Choice("fast", None, "backend='fast'")
    if settings.backend == "numpy":
        return Choice("numpy", None, "backend='numpy'")
    gpus = gpu_count() if kind == "auto" else 0
    trouble = _unfit() if gpus and dali else ""
    if gpus and dali and not trouble:
        device_id, where = gpu_of_rank(gpus)
        return Choice("dali-gpu", device_id, ", ".join(filter(None, (f"{_gpus(gpus)} and DALI found", where))))
    reason = "device='cpu'" if kind == "cpu" else f"{_gpus(gpus)} found" if gpus else "no GPU found"
    reason += f", but {trouble}" if trouble else ""
    few = settings.threads <= FEW_THREADS
    if fast and settings.backend == "auto" and (few or not dali) and has_fast():
        less = f"on up to {FEW_THREADS} threads need less than DALI" if few else "need less than NumPy"
        if not dali and (gpus or not few):  # with it, the choice would be another
            reason += f", {dali_missing()}"
        why = f"{reason}; OpenCV and cykooz-resizer found, which {less}"
        return Choice("fast", None, why, fallback=gpus > 0)
    if trouble:
        return Choice("dali-cpu", None, reason, fallback=True)
    if dali:
        return Choice("dali-cpu", None, f"{reason}, DALI found")
    return Choice("numpy", None, f"{reason}, {dali_missing()}", fallback=True)


def executor_of(plan: Node, settings: Settings, opaque: bool = False) -> str:
    """The executor of a chain by its name in `Choice`; "" where it has none, or cannot run here.

    Args:
        plan: the chain.
        settings: its options.
        opaque: whether a function that was not traced counts as one that computes images.
    """
    traced = [node.traced for node in walk(plan) if isinstance(node, Map)]
    if not any(opaque if one is None else any(map(is_image, topological(one.outputs))) for one in traced):
        return ""
    try:
        return resolve_device(settings).executor
    except GpupipeError:  # running the chain raises this error
        return ""


def choose_for(program: Program, choice: Choice, settings: Settings) -> Choice:
    """The executor of one stage of a chain: under "auto", one that has every op and needs no pipeline in vain."""
    if settings.backend != "auto" or choice.device_id is not None:
        return choice
    if choice.executor == "fast":
        if not unsupported(choice, program):
            return choice
        choice = resolve_device(settings, fast=False)
    if choice.executor != "dali-cpu" or any(isinstance(v, Apply) and v.op.decodes for v in program.values):
        return choice
    arrays = replace(choice, executor="numpy", why=f"{choice.why}; nothing is decoded, and NumPy needs no pipeline")
    return choice if unsupported(arrays, program) else arrays


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


def _unfit() -> str:
    """Why the installed DALI cannot use this machine's driver; "" if it can, or if either version is unknown."""
    needs, has = dali_cuda(), driver_cuda()
    if needs is None or has is None or has >= needs:
        return ""
    return (
        f"the installed DALI is built for CUDA {needs} and the driver supports CUDA {has}: "
        f"update the driver, or use an environment without nvidia-dali-cuda{needs}0 (pip install {dali_libraries()})"
    )


def _gpu(settings: Settings, number: int | None, dali: bool) -> Choice:
    if settings.backend in _LABELS:
        raise PlanError(
            f"the backend {settings.backend!r} runs on the CPU, got Options(device='gpu'); use backend='auto' or "
            "device='cpu'"
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
            f"Options(device={settings.device!r}) cannot run: {dali_missing()}; or use device='cpu'"
        )
    if trouble := _unfit():
        raise MissingDependencyError(f"Options(device={settings.device!r}) cannot run: {trouble}")
    if number is not None and number >= gpus:
        raise PlanError(f"Options(device={settings.device!r}) needs GPU {number}, found {gpus} (numbered from 0)")
    device_id, where = gpu_of_rank(gpus) if number is None else (number, "")
    return Choice("dali-gpu", device_id, ", ".join(filter(None, (f"device={settings.device!r}", where))))


def threads_of(choice: Choice, settings: Settings) -> tuple[int, str]:
    """CPU threads of an executor, and the reason for the number; "" if it comes from the options."""
    if not choice.runs_dali:
        return settings.threads, ""
    if choice.device_id is None:
        return settings.dali_threads, ""
    return threads_of_rank(gpu_count()) if settings.gpu_threads is None else (settings.gpu_threads, "")


def unsupported(choice: Choice, program: Program) -> list[str]:
    """Names of the ops of a program that the chosen executor cannot run."""
    method = "dali" if choice.runs_dali else "reference"
    ops = {v.op.name: v.op for v in program.values if isinstance(v, Apply)}
    return [name for name, op in ops.items() if not (op.supports(method) or (choice.runs_dali and op.before_graph))]


def refuse_unsupported(choice: Choice, program: Program) -> None:
    """Check that the chosen executor can run every op.

    Raises:
        PlanError: an op has no form for it.
    """
    missing = unsupported(choice, program)
    if missing:
        other = "numpy" if choice.runs_dali else "dali"
        raise PlanError(
            f"{', '.join(missing)} cannot run as {choice.label}: the op has no such form; "
            f"use Options(device='cpu', backend={other!r})"
        )


def load_libraries(choice: Choice) -> None:
    """Import what executors of a choice need: half a second for DALI, which need not wait for the first rows.

    Raises:
        MissingDependencyError: DALI cannot be imported.
    """
    if choice.runs_dali:
        with no_forks():  # in a child, a module that is being imported would never be
            from .dali import executor as executor
            from .dali.library import import_dali

            import_dali()


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
        logger.warning_once("images are computed by %s: %s", choice.label, choice.why)
    if not choice.runs_dali:
        from .numpy import NumpyExecutor

        return NumpyExecutor(program, batch_size, threads, fast=choice.executor == "fast")
    from .before_graph import BeforeGraph, calls_before
    from .dali.executor import DaliExecutor

    def dali(graph: Program) -> Executor:
        return DaliExecutor(graph, batch_size, threads, choice.device_id, decoding, verifies)

    return BeforeGraph(program, batch_size, threads, dali) if calls_before(program) else dali(program)
