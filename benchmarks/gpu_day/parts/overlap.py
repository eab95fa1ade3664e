"""overlap: a ladder from DALI by hand to the README's chain: at which step images per second are lost.

Each question adds one thing to that before it: the chain's own graph, gpupipe's executor, its threads, labels, records.
Two are asked again with more connections to the GPU, since runs of several streams wait for each other in one, and
again with watched functions: what a thread waits for (Python's lock, the GPU, another thread) is its wall time without
its CPU time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import math
import os
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.contestants.gpupipe_chain import batches
from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import decoding, fed, make
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.parts.speed import whole_chain
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.gpu_day.threads import ThreadTimes, told
from benchmarks.job import Job
from benchmarks.machine import cores

__all__ = ["PART", "questions", "summary"]

PART = Part("overlap", "from DALI by hand to the chain: where images per second are lost", 170, 30, least=30,
            alone=True)  # fmt: skip

_BY_HAND = "by hand"
_CONNECTIONS = 32
"""The most that CUDA opens to a GPU; 8 by default."""
_SHARDS = 8
_BLOCKING = 4  # CU_CTX_SCHED_BLOCKING_SYNC: threads that wait for the GPU sleep
_NOT_INITIALIZED = 3  # CUDA_ERROR_NOT_INITIALIZED

_STEPS: Mapping[str, str] = {
    "feed and start": "gpupipe.transform.dali.executor.DaliExecutor._schedule",
    "wait for the outputs": "gpupipe.transform.dali.executor.DaliExecutor._outcome",
    "check and hand over": "gpupipe.transform.dali.executor.DaliExecutor._results",
}
"""The steps of the executor for a batch."""
_FUNCTIONS: Mapping[str, str] = {
    "wait for room": "gpupipe.flow.stage.runner.StageRunner._wait_for_room",
    "next group": "gpupipe.flow.batching.resumable.ResumableBatcher.next",
    "prepare": "gpupipe.flow.stage.runner.StageRunner._prepare",
    "wait for a group": "gpupipe.flow.stage.runner.StageRunner._take",
    "look at headers": "gpupipe.transform.host_decode.HostDecoder.ready",
    "make tensors": "gpupipe.transform.dali.executor.DaliExecutor._tensors",
    "feed_input": "nvidia.dali.pipeline.Pipeline.feed_input",
    "schedule_run": "nvidia.dali.pipeline.Pipeline.schedule_run",
    "share_outputs": "nvidia.dali.pipeline.Pipeline.share_outputs",
    "samples to the host": "gpupipe.transform.dali.executor.to_numpy",
    "check pixels": "gpupipe.transform.dali.proof.Prover.wrong_samples",
    "hand over": "gpupipe.transform.dali.executor.to_device_array",
    "make the batch": "gpupipe.flow.stage.assemble.Assembler.deliver",
    "give the batch": "gpupipe.flow.prefetch.channel.Channel.put",
    "read ahead": "gpupipe.flow.combine.read_ahead.ReadAhead._make",
    "read payloads": "gpupipe.flow.maps.read_payloads._Fetching._fetch",
}
"""What gpupipe's threads call; none of these calls another, but for a feeder that reads by itself in "next group"."""
_ROLES: Mapping[str, str] = {
    "gpupipe-flow": "feeder",
    "gpupipe-transform": "runner",
    "gpupipe-reader": "readers",
    "gpupipe-interleave": "readers",
    "gpupipe-prefetch": "prefetch",
    "MainThread": "main",
}
"""What a thread does, by how its name starts."""

_Source = Callable[[Day], contextlib.AbstractContextManager[Iterator[Any]]]
"""Starts a chain: gives its batches."""


