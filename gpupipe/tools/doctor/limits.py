"""limits: what this process may use of its machine: CPUs, memory, shared memory and open files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gpupipe.cpus import cpu_count

from ...classes import dataclass

__all__ = ["Limits", "find_limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may use; None where the system does not say.

    Attributes:
        cpus: CPUs that it may run on.
        quota: CPUs' worth of time that its control group grants; None without such a limit.
        memory: bytes of the machine.
        memory_limit: bytes that its control group grants; None without such a limit.
        shared_memory: bytes of /dev/shm.
        open_files: files that it may hold open (`ulimit -n`).
        container: whether it runs in a container, as far as files and variables tell.
    """

    cpus: int
    quota: float | None = None
    memory: int | None = None
    memory_limit: int | None = None
    shared_memory: int | None = None
    open_files: int | None = None
    container: bool = False


def find_limits(root: Path = Path("/")) -> Limits:
    """Ask the system.

    Args:
        root: where /proc, /sys and /dev are.
    """
    memory = _total(root / "proc/meminfo")
    granted = map(_number, _group_files(root, "memory.max", "memory", "memory.limit_in_bytes"))
    limit = min((size for size in granted if size is not None), default=None)
    return Limits(
        cpus=cpu_count(),
        quota=_quota(root),
        memory=memory,
        # Version 1 writes a number near 2**63 where there is no limit.
        memory_limit=None if limit is None or (memory is not None and limit >= memory) else limit,
        shared_memory=_size(root / "dev/shm"),
        open_files=_open_files(),
        container=any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
        or any(name in os.environ for name in ("KUBERNETES_SERVICE_HOST", "container")),
    )


def _quota(root: Path) -> float | None:
    found = []
    for path in _group_files(root, "cpu.max", "cpu", "cpu.cfs_quota_us"):
        text = _text(path).split()
        if path.name == "cpu.cfs_quota_us":
            text += _text(path.with_name("cpu.cfs_period_us")).split()
        if len(text) == 2 and text[0].isdigit() and text[1].isdigit() and int(text[1]):  # else "max", or -1
            found.append(int(text[0]) / int(text[1]))
    return min(found, default=None)


def _group_files(root: Path, unified: str, controller: str, name: str) -> Iterator[Path]:
    """The files of a limit, of this process's control group and of those around it.

    A container sees its own group as the root, or its path on the host; files that are not there are passed over.

    Args:
        root: where /proc and /sys are.
        unified: the name of the file under version 2.
        controller: its controller under version 1.
        name: its name there.
    """
    base = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            top, file = base, unified
        elif controller in controllers.split(","):
            top, file = base / (controllers if (base / controllers).is_dir() else controller), name
        else:
            continue
        folder = top / group.strip("/")
        for place in (folder, *folder.parents):
            if (place / file).is_file():
                yield place / file
            if place == top:
                break


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not this system, or not for this user
        return ""


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _total(meminfo: Path) -> int | None:
    """Bytes of memory, from a line such as ``MemTotal:  16384 kB``."""
    for line in _text(meminfo).splitlines():
        words = line.split()
        if words[:1] == ["MemTotal:"] and len(words) > 1 and words[1].isdigit():
            return int(words[1]) * 1024
    return None


def _size(folder: Path) -> int | None:
    if not hasattr(os, "statvfs") or not folder.is_dir():
        return None
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def _open_files() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
