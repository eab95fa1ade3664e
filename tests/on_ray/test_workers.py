"""on_ray on one machine, in one session of Ray (`workers_program.py`): the elements of a loop, made by workers.

Every batch comes once, in order, with its bytes, also while workers die; or there is an error.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.on_ray.sessions import needs_ray, shared

pytestmark = needs_ray


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of each scenario."""
    return shared(tmp_path_factory, "workers_program", seconds=300)


ALIKE = {"structures": 23, "padded": 6, "rows": 8, "of_the_program": 16}
"""Scenarios that compare an epoch of workers with that of the loop, by their number of elements."""

EXACT: dict[str, Any] = {
    **{scenario: {"equal": True, "count": count, "errors": []} for scenario, count in ALIKE.items()},
    "images_of_all_kinds": {
        kind: {"equal": True, "count": count, "errors": []}
        for kind, count in (("uint8", 12), ("float32", 12), ("later steps", 16))
    },
    "epochs": {"equal": True, "count": 36},
    "kept_workers": {"pids": 1, "alive": True, "ended": True},
    "stopped_early": {"pids": 2, "ended": True},
    "more_than_cpus": True,
    "to_and_from": {"equal": True, "count": 19, "rows": 30, "mixed": True, "fifth": [5, "b'row 5'"]},
}


@pytest.mark.parametrize("scenario", EXACT)
def test_workers_give_the_bytes_and_the_order_of_the_loop(results: dict[str, Any], scenario: str) -> None:
    assert results[scenario] == EXACT[scenario]


SAID = {
    "too_many_bad": "TooManyBadError: 3 bad elements were left out or replaced",
    "other_files": r"WorkersDisagreeError: on_ray needs workers with the trainer's files.*process .*has other files: "
    "3, where the trainer has 7 and has another seed: 0, where the trainer has 9",
    "no_room": "WorkersLostError: on_ray got no worker in 1 s: 2 of them ask for 1 CPU and 1 moon each.*0 of 0 moon",
    "not_pickled": "PlanError: on_ray needs a chain that can be pickled, got one that cannot",
    "not_connected": "PlanError: on_ray needs a Ray cluster that this process is connected to",
}


@pytest.mark.parametrize("scenario", SAID)
def test_what_workers_cannot_do_is_an_error_that_says_why(results: dict[str, Any], scenario: str) -> None:
    assert re.match(SAID[scenario], results[scenario], re.DOTALL)


def test_one_state_goes_through_ranks_workers_and_loops(results: dict[str, Any]) -> None:
    found = results["one_state"]
    assert (found["equal"], found["found"], found["wanted"]) == (True, 50, 50)
    assert found["bytes"] <= 4096


def test_a_loop_that_sleeps_has_a_bounded_number_of_batches_made(results: dict[str, Any]) -> None:
    """9 were taken, and (ahead + 1) * segment of 1 MiB each may wait."""
    found = results["asleep"]
    assert found["batch"] == 1 << 20
    assert 9 < found["batches"] <= 9 + (4 + 1) * 2, found
    assert found["mib"] <= (4 + 1) * 2 + 1, found


def test_a_batch_with_a_bad_record_raises_its_error_here_and_the_next_one_follows(results: dict[str, Any]) -> None:
    found = results["bad_raised"]
    assert found["said"]["found"] == found["own"]
    assert found["good"] is True
    assert found["last"] == ["RecordError", "damaged.tfrecord", 888]
    assert [offset for _, offset, *_ in found["said"]["records"]] == [0, 312, 384, 888]
    assert {action for *_, action, _ in found["said"]["records"]} == {"raised"}
    assert (found["said"]["left_out"], found["said"]["place"]) == (0, 8)


def test_replaced_records_are_those_of_the_loop_in_bytes_counts_and_manifest(results: dict[str, Any]) -> None:
    found = results["bad_replaced"]
    assert found["said"]["workers"] == found["said"]["loop"]
    assert found["left_out"] == 5


def test_killed_workers_cost_no_batch(results: dict[str, Any]) -> None:
    found = results["six_kills"]
    assert (found["equal"], found["count"], found["killed"]) == (True, 48, 6)
    assert found["longest"] < 120  # seconds; 5 alone on a machine: beside other tests, a worker takes long to start


def test_a_worker_that_always_dies_is_an_error(results: dict[str, Any]) -> None:
    found = results["endless_kills"]
    wanted = (
        "on_ray needs workers that live, got one that died, making elements 0 to 3 of epoch 0, also after 1 restarts"
    )
    assert wanted in found["said"]
    assert found["seconds"] < 120
    assert found["killed"] >= 2


def test_a_removed_node_costs_no_batch(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = shared(tmp_path_factory, "killed_program")

    assert found["longest"] < 60
    assert (found["equal"], found["count"]) == (True, 30)
