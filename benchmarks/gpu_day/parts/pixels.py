"""pixels: differences between the GPU's decoders and libjpeg, by kind of JPEG, share of the engines and upsampling."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.decoders import decoding, differences, make, rows
from benchmarks.gpu_day.inputs import kinds
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["LOADS", "PART", "questions", "summary"]

PART = Part("pixels", "the decoders of the GPU against libjpeg, by kind of JPEG", 90, 40)

LOADS = (0.0, 0.65, 1.0)
"""Shares of a batch for the JPEG engines: none, DALI's default, all that they can decode."""


def questions(day: Day) -> Questions:
    """Ask about colours by load and upsampling, and about gray."""
    found: dict[str, Any] = {}
    for load in LOADS:
        for fancy in (True, False):
            name = f"load {load}, {'fancy' if fancy else 'simple'}"
            found[name] = partial(_against_the_host, day, load, fancy)
    found["gray"] = lambda: _gray(day)
    return found


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the largest difference of each kind."""
    lines = []
    for name, found in answers.items():
        exact = [kind for kind, one in found.items() if not one["most"]]
        apart = [f"{kind} {one['most']} levels, mean {one['mean']}" for kind, one in found.items() if one["most"]]
        lines.append(f"{name}: " + "; ".join([*apart, *([f"exact: {', '.join(exact)}"] if exact else [])]))
    return lines


def _against_the_host(day: Day, load: float, fancy: bool) -> dict[str, Any]:
    host, gpu = make(day, decoding(), on_host=True), make(day, decoding(load, fancy))
    return {kind: differences(rows(gpu, files), rows(host, files)) for kind, files in kinds(day).items()}


def _gray(day: Day) -> dict[str, Any]:
    types: Any = importlib.import_module("nvidia.dali.types")
    host = make(day, decoding(output_type=types.GRAY), on_host=True)
    gpu = make(day, decoding(output_type=types.GRAY))
    files = {kind: files for kind, files in kinds(day).items() if kind != "cmyk"}
    return {kind: differences(rows(gpu, some), rows(host, some)) for kind, some in files.items()}
