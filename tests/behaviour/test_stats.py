"""iterator.stats(): what every run counts about its loop, its threads, its queues and its reads."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.comparison.photographs import write_shards
from gpupipe.load.stats import IteratorStats, QueueStats, StepStats
from tests.behaviour import test_process_functions as functions

NAP = 0.02  # seconds; what a chain of numbers takes by itself is a thousandth of it


def _slow(x: int) -> int:
    time.sleep(NAP)
    return x


def _ended(ds: Dataset, nap: float = 0.0) -> IteratorStats:
    items = iter(ds)
    for _ in items:
        time.sleep(nap)
    return items.stats()


def _step(stats: IteratorStats, name: str) -> StepStats:
    (found,) = (step for step in stats.steps if name in step.step)
    return found


def _queue(stats: IteratorStats, name: str) -> QueueStats:
    (found,) = (queue for queue in stats.queues if name in queue.step)
    return found


def test_elements_and_rows_are_counted() -> None:
    single, batches = _ended(Dataset.range(25)), _ended(Dataset.range(25).batch(10))

    assert (single.elements, single.rows) == (25, 25)
    assert (batches.elements, batches.rows) == (3, 25)


def test_time_in_next_is_waiting_and_time_outside_is_not() -> None:
    waits, works = _ended(Dataset.range(6).map(_slow)), _ended(Dataset.range(6), NAP)

    # A sleep takes at least its time, on a loaded machine more: nothing is asserted to be short.
    assert waits.seconds >= waits.waiting >= 5 * NAP  # the first element is apart
    assert waits.startup >= NAP
    assert works.seconds - works.waiting >= 5 * NAP
    assert waits.waiting_share == waits.waiting / waits.seconds


def test_only_what_this_iterator_delivered_is_counted() -> None:
    ds = Dataset.range(20).batch(2)
    first = iter(ds)
    for _ in range(7):
        next(first)
    second = iter(ds)
    second.load_state_dict(first.state_dict())

    assert len(list(second)) == 3
    assert (second.stats().elements, second.stats().rows) == (3, 6)


def test_a_queue_is_full_before_a_slow_loop_and_empty_behind_a_slow_step() -> None:
    full = _queue(_ended(Dataset.range(8).prefetch(2), NAP), "prefetch(2)")
    empty = _queue(_ended(Dataset.range(8).map(_slow).prefetch(2)), "prefetch(2)")

    assert (full.taken, empty.taken, full.most) == (8, 8, 2)
    assert full.fill > 1.0 > empty.fill
    assert full.full > 4 * NAP > full.empty
    assert empty.empty > 4 * NAP > empty.full
    assert "test_stats.py:" in full.line


def test_workers_count_their_work() -> None:
    processes = Dataset.range(6).map(functions.process_of, num_parallel_calls=2, workers="process")
    far = _step(_ended(processes), "map")
    assert (far.workers, far.elements, far.processes) == (2, 6, True)
    assert far.worked >= 6 * NAP
    threads = _step(_ended(Dataset.range(8).map(_slow, num_parallel_calls=4)), "map")
    again = _step(_ended(Dataset.range(4).map(_slow, num_parallel_calls=2).repeat(3)), "map")

    assert (threads.workers, threads.elements, threads.processes) == (4, 8, False)
    assert threads.worked >= 8 * NAP
    assert threads.cpu_seconds < threads.worked / 2  # a function that sleeps takes none
    assert (again.workers, again.elements) == (2, 12)


@pytest.mark.parametrize("close", [False, True])
def test_work_after_the_end_of_an_iterator_is_not_counted(close: bool) -> None:
    items = iter(Dataset.range(9))
    for _ in items:
        if close:
            items.close()
            break
    before = items.stats().cpu_seconds

    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass

    assert items.stats().cpu_seconds == before


def test_reads_are_counted_with_their_bytes(tmp_path: Path) -> None:
    (path,) = write_shards(tmp_path, 4, 1)
    stats = _ended(gp.TFRecordDataset([str(path)]))

    assert stats.read_bytes >= path.stat().st_size
    assert stats.reads > 0
    assert 0 < stats.read_seconds < stats.startup + stats.seconds


def test_a_stage_counts_its_rows_and_threads(tmp_path: Path) -> None:
    write_shards(tmp_path, 10, 1)

    def image(record: Any) -> Any:
        x = gp.io.parse_single_example(record, {"image/encoded": gp.io.FixedLenFeature((), bytes)})
        return ops.resize(ops.decode_jpeg(x["image/encoded"], channels=3), (8, 8))

    ds = Dataset.list_files(str(tmp_path / "*")).interleave(gp.TFRecordDataset).map(image).batch(4)
    stats = _ended(ds.with_options(gp.Options(device="cpu", backend="numpy", threads=2)))

    host, run = _step(stats, "host values"), stats.steps[-1]
    assert (host.elements, run.elements, run.workers) == (10, 10, 2)
    assert run.step == "stage 1: NumPy on CPU"
    assert run.bytes == 10 * 8 * 8 * 3 * np.dtype(np.float32).itemsize
    assert min(host.seconds, host.cpu_seconds, run.worked, run.cpu_seconds) > 0
    assert _queue(stats, "stage 1").taken == 3
    assert "stage 1: NumPy on CPU" in str(stats)


def test_counts_go_on_after_an_interrupt() -> None:
    calls: list[int] = []

    def struck(x: int) -> int:
        calls.append(x)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return x

    items = iter(Dataset.range(8).map(struck, num_parallel_calls=1))
    with pytest.raises(KeyboardInterrupt):
        list(items)
    list(items)

    assert items.stats().elements == 8
    assert _step(items.stats(), "map").elements >= 8
