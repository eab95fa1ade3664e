"""An error that is raised whatever `on_error` says stays one when a batch in front of it is formed anew."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.flow.stage.runner import StageRunner
from tests.chains import damage
from tests.chains.data import on


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_broken_promise_is_raised_behind_a_bad_image(
    backend: str, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair = StageRunner._repair

    def later(self: Any, *args: Any) -> None:
        time.sleep(0.05)  # meanwhile the error comes to wait behind the batch that failed
        repair(self, *args)

    monkeypatch.setattr(StageRunner, "_repair", later)
    pictures = [damage.jpeg(0), damage.bad_scan(damage.jpeg(1)), *map(damage.jpeg, range(2, 6))]
    ds = gp.Dataset.from_tensor_slices(np.array(pictures, object)).assert_cardinality(3).map(ops.decode_jpeg).batch(2)

    found = damage.events(ds.with_options(on(backend, on_error=on_error)))

    raised = [x.stage for x in found if isinstance(x, gp.DataError)]
    assert raised == ["decode_jpeg"] * (on_error == "raise") + ["assert_cardinality"]
    assert sum(len(x) for x in found if not isinstance(x, gp.DataError)) == (3 if on_error == "replace" else 2)
