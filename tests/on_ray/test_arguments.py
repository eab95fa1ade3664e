"""on_ray without a cluster: its arguments, the chains that it refuses, and states that go from engine to engine."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pickle
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.on_ray import segments
from gpupipe.on_ray.team import Job
from gpupipe.on_ray.worker import Chain, Maker
from gpupipe.plan.ranks import OnRay, workers_of
from gpupipe.ray import to_dataset
from tests.on_ray.chains import digest, digests, drawn, numbers
from tests.test_imports import in_a_new_process


def test_numpys_integers_are_pythons() -> None:
    n: Any = np.int64
    step: Any = workers_of(numbers().on_ray(n(2), segment=n(3), ahead=n(5), num_cpus=n(1), max_restarts=n(4)).plan)

    found = (step.workers, step.segment, step.ahead, step.resources["CPU"], step.max_restarts)
    assert found == (2, 3, 5, 1, 4)
    assert {type(one) for one in found} == {int}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: numbers().on_ray(0), "on_ray needs .*workers.* 1, got 0"),
        (lambda: numbers().on_ray(2, num_cpus=-1), "on_ray needs numbers of CPUs and resources >= 0, got -1"),
        (lambda: numbers().on_ray(2, resources={"GPU": 1}), "on_ray needs resources that you named yourself"),
        (lambda: numbers().on_ray(2).on_ray(2), "on_ray needs a chain without workers"),
        (lambda: gp.Dataset.range(9).shuffle(4).on_ray(2), r"cannot be indexed; use shuffle\(gp.ALL\)"),
        (lambda: gp.Dataset.range(9).map(len, 2, deterministic=False).on_ray(2), "elements in one order, got map"),
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
    code = "import sys, gpupipe; gpupipe.Dataset.range(8).on_ray(2); print('ray' in sys.modules)"
    assert in_a_new_process(code) == "False"


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


class _TeamHere:
    """In place of workers: this process makes the segments."""

    idle = False

    def __init__(self, chain: Chain, step: OnRay) -> None:
        self._maker = Maker(chain)
        self.size = len(numbers(32, 4))

    def ready(self, stopped: Any) -> bool:
        return True

    def give(self, job: Job) -> bool:
        job.refs = self._maker.segment(job.epoch, job.next, job.stop)
        return True

    def answer(self, job: Job, stopped: Any) -> Any:
        return next(job.refs, None)

    def end(self, *job: Job) -> None:
        pass

    close = end


def third(x: Any, rng: np.random.Generator) -> Any:
    if x == 3:
        raise ValueError("third")
    return drawn(x, rng)


@pytest.mark.parametrize("count", [8, 10, 15])
def test_errors_of_an_earlier_epoch_do_not_move_the_place(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that raises takes a place, in its own epoch only; each epoch has 8 elements, one of which raises."""
    monkeypatch.setattr(segments, "Team", _TeamHere)
    monkeypatch.setattr(segments, "ray_session", lambda: "here")
    ds = numbers(32, 4, third).on_ray(1)
    whole = digests(ds.epochs(2))
    items = ds.epochs(2)
    for _ in range(count):
        with contextlib.suppress(gp.DataError):
            next(items)

    left = ds.epochs(2)
    left.load_state_dict(items.state_dict())

    assert len(whole) == 16
    assert digests(left) == whole[count:]


class _Data:
    """In place of the module ray.data: keeps what an actor would get, and the jobs."""

    context = SimpleNamespace(execution_options=SimpleNamespace(preserve_order=False))

    def from_items(self, jobs: Any, **how: Any) -> Any:
        self.jobs = jobs
        return self

    def map_batches(self, actor: Any, *, fn_constructor_args: Any, **how: Any) -> Any:
        self.actor, self.arguments = actor, fn_constructor_args
        return self


def test_ray_data_draws_by_the_seed_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[to_dataset.__module__], "ray_data", lambda who: _Data())
    ds = numbers(16)
    gp.set_seed(5)
    try:
        wanted = [digest(batch) for batch in ds.iterator(epoch=0)]
        made = to_dataset(ds, 1)
    finally:
        gp.set_seed(0)  # that of a worker, which is another process

    worker = made.actor(*pickle.loads(pickle.dumps(made.arguments)))
    found = [batch["item"] for job in made.jobs for batch in worker({name: [n] for name, n in job.items()})]

    assert [digest(batch) for batch in found] == wanted


def test_a_chain_of_workers_counts_its_epochs_like_any_other() -> None:
    step = workers_of(numbers().on_ray(2).plan)
    assert step is not None and step.describe() == "on_ray(workers=2, segment=4)"
    assert numbers().on_ray(2).plan.fingerprint != numbers().on_ray(3).plan.fingerprint
