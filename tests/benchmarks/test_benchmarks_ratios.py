"""Medians, ratios inside pairs, and the order of pairs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks import pairs
from benchmarks.job import Job, Run
from benchmarks.pairs import run_pairs
from benchmarks.report import summary
from gpupipe.comparison.ratios import Spread, pair_order, ratios


def made(name: str, cpu: float = 1.0, seconds: float = 1.0) -> Run:
    return Run(name, 100, seconds, cpu, 0.1, 0.2, 50.0, (64, 224, 224, 3), "float32")


def test_a_spread_is_least_median_and_most() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(1.0, 2.5, 10.0, 4)


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="at least one value, got none"):
        Spread.of([])


def test_ratios_are_taken_inside_a_pair() -> None:
    found = ratios([2.0, 20.0, 200.0], [1.0, 10.0, 400.0])

    assert found == Spread(0.5, 2.0, 2.0, 3)  # the ratio of medians would be 2.0, too, but not 0.5 at least


def test_ratios_refuse_what_is_no_pair() -> None:
    with pytest.raises(ValueError, match="got 1 and 2 values"):
        ratios([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="positive divisors"):
        ratios([1.0], [0.0])


def test_every_second_pair_runs_the_reference_first() -> None:
    order: list[str] = []

    def measure(job: Job) -> Run:
        order.append(job.contestant)
        return made(job.contestant)

    found = list(run_pairs(Job("", ()), ["a", "reference"], "reference", 2, measure))

    assert [pair_order(i) for i in range(3)] == [(0, 1), (1, 0), (0, 1)]
    assert order == ["reference", "reference", "a", "reference", "reference", "reference", "reference", "a"]
    assert [(pair.contestant, pair.reference_first) for pair in found] == [
        ("reference", False),
        ("a", False),
        ("reference", True),
        ("a", True),
    ]
    assert all(pair.run.contestant == pair.contestant for pair in found)
    assert all(pair.reference.contestant == "reference" for pair in found)


@pytest.mark.parametrize(("one_seed", "expected"), [(True, [5, 5, 7, 7]), (False, [5, 6, 7, 8])])
def test_the_two_of_a_pair_share_their_seed_only_if_asked_to(one_seed: bool, expected: list[int]) -> None:
    seeds: dict[str, list[int]] = {"a": [], "b": []}

    def measure(job: Job) -> Run:
        seeds[job.contestant].append(job.seed)
        return made(job.contestant)

    list(run_pairs(Job("", (), seed=5), ["a"], "b", 2, measure, one_seed))

    assert seeds["a"] == [expected[0], expected[2]]
    assert max(seeds["b"]) == expected[3]


@pytest.mark.parametrize(("until", "rounds"), [(0.0, 1), (17.9, 1), (18.0, 2), (21.9, 2), (22.0, 3), (99.0, 3)])
def test_rounds_that_would_end_too_late_are_left_out(
    monkeypatch: pytest.MonkeyPatch, until: float, rounds: int
) -> None:
    """The first round takes 8 s, the second 4, and a third might take 8 again: not 4, as the last."""
    now, seconds = [2.0], iter((2.0,) * 4 + (1.0,) * 8)
    monkeypatch.setattr(pairs, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def measure(job: Job) -> Run:
        now[0] += next(seconds)
        return made(job.contestant)

    found = list(run_pairs(Job("", ()), ["a"], "reference", 3, measure, until=until))

    assert [pair.contestant for pair in found] == ["reference", "a"] * rounds


def test_a_summary_divides_cpu_time_and_rate_by_the_partner_of_the_pair() -> None:
    costs = {"a": 3.0, "reference": 2.0}
    runs = run_pairs(Job("", ()), ["a"], "reference", 3, lambda job: made(job.contestant, costs[job.contestant], 4.0))

    found = summary(list(runs), "reference")

    assert found["a"]["cpu_ms_per_item"].median == 30.0  # 3 s for 100 images
    assert found["a"]["items_per_s"].median == 25.0
    assert found["a"]["cpu_ratio"] == Spread(1.5, 1.5, 1.5, 3)
    assert found["a"]["rate_ratio"] == Spread(1.0, 1.0, 1.0, 3)
    assert found["reference"]["cpu_ratio"] == Spread(1.0, 1.0, 1.0, 3)
