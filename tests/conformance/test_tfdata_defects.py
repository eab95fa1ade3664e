"""What goes wrong in tf.data 2.21, and what gpupipe does instead, where no test of a step says it already."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpupipe as gp
from gpupipe import Dataset, TFRecordDataset
from tests.behaviour.model import run


def _write(path: Path, count: int = 5, compression: str = "") -> Path:
    with gp.io.TFRecordWriter(path, compression) as out:
        for i in range(count):
            out.write(b"%d" % i)
    return path


def _direct(paths: list[str]) -> Dataset:
    return TFRecordDataset(paths)


def _flat_map(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).flat_map(TFRecordDataset)


def _interleave(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).interleave(TFRecordDataset, cycle_length=2)


def _inner(paths: list[str]) -> Dataset:
    return Dataset.from_tensor_slices(paths).flat_map(lambda path: TFRecordDataset(path).ignore_errors())


@pytest.mark.parametrize("make", [_direct, _flat_map, _interleave, _inner])
def test_ignore_errors_over_a_missing_file_ends(tmp_path: Path, make: Callable[[list[str]], Dataset]) -> None:
    paths = [str(_write(tmp_path / "a", 2)), str(tmp_path / "none"), str(_write(tmp_path / "b", 3))]

    assert sorted(run(make(paths).ignore_errors())) == sorted([b"0", b"1", b"0", b"1", b"2"])


def _order_with(cpus: int, files: list[str]) -> str:
    """The order in a process that may use that many CPUs."""
    code = (
        "import os, sys; os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:int(sys.argv[1])]));"
        "import gpupipe as gp; paths = sys.argv[2:];"
        "ds = gp.Dataset.from_tensor_slices(paths).interleave(gp.TFRecordDataset, num_parallel_calls=gp.AUTOTUNE);"
        "print(list(ds), list(gp.TFRecordDataset(paths, num_parallel_reads=gp.AUTOTUNE)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(cpus), *files], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux to take CPUs away")
def test_the_order_does_not_depend_on_the_number_of_cpus(tmp_path: Path) -> None:
    files = [str(_write(tmp_path / f"{i:02}", 3)) for i in range(20)]

    assert _order_with(1, files) == _order_with(len(os.sched_getaffinity(0)), files)
