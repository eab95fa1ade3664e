"""map(workers="process"): the same results as in threads, from processes that never outlive their iterator."""

from __future__ import annotations

import _thread
import errno
import functools
import gc
import mmap
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import FunctionError, ParseError
from gpupipe.flow.workers import pool
from gpupipe.flow.workers.processes import SLOTS
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.serial.errors import RemoteError
from tests.behaviour import test_process_functions as functions
from tests.reliability.resume import goes_on, plain, taken

ROOT = Path(__file__).resolve().parents[2]
Range = gp.Dataset.range


def _both(dataset: gp.Dataset, fn: Callable[..., Any], calls: int = 1, **arguments: Any) -> tuple[list[Any], list[Any]]:
    """What so many threads and so many processes give."""
    threads = dataset.map(fn, calls, traced=False, **arguments)
    processes = dataset.map(fn, calls, workers="process", **arguments)
    return _results(threads), _results(processes)


def _results(dataset: gp.Dataset) -> list[Any]:
    """Every element, or what is said about an error and its cause."""
    results: list[Any] = []
    with iter(dataset) as items:
        while True:
            try:
                results.append(next(items))
            except StopIteration:
                return results
            except gp.DataError as error:
                results.append((type(error), str(error), error.stage, str(error.__cause__)))


def _gone(pid: int) -> bool:
    """Whether a process has ended, or ends within ten seconds."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_every_kind_of_column_arrives_as_it_does_from_threads() -> None:
    threads, processes = _both(Range(5), functions.shapes, 2)

    assert type(processes[2]["pair"]) is functions.Pair
    assert processes[2]["pair"].texts.tolist() == [b"aa", b"\0"]
    assert processes[3]["text"] == b"x\0x\0x\0"
    assert processes[3]["image"].flags.writeable
    assert processes[2]["ragged"].to_list() == [[], [[0, 1]]]
    assert repr(threads) == repr(processes)


def test_an_element_class_that_the_chain_cannot_find_is_a_bad_element() -> None:
    text = r"range at index 0: map: .*classes at the top level of a module, got .*Local"
    with pytest.raises(FunctionError, match=text):
        list(Range(1).map(functions.of_a_local_class, 1, workers="process"))


def test_elements_go_in_as_they_are() -> None:
    given = {
        "a": np.arange(24, dtype=np.int16).reshape(4, 3, 2),
        "b": ([b"", b"\0\0", "ä", b"\xff"], np.array([1.5, np.nan, np.inf, -0.0], np.float16)),
        3: np.array([True, False, True, False]),
    }
    threads, processes = _both(gp.Dataset.from_tensor_slices(given), functions.echo)

    assert processes[1]["b"][0] == b"\0\0"
    assert np.isnan(processes[1]["b"][1])
    assert repr(threads) == repr(processes)
    assert [type(leaf) for leaf in threads[0].values()] == [type(leaf) for leaf in processes[0].values()]


def test_random_numbers_are_those_of_threads_in_every_epoch() -> None:
    for fn, arguments in ((functions.noise, {"rng": True}), (functions.flipped, {})):
        chains = [
            Range(4).map(fn, 1, workers=kind, traced=False, **arguments).repeat(2) for kind in ("thread", "process")
        ]
        threads, processes = (list(chain.epochs(2)) for chain in chains)

        assert list(map(plain, threads)) == list(map(plain, processes))
        assert len({str(element) for element in processes}) == 16  # every epoch, pass and element draws anew


def test_errors_come_back_with_type_text_and_traceback() -> None:
    threads, processes = _both(Range(7), functions.fragile, 2)

    ours, theirs = ([x[:3] if type(x) is tuple else x for x in results] for results in (threads, processes))
    assert ours == theirs
    with iter(Range(1, 4).map(functions.fragile, 1, workers="process")) as items:
        with pytest.raises(FunctionError, match=r"range at index 0: map: raised ValueError: one is too few") as first:
            next(items)
        with pytest.raises(ParseError, match=r"range at index 1: parse: two is no Example"):
            next(items)
        with pytest.raises(FunctionError, match=r"raised UnicodeDecodeError") as third:
            next(items)
    cause = first.value.__cause__
    assert type(cause) is ValueError
    assert cause.args == ("one is too few",)
    assert "in fragile" in str(cause.__cause__)
    assert 'raise ValueError("one is too few")' in str(cause.__cause__)
    assert type(third.value.__cause__) is RemoteError


def test_specs_and_read_only_arrays_are_those_of_threads_in_the_order_of_delivery() -> None:
    numbers = Range(8)
    processes = _results(numbers.map(functions.odd_one, 2, workers="process"))  # one of them begins with element 1

    assert [result for result in processes if type(result) is not tuple] == [0, 2, 3, 5, 6, 7]
    assert "one structure" in processes[1][1]
    assert "one dtype" in processes[4][1]
    assert processes == _results(numbers.map(functions.odd_one, 1, traced=False))
    threads, processes = _both(numbers, functions.odd_one, spec=gp.TensorSpec((), "int32"))
    assert processes[0].dtype == processes[2].dtype == np.int32
    assert threads == processes
    threads, processes = _both(gp.Dataset.from_tensor_slices(np.zeros((2, 3))), functions.changed)
    assert "read-only" in threads[0][1]
    assert threads == processes


@pytest.mark.alone
def test_order_is_kept_unless_it_may_be_lost() -> None:
    slow = Range(9)

    assert list(slow.map(functions.slow_first, 2, workers="process")) == list(range(9))
    as_ready = list(slow.map(functions.slow_first, 2, deterministic=False, workers="process"))
    assert as_ready[0] != 0
    assert sorted(as_ready) == list(range(9))


def test_a_bounded_number_of_elements_is_in_work() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    source = gp.Dataset.from_generator(numbers, output_signature=gp.TensorSpec((), "int64"))
    with iter(source.map(functions.echo, 2, workers="process", spec=gp.TensorSpec((), "int64"))) as items:
        for _ in range(5):
            next(items)

    assert len(taken) == 5 + 2 * 2


def test_a_worker_that_dies_costs_the_element_it_was_working_on() -> None:
    chain = Range(9).map(functions.mortal, 1, workers="process")  # another element waits behind
    results = _results(chain)

    assert [i for i, result in enumerate(results) if type(result) is tuple] == [3, 6]
    assert [result for result in results if type(result) is not tuple] == [0, 1, 2, 4, 5, 7, 8]
    assert results[3][1].startswith("range at index 3: map: its worker process ended with exit code 7")
    assert "SIGKILL" in results[6][1]


def test_closing_ends_a_function_that_never_comes_back() -> None:
    items = iter(Range(4).map(functions.process_of, 1, workers="process").repeat())
    pid = int(next(items)[1])
    never = iter(Range(2).map(functions.for_ever, 2, workers="process").prefetch(1))
    thread = threading.Timer(0.5, never.close)
    thread.start()

    with pytest.raises(gp.ClosedError, match="was closed"):
        next(never)
    thread.join()
    items.close()
    del items, never
    assert _gone(pid)


def _local() -> Callable[[Any], Any]:
    def inner(x: Any) -> Any:
        return x

    return inner


@pytest.mark.parametrize(
    "fn", [lambda x: x, _local(), functools.partial(_local())], ids=["lambda", "closure", "partial"]
)
def test_a_function_without_a_name_of_its_own_is_refused_on_the_users_line(fn: Callable[..., Any]) -> None:
    with pytest.raises(gp.PlanError, match="give it a name at the top of a module"):
        Range(3).map(fn, 2, workers="process")


def test_arguments_that_exclude_each_other_are_refused() -> None:
    ds = Range(3)

    with pytest.raises(gp.PlanError, match="workers='thread' or workers='process', got 'fork'"):
        ds.map(functions.echo, workers="fork")
    with pytest.raises(gp.PlanError, match="workers='process' or traced=True"):
        ds.map(functions.echo, traced=True, workers="process")
    assert "in 3 processes" in str(ds.map(functions.echo, 3, workers="process").explain())


def test_shared_memory_that_is_full_is_an_error_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    chain = Range(4).map(functions.echo, 1, workers="process")

    with pytest.raises(gp.GpupipeError, match=r"needs 65,536 bytes of shared memory, .*No space left.*--shm-size"):
        next(iter(chain))


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no folder that lists shared memory")
def test_an_interrupt_while_shared_memory_is_made_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    struck: list[str] = []

    def mapped(number: int, size: int) -> Any:
        if not struck:
            struck.append(os.readlink(f"/proc/self/fd/{number}"))
            assert os.path.exists(struck[0])
            raise KeyboardInterrupt
        return mmap.mmap(number, size)

    items = iter(Range(6).map(functions.echo, 1, workers="process"))
    with monkeypatch.context() as patched:
        patched.setattr(shared_memory, "mmap", SimpleNamespace(mmap=mapped))
        with pytest.raises(KeyboardInterrupt):
            next(items)

    assert [int(x) for x in items] == [0, 1, 2, 3, 4, 5]
    assert not os.path.exists(struck[0])


def test_a_daemonic_process_is_told_to_use_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "current_process", lambda: SimpleNamespace(daemon=True, name="DataLoader-3"))

    with pytest.raises(gp.GpupipeError, match=r"cannot start processes in a daemonic process \(DataLoader-3\); use th"):
        next(iter(Range(4).map(functions.echo, 1, workers="process")))


SCRIPT = "import os, sys, time\nimport gpupipe as gp\nfrom tests.behaviour import test_process_functions as f\n"


def _run(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """A program that imports what such functions need, in a group of processes of its own."""
    (tmp_path / "train.py").write_text(SCRIPT + body)
    pipe, env = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "train.py")]
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_functions_of_a_session_and_scripts_without_a_main_guard_are_refused(tmp_path: Path) -> None:
    code = "import gpupipe as gp\ndef f(x): return x\ngp.Dataset.range(3).map(f, workers='process')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr.rstrip().endswith("got f() of an interactive session; put it into a module")

    process = _run(tmp_path, "print(list(gp.Dataset.range(3).map(f.echo, 2, workers='process')))\n")
    last = process.communicate(timeout=60)[1].rstrip().splitlines()[-1]
    assert process.returncode == 1
    assert last.startswith("gpupipe.errors.GpupipeError: map(workers='process') at ")
    assert 'if __name__ == "__main__"' in last


GUARDED = """
if __name__ == "__main__":
    items = iter(gp.Dataset.range(100).map(f.process_of, 2, workers="process"))
    print(*{int(next(items)[1]) for _ in range(10)}, flush=True)
