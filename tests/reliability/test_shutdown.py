"""Shutdown: however an iteration ends, its threads, processes and pipelines go, and nothing hangs or complains."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe import threads as pools
from gpupipe.extract.storage.sharing import gil_is_on
from gpupipe.flow import run as flow_run
from gpupipe.flow.step import close
from gpupipe.load import shutdown as endings
from gpupipe.threads import Flag, Thread, join
from gpupipe.transform.machine import has_dali
from tests.chains import damage
from tests.chains.data import on
from tests.reliability.test_interrupts import child, ended

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("small_heap")

PATIENCE = 20.0
"""Seconds until something that should be gone counts as left behind: a deadline, never what it should take."""


# ---- chains, by name; what they need lies in a folder


def slow(x: Any) -> Any:
    """Python that takes a moment, so that whoever waits for it is waiting."""
    time.sleep(0.01)
    return x


def endless() -> Iterator[int]:
    n = 0
    while True:
        time.sleep(0.005)
        yield n
        n += 1


def decoded(record: Any) -> Any:
    return ops.random_crop(ops.decode_jpeg(record, channels=3), (16, 16, 3))


def pictures(folder: Path, backend: str) -> Dataset:
    files = Dataset.list_files(str(folder / "*.tfrecord"), seed=1)
    records = files.interleave(gp.TFRecordDataset, cycle_length=3, num_parallel_calls=gp.AUTOTUNE)
    dataset = records.shuffle(10, seed=1).repeat().map(decoded, num_parallel_calls=gp.AUTOTUNE)
    return dataset.batch(4).prefetch(2).with_options(on(backend, threads=2))


def stage_in_a_stage(folder: Path, backend: str) -> Dataset:
    records = gp.TFRecordDataset(sorted(map(str, folder.glob("*.tfrecord")))).repeat()
    rows = records.map(decoded).batch(3).unbatch().map(lambda x: x + np.uint8(1), traced=False)
    return rows.map(lambda x: ops.flip_left_right(x)).batch(4).with_options(on(backend, threads=2))


def inner(x: Any) -> Dataset:
    slow(x)
    return Dataset.from_tensor_slices(np.arange(3) + int(x)).prefetch(1)


def remote(folder: Path) -> Dataset:
    import fsspec

    for path in sorted(folder.glob("*.tfrecord")):
        fsspec.filesystem("memory").pipe(f"/shutdown/{path.name}", path.read_bytes())
    names = Dataset.list_files("memory://shutdown/*.tfrecord", shuffle=False).repeat()
    return names.interleave(gp.TFRecordDataset, cycle_length=2, num_parallel_calls=2).batch(4)


def numbers() -> Dataset:
    return Dataset.range(10**9)  # no test comes to its end, however long its process has to wait


CHAINS: dict[str, Callable[[Path], Dataset]] = {
    "host": lambda folder: numbers().map(lambda x: x + 1).filter(lambda x: x % 3 > 0).shuffle(20).batch(4),
    "numpy": lambda folder: pictures(folder, "numpy"),
    "dali": lambda folder: pictures(folder, "dali"),
    "threads": lambda folder: numbers().map(slow, num_parallel_calls=3).batch(2),
    "any order": lambda folder: numbers().map(slow, num_parallel_calls=3, deterministic=False).batch(2),
    "processes": lambda folder: numbers().map(operator.neg, num_parallel_calls=1, workers="process").batch(2),
    "prefetch": lambda folder: numbers().map(slow).prefetch(3).map(slow).prefetch(2),
    "generator": lambda folder: Dataset.from_generator(endless).map(slow).prefetch(1),
    "flat_map": lambda folder: numbers().flat_map(inner).batch(2),
    "interleave": lambda folder: numbers().interleave(inner, cycle_length=3).batch(2),
    "cache": lambda folder: numbers().map(slow).cache().batch(2),
    "file cache": lambda folder: numbers().map(slow).cache(str(folder / "cache")).batch(2),
    "window": lambda folder: numbers().map(slow).window(3).flat_map(lambda d: d.batch(3)).rebatch([2, 3]),
    "stage in a stage": lambda folder: stage_in_a_stage(folder, "numpy"),
    "stage in a stage, dali": lambda folder: stage_in_a_stage(folder, "dali"),
    "remote": remote,
}


APART = ("host", "dali", "threads", "processes", "prefetch", "generator", "window", "remote")
"""Chains that are tried in a process of their own: each costs a second."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shards")
    for shard in range(4):
        damage.write(made / f"{shard}.tfrecord", [damage.jpeg(12 * shard + i) for i in range(12)])
    return made


