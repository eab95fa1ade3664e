"""cpus: how many CPUs this process may use, and which share of them is its own among the ranks of a machine."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from pathlib import Path

__all__ = [
    "LOCAL_RANKS",
    "cpu_count",
    "cpu_quota",
    "cpu_share",
    "cpus_of_machine",
    "launcher",
    "number_in",
    "ranks_of",
]

LOCAL_RANKS = {
    "LOCAL_RANK": ("LOCAL_WORLD_SIZE",),
    "SLURM_LOCALID": ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
    "OMPI_COMM_WORLD_LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    "MPI_LOCALRANKID": ("MPI_LOCALNRANKS",),
}
"""Variables with the rank of a process on its machine, and those with the number of ranks: torchrun, srun, Open MPI,
Intel MPI and MPICH."""


def cpu_count() -> int:
    """CPUs this process may use (its affinity mask where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def cpu_share() -> tuple[int, str]:
    """CPUs that are this process's own, at least 1, and what makes them fewer than it may use; "" if nothing does.

    The ranks that a launcher started on this machine share its CPUs, unless it gave each its own; a cgroup's quota is
    shared as well. A worker of Ray has the CPUs that Ray gave it.
    """
    own, found = cpu_count(), list[tuple[int, str]]()
    quota, ray, name = cpu_quota(), _of_ray(), launcher()
    ranks = (
        number_in("LOCAL_WORLD_SIZE") if name is None else next(filter(None, map(ranks_of, [name, *LOCAL_RANKS])), 1)
    )
    if quota is not None:
        found.append((quota, f"the quota of its cgroup is {quota}"))
    if ray is not None:
        found.append((ray, f"Ray gave it {ray}"))
    if ranks is not None and ranks > 1:
        every = cpus_of_machine()
        said = "LOCAL_WORLD_SIZE" if name is None else f"{name}={os.environ[name]}"
        found.append((max(1, every // ranks), f"{every} CPUs for {ranks} ranks, {said}"))
    count, why = min(found, default=(own, ""))
    return (count, why) if count < own else (own, "")


@functools.cache
def cpu_quota() -> int | None:
    """CPUs that the quota of this process's cgroup is worth, rounded up; None if it has none."""
    for text in _quotas():
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit() and int(period):
            return max(1, math.ceil(int(quota) / int(period)))
    return None


def _quotas() -> list[str]:
    """Quota and period in us, as cgroup v2 and v1 have them; what is not there is left out."""
    folder, found = Path("/sys/fs/cgroup"), list[str]()
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            found.append(" ".join((folder / name).read_text().strip() for name in names))
        except OSError:
            continue
    return found


def _of_ray() -> int | None:
    """CPUs that Ray gave to this task or actor, rounded up; None outside of them, and for those with none."""
    ray = sys.modules.get("ray")
    if ray is None or not getattr(ray, "is_initialized", bool)():
        return None
    try:
        given = ray.get_runtime_context().get_assigned_resources().get("CPU", 0)
    except Exception:  # a driver has none
        return None
    return math.ceil(given) or None


def launcher() -> str | None:
    """The variable with this process's rank; None if no launcher set one."""
    return next((name for name in LOCAL_RANKS if os.environ.get(name)), None)


def ranks_of(launcher: str) -> int | None:
    """The number of ranks that a launcher says are on this machine; if machines differ, the largest."""
    return next(filter(None, map(number_in, LOCAL_RANKS[launcher])), None)


def number_in(name: str) -> int | None:
    """The largest number >= 1 in a variable like ``8`` or Slurm's ``8(x2),4``; None if there is none."""
    numbers = [int(text) for text in re.findall(r"(\d+)(?:\(x\d+\))?", os.environ.get(name, ""))]
    return max(numbers, default=0) or None


def cpus_of_machine() -> int:
    """CPUs that all ranks of this machine (or container, or Slurm job) share."""
    counts = [os.cpu_count() or 1, number_in("SLURM_CPUS_ON_NODE")]
    try:
        parts = Path("/sys/fs/cgroup/cpuset.cpus.effective").read_text().strip().split(",")
        counts.append(sum(int(part.rpartition("-")[2]) - int(part.partition("-")[0]) + 1 for part in parts))
    except (OSError, ValueError):  # no cgroup v2, or none with a cpuset
        pass
    return min(filter(None, [*counts, cpu_quota()]))
