"""threads: the CPU time of this process by the threads that took it: the main one, gpupipe's, DALI's, and others."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

__all__ = ["ThreadTimes", "switch_interval", "told"]

_DALI = ("[DALI]", "[NVIMGCODEC]")
"""How the names of its threads and of its decoders' start, for the kernel."""
_T = TypeVar("_T")
_TICK = os.sysconf("SC_CLK_TCK")


class ThreadTimes:
    """The CPU time of each thread since this object was made.

    A thread that has ended counts as far as it was seen; the rest of the CPU time of the process is the group "ended".
    """

    def __init__(self) -> None:
        self._process = time.process_time()
        self._groups: dict[int, str] = {}
        self._seconds: dict[int, float] = {}
        self._see()
        self._before = dict(self._seconds)

    def watching(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items, and look at the threads after each, as some may end with an epoch."""
        for item in items:
            yield item
            self._see()

    def groups(self, images: int) -> dict[str, float]:
        """Return CPU-milliseconds per image of each group of threads, the largest first."""
        self._see()
        found: dict[str, float] = {}
        for thread, seconds in self._seconds.items():
            group = self._groups[thread]
            found[group] = found.get(group, 0.0) + seconds - self._before.get(thread, 0.0)
        unseen = time.process_time() - self._process - sum(found.values())
        found["ended"] = found.get("ended", 0.0) + max(0.0, unseen)
        each = {group: round(seconds / images * 1e3, 4) for group, seconds in found.items()}
        return dict(sorted(((group, ms) for group, ms in each.items() if ms), key=lambda one: -one[1]))

    def _see(self) -> None:
        gpupipe = {one.native_id for one in threading.enumerate() if one.name.startswith("gpupipe-")}
        for thread in map(int, os.listdir("/proc/self/task")):
            seconds = _seconds(thread)
            if seconds is None:
                continue
            self._seconds[thread] = seconds
            if thread in gpupipe:
                self._groups[thread] = "gpupipe"
            elif thread not in self._groups:
                self._groups[thread] = _group(thread)


def told(groups: Mapping[str, float]) -> str:
    """Lay out the groups in words."""
    return "CPU-ms an image by thread: " + ", ".join(f"{group} {ms}" for group, ms in groups.items())


@contextlib.contextmanager
def switch_interval(seconds: float | None) -> Iterator[None]:
    """Let Python's threads take turns after that time, if one is given."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before if seconds is None else seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _group(thread: int) -> str:
    """Return the group of a thread that is not gpupipe's: "main", "DALI", or its name without a number."""
    if thread == os.getpid():
        return "main"
    try:
        name = Path(f"/proc/self/task/{thread}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "ended"
    return "DALI" if name.startswith(_DALI) else name.rstrip("0123456789-_")


def _seconds(thread: int) -> float | None:
    """Return the CPU time of a thread of this process, None once it has ended."""
    try:
        return time.clock_gettime((~thread << 3) | 6)  # Linux's CPU clock of a thread, in nanoseconds
    except OSError:
        pass
    try:
        fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) / _TICK
