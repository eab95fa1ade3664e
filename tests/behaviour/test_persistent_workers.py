"""map(workers="process") over several iterators: processes wait for the next one, and end with their dataset."""

from __future__ import annotations

import _thread
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import deque
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.flow.workers import pool
from gpupipe.flow.workers.processes import SLOTS
from gpupipe.ops._shared.samples import encoded, picture
from tests.behaviour import test_process_functions as functions
from tests.behaviour.test_process_map import _gone, _results, _run
from tests.reliability.resume import goes_on, plain, taken

Range = gp.Dataset.range


def pids_of(elements: Any) -> set[int]:
    """The processes that made elements, where the function says which."""
    return {int(pid) for _, pid in elements}


def stat(pid: int) -> list[str]:
    """What Linux says of a process: its state first, its CPU time in places 11 and 12."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_every_epoch_finds_the_processes_of_the_first_which_end_with_their_dataset_and_not_before() -> None:
    ds = Range(8).map(functions.process_of, 2, workers="process")
    first = pids_of(ds)

    assert len(first) == 2
    assert pids_of(ds) == pids_of(ds.shuffle(3).take(7)) == pids_of(ds.epochs(2)) == pids_of(ds.repeat(2)) == first
    assert pids_of(gp.Dataset.zip((ds, Range(8))).map(lambda pair, _: pair)) == first
    assert ds[3][1] in first
    assert "in 2 processes, which wait for the next iterator" in str(ds.explain())
    assert [(int(a), int(b)) for (a, _), (b, _) in gp.Dataset.zip((ds, ds))] == [(i, i) for i in range(8)]
    pids, derived = pids_of(ds), ds.batch(4)
    del ds
    gc.collect()
    assert "Z" not in {stat(pid)[0] for pid in pids}
    del derived
    assert all(map(_gone, pids))


def test_no_segment_is_left_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []

    def recorded(*args: Any, **kwargs: Any) -> SharedMemory:
        made = SharedMemory(*args, **kwargs)
        names.append(made.name)
        return made

    monkeypatch.setattr(pool, "SharedMemory", recorded)
    ds = Range(6).map(functions.large, 2, workers="process")
    for _ in range(4):
        assert [x.size for x in ds] == [40_000 * (i + 1) for i in range(6)]
    # Which worker gets which element may change: each segment of the two grows from 64 to 128 and 256 KiB, once.
    assert len(names) <= 2 * SLOTS * 3
    with iter(ds) as items:
        next(items)  # the others are in work when it is closed

    del ds, items
    for name in names:
        with pytest.raises(FileNotFoundError):
            SharedMemory(name)


def test_they_end_whole_whatever_the_garbage_collector_takes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that is destroyed before its workers are ended would be closed twice, as a number that others may have."""
    wrong: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", wrong.append)
    ds = Range(8).map(functions.process_of, 2, workers="process")
    gc.collect(0)  # so the dataset stands behind its pipes in the list that is gone through below
    gc.disable()
    try:
        pids = pids_of(ds)
        ring = [ds]
        ring.append(ring)  # type: ignore[arg-type]
        del ds, ring
        gc.collect()
    finally:
        gc.enable()
    assert wrong == []
    assert all(map(_gone, pids))


def test_each_iterator_has_its_own_where_that_is_asked_for() -> None:
    ds = Range(8).map(functions.process_of, 2, workers="process").with_options(gp.Options(persistent_workers=False))
    with iter(ds) as items:
        first = pids_of(items)
    assert all(map(_gone, first))
    second = pids_of(ds)

    assert not first & second
    assert all(map(_gone, second))
    assert "in 2 processes, which end with the iterator" in str(ds.explain())

    with pytest.raises(TypeError, match=r"Options\.persistent_workers needs True or False, got 1"):
        gp.Options(persistent_workers=1)  # type: ignore[arg-type]


def test_release_memory_ends_those_that_wait_and_no_others() -> None:
    ds = Range(8).map(functions.process_of, 2, workers="process")
    waiting = pids_of(ds)
    with iter(ds) as items:
        used = {int(next(items)[1]) for _ in range(4)}
        assert used == waiting
        gp.release_memory()
        assert len(pids_of(items)) == 2

    gp.release_memory()
    assert all(map(_gone, waiting))
    assert not pids_of(ds) & waiting


def test_two_iterators_at_a_time_have_processes_of_their_own() -> None:
    ds = Range(12).map(functions.process_of, 2, workers="process")
    one, other = iter(ds), iter(ds)
    pairs = list(zip(one, other, strict=True))
    first, second = pids_of(pair[0] for pair in pairs), pids_of(pair[1] for pair in pairs)

    assert [int(a[0]) for a, _ in pairs] == [int(b[0]) for _, b in pairs] == list(range(12))
    assert not first & second
    assert pids_of(ds) in (first, second)


def test_a_pass_that_is_left_in_the_middle_leaves_nothing_to_the_next() -> None:
    chains = [Range(20).map(functions.noise, 2, rng=True, traced=False),
              Range(20).map(functions.noise, 2, rng=True, workers="process")]  # fmt: skip
    for stop in (0, 1, 5, 19):
        threads, processes = ([x for _, x in zip(range(stop), chain, strict=False)] for chain in chains)
        assert list(map(plain, threads)) == list(map(plain, processes))
        assert taken(iter(chains[0])) == taken(iter(chains[1]))


