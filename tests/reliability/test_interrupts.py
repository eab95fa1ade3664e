"""Ctrl-C and `sys.exit()` inside `next`: nothing is lost and nothing comes twice, whatever the moment."""

from __future__ import annotations

import contextlib
import gc
import json
import operator
import os
import random
import signal
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, StateError, ops
from gpupipe.flow.cache.files import FileCacheStore
from gpupipe.load.iterator import DatasetIterator
from gpupipe.serial import elements_writer
from gpupipe.transform.machine import has_dali
from tests.behaviour.model import plain
from tests.chains import damage
from tests.chains.data import on
from tests.reliability.resume import through_json

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers of signals on this system"),
]

INSIDE = DatasetIterator.__next__.__code__


class Stopped(Exception):
    """What a handler of a user's raises, where he wants no KeyboardInterrupt."""


def inside(frame: Any) -> bool:
    """Whether a frame belongs to a call of `next`: only there the iterator is to blame for what gets lost.

    What is raised while an object is destroyed Python prints and forgets.
    """
    while frame is not None and "weakref" not in frame.f_code.co_filename and frame.f_code.co_name != "__del__":
        if frame.f_code is INSIDE:
            return True
        frame = frame.f_back
    return False


class Alarm:
    """A timer whose handler raises inside `next`, after a random time; outside it waits for the next call.

    Args:
        kind: what it raises.
        seconds: the longest time.
        seed: of the times.
        again: it raises once more while the iterator still deals with the first one, half of the times.
    """

    def __init__(self, kind: type[BaseException], seconds: float, seed: int, again: bool = False) -> None:
        self._kind = kind
        self._seconds = seconds
        self._random = random.Random(seed)
        self._again = again
        self.count = 0

    def set(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, self._seconds))

    def __call__(self, signum: int, frame: Any) -> None:
        if not inside(frame):
            signal.setitimer(signal.ITIMER_REAL, 2e-5)
            return
        self.count += 1
        if self._again and self.count % 2:
            signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, 5e-4))
        raise self._kind

    def __enter__(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def slow(x: Any) -> Any:
    time.sleep(0.001)
    return np.int64(x) * 2


def quick(x: Any) -> Any:
    return np.int64(x) + 1


def inner(x: Any) -> Dataset:
    return Dataset.range(7).map(slow).map(lambda y: y + 1)


def counted() -> Iterator[int]:
    for i in range(60):
        time.sleep(0.0005)
        yield i


def decoded(record: Any) -> Any:
    return ops.random_crop(ops.decode_jpeg(record, channels=3), (16, 16, 3))


@pytest.fixture(autouse=True)
def _no_callbacks_of_the_garbage_collector() -> Iterator[None]:
    """Python swallows an exception that strikes in one of them, such as hypothesis leaves in the process."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = kept


@pytest.fixture(autouse=True)
def _no_names_of_threads_that_never_started() -> Iterator[None]:
    """Ctrl-C inside `Thread.start` leaves one in Python's list, where other tests would find it.

    Or one that starts a little later: it takes its name out of the list itself.
    """
    yield
    for thread in threading.enumerate():
        if not thread.is_alive() and not thread._started.wait(2):  # type: ignore[attr-defined]
            threading._limbo.pop(thread, None)  # type: ignore[attr-defined]


def records(folder: Path) -> Dataset:
    files = Dataset.list_files(str(folder / "*.tfrecord"), seed=1)
    return files.interleave(gp.TFRecordDataset, cycle_length=2, num_parallel_calls=2)


def images(folder: Path, backend: str) -> Dataset:
    ds = records(folder).shuffle(10, seed=1).repeat(3).map(decoded).batch(4).prefetch(2)
    return ds.with_options(on(backend, threads=2))


CHAINS: dict[str, tuple[Callable[[Path], Dataset], float]] = {
    "range": (lambda _: Dataset.range(20_000), 0.004),
    "slow Python": (lambda _: Dataset.range(100).map(slow), 0.01),
    "shuffle": (lambda _: Dataset.range(3000).map(quick, traced=False).shuffle(300).repeat(2), 0.005),
    "rebatch": (lambda _: Dataset.range(2000).batch(7).unbatch().padded_batch(3).rebatch(5), 0.005),
    "window": (lambda _: Dataset.range(400).window(5, shift=2).flat_map(lambda w: w.batch(5)), 0.005),
    "zip": (lambda _: Dataset.zip(Dataset.range(2000).shuffle(9), Dataset.range(2000).map(quick)), 0.005),
    "concatenate": (lambda _: Dataset.range(4500).concatenate(Dataset.range(4500)).shard(2, 1).take(4400), 0.003),
    "threads": (lambda _: Dataset.range(150).map(slow, num_parallel_calls=3).batch(2), 0.01),
    "interleave": (lambda _: Dataset.range(20).interleave(inner, cycle_length=3, num_parallel_calls=2), 0.01),
    "prefetch": (lambda _: Dataset.range(120).map(slow).prefetch(3).map(quick).prefetch(2), 0.01),
    "generator": (lambda _: Dataset.from_generator(counted).map(quick), 0.02),
    "cache": (lambda _: Dataset.range(2000).map(quick).cache().repeat(3), 0.004),
    "records": (lambda folder: records(folder).shuffle(20).repeat(9).batch(3), 0.004),
    "NumPy": (lambda folder: images(folder, "numpy"), 0.02),
    "DALI": (lambda folder: images(folder, "dali"), 0.02),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for shard in range(3):
        damage.write(tmp_path / f"{shard}.tfrecord", [damage.jpeg(20 * shard + i) for i in range(20)])
    return tmp_path


def threads() -> set[str]:
    """Those that run. Ctrl-C inside `Thread.start` leaves Python a name in its list, of a thread that never started."""
    return {one.name for one in threading.enumerate() if one.name.startswith("gpupipe") and one.is_alive()}


def gone(seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not threads()


def key(element: Any) -> Any:
    return repr(plain(element)) if not isinstance(element, np.ndarray) or element.ndim < 3 else element.tobytes()


def interrupted(ds: Dataset, alarm: Alarm, most: int, look: Callable[[Any, int], None]) -> list[Any]:
    """All elements of an iterator that is interrupted again and again; `look` sees it after each time."""
    got: list[Any] = []
    with ds.iterator(epoch=3) as items:
        while True:
            if alarm.count < most:
                alarm.set()
            try:
                for x in items:
                    got.append(key(x))
                return got
            except (KeyboardInterrupt, SystemExit, Stopped):
                look(items, len(got))


def chain(name: str, folder: Path) -> tuple[Dataset, float]:
    if name == "DALI" and not has_dali():
        pytest.skip("DALI is not installed")
    make, seconds = CHAINS[name]
    return make(folder), seconds


EXCEPTIONS = ["range", "concatenate", "rebatch"]
"""Chains in which no function runs, where an Exception is the error of an element, and no thread is started."""


@pytest.mark.parametrize(
    ("name", "kind", "again"),
    [(name, KeyboardInterrupt, again) for name in CHAINS for again in (False, True)]
    + [(name, SystemExit, False) for name in ("slow Python", "prefetch", "NumPy")]
    + [(name, Stopped, False) for name in EXCEPTIONS],
)
def test_an_iterator_goes_on_where_it_was_interrupted(name: str, kind: Any, again: bool, folder: Path) -> None:
    """By itself and by a state, also where another interrupt strikes in the middle of the first."""
    ds, seconds = chain(name, folder)
    whole = [key(x) for x in ds.iterator(epoch=3)]
    states: list[tuple[int, Any]] = []

    def look(items: Any, count: int) -> None:
        assert items._items is not None or gone()  # it may strike before or behind the flow, which goes on then
        states.append((count, through_json(items.state_dict())))

    with Alarm(kind, seconds, seed=5, again=again) as alarm:
        got = interrupted(ds, alarm, 8, look)

    assert alarm.count
    assert got == whole
    assert gone()
    for count, state in states[::2]:
        assert state["delivered"] == count
        with ds.iterator(epoch=3) as items:
            items.load_state_dict(state)
            assert [key(x) for x in items] == whole[count:]


@pytest.mark.parametrize("started", [False, True], ids=["before", "after"])
def test_a_thread_whose_start_is_interrupted_costs_nothing(started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Struck before the system has the thread, or behind it: each of three threads, of two steps."""
    name = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
    real, ds = getattr(threading, name), Dataset.range(30).map(slow, num_parallel_calls=2).prefetch(2)
    for at in range(1, 4):
        calls = 0

        def start(*args: Any, at: int = at, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at and not started:
                raise KeyboardInterrupt
            answer = real(*args, **named)
            if calls == at:
                raise KeyboardInterrupt
            return answer

        got: list[int] = []
        with ds.iterator(epoch=3) as items:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(threading, name, start)
                got.extend(int(x) for x in items)
            got.extend(int(x) for x in items)
        assert got == [2 * x for x in range(30)]
        assert gone()


# ---- signals of the system


def child(body: str, *arguments: str) -> Popen[str]:
    """A program."""
    command = [sys.executable, "-c", textwrap.dedent(body), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=environment)


def ended(process: Popen[str], seconds: float = 50) -> tuple[int, str, str]:
    """How a program ends, and what it prints to stdout and to stderr."""
    try:
        out, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out, errors


ASKED = """
    import json, signal, sys, time
    import gpupipe as gp

    def slow(x):
        time.sleep(0.02)
        return int(x)

    def leave(number, frame):
        sys.exit(3)

    signal.signal(signal.SIGTERM, leave)
    items = iter(gp.Dataset.range(60).map(slow, **json.loads(sys.argv[1])).shuffle(5))
    got = []
    print("ready", flush=True)
    try:
        for x in items:
            got.append(int(x))
            print(got[-1], flush=True)
    except (KeyboardInterrupt, SystemExit) as error:
        state = json.loads(json.dumps(items.state_dict()))
        assert state["delivered"] == len(got), (state["delivered"], got)
        other = gp.Dataset.range(60).map(slow, **json.loads(sys.argv[1])).shuffle(5).iterator(epoch=0)
        other.load_state_dict(state)
        print("\\n", json.dumps([type(error).__name__, got, list(map(int, items)), list(map(int, other))]))
    """


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")])
@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 2}], ids=["inline", "threads"])
def test_a_program_that_is_told_to_end_saves_its_place_and_may_go_on(number: Any, kind: str, how: Any) -> None:
    with iter(Dataset.range(60).map(int, traced=False).shuffle(5)) as items:
        whole = [int(x) for x in items]
    process = child(ASKED, json.dumps(how))
    assert process.stdout is not None
    for _ in range(4):
        assert process.stdout.readline()
    process.send_signal(number)

    code, out, errors = ended(process)

    assert (errors, code) == ("", 0)
    name, got, rest, other = json.loads(out.splitlines()[-1])
    assert name == kind
    assert len(got) < 60
    assert got + rest == whole
    assert got + other == whole


