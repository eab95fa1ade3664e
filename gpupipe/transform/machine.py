"""machine: what this process can use: GPUs, their driver, the installed DALI, and its rank among several processes."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from ..cpus import LOCAL_RANKS, cpu_count, cpus_of_machine, launcher, number_in, ranks_of
from ..errors import PlanError, text_of
from ..log import logger
from ..missing import LIBRARIES

__all__ = [
    "card_and_versions",
    "cupy_libraries",
    "dali_cuda",
    "dali_libraries",
    "dali_missing",
    "driver_cuda",
    "fast_trouble",
    "gpu_count",
    "gpu_of_rank",
    "has_dali",
    "has_fast",
    "has_package",
    "threads_of_rank",
]

MOST_THREADS = 16
"""Most threads of a stage on a GPU. They parse headers and copy; each holds up to 32 MiB of decoder buffers, partly
on the GPU, and more threads do not feed a decoder faster."""


def has_package(name: str) -> bool:
    """Whether a package is installed or in `sys.modules`, without importing it."""
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # the parent package is missing
        return False


def has_dali() -> bool:
    """Whether DALI is installed, without importing it."""
    return has_package("nvidia.dali")


def has_fast() -> bool:
    """Whether the libraries of the extra `fast` can be used; they are imported if they are installed."""
    return not fast_trouble()


def fast_trouble() -> str:
    """Why the libraries of the extra `fast` cannot be used; "" if they can."""
    if not (has_package("cv2") and has_package("cykooz_resizer")):
        return f"OpenCV and cykooz-resizer are not both installed: pip install {LIBRARIES['fast']}"
    return _import_trouble()


@functools.cache
def _import_trouble() -> str:
    """Why an installed library cannot be imported, also logged: OpenCV with windows needs libraries of a desktop."""
    from ..ops._shared.libraries import LOADERS

    for name, load in LOADERS.items():
        try:
            load()
        except Exception as error:
            trouble = f"{name} is installed, but importing it fails with {text_of(error)}"
            logger.warning("%s; the executor 'fast' is not used", trouble)
            return trouble
    return ""


def dali_cuda() -> int | None:
    """The CUDA major version that the installed DALI was built for; None if its distribution does not say."""
    found = _distribution("nvidia-dali-cuda{}0")
    return None if found is None else found[0]


def card_and_versions(device_id: int | None) -> str:
    """The decoder of images, for a message: GPU and driver, if NVML names them, and versions of DALI and nvImageCodec.

    Args:
        device_id: ordinal among the GPUs that CUDA shows this process; None for the CPU.
    """
    named = (("DALI", "nvidia-dali-cuda{}0"), ("nvImageCodec", "nvidia-nvimgcodec-cu{}"))
    found = ((text, _distribution(name)) for text, name in named)
    versions = [f"{text} {one[1]}" for text, one in found if one is not None]
    return ", ".join([*(() if device_id is None else _card(device_id)), *versions])


def _distribution(name: str) -> tuple[int, str] | None:
    """The CUDA major version in the name of an installed distribution, and the distribution's version."""
    import importlib.metadata  # with `email` and others, where there is a GPU

    for major in (13, 12):
        try:
            return major, importlib.metadata.version(name.format(major))
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _card(device_id: int) -> list[str]:
    """The name of a GPU, and the driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    return named(nvml, device_id, os.environ.get("CUDA_VISIBLE_DEVICES"))


def named(nvml: Any, device_id: int, visible: str | None) -> list[str]:
    """Ask NVML for the name of a GPU, if CUDA_VISIBLE_DEVICES identifies it, and for the driver."""
    name, driver, handle = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96), ctypes.c_void_p()
    entries = [part.strip() for part in (visible or "").split(",")] if visible else []
    entry = entries[device_id] if device_id < len(entries) else str(device_id)
    out: list[str] = []
    if nvml.nvmlInit_v2() != 0:
        return out
    if entry.isdigit():
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(int(entry), ctypes.byref(handle)) != 0
    else:
        failed = nvml.nvmlDeviceGetHandleByUUID(entry.encode(), ctypes.byref(handle)) != 0
    if not failed and nvml.nvmlDeviceGetName(handle, name, 96) == 0:
        out.append(name.value.decode(errors="replace"))
    if nvml.nvmlSystemGetDriverVersion(driver, 96) == 0:
        out.append(f"driver {driver.value.decode(errors='replace')}")
    nvml.nvmlShutdown()
    return out


def gpu_count() -> int:
    """Number of GPUs visible to this process; 0 without a driver.

    Asks NVML, not CUDA: a process that called cuInit can no longer fork children that use CUDA.
    """
    if sys.platform != "linux":
        return 0  # DALI has wheels for Linux only
    return _visible(installed()[0], os.environ.get("CUDA_VISIBLE_DEVICES"))


def driver_cuda() -> int | None:
    """The CUDA major version that the driver supports; None if NVML does not say."""
    return installed()[1]


def dali_libraries() -> str:
    """What pip installs for DALI on this machine, and for CuPy if it has a GPU."""
    return LIBRARIES[f"cuda{13 if (driver_cuda() or 12) >= 13 else 12}" if gpu_count() else "cpu"]


def cupy_libraries() -> str:
    """What pip installs for CuPy beside the installed DALI."""
    return LIBRARIES[f"cuda{dali_cuda() or 12}"]


def dali_missing() -> str:
    """The words for a machine without DALI, with the command that installs it where one does."""
    how = f"pip install {dali_libraries()}" if sys.platform == "linux" else "it has wheels for Linux alone"
    return f"DALI is not installed ({how})"


@functools.cache
def installed() -> tuple[int, int | None]:
    """GPUs of this machine (or container), whatever CUDA_VISIBLE_DEVICES says, and the driver's CUDA version."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, None  # no driver, or a container without the capability "compute"
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # a container without the capability "utility"
        return len(list(Path("/proc/driver/nvidia/gpus").glob("*"))), None
    return asked(nvml)


