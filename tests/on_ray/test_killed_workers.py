"""on_ray while a node dies (`killed_program.py`): every batch once, in order, with its bytes."""

from __future__ import annotations

import pytest

from tests.on_ray.sessions import needs_ray, shared

pytestmark = needs_ray


def test_a_removed_node_costs_no_batch(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = shared(tmp_path_factory, "killed_program")

    assert found["longest"] < 60
    assert (found["equal"], found["count"]) == (True, 30)
