"""failures: turn DALI's messages about a failed run into short errors."""

from __future__ import annotations

import re

from ...errors import DeviceError

__all__ = ["cause_of", "device_failed", "is_of_device", "sample_of"]

# Strings of DALI's libraries. They only name what failed; that the data is not to blame is shown when a row fails that
# was computed before, or a failed batch then succeeds (`DaliExecutor`). These texts decide only before the first row
# has been computed, when there is nothing to compare with.
_DEVICE_FAILURES = ("CUDA runtime API error", "CUDA driver API error", "CUDA Driver API error", "NVML")


_OUT_OF_MEMORY = (
    "CUDA allocation failed",
    "Can't allocate",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "bad_alloc",
    "MemoryError",
)


_OPERATOR = re.compile(r"operator `(?:nvidia\.dali\.)?(?:fn\.)?([\w.]+)`")


_NOISE = re.compile(r"^(Critical error in pipeline|Current pipeline object|C\+\+ context|Assert on .* failed: ?)|^$")


_NVIMGCODEC = {"'#3'": "damaged image", "'#4'": "not an image, or of an unsupported kind"}


def cause_of(text: str) -> str:
    """The operator and the cause from DALI's message about a failure, without the rest."""
    operator = _OPERATOR.search(text)
    words = text.rpartition("encountered:")[2]
    lines = [re.sub(r"^Assert on .*? failed: ", "", line.strip()) for line in words.splitlines()]
    cause = " ".join(line.rstrip(" :") for line in lines if line and not _NOISE.match(line))
    for code, meaning in _NVIMGCODEC.items():
        cause = cause.replace(f"nvImageCodec failure: {code}", f"nvImageCodec failure {code} ({meaning})")
    return f"{operator[1]}: {cause}" if operator else cause


def sample_of(text: str) -> int | None:
    """The number of the sample that a message names; None if it names none."""
    found = _SAMPLE.search(text)
    return None if found is None else int(found[1])


_SAMPLE = re.compile(r"\bsample #(\d{1,6})\b")


def is_of_device(text: str) -> bool:
    """Whether a message of DALI's names a failure of the GPU, its driver or memory."""
    return any(words in text for words in (*_OUT_OF_MEMORY, *_DEVICE_FAILURES))


def device_failed(text: str, label: str, what: str, known: str = "") -> DeviceError:
    """The error for a run that failed, but not because of its data.

    Args:
        text: DALI's message, whole or shortened by `cause_of`.
        label: of the executor.
        what: the work that needed memory.
        known: the evidence, if the text does not name the device.
    """
    cause = cause_of(text) or text
    if any(words in text for words in _OUT_OF_MEMORY):
        return DeviceError(
            f"{label} needs more memory than is available for {what}: {cause}; use a smaller batch or a smaller "
            "Options(device_memory=...)"
        )
    if known and not is_of_device(text):
        return DeviceError(
            f"{label} {known}, so it is not the data: {cause}; restart the process, or run with Options(device='cpu')"
        )
    forked = "(a process that was forked from one that used CUDA cannot use it) " * ("InitializationError" in text)
    return DeviceError(
        f"{label} failed, and not because of the data: {cause}; {forked}restart the process, and if the error "
        "comes back, look at nvidia-smi and the kernel's log (Xid), or run with Options(device='cpu')"
    )
