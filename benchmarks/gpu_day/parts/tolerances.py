"""tolerances: how far each conformance case is from its reference on a GPU, and which tolerances follow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.plan import Part, Questions

__all__ = ["PART", "measured", "questions", "summary"]

PART = Part("tolerances", "the conformance cases on the GPU: how far off, which tolerances follow", 240, 90,
            needs=("nvidia.dali", "pytest"))  # fmt: skip

_DRY_OPS = ("decode_jpeg", "resize", "flip_left_right", "normalize")


def questions(day: Day) -> Questions:
    """Return a question for each op that runs on images."""
    from gpupipe.graph.host_values import is_image
    from tests.conformance.harness import Batch
    from tests.conformance.test_ops import CASES

    by_op: dict[str, list[Any]] = {}
    for case in CASES:
        if is_image(Batch.of(case, rows=1).call):
            by_op.setdefault(case.op.name, []).append(case)
    if day.dry:
        by_op = {name: by_op[name][:3] for name in _DRY_OPS}
    return {name: partial(_op, day, cases) for name, cases in by_op.items()}


def summary(answers: Mapping[str, Any]) -> list[str]:
    """Return the constants that the suite needs to pass."""
    from gpupipe.comparison.steps.tolerance import GPU_DECODING

    cases = sum(one["cases"] for one in answers.values())
    lines = [f"{cases} cases of {len(answers)} ops, {sum(one['exact'] for one in answers.values())} of them exact"]
    found = [case for one in answers.values() for case in one["apart"]]
    decoding = [_beyond(case) for case in found if case["decodes"] and "error" not in case]
    if decoding or any(one["decodes"] for one in answers.values()):
        needed = math.ceil(max(decoding, default=0.0))
        lines.append(f"GPU_DECODING = {needed} is what the decoders need (it is {GPU_DECODING})")
    for case in found:
        if "error" in case:
            lines.append(f"{case['case']}: {case['error']}")
        elif not case["decodes"] and _beyond(case) > 0:
            inside, ring = max(case["atol"], case["inside"]), max(_ring(case), case["all"])
            lines.append(f"{case['case']}: atol {case['atol']:g} -> {inside:g}, ring {_ring(case):g} -> {ring:g}")
    return lines


def _ring(case: Mapping[str, Any]) -> float:
    """Return how far the outermost pixels of a case may be off."""
    return float(case["atol"] if case["ring"] is None else case["ring"])


def _beyond(case: Mapping[str, Any]) -> float:
    """Return by how much a case exceeds its tolerance on every executor; negative if it is within it."""
    return float(max(case["inside"] - case["atol"], case["all"] - _ring(case)))


def _op(day: Day, cases: list[Any]) -> dict[str, Any]:
    with ThreadPoolExecutor(day.some(min(8, day.threads), 1)) as pool:  # most of the time DALI builds pipelines
        found = list(pool.map(lambda case: measured(case, f"dali-{day.device}"), cases))
    apart = [one for one in found if "error" in one or one["all"]]
    return {"cases": len(cases), "exact": len(cases) - len(apart), "decodes": cases[0].op.decodes, "apart": apart}


def measured(case: Any, kind: str) -> dict[str, Any]:
    """Measure how far a case is from its reference on a kind of executor, or return its error.

    Raises:
        DeviceError: the GPU failed, not the case.
    """
    from gpupipe.errors import DeviceError
    from tests.conformance.harness import Batch, apart

    row = {"case": str(case), "decodes": case.op.decodes, "atol": case.atol, "ring": case.ring}
    batch = Batch.of(case, varying=True)
    try:
        inside = everywhere = mean = 0.0
        for got, meant in zip(batch.run(kind), batch.references(), strict=True):
            for a, b, spec in zip(got, meant, batch.call.specs, strict=True):
                if a.shape != b.shape or a.dtype != b.dtype:
                    raise TypeError(f"got {a.dtype}{a.shape}, the reference gives {b.dtype}{b.shape}")
                difference, inner = apart(a, b, spec.layout)
                inside = max(inside, float(inner.max(initial=0)))
                everywhere = max(everywhere, float(difference.max(initial=0)))
                mean = max(mean, float(np.mean(difference)) if difference.size else 0.0)
    except DeviceError:
        raise
    except Exception as error:  # any error of an executor is the answer
        return {**row, "error": f"{type(error).__name__}: {error}"[:300]}
    return {**row, "inside": inside, "all": everywhere, "mean": round(mean, 6)}
