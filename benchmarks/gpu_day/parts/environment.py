"""environment: the cards, driver and libraries of the machine, and the environment variables about them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.plan import Part, Questions
from gpupipe.comparison.usage import nvml

__all__ = ["LIBRARIES", "PART", "questions", "summary"]

PART = Part("environment", "the cards, the driver, the libraries that are found", 60, 30, needs=(), gpu="no")

LIBRARIES: Mapping[str, str] = {
    "libcuda.so.1": "the driver: everything on the GPU",
    "libnvidia-ml.so.1": "NVML: that GPUs are found and counted",
    "libnvcuvid.so.1": "the driver's engines; in a container its capability `video`",
}
"""Libraries of the driver, and what they are for. No wheel contains them."""
_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LD_LIBRARY_PATH",
    "CUDA_PATH",
    "CUDA_MODULE_LOADING",
)
_DALI = ("Cuda", "Nvjpeg", "Nvimgcodec", "Cufft", "Npp")


def questions(day: Day) -> Questions:
    """Ask for the cards, libraries, variables, and DALI's versions."""
    return {"cards": _cards, "libraries": _libraries, "variables": _variables, "DALI": _dali}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return cards, versions, and missing libraries of the driver."""
    lines = [
        f"{card['name']}, {card['memory_mib']} MiB, {card['capability']}, driver {card['driver']} (CUDA {card['cuda']})"
        for card in answers.get("cards", {}).get("cards", [])
    ]
    absent = [f"{name} ({LIBRARIES[name]})" for name, path in answers.get("libraries", {}).items() if not path]
    if absent:
        lines.append(f"not found: {', '.join(absent)}")
    if "DALI" in answers:
        lines.append("DALI: " + ", ".join(f"{name} {version}" for name, version in answers["DALI"].items()))
    return lines


def _cards() -> dict[str, Any]:
    found = nvml.cards()
    return {"cards": [asdict(card) for card in found], "memory_used_mib": nvml.memory_used() if found else 0,
            "jpeg_load": nvml.jpeg_load() if found else None}  # fmt: skip


def _libraries() -> dict[str, str]:
    """Return the path each library is loaded from, "" if it is not found."""
    return {name: _loaded(name) for name in LIBRARIES}


def _loaded(name: str) -> str:
    try:
        ctypes.CDLL(name)
    except OSError:
        return ""
    paths = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]
    return next((path for path in paths if name.partition(".so")[0] in path), name)


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def _dali() -> dict[str, str]:
    from nvidia.dali import __version__, backend

    found = {"DALI": __version__}
    for name in _DALI:
        ask = getattr(backend, f"Get{name}Version", None)
        if ask is not None:
            found[name] = str(ask())
    return found
