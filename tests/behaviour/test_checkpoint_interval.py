"""How often checkpoints are taken: the larger a snapshot is, the more seldom."""

from __future__ import annotations

from typing import Any

import pytest

import gpupipe as gp
from gpupipe.flow.state.checkpoints import EVERY, PER_PART
from gpupipe.flow.state.snapshot import Numbered
from gpupipe.load import mark

N = 4096
ROWS = 16


def snapshots(ds: gp.Dataset, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many snapshots of a range are taken in a pass over batches of `ROWS` elements."""
    taken = []
    before = Numbered.snapshot

    def snapshot(self: Numbered) -> Any:
        taken.append(self.position())
        return before(self)

    with monkeypatch.context() as patch:
        patch.setattr(Numbered, "snapshot", snapshot)
        for _ in ds.batch(ROWS):
            pass
    return len(taken)


def test_a_small_snapshot_is_taken_often_and_a_large_one_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = 32
    one = snapshots(gp.Dataset.range(N), monkeypatch)
    many = snapshots(gp.Dataset.zip(tuple(gp.Dataset.range(N) for _ in range(inputs))), monkeypatch)

    few = N // (PER_PART * inputs)  # of each range, which is one part at least
    assert N // EVERY <= one <= N // EVERY + N // (mark.SELDOM * EVERY)  # the batcher's, and the iterator's
    assert 1 <= many // inputs <= few + 3  # the first comes before the size is known
