"""result: what a comparison of executors found, as data: for the terminal, for JSON and for the page.

Figures are plain numbers and text; the pictures of the worst images are kept apart from them, in `Result.pairs`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, field, fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..brief import brief
from ..classes import dataclass
from ..errors import PlanError
from .ratios import Spread

__all__ = [
    "FORMAT",
    "Accuracy",
    "BreakEven",
    "Cost",
    "Finding",
    "JpegClass",
    "Pair",
    "PixelGap",
    "Result",
    "Spread",
    "Step",
    "StepGap",
]

FORMAT = 1
"""Version of the JSON."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A model's answers to the images of one executor.

    Attributes:
        images: how many were shown.
        top1: the share, from 0 to 1, whose label the model gave; None if there are no labels.
        agreement: the share for which the model gave the same class as for the reference's image.
    """

    images: int
    top1: float | None
    agreement: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one executor costs.

    Attributes:
        key: "dali-gpu", "dali-cpu", "fast" or "numpy".
        title: its name in tables.
        reason: why it was not measured; "" if it was: then every figure without a default is there.
        failed: whether it was run, and failed for that reason.
        images: of one pass.
        cpu_ms: CPU milliseconds for an image, of this process and its children.
        rate: images per second, without a consumer.
        first_batch_s: seconds from making an iterator to the first batch.
        host_bytes: peak resident memory; None if the system does not report it.
        gpu_bytes: peak memory in use on the GPU, above what was in use before; None without a GPU.
        gpu_load: mean utilisation of the GPU, from 0 to 1; None without a GPU, or if the driver does not report it.
        jpeg_load: the same of its JPEG engines.
        waiting: the share of its time, from 0 to 1, that a consumer of the given rate waited; None if none was given,
            or if there is one batch only.
        bottleneck: what limits its rate, in words.
        remedy: what would raise the rate, in words; "" if nothing is known to.
        accuracy: of the model; None if none was given.
    """

    key: str
    title: str
    reason: str = ""
    failed: bool = False
    images: int = 0
    cpu_ms: Spread | None = None
    rate: Spread | None = None
    first_batch_s: float | None = None
    host_bytes: int | None = None
    gpu_bytes: int | None = None
    gpu_load: float | None = None
    jpeg_load: float | None = None
    waiting: float | None = None
    bottleneck: str = ""
    remedy: str = ""
    accuracy: Accuracy | None = None

    @property
    def measured(self) -> bool:
        """Whether there are figures."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class PixelGap:
    """The absolute difference between the images of an executor and those of the reference.

    Attributes:
        maximum: over all values but those of the ring.
        mean: over all values.
        psnr: the peak signal-to-noise ratio in dB, over all values; None if they are equal, or all of other shapes.
        ring: the maximum on the outermost ring of pixels, where the edge rules of resizers differ.
        images: how many were compared.
        worst: number of the image with the largest mean difference.
        worst_mean: its mean difference.
        unit: what a difference of 1 is: "levels of 0..255", or "units of float32, values from -1 to 1".
        peak: the range of values that PSNR relates to: 255, or that of the reference's values.
    """

    maximum: float
    mean: float
    psnr: float | None
    ring: float
    images: int
    worst: int
    worst_mean: float
    unit: str
    peak: float


@dataclass(frozen=True, slots=True)
class StepGap:
    """The difference of one executor at one step.

    Attributes:
        executor: its key.
        own: the step's own difference: the executor computes it from the reference's images; None if it cannot.
        through: the difference of all steps up to here: the executor computes all of them; None if it cannot.
        beyond: whether its own difference is beyond the tolerance.
        looks_like: what its own difference looks like, in words: "red and blue exchanged"; "" if like nothing known.
        pair: index in `Result.pairs` of the worst image; None if the images are equal.
        reason: why a difference is missing.
        allowed: the tolerance for this executor: the largest difference that is expected, in the gap's unit.
        ring_allowed: the same on the outermost ring of pixels.
    """

    executor: str
    own: PixelGap | None
    through: PixelGap | None
    beyond: bool = False
    looks_like: str = ""
    pair: int | None = None
    reason: str = ""
    allowed: float = 0.0
    ring_allowed: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the images on their way: decode, window, resize, flip, normalise.

    Attributes:
        name: of its op: "resize"; of a fused one with its parts: "crop_mirror_normalize (flip, normalize)".
        line: ``file:line`` where the user wrote it, or "".
        stage: number of the transform stage, from 1.
        fused: whether it is an op that the optimiser made of several, which runs in their place.
        tolerance_from: where the tolerances of the executors come from, in words.
        gaps: one for each executor but the reference.
    """

    name: str
    line: str
    stage: int
    fused: bool
    tolerance_from: str
    gaps: tuple[StepGap, ...]


