"""The same crops and flips in another process, and others in another pass, epoch and with another seed.

That no reader, batch size, executor or state changes them is tested in tests/reliability/test_determinism.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpupipe as gp
from tests.chains.data import ROOT, Spy, batches, on, records, small_example


def chain(shards: list[Path], size: int = 16, passes: int = 1) -> gp.Dataset:
    return gp.TFRecordDataset(shards).repeat(passes).map(small_example).batch(size)


def windows(spy: Spy, ds: gp.Dataset, backend: str, epoch: int | None = 0) -> dict[str, tuple[Any, ...]]:
    """The crop window and flip of every image, as the executor gets them."""
    spy.drawn.clear()
    for _ in batches(ds.with_options(on(backend)), epoch):
        pass
    return spy.windows()


PROCESS = """
import json, sys
from pathlib import Path
from tests.chains.data import Spy
from tests.chains.test_parity import chain, windows
from _pytest.monkeypatch import MonkeyPatch

spy = Spy().install(MonkeyPatch())
print(json.dumps(windows(spy, chain([Path(p) for p in sys.argv[2:]]), sys.argv[1])))
"""


def test_windows_are_equal_in_a_new_process(photographs: list[Path], spy: Spy, backend: str) -> None:
    expected = windows(spy, chain(photographs, 8), "numpy")
    command = [sys.executable, "-c", PROCESS, backend, *map(str, photographs)]
    # Another hash seed: nothing may depend on Python's own hashes.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=60)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(expected))
    assert len(expected) == len(records(photographs))
    assert len(set(expected.values())) > len(expected) * 0.9  # images do draw on their own


def test_a_second_pass_an_epoch_and_a_seed_draw_other_windows_for_every_image(
    photographs: list[Path], spy: Spy, backend: str
) -> None:
    one = windows(spy, chain(photographs), backend)
    other = windows(spy, chain(photographs), backend, epoch=1)
    of_seed = windows(spy, chain(photographs).with_options(gp.Options(seed=1)), backend)
    spy.drawn.clear()
    for _ in batches(chain(photographs, 44, passes=2).with_options(on(backend)), 0):
        pass

    first, second = dict(spy.drawn[:44]), dict(spy.drawn[44:])
    assert first == one
    assert first.keys() == second.keys()
    assert sum(first[name] == second[name] for name in first) <= 2
    assert sum(other[name] == second[name] for name in first) <= 2
    assert sum(of_seed[name] == first[name] for name in first) <= 2
