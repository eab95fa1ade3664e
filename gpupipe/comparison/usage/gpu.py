"""gpu: the memory and the load of the first visible GPU while something runs, sampled through NVML."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import Any

from ...classes import dataclass
from .nvml import first_visible, handle_of, memory_of, opened

__all__ = ["GpuUse", "GpuWatch"]

INTERVAL = 0.05
"""Seconds between two samples; NVML itself averages the load over a sixth of a second to a second."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What was seen of a GPU; None where nothing was, or the driver does not report it.

    Attributes:
        peak: bytes in use at most, of all processes, above those in use when the watch began.
        load: mean utilisation, from 0 to 1.
        jpeg_load: the same of the JPEG engines.
    """

    peak: int | None = None
    load: float | None = None
    jpeg_load: float | None = None


class GpuWatch:
    """Samples the GPU in a thread, as a context manager; without a driver it sees nothing."""

    def __init__(self) -> None:
        self._memory: list[int] = []
        self._loads: list[int] = []
        self._jpeg: list[int] = []
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="gpupipe-gpu-watch", daemon=True)

    def __enter__(self) -> GpuWatch:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def use(self) -> GpuUse:
        """What was seen."""
        return GpuUse(
            max(self._memory) - self._memory[0] if self._memory else None,
            _mean(self._loads),
            _mean(self._jpeg),
        )

    def _watch(self) -> None:
        with opened() as nvml:
            if nvml is None:
                self._begun.set()
                return
            handle = handle_of(nvml, first_visible())
            while True:
                self._memory.append(memory_of(nvml, handle).used)
                rates = (ctypes.c_uint * 2)()
                if not nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)):
                    self._loads.append(rates[0])
                self._jpeg.extend(_jpeg(nvml, handle))
                self._begun.set()
                if self._stop.wait(INTERVAL):
                    return


def _jpeg(nvml: Any, handle: Any) -> list[int]:
    load, period = ctypes.c_uint(0), ctypes.c_uint(0)
    if not hasattr(nvml, "nvmlDeviceGetJpgUtilization"):
        return []
    failed = nvml.nvmlDeviceGetJpgUtilization(handle, ctypes.byref(load), ctypes.byref(period))
    return [] if failed else [load.value]


def _mean(percents: list[int]) -> float | None:
    return sum(percents) / len(percents) / 100 if percents else None