@pytest.fixture(params=CHAINS)
def name(request: pytest.FixtureRequest) -> str:
    """Every chain that can run here."""
    chain = str(request.param)
    if "dali" in chain and not has_dali():
        pytest.skip("DALI is not installed")
    if chain == "remote":
        pytest.importorskip("fsspec")
    return chain


@pytest.fixture
def chain(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """The same, with a reader thread also where there are too few CPUs for one to pay."""
    monkeypatch.setattr(flow_run, "cpu_count", lambda: 4)
    return CHAINS[name](folder)


# ---- what is left


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("gpupipe")}


def left() -> list[str]:
    """Threads, processes, runs and pipelines in use that somebody left behind."""
    gc.collect()
    found = sorted(threads()) + [child.name for child in multiprocessing.active_children()]
    found += [f"run {id(run):x}" for run in list(endings.RUNS)]
    if "gpupipe.transform.dali.library" in sys.modules:
        from gpupipe.transform.dali.library import POOL

        busy = len(POOL._alive) - len(POOL)
        found += [f"{busy} pipelines in use"] if busy else []
    return found


def wait_until(nothing: Callable[[], Any]) -> Any:
    """Ask again until there is nothing, or the deadline is over; answer what there is."""
    deadline = time.monotonic() + PATIENCE
    while (found := nothing()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest, small_heap: None) -> Iterator[None]:
    before = set(left())  # of a test that has failed: its frames are kept for the report
    yield
    request.node.funcargs.pop("chain", None)  # processes that wait for the next iterator end with their dataset
    assert wait_until(lambda: sorted(set(left()) - before)) == []


# ---- the ends of a loop


def test_a_break_an_exception_and_the_garbage_collector_end_it(chain: Dataset) -> None:
    for number, _ in enumerate(chain):
        if number == 2:
            break
    with pytest.raises(KeyError, match="of the user"):
        for _ in chain:
            raise KeyError("of the user")
    items = iter(chain)
    next(items)
    held = weakref.ref(items)
    cycle: list[Any] = [items]
    cycle.append(cycle)

    del items, cycle
    gc.collect()

    assert held() is None


def test_the_garbage_collector_ends_a_loop_whose_first_element_was_bad() -> None:
    """It was looked at for its type, in the loop's own stack: the traceback of its error leads to the iterator."""

    def fail(x: Any) -> int:
        if int(x) == 0:
            raise ValueError("bad")
        return int(x)

    before = set(left())
    with pytest.raises(gp.DataError, match="bad"):
        list(Dataset.range(20).map(fail, traced=False).prefetch(1))

    assert wait_until(lambda: sorted(set(left()) - before)) == []


def test_close_ends_it_keeps_nothing_and_may_be_called_again(chain: Dataset) -> None:
    items = iter(chain)
    next(items)
    run, opened = weakref.ref(items._run), items._items
    flow = weakref.ref(opened) if type(opened).__weakrefoffset__ else None
    del opened

    items.close()
    assert threads() == set()  # at once: close has waited for them
    items.close()

    for _ in range(2):
        with pytest.raises(gp.ClosedError, match="was closed"):
            next(items)
    with items as again, pytest.raises(gp.ClosedError, match="was closed"):
        list(again)
    del items, again
    gc.collect()
    assert run() is None
    assert flow is None or flow() is None


def test_close_from_other_threads_ends_a_next_that_waits(chain: Dataset) -> None:
    items = iter(chain)
    next(items)
    after: list[Any] = []
    closed = threading.Event()

    def take() -> None:
        with contextlib.suppress(gp.ClosedError):
            for element in items:
                if closed.is_set():
                    after.append(element)

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(take)]
        time.sleep(0.02)
        jobs.append(pool.submit(items.close))
        items.close()
        closed.set()
        for job in jobs:
            job.result(PATIENCE)

    assert len(after) <= 1  # taken before close, looked at behind it
    with pytest.raises(gp.ClosedError, match="was closed"):
        next(items)


