"""The stand-in for a GPU refuses what CuPy refuses, and a run in which it is not used, or fails, is red."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe.transform.machine import has_dali
from tests.stand_in_gpu import DeviceNumbers, stand_in_cupy

ROOT = Path(__file__).parents[2]
HOST = np.arange(3)
CUPY: Any = stand_in_cupy()

BROKEN = """
def pytest_configure():
    from gpupipe.transform.dali import executor as dali
    share = dali.DaliExecutor._outcome
    def fail(self, flight):
        if self._device_id is not None:
            raise RuntimeError("CUDA runtime API error cudaErrorIllegalAddress (700)")
        return share(self, flight)
    dali.DaliExecutor._outcome = fail
"""


@pytest.fixture
def there() -> DeviceNumbers:
    return DeviceNumbers(HOST.copy())


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + HOST,
        lambda x: HOST + x,
        lambda x: x * np.array(2),
        lambda x: x.__add__([1, 2, 3]),
        lambda x: np.add(HOST, x),
        lambda x: np.add(x, 1, out=HOST),
        lambda x: x.__setitem__(0, np.array(1)),
        lambda x: x.__iadd__(HOST),
    ],
)
def test_what_is_no_array_of_a_device_is_no_operand(use: Callable[[Any], Any], there: DeviceNumbers) -> None:
    with pytest.raises(TypeError, match=r"Unsupported type <class '(numpy\.ndarray|list)'>"):
        use(there)


@pytest.mark.parametrize(
    "use", [np.asarray, np.array, lambda x: np.stack([x, x]), lambda x: np.testing.assert_array_equal(x, HOST)]
)
def test_it_becomes_no_numpy_array_unasked(use: Callable[[Any], Any], there: DeviceNumbers) -> None:
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        use(there)


def test_arrays_of_the_host_are_neither_joined_nor_taken_by_dlpack(there: DeviceNumbers) -> None:
    with pytest.raises(TypeError, match="Only cupy arrays can be concatenated"):
        CUPY.concatenate([there, HOST])
    with pytest.raises(TypeError, match="CPU arrays cannot be directly imported"):
        CUPY.from_dlpack(HOST)
    with pytest.raises(TypeError, match="Unsupported type"):
        CUPY.roll(HOST, 1)


def test_it_is_asked_indexed_and_computed_with_as_cupys(there: DeviceNumbers) -> None:
    two: Any = np.float32(2)
    doubled = two * there + np.add(there, 1)

    assert isinstance(doubled, DeviceNumbers) and doubled.get().tolist() == [1, 4, 7]
    assert there[[2, 0]].tolist() == there[np.array([2, 0])].tolist() == [2, 0]
    assert float(there[2]) == 2 and CUPY.asarray(HOST).get().tolist() == [0, 1, 2]


def _pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    (folder / "broken_gpu.py").write_text(BROKEN)
    command = [sys.executable, "-m", "pytest", "-p", "tests.stand_in_gpu", "-q", "-p", "no:cacheprovider", *arguments]
    code = f"import sys, runpy; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]; sys.argv = {command[2:]}; "
    done = subprocess.run(
        [sys.executable, "-c", code + "runpy.run_module('pytest', run_name='__main__')"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (["--stand-in-batches", "4"], 0, "1 executors ran 4 batches on it, at least 4 are wanted"),
        (["--stand-in-batches", "5"], 1, "1 executors ran 4 batches on it, at least 5 are wanted"),
        (["-p", "broken_gpu"], 1, "cudaErrorIllegalAddress"),
    ],
    ids=["as many as wanted", "too few", "broken"],
)
def test_a_run_is_red_where_too_few_go_through_it(given: list[str], status: int, text: str, tmp_path: Path) -> None:
    test = "tests/transform/test_array.py::test_results_of_a_gpu_stay_there_and_are_never_overwritten[True]"

    found, printed = _pytest(tmp_path, *given, test)

    assert (found, text in printed) == (status, True), printed
