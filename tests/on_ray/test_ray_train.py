"""The guide's example for Ray Train while one of its two workers is killed twice (`train_program.py`)."""

from __future__ import annotations

import pytest

from tests.on_ray.sessions import needs_ray, shared
from tests.on_ray.train_program import DIES_AT, SAVED

pytestmark = needs_ray


def test_training_with_a_worker_that_is_killed_takes_each_record_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    for package in ("torch", "pyarrow"):  # Ray Train needs both
        pytest.importorskip(package)
    found = shared(tmp_path_factory, "train_program")

    assert found["error"] == ""
    for rank, (seen, wanted) in enumerate(zip(found["seen"], found["wanted"], strict=True)):
        assert len(wanted) == 12
        pids = list(dict.fromkeys(one["pid"] for one in seen))
        first, second, third = ([one["labels"] for one in seen if one["pid"] == pid] for pid in pids)
        for given, begun, last in ((first, 0, 0), (second, SAVED[0], 1)):
            assert given == wanted[begun : begun + len(given)]
            assert begun + len(given) == DIES_AT[last] if rank else SAVED[last] < begun + len(given) <= DIES_AT[last]
        assert third == wanted[SAVED[1] :]  # with what the checkpoint has before it: each batch once