# ---- closing a step


class _SlowToClose(Iterator[int]):
    def __init__(self) -> None:
        self.closers: list[threading.Thread] = []

    def __next__(self) -> int:
        return 1

    def close(self) -> None:
        self.closers.append(threading.current_thread())
        time.sleep(0.05)


def test_who_is_inside_next_closes_what_it_takes_from() -> None:
    """Another thread that calls `close` only asks for it, and does not wait."""
    inside, gate = threading.Event(), threading.Event()
    closers: list[threading.Thread] = []

    def waits() -> Iterator[int]:
        try:
            yield 0
            inside.set()
            gate.wait(PATIENCE)
            yield 1
        finally:
            closers.append(threading.current_thread())

    items = iter(Dataset.from_generator(waits))
    next(items)
    with ThreadPoolExecutor(1) as pool:
        took = pool.submit(next, items)
        assert inside.wait(PATIENCE)

        items.close()
        items.close()
        assert closers == []
        gate.set()
        with pytest.raises(gp.ClosedError):
            took.result(PATIENCE)

    assert len(closers) == 1
    assert closers != [threading.current_thread()]


def test_a_generator_that_hands_on_another_one_is_closed_by_one_of_two_threads() -> None:
    """Two at once in one `yield from` bring CPython 3.11 down."""
    slow = _SlowToClose()

    def hands_on() -> Iterator[int]:
        yield from slow

    items = iter(Dataset.from_generator(hands_on))
    next(items)
    closers = [threading.Timer(delay, items.close) for delay in (0.0, 0.02)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(PATIENCE)

    assert slow.closers == closers[:1]


def test_a_thread_that_is_just_starting_is_waited_for() -> None:
    """Python gives it an ident a moment before it lets anybody join it."""
    gate = threading.Event()

    def until() -> None:
        gate.wait(PATIENCE)

    thread = Thread(until, name="late")
    thread.start()
    thread._started.clear()
    threading.Timer(0.05, thread._started.set).start()
    threading.Timer(0.1, gate.set).start()

    join([thread])

    assert not thread.is_alive()


def test_an_error_of_what_is_closed_is_raised_whatever_its_text() -> None:
    def clumsy() -> Iterator[int]:
        try:
            yield 0
        finally:
            raise ValueError("generator already executing")

    items = clumsy()
    next(items)

    with pytest.raises(ValueError, match="already executing"):
        close(items)


@pytest.mark.parametrize(
    "make",
    [
        lambda source: source.batch(2).rebatch(3),
        lambda source: source.window(3).flat_map(lambda d: d.batch(3)),
        lambda source: source.batch(3),
        lambda source: source.ragged_batch(3),
        lambda source: source.shuffle(3),
        lambda source: Dataset.zip(source, source).batch(3),
        lambda source: source.prefetch(1).batch(3),
        lambda source: source.repeat(2).batch(4),
        lambda source: source.cache().batch(4),
    ],
    ids="rebatch,window,batch,ragged,shuffle,zip,prefetch,repeat,cache".split(","),
)
def test_what_close_has_cut_short_is_not_delivered(make: Callable[[Dataset], Dataset]) -> None:
    inside, gate = threading.Event(), threading.Event()

    def block() -> Iterator[int]:
        yield from range(7)
        inside.set()
        gate.wait(PATIENCE)
        yield from range(7, 20)

    items = iter(make(Dataset.from_generator(block)))
    got: list[Any] = []

    def take() -> None:
        with contextlib.suppress(gp.ClosedError):
            got.extend(gate.is_set() for _ in items)

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(take)]
        assert inside.wait(PATIENCE)
        jobs.append(pool.submit(items.close))
        while not items._done:
            time.sleep(0.001)
        gate.set()
        for job in jobs:
            job.result(PATIENCE)

    assert not any(got)


# ---- signals and processes