def test_processes_go_on_too() -> None:
    # Started anew each time: processes that wait for the next iterator are done before the alarm.
    started = Options(persistent_workers=False)
    ds = Dataset.range(60).map(operator.neg, workers="process", num_parallel_calls=2).batch(3).with_options(started)
    whole = [key(x) for x in ds.iterator(epoch=3)]

    with Alarm(KeyboardInterrupt, 0.4, seed=3) as alarm:
        got = interrupted(ds, alarm, 2, lambda *_: None)

    assert alarm.count
    assert got == whole


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("name", ["map", "interleave"])
def test_in_any_order_nothing_comes_behind_an_interrupt(name: str, held: bool) -> None:
    if name == "map":
        ds = Dataset.range(200).map(slow, num_parallel_calls=3, deterministic=False)
    else:
        ds = Dataset.range(30).interleave(inner, cycle_length=3, num_parallel_calls=3, deterministic=False)
    ds = ds.shuffle(20) if held else ds
    whole = sorted(key(x) for x in ds.iterator(epoch=3))

    got: list[Any] = []
    state: Any = None
    with ds.iterator(epoch=3) as items, Alarm(KeyboardInterrupt, 0.02, seed=3) as alarm:
        got += [key(x) for x in islice(items, 9)]
        if not held:
            state = through_json(items.state_dict())
        while items._items is not None:  # one that strikes before anything was begun breaks nothing off
            alarm.set()
            with contextlib.suppress(KeyboardInterrupt):
                deque(items, maxlen=0)
        assert alarm.count and not items._progress.ended
        with pytest.raises(StateError, match=r"state_dict needs .*that can be read again"):
            items.state_dict()
        with pytest.raises(StateError, match=r"next\(\), to continue .*that can be read again"):
            next(items)
    if not held:  # what was saved before goes on
        with ds.iterator(epoch=3) as items:
            items.load_state_dict(state)
            assert sorted([*got, *(key(x) for x in items)]) == whole


# A file object that nobody has yet is closed with a warning.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("behind", ["create", "begin", "start"])
def test_ctrl_c_while_a_cache_makes_its_file_leaves_none(
    behind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes right behind a call after which there is a file."""
    owner: Any = {"create": elements_writer, "begin": elements_writer.ElementsWriter, "start": FileCacheStore}[behind]
    whole = getattr(owner, behind)

    def struck(*args: Any) -> None:
        monkeypatch.setattr(owner, behind, whole)
        whole(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, behind, struck)
    with iter(Dataset.range(9).cache(str(tmp_path / "c"))) as items:
        with pytest.raises(KeyboardInterrupt):
            next(items)
        made = os.listdir(tmp_path)
        rest = [int(x) for x in items]

    assert made == []
    assert rest == list(range(9))
    assert len(os.listdir(tmp_path)) == 1
    fds = Path("/proc/self/fd")
    assert not [one for one in (fds.iterdir() if fds.is_dir() else ()) if str(tmp_path) in os.path.realpath(one)]
