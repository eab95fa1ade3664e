"""streams: batches read late, on other streams, or after they were dropped: a race shows as a wrong sum."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs, sums
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("streams", "batches read late and on other streams: wrong sums", 120, 40)

_WAIT = 30_000_000
"""Cycles that the GPU sleeps before it reads: about 15 ms, in which the next batches are made."""

Read = Callable[[Any, Any], tuple[Any, Any]]
"""Starts computing the sums of (images, labels), perhaps before the batch is complete."""


def questions(day: Day) -> Questions:
    """Return a question for each way of reading."""
    if day.dry:
        return {"the host, late": lambda: _wrong(day, contextlib.nullcontext(), lambda x, y: (x, y), sums)}
    return {
        "torch, its default stream": lambda: _torch(day, side=False, take="from_dlpack"),
        "torch, a side stream, from_dlpack": lambda: _torch(day, side=True, take="from_dlpack"),
        "torch, a side stream, as_tensor": lambda: _torch(day, side=True, take="as_tensor"),
        "CuPy, a non-blocking stream": lambda: _cupy(day, per_thread=False),
        "CuPy, a thread's own stream": lambda: _cupy(day, per_thread=True),
    }


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the wrong batches of each."""
    return [f"{name}: of {one['batches']} batches, wrong images {one['images']}, wrong labels {one['labels']}"
            for name, one in answers.items()]  # fmt: skip


def _torch(day: Day, side: bool, take: str) -> dict[str, int]:
    import torch

    def read(images: Any, labels: Any) -> tuple[Any, Any]:
        if take == "from_dlpack":
            x, y = torch.from_dlpack(images), torch.from_dlpack(labels)
        else:
            x, y = torch.as_tensor(images, device="cuda"), torch.as_tensor(labels, device="cuda")
        torch.cuda._sleep(_WAIT)
        return x.double().sum(), y.sum()

    stream = torch.cuda.stream(torch.cuda.Stream()) if side else contextlib.nullcontext()
    return _wrong(day, stream, read, lambda a, b: (float(a), int(b)))


def _cupy(day: Day, per_thread: bool) -> dict[str, int]:
    import cupy

    def read(images: Any, labels: Any) -> tuple[Any, Any]:
        return images.astype("float64").sum(), labels.sum()

    stream = cupy.cuda.Stream.ptds if per_thread else cupy.cuda.Stream(non_blocking=True)
    return _wrong(day, stream, read, lambda a, b: (float(a), int(b)))


def _wrong(day: Day, stream: Any, read: Read, finish: Callable[[Any, Any], tuple[float, int]]) -> dict[str, int]:
    """Read all batches of some epochs, then compare the results."""
    ds = chain(day, photographs(day, day.batch * day.some(12, 2)))
    truth = [sums(images, labels) for images, labels in ds.iterator(0)]
    wrong = {"batches": 0, "images": 0, "labels": 0}
    for _ in range(day.some(4, 1)):
        waiting = []
        with stream:
            for images, labels in ds.iterator(0):
                waiting.append(read(images, labels))
                del images, labels
            found = [finish(*one) for one in waiting]
        for (a, b), (c, d) in zip(found, truth, strict=True):
            wrong["batches"] += 1
            wrong["images"] += abs(a - c) > 1e-6 * abs(c) + 1
            wrong["labels"] += b != d
    return wrong