HEAD = """
    import gc, os, sys, time, warnings
    from pathlib import Path
    warnings.simplefilter("ignore", DeprecationWarning)  # Python itself warns about fork with threads
    import gpupipe as gp
    name, folder = sys.argv[1], Path(sys.argv[2])

    def waited_for(pid):
        deadline = time.monotonic() + 25
        done = 0, 0
        while not done[0] and time.monotonic() < deadline:
            done = os.waitpid(pid, os.WNOHANG)
            time.sleep(0.01)
        return os.waitstatus_to_exitcode(done[1]) if done[0] else "the child hangs"
    """


def program(body: str, name: str, folder: Path) -> subprocess.Popen[str]:
    """A program with the chains."""
    begin = "from tests.reliability.test_shutdown import CHAINS\n" + textwrap.dedent(HEAD)
    return child(begin + textwrap.dedent(body), name, str(folder))


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@needs_fork  # SIGINT to a child is different there
@pytest.mark.parametrize("name", APART, indirect=True)
def test_control_c_inside_next_ends_the_program(name: str, folder: Path) -> None:
    body = """
        items = iter(CHAINS[name](folder))
        next(items)
        print("ready", flush=True)
        while True:
            next(items)
        """
    process = program(body, name, folder)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)

    code, _, errors = ended(process, PATIENCE)

    assert code == -signal.SIGINT, errors
    assert errors.count("Traceback") == 1
    assert errors.endswith("\nKeyboardInterrupt\n")
    assert "Exception ignored" not in errors


@needs_fork
@pytest.mark.parametrize("name", APART, indirect=True)
def test_a_forked_child_is_told_and_both_processes_end_quietly(name: str, folder: Path) -> None:
    """The child uses the parent's iterator, drops it, iterates anew and ends as programs do; so does the parent."""
    body = """
        dataset = CHAINS[name](folder)
        items = iter(dataset)
        batch = next(items)
        pid = os.fork()
        if pid == 0:
            try:
                next(items)
            except gp.ClosedError as error:
                print("child:", error, flush=True)
            items.close()
            del items, batch
            gc.collect()
            for x in dataset:
                print("child: goes on", flush=True)
                break
            sys.exit(7)
        print("parent:", waited_for(pid), flush=True)
        next(items)
        print("parent: goes on", flush=True)
        other = iter(dataset)  # alive at the end of the program
        next(other)
        """
    said = "child: this iterator was created before a fork; make a new one in this process\nchild: goes on\n"
    assert ended(program(body, name, folder)) == (0, said + "parent: 7\nparent: goes on\n", "")


@needs_fork
@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_a_child_forked_while_a_pipeline_is_being_built_ends(folder: Path) -> None:
    """DALI destroys every pipeline when a process ends; one whose threads are the parent's would wait for ever."""
    body = """
        import threading
        from nvidia.dali.pipeline import Pipeline
        built, forked, build = threading.Event(), threading.Event(), Pipeline.build

        def slow_build(self):
            build(self)
            built.set()
            forked.wait()

        Pipeline.build = slow_build
        items = iter(CHAINS[name](folder))
        taker = threading.Thread(target=next, args=(items,))
        taker.start()
        built.wait()
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        done = waited_for(pid)
        forked.set()
        print(done)
        taker.join()
        """
    assert ended(program(body, "dali", folder)) == (0, "7\n", "")


@pytest.mark.parametrize("name", ["host", "numpy", "dali"], indirect=True)
def test_an_exit_handler_may_iterate(name: str, folder: Path) -> None:
    """Some save what a model makes of a few batches there. Python's own pools take no work at that point."""
    body = """
        import atexit

        def last():
            items = iter(CHAINS[name](folder))
            next(items)
            items.close()
            print("done", flush=True)

        atexit.register(last)
        """
    code, out, errors = ended(program(body, name, folder))

    if sys.version_info >= (3, 12) and name != "host" and gil_is_on():  # no thread starts there; Python says so
        assert (code, out) == (0, "")
        assert "can't create new thread at interpreter shutdown" in errors
    else:
        assert (code, out, errors) == (0, "done\n", "")


