"""speed: DALI alone, by hand: the whole chain; decoding by share of the JPEG engines, upsampling, batch, threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import Build, decoding, make, rate
from benchmarks.gpu_day.inputs import photographs
from benchmarks.gpu_day.plan import Part, Questions
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE

__all__ = ["PART", "questions", "summary", "whole_chain"]

PART = Part("speed", "images per second by load of the engines, upsampling, batch, threads", 150, 30, least=45)

_WINDOW: Mapping[str, Any] = {"rel_start": [0.2, 0.15], "rel_shape": [0.65, 0.65]}
"""A fixed window inside an image of any size: 42 % of it, the mean of the random windows of the README's chain."""
_HINTS: Mapping[str, Any] = {"preallocate_width_hint": 1024, "preallocate_height_hint": 1024}


def questions(day: Day) -> Questions:
    """Return a question for each pipeline."""

    def of(build: Build, batch: int = 0, threads: int = 0) -> Any:
        files = photographs(day, batch or day.batch)
        return lambda: rate(day, make(day, build, batch, threads), files)

    found: dict[str, Any] = {
        "chain, load 1.0, fancy": of(whole_chain(decoding(1.0))),
        "chain, load 0.65, fancy": of(whole_chain(decoding(0.65))),
        "chain, load 0.0, fancy": of(whole_chain(decoding(0.0))),
        "chain, load 1.0, simple": of(whole_chain(decoding(1.0, False))),
        "chain, load 1.0, fancy, hints": of(whole_chain(decoding(1.0, **_HINTS))),
    }
    for fancy in (True, False):
        for load in (0.0, 0.65, 1.0):
            found[f"decode, load {load}, {'fancy' if fancy else 'simple'}"] = of(decoding(load, fancy))
    for batch in (64, 512) if not day.dry else (2,):
        found[f"decode, load 1.0, fancy, batch {batch}"] = of(decoding(), batch)
    for threads in (1, 4) if not day.dry else (1,):
        for load in (0.0, 1.0):
            found[f"decode, load {load}, fancy, threads {threads}"] = of(decoding(load), threads=threads)
    return found


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return images per second and CPU-milliseconds per image of each."""
    return [f"{name}: {one['images_s']} images/s, {one['cpu_ms']} CPU-ms" for name, one in answers.items()]


def whole_chain(decode: Build) -> Build:
    """Decode, crop, resize, normalise: the work of the README's chain with fixed parameters."""

    def build(fn: Any, data: Any, device: str) -> Any:
        image = fn.slice(decode(fn, data, device), **_WINDOW, axis_names="HW")
        image = fn.resize(image, size=[float(SIZE)] * 2)
        return fn.crop_mirror_normalize(image, mean=list(IMAGENET_MEAN), std=list(IMAGENET_STD), output_layout="HWC")

    return build