def questions(day: Day) -> Questions:
    """Ask for the rate by hand, then with one more thing each time, then again in other circumstances."""
    labels, records = "images and labels from memory", "from TFRecords"
    found: dict[str, Any] = {
        _BY_HAND: partial(_by_hand, day),
        "the chain's graph alone": partial(_graph, day),
        "the chain's executor in a loop": partial(_executor, day),
        "images from memory": partial(_chain, day, partial(_memory, labels=False)),
        labels: partial(_chain, day, _memory),
        records: partial(_chain, day, _records),
    }
    for name, source in ((labels, _memory), (records, _records)):
        found[f"{name}, {_CONNECTIONS} connections"] = partial(_chain, day, source, _connections(day))
        found[f"{name}, watched"] = partial(_chain, day, source, points=_FUNCTIONS)
    if not day.dry:
        found[f"{labels}, threads sleep while they wait"] = partial(_chain, day, _memory, _sleeping())
    return found


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return rates, also as ratios to that by hand, CPU time by threads, and what was watched."""
    reference = answers.get(_BY_HAND, {}).get("images_s")
    lines = []
    for name, one in answers.items():
        line = f"{name}: {one['images_s']} images/s, {one['cpu_ms']} CPU-ms"
        if reference and name != _BY_HAND:
            line += f", {one['images_s'] / reference:.2f} of the rate by hand"
        lines += [f"{line}; {told(one['threads'])}", *_table(one.get("watched", {}), one["ms_batch"])]
    return lines


def _table(watched: Mapping[str, Mapping[str, Mapping[str, float]]], ms_batch: float) -> list[str]:
    if not watched:
        return []
    lines = [f"  {f'a batch takes {ms_batch} ms':<32}{'calls':>7}{'ms':>8}{'CPU-ms':>8}{'waits':>8}"]
    for role, functions in watched.items():
        lines += [
            f"  {role:<10}{name:<22}{one['calls']:7.1f}{one['ms']:8.2f}{one['cpu_ms']:8.2f}"
            f"{max(0.0, one['ms'] - one['cpu_ms']):8.2f}"
            for name, one in functions.items()
        ]
    return lines


# ---- the steps of the ladder


def _by_hand(day: Day) -> dict[str, Any]:
    pipeline, files = make(day, whole_chain(decoding())), photographs(day, day.batch)
    inputs = itertools.cycle([fed([*files[i:], *files[:i]]) for i in (0, 7, 13)])
    return _runs(day, pipeline, lambda: pipeline.feed_input("data", next(inputs)))


def _graph(day: Day) -> dict[str, Any]:
    """Feed what gpupipe's executor feeds for one batch, as it does, again and again."""
    from nvidia.dali.pipeline import Pipeline

    calls: list[tuple[Any, Any, Any]] = []
    feed_input = Pipeline.feed_input

    def noted(pipeline: Any, *args: Any, **options: Any) -> None:
        calls.append((pipeline, args, options))
        feed_input(pipeline, *args, **options)

    with _of_the_chain(day) as (executor, feed):
        with mock.patch.object(Pipeline, "feed_input", noted):
            executor.run(feed)

        def again() -> None:
            for pipeline, args, options in calls:
                pipeline.feed_input(*args, **options)

        return _runs(day, calls[0][0], again)


def _executor(day: Day) -> dict[str, Any]:
    """Submit one batch again and again, with two in flight, as the chain's runner does."""
    with _watching(_STEPS) as spans, _of_the_chain(day) as (executor, feed):

        def step() -> None:
            executor.collect()
            executor.submit(feed)

        executor.submit(feed)
        executor.submit(feed)
        return _measured(day, step, spans)


def _chain(
    day: Day,
    source: _Source,
    circumstances: contextlib.AbstractContextManager[Any] | None = None,
    points: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    with circumstances or contextlib.nullcontext(), _watching(points or {}) as spans, source(day) as items:
        return _measured(day, lambda: next(items), spans)


@contextlib.contextmanager
def _memory(day: Day, labels: bool = True) -> Iterator[Iterator[Any]]:
    # One epoch has more batches than are taken: its threads start once.
    ds = chain(day, photographs(day, day.batch * day.some(400, 40)), labels=labels, **_backend(day)).repeat()
    with ds.iterator(0) as items:
        yield items


@contextlib.contextmanager
def _records(day: Day) -> Iterator[Iterator[Any]]:
    files = [str(path) for path in _shards(day)]
    job = Job("gpupipe", (*files * 60,), batch=day.batch, threads=cores(), shuffle=day.some(2048, 16))
    with contextlib.closing(batches(job, "cpu" if day.dry else "gpu", **_backend(day))) as items:
        yield items


def _shards(day: Day) -> list[Path]:
    """Write photographs as TFRecord shards, once a day."""
    from gpupipe.extract.records.writer import TFRecordWriter
    from gpupipe.io import encode_example

    files = photographs(day, day.some(2560, 64))
    paths = [Path(day.folder, f"overlap-{number}.tfrecord") for number in range(_SHARDS)]
    for number, path in enumerate(paths):
        if path.exists():
            continue
        half = path.with_suffix(".half")
        with TFRecordWriter(str(half)) as writer:
            for label in range(number, len(files), _SHARDS):
                writer.write(encode_example({"image/encoded": files[label], "image/class/label": label}))
        half.replace(path)
    return paths


def _backend(day: Day) -> dict[str, Any]:
    """DALI in a dry run too, where small images would run on NumPy."""
    return {"backend": "dali"} if day.dry else {}


@contextlib.contextmanager
def _of_the_chain(day: Day) -> Iterator[tuple[Any, Any]]:
    """Make the executor of the chain once more, and take the first batch that was submitted to it."""
    from gpupipe.optimize.place import placer
    from gpupipe.transform.choose import make_executor
    from gpupipe.transform.dali.executor import DaliExecutor
    from gpupipe.transform.dali.feeding import kept

    made, feeds = list[Any](), list[Any]()
    submit = DaliExecutor.submit

    def making(*args: Any) -> Any:
        made.append(args)
        return make_executor(*args)

    def submitting(executor: DaliExecutor, feed: Any) -> None:
        feeds.append(kept(feed))
        submit(executor, feed)

    with (
        mock.patch.object(placer, "make_executor", making),
        mock.patch.object(DaliExecutor, "submit", submitting),
        chain(day, photographs(day, day.batch * 2), **_backend(day)).iterator(0) as items,
    ):
        next(items)
    executor = make_executor(*made[0])
    try:
        yield executor, feeds[0]
    finally:
        executor.close()


# ---- circumstances


@contextlib.contextmanager
def _connections(day: Day) -> Iterator[None]:
    if not day.dry:
        _before_cuda()
    with mock.patch.dict(os.environ, {"CUDA_DEVICE_MAX_CONNECTIONS": str(_CONNECTIONS)}):
        yield


@contextlib.contextmanager
def _sleeping() -> Iterator[None]:
    cuda = _before_cuda()
    for status in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxSetFlags_v2(0, _BLOCKING)):
        if status:
            raise RuntimeError(f"CUDA refused the flag with error {status}")
    yield


