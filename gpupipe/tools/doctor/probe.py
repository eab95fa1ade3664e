"""probe: one question about this machine, answered in a process of its own, where a library may crash or hang.

The answer is a line of JSON behind `MARK`, so that what libraries print does not matter.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...classes import dataclass

__all__ = ["Answer", "ask", "main"]

MARK = "gpupipe-probe "
TIMEOUT = 120.0
"""Seconds for an answer: a GPU's first context and CuPy's first kernel take tens of seconds on a slow disk."""

_ROOT = str(Path(__file__).resolve().parents[3])
# The folder of this gpupipe replaces the working directory, which `-c` puts first on the path.
_CODE = "import sys; sys.path[0] = {root!r}; from gpupipe.tools.doctor.probe import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question.

    Attributes:
        found: what was found; empty if it failed.
        error: why it failed, or how its process ended; "" if it did not.
        seconds: it took, without starting Python.
    """

    found: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0


def ask(question: str, timeout: float = TIMEOUT) -> Answer:
    """Answer one of `QUESTIONS` in a process of its own.

    Args:
        question: its name.
        timeout: seconds after which the process is killed.
    """
    command = [sys.executable, "-c", _CODE.format(root=_ROOT), question]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout,
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer(error=f"no answer after {timeout:.0f} s; its process was killed")
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return Answer(**json.loads(line[len(MARK) :]))
    last = " ".join(done.stderr.strip().splitlines()[-1:])
    return Answer(error=f"its process {_ended(done.returncode)}{': ' * bool(last)}{last[-500:]}")


def _ended(status: int) -> str:
    try:
        return f"crashed ({signal.Signals(-status).name})" if status < 0 else f"ended with status {status}"
    except ValueError:  # a signal without a name
        return f"was ended by signal {-status}"


def main(arguments: Sequence[str]) -> int:
    """Answer the question named by the first argument, on stdout.

    Args:
        arguments: the name of the question.
    """
    started = time.perf_counter()
    try:
        answer: dict[str, Any] = {"found": QUESTIONS[arguments[0]]()}
    except Exception as error:  # whatever a library raises is the answer
        text = " ".join(str(error).split())
        answer = {"error": f"{type(error).__name__}: {text[:1000]}"}
    answer["seconds"] = time.perf_counter() - started
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
    return 0


def _machine() -> dict[str, Any]:
    """The driver, its cards, and the executor that `Options()` takes."""
    from gpupipe.options import Options
    from gpupipe.transform.choose import resolve_device
    from gpupipe.transform.machine import gpu_count, has_dali

    found: dict[str, Any] = {"visible": gpu_count(), "libraries": [name for name in DRIVER if _loads(name)]}
    if "libnvidia-ml.so.1" in found["libraries"]:
        found |= driver(ctypes.CDLL("libnvidia-ml.so.1"))
    try:
        found["dali"] = has_dali()
        choice = resolve_device(Options().resolve())
        found |= {"executor": choice.label, "why": choice.why}
    except Exception as error:  # such as an ImportError of a package that is half there
        found["trouble"] = f"{type(error).__name__}: {error}"
    return found


DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvcuvid.so.1")
"""The driver's libraries. In a container the capability `compute` brings the first, `utility` the second, `video` the
third."""


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def driver(nvml: Any) -> dict[str, Any]:
    """Ask NVML for the driver's version, the CUDA version it supports, and the cards; empty if it does not start."""
    if nvml.nvmlInit_v2() != 0:
        return {}
    text, number, count = ctypes.create_string_buffer(96), ctypes.c_int(0), ctypes.c_uint(0)
    found: dict[str, Any] = {"cards": []}
    if nvml.nvmlSystemGetDriverVersion(text, 96) == 0:
        found["driver"] = text.value.decode(errors="replace")
    if nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(number)) == 0:
        found["cuda"] = [number.value // 1000, number.value % 1000 // 10]
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
        found["cards"] = [_card(nvml, index) for index in range(count.value)]
    nvml.nvmlShutdown()
    return found


def _card(nvml: Any, index: int) -> dict[str, Any]:
    handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    major, minor = ctypes.c_int(0), ctypes.c_int(0)
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return {"name": f"GPU {index}, of which the driver says nothing"}
    named = nvml.nvmlDeviceGetName(handle, name, 96) == 0
    found: dict[str, Any] = {"name": name.value.decode(errors="replace") if named else f"GPU {index}"}
    if nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) == 0:
        found["capability"] = [major.value, minor.value]
    return found


