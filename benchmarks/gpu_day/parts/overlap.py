"""overlap: what keeps the chain's batches from coming as fast as those of DALI by hand.

On an H200 the chain gave half the images per second of a pipeline written by hand, at less CPU time. DALI's queues,
streams and concurrency made no difference, nor the checks of pixels. So each question leaves out one thing that gpupipe
does for a batch between two runs of DALI; the one that helps is the reason. `stats()` says where its threads wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from unittest import mock

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import decoding, make, rate
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.parts.speed import whole_chain
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.gpu_day.threads import ThreadTimes, told

__all__ = ["PART", "questions", "summary"]

PART = Part("overlap", "what the chain does between two batches, left out one by one", 170, 30, least=30, alone=True)

_BLOCKING = 4  # CU_CTX_SCHED_BLOCKING_SYNC: threads that wait for the GPU sleep


def questions(day: Day) -> Questions:
    """Ask for the rate by hand, of the chain, and of the chain without each of the things that it does for a batch."""
    left_out: dict[str, dict[str, Any]] = {
        "without labels": {"labels": False},
        "dropped eight at a time": {"kept": 8},
        "without CuPy, hence without DLPack and NVTX": {"without": _cupy},
        "without a look at headers": {"without": _headers},
        "3 batches in flight": {"without": _limit_of_flights},
        "Python's lock changes hands after 0.2 ms, not 5": {"without": _quick_lock},
        "without all of these": {"labels": False, "kept": 8, "without": _all},
    }
    found: dict[str, Any] = {
        "by hand": lambda: rate(day, make(day, whole_chain(decoding())), photographs(day, day.batch)),
        "the chain": partial(_measured, day),
    }
    found |= {name: partial(_measured, day, **how) for name, how in left_out.items()}
    return found if day.dry else {**found, "threads sleep while they wait": partial(_measured, day, sleeping=True)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return rates, also as ratios to that by hand, CPU time by threads, and the seconds of the stage."""
    reference = answers.get("by hand", {}).get("images_s")
    lines = []
    for name, one in answers.items():
        line = f"{name}: {one['images_s']} images/s, {one['cpu_ms']} CPU-ms"
        if reference and name != "by hand":
            line += f", {one['images_s'] / reference:.2f} of the rate by hand"
        if one.get("threads"):
            line += f"; {told(one['threads'])}"
        lines.append(line)
        lines += [f"  {step}: {', '.join(f'{k} {v}' for k, v in seconds.items())}"
                  for step, seconds in one.get("steps", {}).items()]  # fmt: skip
    return lines


def _cupy() -> Any:
    from gpupipe.transform import array

    return mock.patch.object(array, "has_cupy", lambda: False)


def _headers() -> Any:
    from gpupipe.extract.images import jpeg

    return mock.patch.object(jpeg, "has_whole_header", lambda data: True)


def _limit_of_flights() -> Any:
    from gpupipe.flow.stage import runner

    return mock.patch.object(runner, "IN_FLIGHT", 3)


@contextlib.contextmanager
def _quick_lock() -> Any:
    """A thread that comes back from DALI waits for Python's lock for up to the interval, each time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def _all() -> Any:
    with _cupy(), _headers(), _limit_of_flights(), _quick_lock():
        yield


def _measured(
    day: Day,
    labels: bool = True,
    without: Callable[[], Any] = contextlib.nullcontext,
    kept: int = 1,
    sleeping: bool = False,
) -> dict[str, Any]:
    if sleeping:
        cuda = ctypes.CDLL("libcuda.so.1")
        for status in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxSetFlags_v2(0, _BLOCKING)):
            if status:
                raise RuntimeError(f"CUDA refused the flag with error {status}")
    count = day.some(100, 2)
    ds = chain(day, photographs(day, day.batch * day.some(16, 2)), labels=labels).repeat()
    with without(), ds.iterator(0) as items:
        _take(items, day.some(20, 1), kept)
        times, cpu, started = ThreadTimes(), time.process_time(), time.perf_counter()
        _take(times.watching(items), count, kept)
        took, cpu = time.perf_counter() - started, time.process_time() - cpu
        rows = count * day.batch
        return {"images_s": round(rows / took), "cpu_ms": round(cpu / rows * 1e3, 4), "threads": times.groups(rows),
                "steps": _seconds(items.stats())}  # fmt: skip


def _take(items: Any, count: int, kept: int) -> None:
    """Take batches, and drop them by so many: DALI waits for the whole GPU whenever arrays were dropped."""
    held = []
    for batch in itertools.islice(items, count):
        held.append(batch)
        if len(held) == kept:
            held.clear()
            del batch


def _seconds(stats: Any) -> dict[str, dict[str, float]]:
    """Return the seconds of the thread of each step since the iterator began, and its CPU time."""
    names = ("seconds", "waiting", "blocked", "cpu_seconds")
    return {f"{one.step} {one.line}": {name: round(getattr(one, name), 2) for name in names} for one in stats.steps}