def asked(nvml: Any) -> tuple[int, int | None]:
    """Ask NVML for the number of GPUs and for the driver's CUDA version."""
    count, version = ctypes.c_uint(0), ctypes.c_int(0)
    if nvml.nvmlInit_v2() != 0:
        return 0, None
    failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0
    silent = nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version)) != 0
    nvml.nvmlShutdown()
    return 0 if failed else count.value, None if silent else version.value // 1000


def _visible(installed: int, visible: str | None) -> int:
    """The number of GPUs that CUDA_VISIBLE_DEVICES leaves visible: as CUDA reads it, up to the first invalid entry."""
    if visible is None:
        return installed
    seen: set[str] = set()
    for entry in (part.strip() for part in visible.split(",")):
        number = entry.isdigit() and int(entry) < installed
        if entry in seen or not (number or entry.startswith(("GPU-", "MIG-"))):
            break
        seen.add(entry)
    return min(len(seen), installed) if not any(entry.startswith("MIG-") for entry in seen) else 1


def gpu_of_rank(gpus: int) -> tuple[int, str]:
    """The GPU of this process, and its source: the launcher's rank, else torch's current device, else 0.

    Raises:
        PlanError: a rank that is not a number, or has no GPU here.
    """
    name = launcher()
    if name is None or (os.environ[name] == "0" and ranks_of(name) == 1):  # alone: it may have started others
        device = _device_of_torch()
        return (0, "") if device is None or device >= gpus else (device, "torch's current device")
    text = os.environ[name]
    if not text.isdigit():
        raise PlanError(f"{name} needs an integer >= 0, got {text!r}; unset it or name the GPU, e.g. device='gpu:0'")
    if gpus == 1:
        return 0, f"{name}={text}"  # the launcher gives each rank its own GPU through CUDA_VISIBLE_DEVICES
    if int(text) >= gpus:
        raise PlanError(
            f"{name}={text} needs {int(text) + 1} GPUs, found {gpus}; start fewer processes on this machine"
        )
    return int(text), f"{name}={text}"


def threads_of_rank(gpus: int) -> tuple[int, str]:
    """Threads of a stage on a GPU, and the reason: this process's share of the CPUs, at most `MOST_THREADS`.

    A launcher that gives each rank its own CPUs has divided them already.
    """
    ranks, where = ranks_here(gpus)
    own, all_of_them = cpu_count(), cpus_of_machine()
    count = max(1, min(MOST_THREADS, own, all_of_them // ranks))
    if ranks == 1:
        return count, f"{own} CPU{'s' * (own > 1)}"
    given = f" ({own} of them given to this one)" if own < all_of_them else ""
    return count, f"{all_of_them} CPUs for {ranks} ranks{given}, {where}"


def ranks_here(gpus: int) -> tuple[int, str]:
    """The number of processes that a launcher has started on this machine, as far as known, and its source."""
    name = launcher()
    if name is None:
        size = number_in("LOCAL_WORLD_SIZE")
        return (size, f"LOCAL_WORLD_SIZE={size}") if size else (1, "")
    size = ranks_of(name) or next(filter(None, map(ranks_of, LOCAL_RANKS)), None)
    if size is not None:
        return size, f"{name}={os.environ[name]} of {size}"
    return max(gpus, (number_in(name) or 0) + 1), f"{name}={os.environ[name]}, one rank for each GPU"


def _device_of_torch() -> int | None:
    """Ordinal of torch's current device, if torch is imported and has initialised CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return int(cuda.current_device())
