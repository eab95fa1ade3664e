"""complete: the modules that the rest of the day needs, which of them are missing, and what needs them.

A machine without network must have its modules beforehand, so what is missing is reported first, with what it affects.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["MODULES", "PART", "questions", "summary"]

PART = Part("complete", "whether every module is installed, and what needs a missing one", 90, 60, needs=(), gpu="no")

_DALI = "DALI: every part but environment"
MODULES: Mapping[str, str] = {
    "numpy": "gpupipe",
    "PIL": "gpupipe, pictures for all parts",
    "simplejpeg": "gpupipe: JPEGs on the host",
    "crc32c": "gpupipe: records of files",
    "nvidia.dali": _DALI,
    "nvidia.nvimgcodec": _DALI,
    "astunparse": _DALI,
    "gast": _DALI,
    "six": _DALI,
    "optree": _DALI,
    "nvtx": _DALI,
    "makefun": _DALI,
    "libcst": _DALI,
    "cupy": "batches as CuPy arrays, mixup and cutmix on the GPU, two questions of streams",
    "torch": "streams, stall, capture, train",
    "pytest": "suite, tolerances",
    "pytest_timeout": "suite",
    "hypothesis": "suite",
    "fsspec": "suite",
    "xdist": "suite in several processes; optional",
}
"""Modules, and what needs them."""


def questions(day: Day) -> Questions:
    """Ask which modules cannot be imported; on a GPU, also whether CuPy and torch can use it."""
    found: dict[str, Any] = {"modules": _modules}
    if not day.dry and day.has_gpu:
        found |= {"CuPy compiles": _cupy, "torch computes": _torch}
    return found


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return each missing module with what needs it."""
    absent = {name: why for name, why in answers.get("modules", {}).items() if why}
    lines = [f"missing: {name}, for {MODULES[name]}: {why}" for name, why in absent.items()]
    lines = lines or [f"all {len(MODULES)} modules are installed"]
    return lines + [f"{name}: {answers[name]}" for name in ("CuPy compiles", "torch computes") if name in answers]


def _modules() -> dict[str, str]:
    """Return for each module why it cannot be imported, "" if it can."""
    return {name: _refusal(name) for name in MODULES}


def _refusal(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken installation may raise anything; the text is the answer
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def _cupy() -> str:
    import cupy

    made = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x", "doubled")(cupy.arange(3, dtype="float32"))
    return f"{cupy.__version__}: {made.get().tolist()}"


def _torch() -> str:
    import torch

    made = torch.arange(3, device="cuda") * 2
    return f"{torch.__version__}, CUDA {torch.version.cuda}: {made.tolist()}"
