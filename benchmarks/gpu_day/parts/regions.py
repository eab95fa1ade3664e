"""regions: whether regions of JPEGs can be decoded: nvImageCodec 0.9.0 crashes on some GPUs (its issue 55)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import differences, fed, make
from benchmarks.gpu_day.inputs import photographs
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "questions", "summary"]

PART = Part("regions", "decoding of regions: does it crash, is it the same as a slice of the whole", 90, 40)

_WINDOW = {"start": [10, 20], "shape": [150, 200], "axis_names": "HW"}


def questions(day: Day) -> Questions:
    """Ask about fixed windows as gpupipe requests them, those without fancy upsampling, and random windows."""
    return {
        "slice, fancy": lambda: _slice(day, fancy=True),
        "slice, simple": lambda: _slice(day, fancy=False),
        "random crop": lambda: _random(day),
    }


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the difference of each from the slice of the whole image."""
    return [f"{name}: {found}" for name, found in answers.items()]


def _slice(day: Day, fancy: bool) -> dict[str, float]:
    def build(fn: Any, data: Any, device: str) -> Any:
        how = {"device": device, "adjust_orientation": False, "jpeg_fancy_upsampling": fancy}
        region = fn.decoders.image_slice(data, **how, **_WINDOW)
        return region, fn.slice(fn.decoders.image(data, **how), **_WINDOW)

    region, whole = _run(day, build)
    return differences(region, whole)


def _random(day: Day) -> dict[str, Any]:
    def build(fn: Any, data: Any, device: str) -> Any:
        how = {"device": device, "adjust_orientation": False}
        return fn.resize(fn.decoders.image_random_crop(data, **how), size=[64.0, 64.0])

    (images,) = _run(day, build)
    return {"images": len(images), "blank": sum(bool(image.std() < 1) for image in images)}


def _run(day: Day, build: Any, batches: int = 8) -> list[list[Any]]:
    """Run some batches; return the outputs of the last one as lists of images."""
    count = day.some(32, 3)
    pipeline = make(day, build, count)
    files = photographs(day, count)
    for _ in range(batches):
        pipeline.feed_input("data", fed(files))
        outputs = [out.as_cpu() if hasattr(out, "as_cpu") else out for out in pipeline.run()]
    return [[np.array(output[i]) for i in range(count)] for output in outputs]
