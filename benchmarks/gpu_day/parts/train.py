"""train: a ResNet-50 in bfloat16: how long it waits for batches, compared with steps on one fixed batch.

Why a step is longer beside the loader: whether it is the decoder (on the engines or not), the loader (the time of its
batches alone), Python's lock (turns of another length), or the cores (the CPU time of each group of threads).
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.inputs import chain, photographs
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.gpu_day.threads import ThreadTimes, switch_interval, told

__all__ = ["PART", "questions", "resnet", "summary"]

PART = Part("train", "a ResNet-50 step: the share of it that waits for data", 200, 90, least=60,
            needs=("nvidia.dali", "torch"))  # fmt: skip


def questions(day: Day) -> Questions:
    """Ask about one fixed batch, then the loader's batches, also with other settings, and on a side stream."""
    ways: dict[str, Any] = {
        "a batch that stays": {"kept": True},
        "the loader": {},
        "the loader, 4 threads": {"threads": 4},
        "the loader, turns of 0.5 ms": {"turns": 0.0005},
    }
    if not day.dry:
        ways |= {
            "the loader, hw_decoder_load 0.0": {"hw_decoder_load": 0.0},
            "the loader, hw_decoder_load 1.0": {"hw_decoder_load": 1.0},
            "the loader, a side stream": {"side": True},
        }
    return {name: partial(_measured, day, **how) for name, how in ways.items()}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the milliseconds of a step, the share that the loader adds, its batches alone, and the CPU time."""
    alone = answers.get("a batch that stays", {}).get("ms")
    lines = []
    for name, one in answers.items():
        stall = "" if alone is None or name == "a batch that stays" else f", stall {1 - alone / one['ms']:.1%}"
        lines.append(
            f"{name}: {one['ms']} ms a step, {one['images_s']} images/s, {one['cpu_ms']} CPU-ms an image{stall}"
        )
        if one.get("batch_ms"):
            lines[-1] += f"; a batch alone {one['batch_ms']} ms"
        if one.get("threads"):
            lines[-1] += f"; {told(one['threads'])}"
    return lines


def resnet(width: int = 64, depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> Any:
    """Build ResNet-50 (version 1.5: the stride is in the 3x3 convolution), optionally narrower or shallower."""
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, middle: int, stride: int) -> None:
            super().__init__()
            after = 4 * middle
            self.path = nn.Sequential(
                nn.Conv2d(before, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
                nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
                nn.Conv2d(middle, after, 1, bias=False), nn.BatchNorm2d(after),
            )  # fmt: skip
            self.beside = nn.Identity() if before == after and stride == 1 else nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )  # fmt: skip
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x: Any) -> Any:
            return self.relu(self.path(x) + self.beside(x))

    layers: list[Any] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    channels = width
    for level, depth in enumerate(depths):
        for n in range(depth):
            layers.append(Block(channels, width << level, 2 if level and not n else 1))
            channels = 4 * width << level
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def _measured(
    day: Day, kept: bool = False, side: bool = False, turns: float | None = None, **options: Any
) -> dict[str, Any]:
    import torch

    steps, warm, alone = day.some(40, 3), day.some(10, 1), day.some(20, 1)
    ds = chain(day, photographs(day, day.batch * day.some(16, 2)), **options).repeat()
    step, finish = _step(day)
    stream = torch.cuda.stream(torch.cuda.Stream()) if side else contextlib.nullcontext()
    with switch_interval(turns), ds.iterator(0) as items, stream:
        batches: Iterable[Any] = itertools.repeat(next(items)) if kept else items
        _stepped(batches, step, warm)
        finish()
        times, cpu, started = ThreadTimes(), time.process_time(), time.perf_counter()
        _stepped(times.watching(batches), step, steps)
        finish()
        took, cpu = time.perf_counter() - started, time.process_time() - cpu
        rows = steps * day.batch
        found: dict[str, Any] = {"ms": round(took / steps * 1e3, 2), "images_s": round(rows / took, 1),
                                 "cpu_ms": round(cpu / rows * 1e3, 4), "threads": times.groups(rows)}  # fmt: skip
        if not kept:  # those that waited, prefetched, are not counted
            _stepped(batches, _settled, day.some(4, 1))
            started = time.perf_counter()
            _stepped(batches, _settled, alone)
            finish()
            found["batch_ms"] = round((time.perf_counter() - started) / alone * 1e3, 2)
    return found


def _stepped(batches: Iterable[Any], step: Callable[[Any, Any], Any], count: int) -> None:
    """Take a step for each of the next batches."""
    for images, labels in itertools.islice(batches, count):
        step(images, labels)


def _settled(images: Any, labels: Any) -> None:
    """Take a batch and do nothing with it."""


def _step(day: Day) -> tuple[Callable[[Any, Any], None], Callable[[], None]]:
    """Return a training step on a batch, and a function that waits for all steps."""
    import torch

    device = "cpu" if day.dry else "cuda"
    if day.dry:
        torch.set_num_threads(1)  # several would wait for each other on busy cores, with little to do
    model = (resnet(4, (1, 1, 1, 1)) if day.dry else resnet()).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

    def step(images: Any, labels: Any) -> None:
        x = torch.as_tensor(images, device=device).permute(0, 3, 1, 2)  # NHWC in memory is channels_last
        y = torch.as_tensor(labels, device=device) % 1000
        with torch.autocast(device, torch.bfloat16, enabled=not day.dry):  # CPUs are slow at it
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, (lambda: None) if day.dry else torch.cuda.synchronize