"""


WAITING = """
if __name__ == "__main__":
    ds = gp.Dataset.range(20).map(f.process_of, 2, workers="process")
    print(*{int(pid) for _, pid in ds}, flush=True)
"""


@pytest.mark.parametrize(
    "body",
    [GUARDED, WAITING, "import multiprocessing\n" + WAITING],
    ids=["at work", "waiting", "multiprocessing imported first, as by torch"],
)
def test_the_end_of_the_interpreter_ends_the_workers_without_a_word(tmp_path: Path, body: str) -> None:
    process = _run(tmp_path, body)
    out, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, "")
    assert len(out.split()) == 2
    assert all(_gone(int(pid)) for pid in out.split())


INTERRUPTED = """
import multiprocessing, signal, threading
def interrupt():
    while len(multiprocessing.active_children()) < 2: time.sleep(0.005)
    time.sleep(0.1)  # now they import
    os.killpg(0, signal.SIGINT)
if __name__ == "__main__":
    threading.Thread(target=interrupt).start()
    list(gp.Dataset.range(100).map(f.process_of, 2, workers="process"))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of processes are POSIX's")
def test_ctrl_c_while_workers_start_is_heard_by_the_parent_alone(tmp_path: Path) -> None:
    process = _run(tmp_path, INTERRUPTED)
    _interrupted(process, process.communicate(timeout=60)[1])


def _interrupted(process: subprocess.Popen[str], errors: str) -> None:
    assert process.returncode != 0
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.skipif(os.name != "posix", reason="signals of processes are POSIX's")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
@pytest.mark.parametrize("body", [GUARDED + "    for x in items: pass\n", WAITING], ids=["at work", "waiting"])
def test_workers_end_with_their_parent(tmp_path: Path, body: str, number: signal.Signals) -> None:
    process = _run(tmp_path, body + "    time.sleep(60)\n")
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # a terminal tells every process of the group
    else:
        process.kill()
    _, errors = process.communicate(timeout=30)

    assert len(pids) == 2
    assert all(map(_gone, pids))
    if number == signal.SIGINT:
        _interrupted(process, errors)


# ---- several iterators: processes wait for the next one, and end with their dataset


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
    ds = Range(40).map(functools.partial(functions.process_of, nap=0.25), 2, workers="process")
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

    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(3) as pool:
        try:
            for _ in range(3):
                pool.submit(iterate)
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                gp.release_memory()
        finally:
            stop.set()
            sys.setswitchinterval(switch)
