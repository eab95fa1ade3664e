"""memory_report(): what buffers may hold, counted by hand, and what they hold while a chain runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.extract.records import index
from tests.behaviour import test_process_functions as functions
from tests.chains.damage import write

ARRAYS = np.arange(100 * 8, dtype=np.float32).reshape(100, 8)


@pytest.fixture(autouse=True)
def _no_indexes() -> None:
    index.INDEXES.clear()


def _rows(report: Any) -> dict[str, tuple[Any, ...]]:
    return {s.step: (s.elements, s.bytes, s.most_elements, s.most_bytes) for s in report.steps}


def test_a_chain_that_does_not_run_says_what_it_may_hold() -> None:
    chain = Dataset.from_tensor_slices(ARRAYS).cache().shuffle(20).batch(10).prefetch(3)
    report = chain.memory_report()

    assert not report.running
    assert _rows(report) == {
        "cache()": (0, 0, 100, 100 * 32),
        "shuffle(20)": (0, 0, 20, 20 * 32),
        "prefetch(3)": (0, 0, 3, None),  # the last batch may be short: its rows are unknown
    }
    assert report.most_bytes is None
    full = Dataset.from_tensor_slices(ARRAYS).batch(10, drop_remainder=True).prefetch(3).memory_report()
    assert _rows(full) == {"prefetch(3)": (0, 0, 3, 3 * 10 * 32)}
    assert full.most_bytes == 960


def test_a_buffer_holds_no_more_than_there_is() -> None:
    assert _rows(Dataset.range(5).shuffle(1000).memory_report()) == {"shuffle(1000)": (0, 0, 5, 40)}
    assert _rows(Dataset.range(5).shuffle(1000).repeat().memory_report()) == {"shuffle(1000)": (0, 0, 5, 40)}
    unknown = Dataset.range(5).filter(lambda x: x > 1).map(str).cache().memory_report()
    assert _rows(unknown) == {"cache()": (0, 0, None, None)}


def test_a_shuffle_of_records_holds_references(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, [bytes(1000 + i) for i in range(50)])
    chain = gp.TFRecordDataset(str(path)).shuffle(10)

    assert _rows(chain.memory_report()) == {"shuffle(10)": (0, 0, 10, 2500)}
    with iter(chain) as items:
        next(items)
        elements, size, *_ = _rows(items.memory_report())["shuffle(10)"]
    assert elements == 9
    assert size < 9 * 1000


@pytest.mark.parametrize(
    ("source", "each"),
    [
        pytest.param(Dataset.from_tensor_slices(ARRAYS), 8, id="of places"),
        pytest.param(Dataset.from_tensor_slices(ARRAYS).filter(lambda x: x[0] >= 0), 32, id="of elements"),
    ],
)
def test_a_running_shuffle_is_counted(source: Dataset, each: int) -> None:
    with iter(source.shuffle(20)) as items:
        assert _rows(items.memory_report())["shuffle(20)"] == (0, 0, 20, 20 * each)
        next(items)
        report = items.memory_report()
        assert report.running
        assert _rows(report)["shuffle(20)"] == (19, 19 * each, 20, 20 * each)
        assert report.bytes == 19 * each
        for _ in range(90):
            next(items)
        assert _rows(items.memory_report())["shuffle(20)"][:2] == (9, 9 * each)
    assert items.memory_report().bytes == 0


def test_a_cache_is_counted_while_it_fills_and_when_it_is_full() -> None:
    chain = Dataset.from_tensor_slices(ARRAYS).cache()
    with iter(chain) as items:
        for _ in range(10):
            next(items)
        assert _rows(items.memory_report())["cache()"] == (10, 320, 100, 3200)
    assert chain.memory_report().bytes == 0  # a pass that did not reach the end is forgotten

    list(chain)

    assert _rows(chain.memory_report())["cache()"] == (100, 3200, 100, 3200)


def test_a_prefetch_and_a_stage_are_counted() -> None:
    images = Dataset.from_tensor_slices(np.zeros((40, 4, 4, 3), np.uint8))
    flipped = images.map(lambda x: ops.random_flip_left_right(x)).batch(4, drop_remainder=True).prefetch(2)
    chains = {
        "prefetch(3)": (Dataset.from_tensor_slices(ARRAYS).prefetch(3), 3, 96),
        "batch(4)": (flipped.with_options(gp.Options(device="cpu", backend="numpy")), 2, 2 * 4 * 48),
    }
    for step, (chain, elements, size) in chains.items():
        with iter(chain) as items:
            next(items)
            until = time.monotonic() + 30
            while _rows(items.memory_report())[step][:2] != (elements, size) and time.monotonic() < until:
                threading.Event().wait(0.01)

            assert _rows(items.memory_report())[step][:2] == (elements, size)
            assert _rows(items.memory_report())[step][2] >= elements


def test_worker_processes_are_counted() -> None:
    chain = Dataset.range(8).map(functions.echo, 1, workers="process")
    with iter(chain) as items:
        next(items)
        elements, size, most, _ = _rows(items.memory_report())["map(workers='process')"]

    assert 0 <= elements <= most == 2
    assert 1 << 16 <= size <= 2 << 16


def test_a_dataset_that_is_made_while_running_has_a_row_of_its_own() -> None:
    chain = Dataset.range(3).flat_map(lambda x: Dataset.from_tensor_slices(ARRAYS[: int(str(x)) + 5]).shuffle(4))
    with iter(chain) as items:
        next(items)

        assert _rows(items.memory_report())["shuffle(4)"][:2] == (3, 24)


def test_indexes_of_files_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write(path, [b"x"] * 50)
    dataset = gp.TFRecordDataset(str(path))
    assert dataset.memory_report().steps == ()

    assert len(dataset) == 50

    (row,) = dataset.memory_report().steps
    assert 50 * 8 <= row.bytes <= 50 * 16 + 100


def test_a_report_is_a_table() -> None:
    text = str(Dataset.range(5).shuffle(3).memory_report()).splitlines()

    assert text[1].split()[:5] == ["shuffle(3)", "0", "0", "3", "24"]
    assert text[1].endswith(f"{__file__}:{text[1].rpartition(':')[2]}")
