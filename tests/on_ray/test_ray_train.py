"""The guide's example for Ray Train while one of its two workers is killed (`train_program.py`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.on_ray.sessions import needs_ray, said
from tests.on_ray.train_program import DIES_AT, SAVED
from tests.tensors.test_examples import TRAINING

(EXAMPLE,) = (example for example in TRAINING if example.name == "ray_train")

pytestmark = [
    *needs_ray,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="Ray Train needs pyarrow"),
]


def test_training_with_a_worker_that_is_killed_takes_each_record_once(tmp_path: Path) -> None:
    found = said("train_program", tmp_path)

    assert (found["error"], found["killed"]) == ("", True)
    for rank, seen in enumerate(found["seen"]):
        wanted = [batch for epoch in (0, 1) for batch in EXAMPLE.expected(tmp_path, rank, epoch)]
        assert len(wanted) == 10
        first = [one["labels"] for one in seen if one["pid"] == seen[0]["pid"]]
        second = [one["labels"] for one in seen if one["pid"] == seen[-1]["pid"]]
        assert len({one["pid"] for one in seen}) == 2
        assert first == wanted[: len(first)]
        assert len(first) == DIES_AT if rank == 1 else SAVED < len(first) <= DIES_AT
        assert second == wanted[SAVED:]  # with what the checkpoint has before it: each batch once
