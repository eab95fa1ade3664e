"""machine: the hardware and software that a benchmark ran on, without host name, user or paths."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.checkout import ROOT

__all__ = ["commit", "cores", "gpus", "load", "machine", "versions"]

_PACKAGES = (
    "gpupipe-dali",
    "numpy",
    "pillow",
    "simplejpeg",
    "opencv-python-headless",
    "crc32c",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
    "nvidia-nvimgcodec-cu12",
    "nvidia-nvimgcodec-cu13",
    "nvidia-nvjpeg",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "torchvision",
    "grain",
    "spdl",
    "turboloader",
    "ffcv",
    "cykooz.resizer",
)


def cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


def gpus() -> list[str]:
    """List the GPUs, as "name, memory, driver"; empty without a driver."""
    from gpupipe.comparison.usage.nvml import cards  # older checkouts, which contestants may run, have none

    return [f"{card.name}, {card.memory_mib} MiB, {card.driver}" for card in cards()]


def load() -> float:
    """Return the load of the last minute; above the number of cores, other processes were busy, too."""
    return round(os.getloadavg()[0], 2)


def machine() -> dict[str, Any]:
    """Describe the machine: cores, CPU model, memory in GB, GPUs, system, Python."""
    return {
        "cores": cores(),
        "cpu": _field("/proc/cpuinfo", "model name"),
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 1e6, 1),
        "gpus": gpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that took part or could have."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit(folder: Path = ROOT) -> str:
    """Return the git commit of a checkout, with "+changes" if tracked files differ from it; "unknown" outside git."""
    try:
        head, changes, inside = (
            subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
            for words in (
                ["rev-parse", "HEAD"],
                ["status", "--porcelain", "--untracked-files=no"],
                ["rev-parse", "--show-prefix"],
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return "unknown" if inside else head + ("+changes" if changes else "")  # a copy inside another checkout has no own


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0 (not given by this system)"
