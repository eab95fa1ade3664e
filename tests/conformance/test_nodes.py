"""Ops that the host computes in a graph on the CPU: their form for a GPU, of DALI's nodes, against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpupipe.graph.op import Case
from gpupipe.transform import machine
from tests.conformance.harness import Batch, assert_close
from tests.conformance.test_ops import CASES

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed"),
]

OF_NODES = [case for case in CASES if hasattr(case.op, "nodes")]


@pytest.fixture
def no_pipelines() -> Iterator[None]:
    """Programs of these ops have pipelines for the CPU, which are of no use here, and the other way round."""
    from gpupipe.transform.dali.library import POOL

    POOL.clear()
    yield
    POOL.clear()


@pytest.mark.parametrize("case", OF_NODES, ids=str)
def test_the_nodes_for_a_gpu_give_the_reference(
    case: Case, no_pipelines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dali(op: Any, d: Any, x: Any, *params: Any) -> Any:
        return op.nodes(d, op.checked_dali(d, x), *params)

    monkeypatch.setattr(type(case.op), "dali", dali)
    batch = Batch.of(case)

    got = batch.run("dali-cpu")

    for row, expected in zip(got, batch.references(), strict=True):
        assert_close(row[0], expected[0], case, "HWC", "dali-cpu")


def test_all_policies_and_color_jitter_have_such_a_form() -> None:
    assert {case.op.name for case in OF_NODES} == {
        "rand_augment", "trivial_augment_wide", "auto_augment", "aug_mix", "color_jitter",
    }  # fmt: skip
