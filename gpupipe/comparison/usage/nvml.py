"""nvml: what the driver reports about this machine's NVIDIA cards, without CUDA or nvidia-smi."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

from ...classes import dataclass

__all__ = ["Card", "cards", "first_visible", "handle_of", "jpeg_load", "memory_of", "memory_used", "opened"]

_TEXT = 96  # bytes that hold every text of NVML
_VALUE_OF_MIG = 1


@dataclass(frozen=True, slots=True)
class Card:
    """The properties of a card.

    Attributes:
        name: as the driver reports it.
        memory_mib: its total memory.
        capability: its compute capability: "9.0".
        driver: version of the driver.
        cuda: the newest CUDA that the driver supports: "13.0".
        mig: whether it is partitioned (MIG); None if it cannot be.
    """

    name: str
    memory_mib: int
    capability: str
    driver: str
    cuda: str
    mig: bool | None


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """Open NVML; None if it is missing or fails."""
    try:
        nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        yield None
        return
    if nvml.nvmlInit_v2():
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def cards() -> list[Card]:
    """List all cards of the machine, whatever CUDA_VISIBLE_DEVICES says; empty without a driver."""
    with opened() as nvml:
        if nvml is None:
            return []
        count = ctypes.c_uint(0)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        return [_card(nvml, handle_of(nvml, index)) for index in range(count.value)]


def memory_used() -> int:
    """Return the MiB in use by all processes on the first card visible to CUDA; 0 without one."""
    with opened() as nvml:
        return 0 if nvml is None else memory_of(nvml, handle_of(nvml, first_visible())).used >> 20


def jpeg_load() -> int | None:
    """Return how busy the JPEG engines of that card are, in percent; None if the driver does not report it."""
    with opened() as nvml:
        if nvml is None or not hasattr(nvml, "nvmlDeviceGetJpgUtilization"):
            return None
        load, period = ctypes.c_uint(0), ctypes.c_uint(0)
        handle = handle_of(nvml, first_visible())
        failed = nvml.nvmlDeviceGetJpgUtilization(handle, ctypes.byref(load), ctypes.byref(period))
        return None if failed else load.value


def first_visible() -> int:
    """Return NVML's number of the first card visible to CUDA, if CUDA_VISIBLE_DEVICES holds numbers; else 0."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdigit() else 0


def handle_of(nvml: Any, index: int) -> ctypes.c_void_p:
    """The card of a number, as NVML knows it."""
    handle = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    return handle


def memory_of(nvml: Any, handle: ctypes.c_void_p) -> _Memory:
    """The memory of a card."""
    found = _Memory()
    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(found))
    return found


def _card(nvml: Any, handle: ctypes.c_void_p) -> Card:
    name, driver = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(_TEXT)
    major, minor, cuda = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    mig, pending = ctypes.c_uint(0), ctypes.c_uint(0)
    nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(_TEXT))
    nvml.nvmlSystemGetDriverVersion(driver, ctypes.c_uint(_TEXT))
    nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda))
    no_mig = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(mig), ctypes.byref(pending))
    return Card(
        name=name.value.decode(errors="replace"),
        memory_mib=memory_of(nvml, handle).total >> 20,
        capability=f"{major.value}.{minor.value}",
        driver=driver.value.decode(errors="replace"),
        cuda=f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        mig=None if no_mig else mig.value == _VALUE_OF_MIG,
    )