def _before_cuda() -> Any:
    """Return the driver's library, which takes settings only before CUDA starts."""
    cuda = ctypes.CDLL("libcuda.so.1")
    status = cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    if status != _NOT_INITIALIZED:
        raise RuntimeError(
            f"a setting of CUDA needs a process in which it has not started, got status {status} of its driver instead "
            f"of {_NOT_INITIALIZED}; ask the question in a process of its own"
        )
    return cuda


# ---- measuring


def _runs(day: Day, pipeline: Any, feed: Callable[[], None]) -> dict[str, Any]:
    """Measure a pipeline that always has two runs scheduled."""

    def start() -> None:
        feed()
        pipeline.schedule_run()

    def end() -> None:
        pipeline.share_outputs()
        pipeline.release_outputs()

    def step() -> None:
        end()
        start()

    start()
    start()
    found = _measured(day, step)
    end()
    end()
    return found


def _measured(day: Day, step: Callable[[], object], spans: _Spans | None = None) -> dict[str, Any]:
    """Measure for 3 seconds after 20 batches; `step` takes one batch and drops it."""
    for _ in range(day.some(20, 1)):
        step()
    seconds = 0.1 if day.dry else 3.0
    if spans is not None:
        spans.since = time.perf_counter()
    count, times, cpu, started = 0, ThreadTimes(), time.process_time(), time.perf_counter()
    while time.perf_counter() - started < seconds:
        step()
        count += 1
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    images = count * day.batch
    found = {"images_s": round(images / took), "ms_batch": round(took / count * 1e3, 2),
             "cpu_ms": round(cpu / images * 1e3, 4), "threads": times.groups(images)}  # fmt: skip
    watched = {} if spans is None else spans.of_a_batch(count)
    return {**found, "watched": watched} if watched else found


class _Spans:
    """Calls of functions by thread: how many, their wall time and the CPU time of the thread.

    Attributes:
        since: `time.perf_counter()` before which calls do not count.
    """

    def __init__(self) -> None:
        self.since = math.inf
        self._seen: dict[tuple[int, str, str], list[float]] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which now leaves a span under that name with each call."""

        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **options)
            finally:
                if wall >= self.since:
                    # Of this thread alone, so no other adds to it in between.
                    sums = self._seen.setdefault((threading.get_ident(), _role(), name), [0, 0.0, 0.0])
                    sums[0] += 1
                    sums[1] += time.perf_counter() - wall
                    sums[2] += time.thread_time() - cpu

        return timed

    def of_a_batch(self, batches: int) -> dict[str, dict[str, dict[str, float]]]:
        """Return calls, milliseconds and CPU-milliseconds of a batch, by what a thread does and by function."""
        seen = self._seen.copy()
        found: dict[str, dict[str, dict[str, float]]] = {}
        for role in dict.fromkeys((*_ROLES.values(), *(role for _, role, _ in seen))):
            for name in (*_STEPS, *_FUNCTIONS):
                of_it = [sums for (_, r, n), sums in seen.items() if (r, n) == (role, name)]
                if of_it:
                    calls, wall, cpu = (sum(column) / batches for column in zip(*of_it, strict=True))
                    found.setdefault(role, {})[name] = {
                        "calls": round(calls, 2), "ms": round(wall * 1e3, 2), "cpu_ms": round(cpu * 1e3, 2)
                    }  # fmt: skip
        return found


@contextlib.contextmanager
def _watching(points: Mapping[str, str]) -> Iterator[_Spans]:
    """Watch functions, each named by its module and place there, and put them back."""
    spans = _Spans()
    with contextlib.ExitStack() as stack:
        for name, place in points.items():
            stack.enter_context(mock.patch(place, spans.timed(name, pkgutil.resolve_name(place))))
        yield spans


def _role() -> str:
    name = threading.current_thread().name
    return next((role for start, role in _ROLES.items() if name.startswith(start)), name)
