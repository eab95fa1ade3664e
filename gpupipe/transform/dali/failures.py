"""failures: DALI's texts about a failed run, in a few words."""

from __future__ import annotations

import re

from ...errors import DeviceError

__all__ = ["cause_of", "device_failed", "is_of_device"]

# As DALI's libraries say it (their strings). They name what failed, and no more: that it was not the data shows where
# rows fail that were computed before, or a batch fails that then runs (`DaliExecutor`). Only before the first row has
# been computed is there nothing to compare with, and these texts decide.
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


_NVIMGCODEC = {"'#3'": "damaged image", "'#4'": "no image, or a kind it cannot read"}


def cause_of(text: str) -> str:
    """DALI's own words about a failure without what it wraps around them: the operator and the cause."""
    operator = _OPERATOR.search(text)
    words = text.rpartition("encountered:")[2]
    lines = [re.sub(r"^Assert on .*? failed: ", "", line.strip()) for line in words.splitlines()]
    cause = " ".join(line.rstrip(" :") for line in lines if line and not _NOISE.match(line))
    for code, meaning in _NVIMGCODEC.items():
        cause = cause.replace(f"nvImageCodec failure: {code}", f"nvImageCodec failure {code} ({meaning})")
    return f"{operator[1]}: {cause}" if operator else cause


def is_of_device(text: str) -> bool:
    """Whether a text of DALI's names a failure of the GPU, its driver or of memory."""
    return any(words in text for words in (*_OUT_OF_MEMORY, *_DEVICE_FAILURES))


def device_failed(text: str, label: str, what: str, known: str = "") -> DeviceError:
    """The error for a run that failed, and not because of its data.

    Args:
        text: of DALI's, whole or what `cause_of` leaves of it.
        label: where the program ran.
        what: what needed memory.
        known: how that is known, where the text does not say it.
    """
    cause = cause_of(text) or text
    if any(words in text for words in _OUT_OF_MEMORY):
        return DeviceError(
            f"{label} needs more memory than there is for {what}: {cause}; use a smaller batch or a smaller "
            "Options(device_memory=...)"
        )
    if known and not is_of_device(text):
        return DeviceError(
            f"{label} {known}, so it is not the data: {cause}; start the process again, or run with "
            "Options(device='cpu')"
        )
    forked = "(a process that was forked from one that used CUDA cannot use it) " * ("InitializationError" in text)
    return DeviceError(
        f"{label} failed, and not because of the data: {cause}; {forked}start the process again, and if the error "
        "comes back, look at nvidia-smi and the kernel's log (Xid), or run with Options(device='cpu')"
    )