def test_draws_and_limits_are_those_of_each_run() -> None:
    """The options of the chain may differ from one iterator to the next: the processes are told."""
    png = gp.Dataset.from_tensor_slices([encoded(picture(8, 8), "PNG")]).map(functions.decoded, 1, workers="process")
    assert next(iter(png)).shape == (8, 8, 3)
    assert "max_pixels" in _results(png.with_options(gp.Options(max_pixels=10)))[0][1]
    assert next(iter(png)).shape == (8, 8, 3)

    threads = Range(5).map(functions.noise, 2, rng=True, traced=False)
    processes = Range(5).map(functions.noise, 2, rng=True, workers="process")
    for seed in (0, 1, 2):
        options = gp.Options(seed=seed)
        assert taken(iter(threads.with_options(options))) == taken(iter(processes.with_options(options)))


def test_another_number_of_processes_ends_those_that_wait() -> None:
    ds = Range(8).map(functions.process_of, gp.AUTOTUNE, workers="process")
    two = pids_of(ds.with_options(gp.Options(threads=2)))
    one = pids_of(ds.with_options(gp.Options(threads=1)))

    assert (len(two), len(one)) == (2, 1)
    assert all(map(_gone, two))


def test_one_that_died_while_it_waited_costs_no_element() -> None:
    ds = Range(8).map(functions.process_of, 2, workers="process")
    first = pids_of(ds)
    killed = first.pop()
    os.kill(killed, signal.SIGKILL)
    while killed in {child.pid for child in multiprocessing.active_children()}:  # all of its threads
        time.sleep(0.01)

    results = _results(ds)

    assert [int(x) for x, _ in results] == list(range(8))
    second = pids_of(results)
    assert len(second) == 2
    assert killed not in second
    assert first < second


def test_one_that_never_came_back_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pool, "STUCK", 0.2)
    monkeypatch.setattr(pool, "CHECK_EVERY", 0.3)
    stays = tmp_path / "stuck"
    stays.touch()
    monkeypatch.setenv("GPUPIPE_TEST_STUCK", str(stays))
    ds = Range(4).map(functions.stuck_at_one, 1, workers="process")
    with iter(ds) as items:
        stuck = int(next(items)[1])  # element 1 is in work, and stays so
    stays.unlink()
    monkeypatch.delenv("GPUPIPE_TEST_STUCK")
    stays.touch()

    results = _results(ds)

    assert [int(x) for x, _ in results] == list(range(4))
    assert stuck not in pids_of(results)
    assert _gone(stuck)


def test_a_state_goes_on_in_processes_that_waited() -> None:
    ds = Range(30).shuffle(5).map(functions.noise, 2, rng=True, workers="process").batch(3)
    goes_on(lambda: ds.epoch(0), [0, 1, 4, 9, 10])


def test_a_pickled_dataset_starts_its_own() -> None:
    ds = Range(4).map(functions.process_of, 1, workers="process")
    pids = pids_of(ds)
    copied = pickle.loads(pickle.dumps(ds))

    assert not pids_of(copied) & pids
    assert pids_of(ds) == pids


def test_datasets_made_for_each_element_share_processes_during_their_iterator() -> None:
    ds = Range(4).flat_map(lambda x: Range(int(np.asarray(x)) + 1).map(functions.process_of, 1, workers="process"))

    assert len(pids_of(ds)) == 1
    assert not pids_of(ds) & pids_of(ds)


@pytest.mark.skipif(not Path("/proc").exists(), reason="the CPU time of a process is read in /proc")
def test_those_that_wait_use_no_cpu() -> None:
    ds = Range(8).map(functions.process_of, 2, workers="process")
    pids = sorted(pids_of(ds))
    time.sleep(0.1)
    before = [stat(pid)[11:13] for pid in pids]
    time.sleep(0.5)

    assert [stat(pid)[11:13] for pid in pids] == before


@pytest.mark.alone
def test_ctrl_c_in_one_iterator_leaves_the_other_alone() -> None:
    ds = Range(40).map(functions.slow_process_of, 2, workers="process")
    fast = Range(200).map(functions.process_of, 1, workers="process")
    seen: list[Any] = []
    taker = threading.Thread(target=lambda: seen.extend(fast))
    one = iter(ds)
    next(one)
    taker.start()
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(one)
    timer.join()
    taker.join()
    del one

    assert [int(x) for x, _ in seen] == list(range(200))
    assert [int(x) for x, _ in ds.take(6)] == list(range(6))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_leaves_them_to_its_parent(tmp_path: Path) -> None:
    body = """
if __name__ == "__main__":
    ds = gp.Dataset.range(8).map(f.process_of, 2, workers="process")
    pids = {int(pid) for _, pid in ds}
    child = os.fork()
    if child == 0:
        own = {int(pid) for _, pid in ds}
        del ds
        sys.exit(7 if len(own) == 2 and not own & pids else 8)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), {int(pid) for _, pid in ds} == pids)
"""
    assert _run(tmp_path, body).communicate(timeout=60) == ("7 True\n", "")


def test_a_process_that_still_starts_is_not_stuck() -> None:
    kept = pool.Workers.__new__(pool.Workers)
    kept._since = time.monotonic() - 100  # when the last pass left them
    worker: Any = SimpleNamespace(tasks=deque([(None, 0)]), ready=False)

    assert not kept._is_stuck(worker)
    worker.ready = True
    assert kept._is_stuck(worker)


def test_memory_is_released_while_other_threads_make_iterators() -> None:
    stop, switch = threading.Event(), sys.getswitchinterval()

    def iterate() -> None:
        while not stop.is_set():
            list(gp.Dataset.range(4))

    threads = [threading.Thread(target=iterate, daemon=True) for _ in range(3)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            gp.release_memory()
    finally:
        stop.set()
        sys.setswitchinterval(switch)
        for thread in threads:
            thread.join(30)
