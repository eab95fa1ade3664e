"""tolerance: how far executors may be apart at a step, by what its op promises the conformance suite."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ...graph.op import Case, Op

__all__ = ["GPU_DECODING", "Tolerance", "tolerance_of"]

GPU_DECODING = 8
"""Levels (of 255) by which nvJPEG may differ from libjpeg, on top of a case's own tolerance: another inverse transform,
another rounding of colours. A bound to be tightened by what a GPU shows."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an executor may be from the reference.

    Attributes:
        inside: the largest difference without the outermost ring of pixels.
        ring: the largest difference on it.
        source: where both come from, in words.
    """

    inside: float
    ring: float
    source: str


def tolerance_of(op: Op, given: Any, scale: float = 1.0, decodes_on_gpu: bool = False) -> Tolerance:
    """The tolerance of the op's own conformance cases: the largest of those with the most similar settings.

    Args:
        op: of the step.
        given: its first input: an image, or encoded bytes.
        scale: by which differences are multiplied, see `gap_of`.
        decodes_on_gpu: whether a GPU decodes.
    """
    cases = [case for case in op.cases() if type(case.op) is type(op)]
    if isinstance(given, np.ndarray):
        cases = [case for case in cases if _dtype(case) == given.dtype] or cases
    if not cases:
        return Tolerance(0.0, 0.0, f"{op.name} states no tolerance: executors must be equal")
    most = max(_alike(case.op, op) for case in cases)
    alike = [case for case in cases if _alike(case.op, op) == most]
    largest = max(alike, key=lambda case: max(case.atol, case.ring or 0.0))
    more = scale * _range(largest, given)
    inside, ring = (max(found) * more for found in ([c.atol for c in alike], [c.ring or c.atol for c in alike]))
    source = f"conformance of {op.name}: {largest.reason}" if inside or ring else f"{op.name} is exact"
    if decodes_on_gpu:
        inside, ring = inside + GPU_DECODING, ring + GPU_DECODING
        source += f"; {GPU_DECODING} levels for the decoder of a GPU"
    return Tolerance(inside, ring, source)


def _alike(a: Op, b: Op) -> int:
    """How many settings two ops share."""
    return sum(getattr(a, field.name) == getattr(b, field.name) for field in fields(b))


def _dtype(case: Case) -> Any:
    return getattr(case.inputs[0], "dtype", None)


def _range(case: Case, given: Any) -> float:
    """By how much the values given exceed those of a case in floating point, where errors grow with the values."""
    if not isinstance(given, np.ndarray) or given.dtype.kind != "f" or not given.size:
        return 1.0
    most = float(np.abs(np.asarray(case.inputs[0], np.float64)).max(initial=0))
    return max(1.0, float(np.abs(given).max()) / most) if most else 1.0
