"""on_ray without a cluster: its arguments, the chains that it refuses, and states that go from engine to engine."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.plan.ranks import OnRay, workers_of
from tests.on_ray.chains import digest, numbers


def step_of(ds: gp.Dataset) -> OnRay:
    found = workers_of(ds.plan)
    assert found is not None
    return found


def test_numpys_integers_are_pythons() -> None:
    n: Any = np.int64
    step = step_of(numbers().on_ray(n(2), segment=n(3), ahead=n(5), num_cpus=n(1), max_restarts=n(4)))

    found = (step.workers, step.segment, step.ahead, step.resources["CPU"], step.max_restarts)
    assert found == (2, 3, 5, 1, 4)
    assert {type(one) for one in found} == {int}


def test_twice_as_many_segments_as_workers_are_asked_for() -> None:
    assert step_of(numbers().on_ray(3)).ahead == 6


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: numbers().on_ray(0), "on_ray needs .*workers.* 1, got 0"),
        (lambda: numbers().on_ray(2, num_cpus=-1), "on_ray needs numbers of CPUs and resources >= 0, got -1"),
        (lambda: numbers().on_ray(2, resources={"GPU": 1}), "on_ray needs resources that you named yourself"),
        (lambda: numbers().on_ray(2).on_ray(2), "on_ray needs a chain without workers"),
        (lambda: gp.Dataset.range(9).shuffle(4).on_ray(2), r"cannot be indexed; use shuffle\(gp.ALL\)"),
        (
            lambda: gp.Dataset.range(9).map(len, num_parallel_calls=2, deterministic=False).on_ray(2),
            "on_ray needs elements in one order, got map",
        ),
        (lambda: numbers().with_options(gp.Options(on_error="skip")).on_ray(2), "got 'skip': rows that are left out"),
    ],
)
def test_what_workers_cannot_make_is_refused_where_it_is_written(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        make()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda ds: ds.with_options(gp.Options(on_error="skip")), "got 'skip'"),
        (lambda ds: ds.repeat(2), "on_ray needs to be the one source of the steps behind it, got repeat"),
        (lambda ds: gp.Dataset.zip((ds, gp.Dataset.range(9))), "on_ray needs to be the one source"),
    ],
)
def test_what_follows_workers_and_cannot_is_refused_when_it_starts(make: Callable[..., Any], text: str) -> None:
    with pytest.raises(gp.PlanError, match=text):
        next(iter(make(numbers().on_ray(2))))


def test_importing_gpupipe_and_writing_a_chain_imports_no_ray() -> None:
    import subprocess

    code = "import sys, gpupipe; gpupipe.Dataset.range(8).on_ray(2); raise SystemExit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=100).returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_loop_says_what_to_install() -> None:
    with pytest.raises(gp.MissingDependencyError, match="pip install ray"):
        next(iter(numbers().on_ray(2)))


def test_the_first_element_and_the_length_need_no_workers() -> None:
    ds = numbers(96)

    assert digest(ds.on_ray(2).first()) == digest(ds.first())
    assert len(ds.on_ray(2)) == 12


def test_a_state_goes_from_a_loop_to_a_rank_and_back() -> None:
    ds = numbers(200)
    rank, state, found = ds.by_rank(0, 1, check=False), None, list[str]()
    for engine, count in ((ds, 3), (rank, 4), (ds, 2), (ds, 3), (rank, 2), (ds, 100)):
        items = engine.iterator(epoch=1)
        if state is not None:
            items.load_state_dict(json.loads(state))
        for _ in range(count):
            if (batch := next(items, None)) is None:
                break
            found.append(digest(batch))
        state = json.dumps(items.state_dict())

    assert found == [digest(batch) for batch in ds.iterator(epoch=1)]


def test_a_state_of_a_window_shuffle_is_not_one_of_ranks() -> None:
    items = gp.Dataset.range(64).shuffle(8, seed=1).batch(8).iterator(epoch=0)
    next(items)
    rank = gp.Dataset.range(64).shuffle(gp.ALL, seed=1).batch(8).by_rank(0, 1, check=False)

    with pytest.raises(gp.StateError, match="needs a state of this chain"):
        rank.iterator(epoch=0).load_state_dict(items.state_dict())


def test_a_chain_of_workers_counts_its_epochs_like_any_other() -> None:
    assert step_of(numbers().on_ray(2)).describe() == "on_ray(workers=2, segment=4)"
    assert numbers().on_ray(2).plan.fingerprint != numbers().on_ray(3).plan.fingerprint
