"""stall: the time of a fixed step, alone and with the loader running, on the default stream and on another.

Like `train`, it asks what makes the step longer: the decoder, Python's lock, or the CPU time of which threads.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.gpu_day.threads import ThreadTimes, switch_interval, told

__all__ = ["PART", "questions", "summary"]

PART = Part("stall", "how much longer a step takes while the loader runs", 120, 45)


def questions(day: Day) -> Questions:
    """Return a question for each stream and each setting; the CPU has one stream."""
    if day.dry:
        return {"on the host": partial(_host, day), "on the host, turns of 0.5 ms": partial(_host, day, 0.0005)}
    return {
        "default stream": partial(_torch, day),
        "side stream": partial(_torch, day, side=True),
        "default stream, hw_decoder_load 0.0": partial(_torch, day, hw_decoder_load=0.0),
        "default stream, hw_decoder_load 1.0": partial(_torch, day, hw_decoder_load=1.0),
        "default stream, turns of 0.5 ms": partial(_torch, day, turns=0.0005),
    }


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the milliseconds of a step."""
    return [
        f"{name}: a step takes {one['alone_ms']} ms alone, {one['beside_ms']} ms with the loader; "
        f"a batch alone {one['loader_ms']} ms" + (f"; {told(one['threads'])}" if one.get("threads") else "")
        for name, one in answers.items()
    ]


def _host(day: Day, turns: float | None = None) -> dict[str, Any]:
    a = np.ones((256, 256), np.float32)
    ds = _chain(day)
    with switch_interval(turns):
        return _measured(day, ds, lambda: a @ a, lambda: None, lambda images: images.sum())


def _torch(day: Day, side: bool = False, turns: float | None = None, **options: Any) -> dict[str, Any]:
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(100):
            torch.mm(a, a)

    def use(images: Any) -> Any:
        return torch.as_tensor(images, device="cuda").sum()

    ds = _chain(day, **options)
    stream = torch.cuda.stream(torch.cuda.Stream()) if side else contextlib.nullcontext()
    with switch_interval(turns), stream:
        return _measured(day, ds, step, torch.cuda.synchronize, use)


def _chain(day: Day, **options: Any) -> Any:
    return chain(day, photographs(day, day.batch * day.some(16, 2)), **options).repeat()


def _measured(
    day: Day, ds: Any, step: Callable[[], Any], finish: Callable[[], None], use: Callable[[Any], Any]
) -> dict[str, Any]:
    def timed(batches: Iterable[Any], steps: bool = True) -> float:
        finish()
        started, count = time.perf_counter(), 0
        for batch in batches:
            if batch is not None:
                use(batch[0])
            if steps:
                step()
            count += 1
        finish()
        return round((time.perf_counter() - started) / count * 1e3, 2)

    count = day.some(32, 2)
    timed([None] * 8)
    found: dict[str, Any] = {"alone_ms": timed([None] * 16)}
    with ds.iterator(0) as items:
        timed(itertools.islice(items, day.some(8, 1)))
        times = ThreadTimes()
        found["beside_ms"] = timed(times.watching(itertools.islice(items, count)))
        found["threads"] = times.groups(count * day.batch)
        timed(itertools.islice(items, day.some(4, 1)), steps=False)  # those that were prefetched
        found["loader_ms"] = timed(itertools.islice(items, count), steps=False)
    return found