@dataclass(frozen=True, slots=True)
class JpegClass:
    """Images of one kind among those compared.

    Attributes:
        kind: "baseline JPEG, YCbCr 4:2:0".
        images: how many.
        bytes_mean: of an encoded image.
        decoder: which decoder DALI executors use for it: "DALI" or "host".
        gaps: for each executor but the reference, the difference after decoding, by its key.
    """

    kind: str
    images: int
    bytes_mean: float
    decoder: str
    gaps: Mapping[str, PixelGap]


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From when on the GPU executor costs less than the best CPU executor.

    Attributes:
        cpu: key of the CPU executor with the fewest CPU-ms.
        gpu: key of the GPU executor.
        cpu_ms_saved: CPU milliseconds for an image.
        cores_per_1000: cores saved at 1,000 images/s: the same number.
        rate: images/s of the training; None if not given.
        cores_cpu: cores that the CPU executor keeps busy at that rate; None without a rate.
        cores_gpu: cores that the GPU executor keeps busy at that rate.
        cores_saved: the difference.
        gpu_share: the share of the GPU that the executor takes at that rate: its rate over the most possible.
        saved_per_hour: price of the cores saved less that of the GPU's share, in the unit of the prices; None without.
        from_core_price: the price of a core for an hour from which on the GPU pays; None without a price of the GPU.
        from_rate: images/s from which on a whole GPU pays; None if one GPU never does, or without prices.
    """

    cpu: str
    gpu: str
    cpu_ms_saved: float
    cores_per_1000: float
    rate: float | None = None
    cores_cpu: float | None = None
    cores_gpu: float | None = None
    cores_saved: float | None = None
    gpu_share: float | None = None
    saved_per_hour: float | None = None
    from_core_price: float | None = None
    from_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of the verdict.

    Attributes:
        kind: "bottleneck", "cores", "pays", "waiting", "pixels", "delivered", "classes", "accuracy" or "failed".
        bad: whether it is a difference beyond tolerance, or a failure.
        text: the sentence.
        executor: the key of the executor that it is about, or "".
        step: the step that it is about, or "".
    """

    kind: str
    bad: bool
    text: str
    executor: str = ""
    step: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """The worst image of an executor at a step, beside the reference's.

    Attributes:
        executor: key.
        step: name of the step.
        image: number of the image.
        reference: uint8[H,W,C], made viewable: stretched to 0..255 like `other`.
        other: the same, of the executor.
        difference: uint8[H,W,C], the absolute difference times `gain`, clipped.
        gain: by which the difference is amplified.
        gap: in words: "max 1.0, mean 0.12 levels of 0..255".
    """

    executor: str
    step: str
    image: int
    reference: npt.NDArray[np.uint8]
    other: npt.NDArray[np.uint8]
    difference: npt.NDArray[np.uint8]
    gain: float
    gap: str


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One chain on every executor: what each costs, and how far its pixels are from the reference's.

    Attributes:
        data: what was compared: the data as named, or the dataset.
        chain: the chain as it runs, a line for each step.
        machine: version of gpupipe, system, CPUs, GPU, in words, by name.
        images: of one pass.
        batch: rows of a batch; 1 if the elements are not batched.
        rounds: passes of each executor that were measured, in alternating order.
        reference: key of the executor with whose pixels the others are compared.
        noise: the rate of one executor against itself in the same rounds, as ratios; None with fewer than two rounds.
        noise_of: its key.
        costs: one for each executor known, whether it could be measured or not.
        delivered: for each executor but the reference, the difference of the delivered images.
        steps: step by step; empty if not asked for.
        steps_missing: why there are no steps; "" if there are.
        classes: kinds of the images compared.
        rate: images/s of the consumer; None if none was given.
        prices: as given: "core_hour", "gpu_hour".
        break_even: None unless a GPU executor and a CPU executor were measured.
        methods: how each figure was measured, by its name, in words.
        findings: the verdict.
        pairs: pictures of the worst images; not part of `to_dict`.
    """

    data: str
    chain: tuple[str, ...]
    machine: Mapping[str, str]
    images: int
    batch: int
    rounds: int
    reference: str
    noise: Spread | None
    noise_of: str
    costs: tuple[Cost, ...]
    delivered: Mapping[str, PixelGap]
    steps: tuple[Step, ...]
    steps_missing: str
    classes: tuple[JpegClass, ...]
    rate: float | None
    prices: Mapping[str, float]
    break_even: BreakEven | None
    methods: Mapping[str, str]
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...] = field(repr=False, default=())

    @property
    def verdict(self) -> str:
        """The findings, a line for each."""
        return "\n".join(finding.text for finding in self.findings)

    @property
    def equal(self) -> bool:
        """Whether no executor failed and no difference is beyond its tolerance."""
        return not any(finding.bad for finding in self.findings)

    def cost(self, key: str) -> Cost:
        """The cost of an executor, by its key.

        Raises:
            PlanError: there is none of this key.
        """
        for cost in self.costs:
            if cost.key == key:
                return cost
        raise PlanError(f"Comparison.cost needs one of {', '.join(cost.key for cost in self.costs)}, got {brief(key)}")

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain data, without the pictures."""
        figures = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "pairs"}
        return {"format": FORMAT, **{name: _plain(value) for name, value in figures.items()}, "equal": self.equal}

    def json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=1)


def _plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists; what JSON has no number for is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(one) for name, one in asdict(value).items()}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
