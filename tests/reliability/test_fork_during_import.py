"""A source may fork, as pools and loaders do, in the moment when a thread of gpupipe imports DALI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpupipe.transform.machine import has_dali

ROOT = Path(__file__).resolve().parents[2]

FORKS = """
import os, sys, time, signal
import numpy as np, gpupipe as gp

def rows():
    while "nvidia.dali" not in sys.modules:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.alarm(25)  # ends a child that waits for a module forever
        from nvidia.dali import fn
        os._exit(7)
    yield np.zeros((4, 4, 3), np.uint8)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

spec = gp.TensorSpec((4, 4, 3), "uint8", "HWC")
images = gp.Dataset.from_generator(rows, output_signature=spec).map(gp.ops.flip_left_right).batch(1)
print(sum(1 for _ in images.with_options(gp.Options(device="cpu", backend="dali"))))
"""

FAILS = """
import numpy as np, gpupipe as gp

images = gp.Dataset.from_tensor_slices(np.zeros((8, 4, 4, 3), np.uint8)).map(gp.ops.flip_left_right).batch(2)
try:
    next(iter(images.with_options(gp.Options(device="cpu", backend="dali"))))
except gp.errors.MissingDependencyError as error:
    print(error)
"""


def _printed(script: str, path: str = "") -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, str(ROOT))))}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_a_child_forked_while_dali_is_imported_can_import_it() -> None:
    assert _printed(FORKS) == ["7", "1"]


@pytest.mark.parametrize("error", ["ImportError('no')", "OSError('libcuda.so.1: cannot open')"])
def test_dali_that_cannot_be_imported_is_named_whatever_the_reason(error: str, tmp_path: Path) -> None:
    package = tmp_path / "nvidia" / "dali"
    package.mkdir(parents=True)
    (tmp_path / "nvidia" / "__init__.py").touch()
    (package / "__init__.py").write_text(f"raise {error}\n", encoding="utf-8")

    (line,) = _printed(FAILS, str(tmp_path))

    assert "needs nvidia-dali, which cannot be imported" in line
    assert error.split("'")[1] in line
    assert "backend='numpy'" in line
