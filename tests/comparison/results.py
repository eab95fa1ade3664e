"""A comparison in which everything is there: three executors, one that is missing, a step beyond its tolerance.

Its figures are made up, its pictures are photographs that were drawn; tests/guide/test_pictures.py writes the page of
one that ran.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from gpupipe.comparison.photographs import take
from gpupipe.comparison.result import (
    Accuracy,
    BreakEven,
    Cost,
    Finding,
    JpegClass,
    Pair,
    PixelGap,
    Result,
    Spread,
    Step,
    StepGap,
)

__all__ = ["full", "with_texts"]

LEVELS = "levels of 0..255"


def full() -> Result:
    """Return the comparison."""
    return Result(
        data="train-*.tfrecord (1,200 images)",
        chain=("list_files: 8 files", "interleave(TFRecordDataset, 8)", "stage 1 on DALI GPU: " + "decode " * 30),
        machine={"gpupipe": "0.1.0", "Python": "3.12.4 on Linux x86_64", "CPU": "16 CPUs", "GPU": "one of 24 GiB"},
        images=1200,
        batch=32,
        rounds=5,
        reference="numpy",
        noise=Spread.of([0.99, 1.0, 1.02]),
        noise_of="dali-cpu",
        costs=_costs(),
        delivered={key: _gap(0.031, 1.9, 14.0) for key in ("dali-gpu", "dali-cpu")},
        steps=_steps(),
        steps_missing="",
        classes=(
            JpegClass("baseline JPEG, YCbCr 4:4:4", 44, 104_300.0, "DALI", {"dali-gpu": _gap(0.01, 1, 1)}),
            JpegClass("progressive JPEG, gray", 2, 61_000.0, "host", {}),
        ),
        rate=2000.0,
        prices={"core_hour": 0.04, "gpu_hour": 1.2},
        break_even=BreakEven("dali-cpu", "dali-gpu", 2.1, 2.1, 2000.0, 6.5, 2.3, 4.2, 0.21, -0.08, 0.06, 2400.0),
        methods={"cpu_ms": "of the process and its children, over whole passes", "another": "VmHWM"},
        findings=(
            Finding("cores", False, "DALI GPU needs 1.15 CPU-ms for an image, DALI CPU 3.25."),
            Finding("bottleneck", False, "DALI CPU is limited by decoding."),
            Finding("pixels", True, "resize on DALI GPU is beyond its tolerance.", "dali-gpu", "resize"),
        ),
        pairs=tuple(_pair(number) for number in range(4)),
    )


def _costs() -> tuple[Cost, ...]:
    return (
        Cost(
            "dali-gpu", "DALI GPU", images=1200, cpu_ms=Spread.of([1.12, 1.15, 1.16, 1.2, 1.13]),
            rate=Spread.of([9400.0, 9520.0, 9610.0, 9200.0, 9550.0]), first_batch_s=2.31, host_bytes=1_420_000_000,
            gpu_bytes=2_900_000_000, gpu_load=0.62, jpeg_load=0.4, waiting=0.004, bottleneck="the interpreter's lock",
            remedy="a larger batch", accuracy=Accuracy(1200, 0.7613, 0.9983),
        ),
        Cost(
            "dali-cpu", "DALI CPU", images=1200, cpu_ms=Spread.of([3.2, 3.25, 3.3, 3.22, 3.31]),
            rate=Spread.of([4310.0, 4400.0, 4350.0, 4280.0, 4420.0]), first_batch_s=0.62, host_bytes=612_000_000,
            waiting=0.021, bottleneck="decode_jpeg on 16 threads", accuracy=Accuracy(1200, 0.7604, 0.9975),
        ),
        Cost(
            "numpy", "NumPy", images=1200, cpu_ms=Spread.of([7.9, 8.1, 8.0, 8.4, 7.95]),
            rate=Spread.of([1810.0, 1795.0, 1820.0, 1760.0, 1805.0]), first_batch_s=0.21, host_bytes=301_000_000,
            waiting=0.31, bottleneck="resize", accuracy=Accuracy(1200, 0.7607, 1.0),
        ),
        Cost("other", "Other", reason="its process ended with status -9; the end of its log:\nkilled", failed=True),
    )  # fmt: skip


def _gap(mean: float, maximum: float, ring: float, unit: str = LEVELS) -> PixelGap:
    return PixelGap(maximum, mean, None if not maximum else 48.2, ring, 48, 17, 4 * mean, unit, 255.0)


def _steps() -> tuple[Step, ...]:
    def step(name: str, tolerance: float, own: tuple[float, float, float], beyond: bool, number: int) -> Step:
        looks = "no antialiasing" if beyond else ""
        gaps = (
            StepGap("dali-gpu", _gap(*own), _gap(*own), beyond, looks, number, "", tolerance, 4 * tolerance),
            StepGap("dali-cpu", None, None, reason="the op is part of the fused one before it"),
        )
        return Step(name, "train.py:21", 1, False, "its cases in the conformance suite", gaps)

    return (
        step("decode_jpeg", 2.0, (0.01, 1.0, 1.0), False, 0),
        step("resize", 2.0, (1.7, 31.0, 44.0), True, 1),
        step("random_flip_left_right", 0.0, (0.0, 0.0, 0.0), False, 2),
        Step("crop_mirror_normalize (flip, normalize)", "", 1, True, "rounding of float32", (
            StepGap("dali-cpu", _gap(1e-6, 4.8e-6, 4.8e-6, "units of the output"), None, False, "", 3, "",
                    0.01, 0.01),)),
    )  # fmt: skip


def _pair(number: int) -> Pair:
    _, image = take(number)
    other = np.clip(image.astype(np.int16) + (np.indices(image.shape).sum(0) % 7 == 0) * (number + 1), 0, 255)
    gap = np.clip(np.abs(other - image) * 60, 0, 255).astype(np.uint8)
    return Pair(
        "dali-gpu",
        _steps()[number].name,
        number,
        image,
        other.astype(np.uint8),
        gap,
        60.0,
        f"max {number + 1}.0 {LEVELS}",
    )


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """The same data with every text changed that is not empty, keys included."""
    if isinstance(value, str):
        return change(value) if value else ""
    if isinstance(value, tuple):
        return tuple(with_texts(one, change) for one in value)
    if isinstance(value, dict):
        return {change(name): with_texts(one, change) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{one.name: with_texts(getattr(value, one.name), change) for one in fields(value)})
    return value