@pytest.mark.parametrize("name", ["host", "numpy"], indirect=True)
def test_a_daemon_thread_that_iterates_to_the_end_of_the_program_is_quiet(name: str, folder: Path) -> None:
    """It begins one iterator after the other, also while the interpreter waits in its last exit handler."""
    if sys.version_info >= (3, 12) and name != "host":
        pytest.skip("Python 3.12 and later start no thread in an exit handler")
    body = """
        import atexit, threading
        begun = threading.Semaphore(0)

        def forever():
            while True:
                for _ in CHAINS[name](folder).iterator(epoch=0):
                    begun.release()
                    break

        taker = threading.Thread(target=forever, daemon=True)
        taker.start()
        begun.acquire()

        def last():
            for _ in range(20):
                if not taker.is_alive() or not begun.acquire(timeout=10):
                    print("the thread is dead or stuck")

        atexit.register(last)
        """
    assert ended(program(body, name, folder)) == (0, "", "")


def test_a_daemon_thread_whose_worker_processes_end_with_the_program_is_quiet(folder: Path) -> None:
    body = """
        import operator, threading
        begun = threading.Event()

        def forever():
            while True:
                for _ in gp.Dataset.range(40).map(operator.neg, num_parallel_calls=2, workers="process").batch(2):
                    begun.set()

        threading.Thread(target=forever, daemon=True).start()
        begun.wait(30)
        """
    assert ended(program(body, "", folder)) == (0, "", "")


OPEN: dict[str, str] = {
    "traced": "gp.Dataset.range(100).map(lambda x: x + 1).filter(lambda x: x % 3 > 0)",
    "records": "gp.TFRecordDataset(sys.argv[2] + '/0.tfrecord').map(lambda r: gp.ops.decode_jpeg(r)).enumerate()",
    "generator": "gp.Dataset.from_generator(lambda: (i for i in range(99))).window(3).flat_map(lambda w: w.batch(3))",
    "threads": "gp.Dataset.range(99).map(lambda x: x + 1).map(int, num_parallel_calls=2).prefetch(2).enumerate()",
}


@pytest.mark.parametrize("chain", OPEN.values(), ids=OPEN.keys())
def test_an_iterator_that_is_open_when_the_program_ends_is_closed_quietly(chain: str, folder: Path) -> None:
    """Modules that something outside of Python holds, as torch does, are emptied before those that use them."""
    body = f"""
        import ctypes, logging
        logging.getLogger("gpupipe").setLevel(logging.ERROR)  # which libraries are missing is not what counts
        for name, module in list(sys.modules.items()):
            if name.startswith("gpupipe") or name == "__main__":
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
        items = iter({chain})
        next(items)
        """
    assert ended(program(body, "", folder)) == (0, "", "")


def test_threads_that_do_not_end_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = 0.0, []

    class Stuck:
        name, ident, _started = "stuck", 1, Flag()

        def join(self, timeout: float) -> None:
            nonlocal now
            waits.append(timeout)
            now += timeout

        def is_alive(self) -> bool:
            return True

    Stuck._started.set()
    monkeypatch.setattr(pools, "monotonic", lambda: now)
    join([Stuck() for _ in range(32)])  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
    assert waits == [pools.PATIENCE, *[0.0] * 31]


# ---- DALI is imported


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


@needs_fork
@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
def test_a_child_forked_while_dali_is_imported_can_import_it() -> None:
    """A source may fork, as pools and loaders do, in the moment when a thread of gpupipe imports DALI."""
    assert ended(child(FORKS))[:2] == (0, "7\n1\n")


@pytest.mark.parametrize("error", ["ImportError('no')", "OSError('libcuda.so.1: cannot open')"])
def test_dali_that_cannot_be_imported_is_named_whatever_the_reason(error: str, tmp_path: Path) -> None:
    package = tmp_path / "nvidia" / "dali"
    package.mkdir(parents=True)
    (tmp_path / "nvidia" / "__init__.py").touch()
    (package / "__init__.py").write_text(f"raise {error}\n", encoding="utf-8")

    code, line, _ = ended(child(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n{FAILS}"))

    assert code == 0
    assert "needs nvidia-dali, which cannot be imported" in line
    assert error.split("'")[1] in line
    assert "backend='numpy'" in line
