"""compare_steps: each executor's images beside the reference's, op by op: by itself, and with all before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...classes import dataclass
from ...dataset import Dataset
from ...errors import GpupipeError
from ...graph.values import Apply
from ...ops._shared.crop_mirror_normalize import CropMirrorNormalize
from ...ops._shared.decode_crop import DecodeCrop
from ...ops._shared.one_size import OneSize
from ...ops.normalize import Normalize, per_channel
from ...options import Settings
from ..pixels import LEVELS, gap_of, upright
from ..result import Pair, PixelGap, Step, StepGap
from ..rounds import Runner
from .looks import looks_like
from .material import Material, Rows, alone, calls_of, material_of, record, results_of, run, unfused
from .tolerance import Tolerance, tolerance_of

__all__ = ["Compared", "compare_steps", "levels_of"]

GAIN = 8.0
"""By which the difference in a pair is amplified, at least."""

SHOWN = 256
"""Pixels of the longer side of a pair at most."""


@dataclass(slots=True)
class Compared:
    """The steps of a chain on several executors.

    Attributes:
        steps: in order, those of a chain as written before the fused ones that run in their place.
        pairs: the worst image of each step at which an executor differs.
        materials: of the reference, for each stage as written.
        decoded: for each executor and decoder, its images.
        scale: by which the delivered images have to be multiplied to get levels; None if they are not normalised.
    """

    steps: list[Step] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    materials: list[Material] = field(default_factory=list)
    decoded: dict[tuple[str, Apply], Rows] = field(default_factory=dict)
    scale: Any = None


def compare_steps(reference: Runner, others: dict[str, Runner], rows: int) -> Compared:
    """Compare executors step by step.

    Args:
        reference: the executor with whose images the others are compared.
        others: the other executors, by key.
        rows: how many elements to compare.

    Raises:
        GpupipeError: the reference cannot run the chain.
    """
    found = Compared()
    as_written = _Walk(unfused(reference.dataset), reference, others, rows, found)
    for number, material in enumerate(as_written.materials, 1):
        as_written.stage(number, material, seen=())
    found.materials = as_written.materials
    seen = tuple(type(call.op) for material in found.materials for call in calls_of(material.program))
    as_run = _Walk(reference.dataset, reference, others, rows, found)
    for number, material in enumerate(as_run.materials, 1):
        as_run.stage(number, material, seen)
    shown = [value for one in as_run.materials for value in one.program.outputs if isinstance(value, Apply)]
    found.scale = levels_of(shown[0].op) if shown else None
    return found


def levels_of(op: Any) -> Any:
    """The divisors of an op that normalises: what gives levels of 0..255 again; None for any other op."""
    if isinstance(op, Normalize | CropMirrorNormalize):
        return np.asarray(per_channel(op.std, 1), np.float64)
    return None


class _Walk:
    """Goes through the ops of a chain, with the images of the reference."""

    def __init__(
        self, dataset: Dataset, reference: Runner, others: dict[str, Runner], rows: int, found: Compared
    ) -> None:
        self._others = {key: _settings(runner) for key, runner in others.items()}
        self._found = found
        settings = _settings(reference)
        self.materials = [material_of(fed, rows, settings) for fed in record(dataset, rows)]

    def stage(self, number: int, material: Material, seen: Sequence[type]) -> None:
        """Compare the ops of one stage; with `seen`, only those of other classes: the fused ones."""
        calls = [
            call
            for call in calls_of(material.program)
            if call.op.rows == "each" and type(call.op) not in (*seen, OneSize)
        ]
        through = {} if seen else {key: self._all(material, settings) for key, settings in self._others.items()}
        for call in calls:
            self._found.steps.append(self._step(number, call, material, through, fused=bool(seen)))

    def _all(self, material: Material, settings: Settings) -> dict[Any, Rows] | str:
        """Every value of the program on an executor, or why there is none."""
        values = [value for call in calls_of(material.program) for value in results_of(call)]
        inputs = {value: material.rows[value] for value in material.program.inputs}
        try:
            return dict(zip(values, run(values, inputs, material.size, settings), strict=True))
        except GpupipeError as error:
            return _first_line(error)

    def _step(
        self, number: int, call: Apply, material: Material, through: dict[str, dict[Any, Rows] | str], fused: bool
    ) -> Step:
        scale = levels_of(call.op)
        given: Rows = material.rows[call.x[0]] if call.x else ()
        more = 1.0 if scale is None else float(np.max(scale))
        gaps, sources = [], ""
        for key in self._others:
            tolerance = tolerance_of(call.op, given, more, call.op.decodes and key == "dali-gpu")
            gaps.append(self._gap(key, call, material, through.get(key, {}), tolerance, fused))
            sources = max(sources, tolerance.source, key=len)  # that of a GPU says more
        return Step(
            name=_name(call, fused),
            line=call.line,
            stage=number,
            fused=fused,
            tolerance_from=sources,
            gaps=tuple(gaps),
        )

    def _gap(
        self,
        key: str,
        call: Apply,
        material: Material,
        through: dict[Any, Rows] | str,
        tolerance: Tolerance,
        fused: bool,
    ) -> StepGap:
        scale = levels_of(call.op)
        theirs = [row for value in results_of(call) for row in material.rows[value]]
        try:
            ours = [row for rows in alone(call, material, self._others[key]) for row in rows]
        except GpupipeError as error:
            return StepGap(key, None, None, reason=_first_line(error))
        if call.op.decodes:
            self._found.decoded[key, call] = ours
        own = gap_of(ours, theirs, scale)
        whole = None
        if through and not isinstance(through, str):
            whole = gap_of([row for value in results_of(call) for row in through[value]], theirs, scale)
        pair = None
        if own.maximum or own.ring:
            pair = len(self._found.pairs)
            self._found.pairs.append(_pair(key, _name(call, fused), own, ours, theirs))
        beyond = _beyond(own, tolerance)
        return StepGap(
            executor=key,
            own=own,
            through=whole,
            beyond=beyond,
            allowed=tolerance.inside,
            ring_allowed=max(tolerance.ring, tolerance.inside),
            looks_like=_looks(ours, theirs, scale, tolerance) if beyond else "",
            pair=pair,
            reason=through if isinstance(through, str) else "",
        )


def _beyond(gap: PixelGap, tolerance: Tolerance) -> bool:
    return gap.maximum > tolerance.inside or gap.ring > max(tolerance.ring, tolerance.inside)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _settings(runner: Runner) -> Settings:
    return runner.dataset.options().resolve()


def _name(call: Apply, fused: bool) -> str:
    """The name of a step; of a fused one, with its parts."""
    if not fused:
        return call.op.name
    if isinstance(call.op, DecodeCrop):
        return f"{call.op.name} ({call.op.decoder.name}, crop)"
    parts = [part.name for part, _ in call.op.decompose()]
    return f"{call.op.name} ({', '.join(parts)})" if parts else call.op.name


def _looks(ours: Rows, theirs: Rows, scale: Any, tolerance: Tolerance) -> str:
    """What those images look like that differ beyond the tolerance, the worst first."""
    gaps = [gap_of([a], [b], scale) for a, b in zip(ours, theirs, strict=True)]
    worst = [i for i in sorted(range(len(gaps)), key=lambda i: -gaps[i].mean) if _beyond(gaps[i], tolerance)]
    return looks_like([ours[i] for i in worst], [theirs[i] for i in worst], scale)


def _pair(executor: str, step: str, gap: PixelGap, ours: Rows, theirs: Rows) -> Pair:
    """The worst image, made viewable."""
    a, b = upright(ours[gap.worst]), upright(theirs[gap.worst])
    if a.ndim == b.ndim == 3 and a.shape == b.shape:
        every = max(1, -(-max(a.shape[:2]) // SHOWN))
        a, b = a[::every, ::every], b[::every, ::every]
    low, high = (0.0, 255.0) if gap.unit == LEVELS and b.dtype == np.uint8 else (float(b.min()), float(b.max()))
    stretch = 255.0 / ((high - low) or 1.0)
    left, right = (_viewable(image, low, stretch) for image in (a, b))
    differs = np.zeros_like(right)
    gain = GAIN
    if a.shape == b.shape:
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64)) * stretch
        gain = max(1.0, min(GAIN * 16, 255.0 / max(float(distance.max()), 1e-9)))
        differs = np.clip(distance * gain, 0, 255).astype(np.uint8)
    words = f"max {max(gap.maximum, gap.ring):.3g}, mean {gap.worst_mean:.3g} {gap.unit}"
    return Pair(executor, step, gap.worst, right, left, differs, gain, words)


def _viewable(image: npt.NDArray[Any], low: float, stretch: float) -> npt.NDArray[np.uint8]:
    if image.ndim == 2:
        image = image[:, :, None]
    pixels = np.nan_to_num((image.astype(np.float64) - low) * stretch)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
