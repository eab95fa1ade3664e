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


def test_the_second_version_of_control_groups_gives_quota_and_memory(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "150000 100000\n", "sys/fs/cgroup/memory.max": "2147483648\n"}

    limits = find_limits(tree(tmp_path, **{"proc/self/cgroup": "0::/\n", **files}))

    assert limits.cpus == cpu_count()
    assert limits.quota == 1.5
    assert (limits.memory, limits.memory_limit) == (16 << 30, 2 << 30)


def test_the_smallest_limit_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/user/job\n",
        "sys/fs/cgroup/user/job/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
        "sys/fs/cgroup/user/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/user/memory.max": "max\n",
        "sys/fs/cgroup/user/job/memory.max": "4294967296\n",
    }

    limits = find_limits(tree(tmp_path, **files))

    assert (limits.quota, limits.memory_limit) == (2.0, 4 << 30)


def test_the_first_version_of_control_groups_gives_them_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",  # a container sees its own group as the root
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
    }

    limits = find_limits(tree(tmp_path, **files))

    assert (limits.quota, limits.memory_limit) == (0.5, 1 << 30)


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/\n3:cpu:/\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }

    limits = find_limits(tree(tmp_path, **files))

    assert (limits.quota, limits.memory_limit, limits.shared_memory) == (None, None, None)


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
