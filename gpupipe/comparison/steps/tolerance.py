"""tolerance: how far executors may be apart at a step, by what its op promises the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ...classes import dataclass
from ...graph.op import Case, Op

__all__ = ["GPU_DECODING", "Tolerance", "tolerance_of"]

GPU_DECODING = 3
"""Levels (of 255) by which nvJPEG may differ from libjpeg, on top of a case's own tolerance: another inverse transform,
another rounding of colours. The most that an H200 showed, on photographs that CUDA decodes (all progressive ones); its
JPEG engines differ by 1, and the conformance cases by 2 (`benchmarks/results/gpu-day-2026-11-27.jsonl`)."""


OTHER_RANGE = 1 / 16
"""A share of a case's values below which others are of another range."""


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


def tolerance_of(op: Op, given: Sequence[Any], scale: float = 1.0, decodes_on_gpu: bool = False) -> Tolerance:
    """The tolerance of the op's own conformance cases: the largest of those with the most similar settings.

    Args:
        op: of the step.
        given: its first inputs: images, or encoded bytes.
        scale: by which differences are multiplied, see `gap_of`.
        decodes_on_gpu: whether a GPU decodes.
    """
    cases = [case for case in op.cases() if type(case.op) is type(op)]
    if not cases:
        return Tolerance(0.0, 0.0, f"{op.name} states no tolerance: executors must be equal")
    dtype, most = getattr(given[0], "dtype", None) if len(given) else None, _largest(given)
    likeness = [_likeness(case, op, dtype) for case in cases]
    alike = [case for case, found in zip(cases, likeness, strict=True) if found == max(likeness)]
    factors = [scale * _range(case, dtype, most) for case in alike]
    inside = max(case.atol * factor for case, factor in zip(alike, factors, strict=True))
    ring = max((case.ring or case.atol) * factor for case, factor in zip(alike, factors, strict=True))
    largest = max(alike, key=lambda case: max(case.atol, case.ring or 0.0))
    source = f"conformance of {op.name}: {largest.reason}" if inside or ring else f"{op.name} is exact"
    if decodes_on_gpu:
        inside, ring = inside + GPU_DECODING, ring + GPU_DECODING
        source += f"; {GPU_DECODING} levels for the decoder of a GPU"
    return Tolerance(inside, ring, source)


def _likeness(case: Case, op: Op, dtype: Any) -> tuple[int, bool, int]:
    """How alike a case is: its choices (a method, antialias) count most, then its dtype, then its numbers."""
    same = {one.name: getattr(case.op, one.name) == getattr(op, one.name) for one in fields(op)}
    choices = {name for name in same if isinstance(getattr(op, name), str | bool | type | np.dtype | None)}
    return (
        sum(same[name] for name in choices),
        getattr(next(iter(case.inputs), None), "dtype", None) == dtype,
        sum(same[name] for name in same if name not in choices),
    )


def _largest(given: Sequence[Any]) -> float:
    """The largest absolute value of some images; 0 of anything else."""
    images = (image for image in given if isinstance(image, np.ndarray) and image.dtype.kind in "iuf")
    return max(
        (float(np.abs(image, dtype=np.float64).max(initial=0, where=np.isfinite(image))) for image in images),
        default=0.0,
    )


def _range(case: Case, dtype: Any, most: float) -> float:
    """By what the errors of a case are multiplied for values up to `most`, since they grow with the values.

    Integers of the case's dtype have its range. Values that are a little smaller than the case's, of dark images, have
    its errors; those of another range (0..1 beside 0..255) have smaller ones, in floating point.
    """
    of_case = _largest(case.inputs[:1])
    if not most or not of_case or (dtype.kind != "f" and dtype == case.inputs[0].dtype):
        return 1.0
    ratio = most / of_case
    return ratio if ratio > 1 or (dtype.kind == "f" and ratio < OTHER_RANGE) else 1.0
