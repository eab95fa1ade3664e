"""The limits of a process, read from made-up /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpupipe.cpus import cpu_count
from gpupipe.tools.doctor.limits import find_limits


def tree(root: Path, **files: str) -> Path:
    for name, text in ({"proc/meminfo": "MemTotal:  16777216 kB\nMemFree: 1 kB\n"} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V2 = {"cpu.max": "150000 100000", "memory.max": "2147483648"}
JOB = {"cpu.max": "max 100000", "user/cpu.max": "200000 100000", "user/job/cpu.max": "300000 100000"}
MEMORY_OF_JOB = {"user/memory.max": "max", "user/job/memory.max": "4294967296"}
V1 = {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
MEMORY_OF_V1 = {"memory/memory.limit_in_bytes": "1073741824"}
NONE = {"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": "9223372036854771712"}


@pytest.mark.parametrize(
    ("groups", "files", "quota", "memory"),
    [
        ("0::/\n", V2, 1.5, 2 << 30),
        ("0::/user/job\n", JOB | MEMORY_OF_JOB, 2.0, 4 << 30),  # the smallest limit of the groups around it counts
        # A container sees its own group as the root.
        ("5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n", V1 | MEMORY_OF_V1, 0.5, 1 << 30),
        ("5:memory:/\n3:cpu:/\n", NONE, None, None),
    ],
    ids=["version 2", "groups of groups", "version 1", "no limits"],
)
def test_control_groups_give_quota_and_memory(
    tmp_path: Path, groups: str, files: dict[str, str], quota: float | None, memory: int | None
) -> None:
    placed = {f"sys/fs/cgroup/{name}": f"{text}\n" for name, text in files.items()}

    limits = find_limits(tree(tmp_path, **{"proc/self/cgroup": groups}, **placed))

    assert (limits.cpus, limits.memory) == (cpu_count(), 16 << 30)
    assert (limits.quota, limits.memory_limit, limits.shared_memory) == (quota, memory, None)


def test_a_system_without_these_files_has_no_limits(tmp_path: Path) -> None:
    limits = find_limits(tmp_path)

    assert (limits.quota, limits.memory, limits.memory_limit, limits.shared_memory) == (None,) * 4


@pytest.mark.parametrize("sign", [".dockerenv", "run/.containerenv", "KUBERNETES_SERVICE_HOST", ""])
def test_a_container_is_told_by_its_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "container"):
        monkeypatch.delenv(name, raising=False)
    if sign.isupper():
        monkeypatch.setenv(sign, "10.0.0.1")
    elif sign:
        tree(tmp_path, **{sign: ""})

    assert find_limits(tmp_path).container == bool(sign)


def test_the_size_of_shared_memory_is_that_of_its_file_system(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)

    assert (find_limits(tmp_path).shared_memory or 0) > 0
