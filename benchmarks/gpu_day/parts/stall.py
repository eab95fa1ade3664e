"""stall: the time of a fixed step, alone and with the loader running, on the default stream and on another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("stall", "how much longer a step takes while the loader runs", 90, 45)


def questions(day: Day) -> Questions:
    """Return a question for each stream; the CPU has only one."""
    if day.dry:
        return {"on the host": lambda: _host(day)}
    return {"default stream": lambda: _torch(day, side=False), "side stream": lambda: _torch(day, side=True)}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the milliseconds of a step."""
    return [
        f"{name}: a step takes {one['alone_ms']} ms alone, {one['beside_ms']} ms with the loader; "
        f"a batch alone {one['loader_ms']} ms"
        for name, one in answers.items()
    ]


def _host(day: Day) -> dict[str, float]:
    a = np.ones((256, 256), np.float32)
    return _measured(day, lambda: a @ a, lambda: None, contextlib.nullcontext(), lambda images: images.sum())


def _torch(day: Day, side: bool) -> dict[str, float]:
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(100):
            torch.mm(a, a)

    stream = torch.cuda.stream(torch.cuda.Stream()) if side else contextlib.nullcontext()
    return _measured(
        day, step, torch.cuda.synchronize, stream, lambda images: torch.as_tensor(images, device="cuda").sum()
    )


def _measured(
    day: Day, step: Callable[[], Any], finish: Callable[[], None], stream: Any, use: Callable[[Any], Any]
) -> dict[str, float]:
    ds = chain(day, photographs(day, day.batch * day.some(16, 2)))

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

    with stream:
        timed([None] * 8)
        timed(ds.iterator(0))
        return {
            "alone_ms": timed([None] * 16),
            "beside_ms": timed(ds.iterator(1)),
            "loader_ms": timed(ds.iterator(2), steps=False),
        }
