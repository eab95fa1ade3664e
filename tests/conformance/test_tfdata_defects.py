"""What goes wrong in tf.data 2.21, and what gpupipe does instead, where no test of a step says it already."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, TFRecordDataset, ops
from tests.behaviour.model import outcomes, run


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


def test_a_cache_after_a_partial_pass_is_filled_by_the_next_full_one() -> None:
    calls: list[int] = []

    def slow(x: Any) -> Any:
        calls.append(int(x))
        return x

    ds = Dataset.range(5).map(slow).cache()
    run(ds.take(2))
    del calls[:]
    assert (run(ds), calls) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    del calls[:]
    assert (run(ds), calls) == ([0, 1, 2, 3, 4], [])


def _truncated_jpegs() -> Iterator[bytes]:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(
        file, "JPEG", progressive=True
    )
    data = file.getvalue()
    for cut in range(2, len(data), 97):
        yield data[:cut]


def test_every_truncated_jpeg_is_a_data_error_in_bounded_time() -> None:
    jpegs = list(_truncated_jpegs())
    ds = Dataset.from_tensor_slices(np.array(jpegs, object)).map(lambda x: ops.decode_jpeg(x, channels=3))

    found = outcomes(ds.with_options(Options(device="cpu", backend="numpy")))

    assert found == ["error"] * len(jpegs)
