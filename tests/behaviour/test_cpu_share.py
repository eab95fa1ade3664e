"""The threads of a process are at most its share of the CPUs: of a launcher's ranks, a cgroup's quota, Ray's."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import gpupipe as gp
from gpupipe import cpus

VARIABLES = {name for names in cpus.LOCAL_RANKS.values() for name in names} | {*cpus.LOCAL_RANKS, "SLURM_CPUS_ON_NODE"}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 64 CPUs without a launcher, a quota or Ray."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cpus, "cpu_count", lambda: 64)
    monkeypatch.setattr(cpus, "cpus_of_machine", lambda: 64)
    monkeypatch.setattr(cpus, "_quotas", list)
    monkeypatch.setattr(cpus, "cpu_quota", cpus.cpu_quota.__wrapped__)
    monkeypatch.delitem(sys.modules, "ray", raising=False)


def in_ray(monkeypatch: pytest.MonkeyPatch, resources: Any) -> None:
    context = SimpleNamespace(get_assigned_resources=resources)
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)


@pytest.mark.parametrize(
    ("environment", "threads", "why"),
    [
        ({}, 64, ""),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, 8, "64 CPUs for 8 ranks, LOCAL_RANK=3"),
        ({"LOCAL_WORLD_SIZE": "4"}, 16, "64 CPUs for 4 ranks, LOCAL_WORLD_SIZE"),
        ({"LOCAL_RANK": "3"}, 64, ""),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "4"}, 16, "64 CPUs for 4 ranks, SLURM_LOCALID=1"),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "100"}, 1, "64 CPUs for 100 ranks, LOCAL_RANK=3"),
    ],
)
def test_the_ranks_of_a_machine_share_its_cpus(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], threads: int, why: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert cpus.cpu_share() == (threads, why)
    assert gp.Options().resolve().threads == threads
    assert gp.Options(threads=5).resolve().threads == 5


@pytest.mark.parametrize(
    ("texts", "threads"),
    [(["250000 100000"], 3), (["50000 100000"], 1), (["-1 100000"], 64), (["", "400000 100000"], 4)],
)
def test_the_quota_of_a_cgroup_counts(monkeypatch: pytest.MonkeyPatch, texts: list[str], threads: int) -> None:
    monkeypatch.setattr(cpus, "_quotas", lambda: texts)

    assert cpus.cpu_share() == (threads, f"the quota of its cgroup is {threads}" if threads < 64 else "")


def test_a_worker_of_ray_has_the_cpus_that_ray_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    in_ray(monkeypatch, lambda: {"CPU": 1.5})
    assert cpus.cpu_share() == (2, "Ray gave it 2")
    in_ray(monkeypatch, dict)
    assert cpus.cpu_share() == (64, "")  # a driver has all

    def refuses() -> Any:
        raise AssertionError("only in a worker")

    in_ray(monkeypatch, refuses)
    assert cpus.cpu_share() == (64, "")


def test_explain_says_what_the_share_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")

    text = "threads 8 (DALI on CPU: 9; the share of this process: 64 CPUs for 8 ranks, LOCAL_RANK=3)"
    assert text in str(gp.Dataset.range(3).explain())
    assert "the share of" not in str(gp.Dataset.range(3).with_options(gp.Options(threads=3)).explain())
