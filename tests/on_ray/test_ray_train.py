"""The guide's example for Ray Train while one of its two workers is killed (`train_program.py`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import gpupipe as gp
from tests.on_ray.sessions import needs_ray, said
from tests.on_ray.train_program import DIES_AT, SAVED

pytestmark = [
    *needs_ray,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="Ray Train needs pyarrow"),
]


def expected(folder: Path, rank: int) -> list[list[int]]:
    """The labels of a rank's rows of the batches of two epochs, as a loop without ranks has them."""
    files = gp.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=False)
    features = {"image/class/label": gp.io.FixedLenFeature((), "int64")}
    examples = files.interleave(gp.TFRecordDataset, cycle_length=8).shuffle(gp.ALL, seed=1)
    labels = examples.map(lambda record: gp.io.parse_single_example(record, features)["image/class/label"])
    batches = labels.batch(8, drop_remainder=True)
    return [batch.tolist()[rank::2] for epoch in (0, 1) for batch in batches.iterator(epoch=epoch)]


def test_training_with_a_worker_that_is_killed_takes_each_record_once(tmp_path: Path) -> None:
    found = said("train_program", tmp_path)

    assert (found["error"], found["killed"]) == ("", True)
    for rank, seen in enumerate(found["seen"]):
        wanted = expected(tmp_path, rank)
        assert len(wanted) == 10
        first = [one["labels"] for one in seen if one["pid"] == seen[0]["pid"]]
        second = [one["labels"] for one in seen if one["pid"] == seen[-1]["pid"]]
        assert len({one["pid"] for one in seen}) == 2
        assert first == wanted[: len(first)]
        assert len(first) == DIES_AT if rank == 1 else SAVED < len(first) <= DIES_AT
        assert second == wanted[SAVED:]  # with what the checkpoint has before it: each batch once
