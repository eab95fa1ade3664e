"""process: CPU time and resident memory of a process and its descendants, read from /proc, and how it ended."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path

__all__ = [
    "OwnPeak",
    "PeakMemory",
    "descendants",
    "ending",
    "ends",
    "environment",
    "peak_bytes",
    "resident_bytes",
    "resident_parts",
    "tree_cpu_seconds",
]

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def environment() -> dict[str, str]:
    """Environment variables of a process that is timed: it keeps and loads bytecode, as processes usually do."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def descendants(pid: int) -> list[int]:
    """List the living descendants of `pid`, itself not included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(pid, ()))
    for one in found:  # grows while it is iterated
        found.extend(children.get(one, ()))
    return found


def tree_cpu_seconds() -> float:
    """Sum user and system time of this process, its living descendants and every descendant already waited for.

    The time of a worker that ends moves from "living" to "waited for", so the difference of two calls is exact.
    """
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + reaped.ru_utime + reaped.ru_stime
    for pid in descendants(os.getpid()):
        total += _cpu_seconds(pid)
    return total


def resident_bytes(pid: int) -> int:
    """Return the resident memory of one process, file pages included; 0 once it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0


def peak_bytes() -> int:
    """Return this process's largest resident memory so far, as the kernel recorded it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("peak memory needs VmHWM in /proc/self/status, which this system does not have; run it on Linux")


def resident_parts() -> dict[str, float]:
    """Return this process's resident memory by kind, in units of 1e6 bytes: anonymous_mb, file_mb, shared_mb."""
    names = {"RssAnon:": "anonymous_mb", "RssFile:": "file_mb", "RssShmem:": "shared_mb"}
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {names[words[0]]: int(words[1]) * 1024 / 1e6 for words in lines if words[0] in names}


def ends(pid: int, seconds: float) -> bool:
    """Whether a child ends within that time. It stays a zombie, so that its number is not reused."""
    until = time.monotonic() + seconds
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True


def ending(status: int) -> str:
    """Describe a return code: the signal or status that a process ended with; "" for 0."""
    if status >= 0:
        return f"ended with {status}" if status else ""
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal, which has no name
        return f"ended by signal {-status}"


class OwnPeak:
    """Watch this process's resident memory from a thread, every 20 ms, and keep its largest sum by kind."""

    def __init__(self, interval: float = 0.02) -> None:
        self.parts = resident_parts()
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Stop watching; return the parts of the largest sum."""
        self._stop.set()
        self._thread.join()
        return self.parts

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.parts = max(self.parts, resident_parts(), key=lambda parts: sum(parts.values()))


class PeakMemory:
    """Watch the memory of a process tree from outside, five times a second.

    A page shared by two processes counts twice. The watcher's own work is not part of the contestant's CPU time.
    """

    def __init__(self, pid: int, interval: float = 0.2) -> None:
        self.bytes = 0
        self._pid = pid
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop watching; return the peak in bytes."""
        self._stop.set()
        self._thread.join()
        return self.bytes

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            self.bytes = max(self.bytes, sum(map(resident_bytes, [self._pid, *descendants(self._pid)])))


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command name (which may contain anything): state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    if not fields:
        return 0.0
    reaped = (int(fields[13]) + int(fields[14])) / _TICK  # cutime, cstime: descendants that `pid` has waited for
    try:
        # Linux's CPU clock of another process, in nanoseconds; the ticks of /proc are 10 ms.
        return time.clock_gettime((~pid << 3) | 2) + reaped
    except OSError:
        return (int(fields[11]) + int(fields[12])) / _TICK + reaped