def _executor(device: str, backend: str) -> dict[str, Any]:
    """Decode and resize two JPEGs; on a GPU each is decoded again on the host and compared."""
    from typing import Literal, cast

    from gpupipe import ops
    from gpupipe.comparison.photographs import encode, take
    from gpupipe.dataset import Dataset
    from gpupipe.options import Options

    def small(jpeg: Any) -> Any:
        return ops.resize(ops.decode_jpeg(jpeg, channels=3), (64, 64))

    options = Options(device=device, backend=cast(Literal["dali", "numpy"], backend), verify=1)
    jpegs = [encode(take(number)[1], 90) for number in range(2)]
    batch = Dataset.from_tensor_slices(jpegs).map(small).batch(2).with_options(options).first()
    return {"shape": list(batch.shape)}


def _cupy() -> dict[str, Any]:
    """Import CuPy; where there is a GPU, compile a kernel and run it."""
    from gpupipe.transform.array import load_cupy
    from gpupipe.transform.machine import gpu_count

    load_cupy()
    cupy = sys.modules["cupy"]
    if gpu_count() and (total := int((cupy.arange(4) * 2).sum())) != 12:
        raise ArithmeticError(f"2 * (0 + 1 + 2 + 3) on the GPU needs to be 12, got {total}")
    return {"version": cupy.__version__}


def _engines() -> dict[str, Any]:
    """How many engines of the first GPU decode JPEGs, by nvJPEG."""
    import importlib.metadata

    for name in ("nvidia-nvjpeg", "nvidia-nvjpeg-cu12"):
        try:
            files = importlib.metadata.files(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name.startswith("libnvjpeg.so"):
                return {"engines": engines(ctypes.CDLL(os.fspath(file.locate())))}
    raise FileNotFoundError("libnvjpeg.so is in no installed package")


def engines(nvjpeg: Any) -> int:
    """Ask nvJPEG for the number of engines: 0 on a card without any, or without the driver's capability `video`.

    Raises:
        OSError: nvJPEG fails.
    """
    handle, count, cores = ctypes.c_void_p(), ctypes.c_uint(0), ctypes.c_uint(0)
    status = nvjpeg.nvjpegCreateEx(_HARDWARE, None, None, 0, ctypes.byref(handle))
    if status == _ARCH_MISMATCH:
        return 0
    if status != 0:
        raise OSError(f"nvjpegCreateEx returned {status}")
    status = nvjpeg.nvjpegGetHardwareDecoderInfo(handle, ctypes.byref(count), ctypes.byref(cores))
    nvjpeg.nvjpegDestroy(handle)
    if status != 0:
        raise OSError(f"nvjpegGetHardwareDecoderInfo returned {status}")
    return count.value


# Of nvjpeg.h: NVJPEG_BACKEND_HARDWARE, and NVJPEG_STATUS_ARCH_MISMATCH, which it gives on cards that have no engines
# (NVIDIA/CUDALibrarySamples#153).
_HARDWARE, _ARCH_MISMATCH = 3, 7


QUESTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "machine": _machine,
    "numpy": lambda: _executor("cpu", "numpy"),
    "dali-cpu": lambda: _executor("cpu", "dali"),
    "dali-gpu": lambda: _executor("gpu", "dali"),
    "cupy": _cupy,
    "engines": _engines,
}
