"""States at the end of an epoch: what follows is the next epoch, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.load import iterator
from tests.reliability.resume import taken, through_json


def fails_for_long(x: Any) -> Any:
    if int(x) < 120:
        raise ValueError("long")
    return np.asarray(x) + 0


@pytest.mark.parametrize("again", [False, True], ids=["at once", "by a state of a state"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_an_epoch_that_could_not_be_opened_is_over(epochs: int, again: bool) -> None:
    """No element tells what the elements are: one error says so, and the next epoch follows."""
    ds = gp.Dataset.range(125).map(fails_for_long).shuffle(3)
    with ds.epochs(epochs) as items:
        whole = taken(items)
    assert len(whole) == epochs
    assert "and so did the next 99 elements" in whole[0][1]
    for count in range(epochs + 1):
        with ds.epochs(epochs) as items:
            before = taken(items, count)
            state = through_json(items.state_dict())
        if again:
            with ds.epochs(epochs) as items:
                items.load_state_dict(state)
                state = through_json(items.state_dict())
        with ds.epochs(epochs) as items:
            items.load_state_dict(state)
            assert before + taken(items) == whole


@pytest.mark.parametrize("again", [False, True], ids=["at once", "by a state of a state"])
def test_more_epochs_follow_where_there_were_fewer(again: bool) -> None:
    ds = gp.Dataset.range(7).shuffle(7)
    with ds.epochs(5) as items:
        whole = taken(items)
    with ds.epochs(3) as items:
        assert taken(items) == whole[:21]
        state = through_json(items.state_dict())
    if again:
        with ds.epochs(5) as items:
            items.load_state_dict(state)
            state = through_json(items.state_dict())
    with ds.epochs(5) as items:
        items.load_state_dict(state)
        assert taken(items) == whole[21:]


@pytest.mark.parametrize("count", [0, 3], ids=["at the begin", "inside"])
def test_an_epoch_that_this_machine_cannot_run_is_not_over(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who saves a state on the way out of a failed start has not lost the epoch."""
    ds = gp.Dataset.range(7).shuffle(7)
    with ds.epochs(2) as items:
        whole = taken(items)
    with ds.epochs(2) as items:
        taken(items, count)
        state = through_json(items.state_dict())
    with ds.epochs(2) as items:
        items.load_state_dict(state)
        with monkeypatch.context() as patch:
            patch.setattr(iterator, "lower_in", _no_gpu)
            for _ in range(2):
                with pytest.raises(gp.PlanError, match="no GPU"):
                    next(items)
            saved = through_json(items.state_dict())
        assert taken(items) == whole[count:]
    with ds.epochs(2) as items:
        items.load_state_dict(saved)
        assert taken(items) == whole[count:]


def _no_gpu(*_: Any) -> Any:
    raise gp.PlanError("no GPU")
