"""Made-up machines for the tests of `gpupipe doctor`: what it would find there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpupipe.tools.doctor.facts import Facts
from gpupipe.tools.doctor.limits import Limits
from gpupipe.tools.doctor.probe import Answer

__all__ = ["GPU", "LAPTOP", "gives", "on_the_gpu", "without"]

ROOMY = Limits(16, None, 128 << 30, None, 64 << 30, 65536, False)
CORE = {"numpy": "2.4.6", "pillow": "13.0.0", "simplejpeg": "1.9.0", "crc32c": "2.9"}
RAN = Answer({"shape": [2, 64, 64, 3]}, seconds=1.0)

GPU = Facts(
    machine=Answer(
        {
            "visible": 1,
            "libraries": ["libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1"],
            "driver": "580.65.06",
            "cuda": [13, 0],
            "cards": [{"name": "NVIDIA H200", "capability": [9, 0]}],
            "dali": True,
            "executor": "DALI on GPU 0",
            "why": "1 GPU and DALI found",
        }
    ),
    runs={"numpy": RAN, "dali-cpu": RAN, "dali-gpu": RAN, "cupy": Answer(), "engines": Answer({"engines": 7})},
    packages=CORE | {"nvidia-dali-cuda130": "2.4.0", "nvidia-nvimgcodec-cu13": "0.10.0", "cupy-cuda13x": "14.2.0"},
    limits=ROOMY,
    card_on_bus=True,
)
"""A machine with a GPU on which all is well."""

LAPTOP = Facts(
    machine=Answer({"visible": 0, "libraries": [], "dali": False, "executor": "NumPy on CPU", "why": "no GPU found"}),
    runs={"numpy": RAN},
    packages=CORE,
    limits=ROOMY,
)
"""A machine without GPU and DALI."""


def on_the_gpu(**found: Any) -> Facts:
    """The machine with a GPU, its driver or cards changed."""
    return replace(GPU, machine=Answer(dict(GPU.machine.found) | found))


def without(*packages: str, facts: Facts = GPU) -> Facts:
    """A machine without some packages."""
    return replace(facts, packages={name: v for name, v in facts.packages.items() if name not in packages})


def gives(*values: Any, status: int = 0) -> Any:
    """A function of a driver that fills in what it is handed: a value for each argument, None for one that it reads.

    What can be called is called with all arguments.
    """

    def function(*places: Any) -> int:
        for value, place in zip(values, places, strict=False):
            if value is not None:
                getattr(place, "_obj", place).value = value(*places) if callable(value) else value
        return status

    return function
