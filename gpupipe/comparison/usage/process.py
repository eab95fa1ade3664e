"""process: CPU time and peak memory of this process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

__all__ = ["cpu_seconds", "forget_peak", "peak_bytes"]


def cpu_seconds() -> float:
    """User and system time of this process, with all threads, and of the children it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def forget_peak() -> None:
    """Let `peak_bytes` begin again from the present memory, where the system allows it (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # then the peak is that of the process's whole life, which is never too small


def peak_bytes() -> int | None:
    """Peak resident memory of this process, None if the system does not report it."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux; there `ru_maxrss` starts from the peak of the parent process
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None
