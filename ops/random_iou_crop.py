"""random_iou_crop: crop a window that overlaps enough with some box, as SSD's training does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import Symbol, apply_together, part_of
from gpupipe.integers import plain
from gpupipe.ops._shared.geometry import several
from gpupipe.ops._shared.positions import checked_boxes, position_spec
from gpupipe.ops._shared.travel import by_rows
from gpupipe.ops.clip_boxes import clipped
from gpupipe.ops.crop_to_bounding_box import crop_to_bounding_box
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["RandomIouCrop", "random_iou_crop"]

T = TypeVar("T")

WHO = "random_iou_crop"

OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
"""The overlaps that SSD chooses from; 1 or more leaves the image as it is."""

ROUNDS = 100
"""How often an overlap is drawn at most, where torchvision goes on for ever."""


@dataclass(frozen=True, slots=True)
class RandomIouCrop(Op):
    """Choose a window by its overlap with boxes. Runs on the host under every executor.

    Attributes:
        scale: bounds of the window's share of the width and of the height, above 0 and up to 1.
        ratio: bounds of its width / height, above 0.
        options: overlaps that are drawn from.
        trials: windows that are tried for one overlap.

    Shapes: ``float32[N,4] -> int32[4]`` (y, x, height, width). The parameters are two random words and the size of the
    image.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("words", "hw")

    scale: tuple[float, float] = (0.3, 1.0)
    ratio: tuple[float, float] = (0.5, 2.0)
    options: tuple[float, ...] = OPTIONS
    trials: int = 40

    def __post_init__(self) -> None:
        for name, bounds, high in (("scale", self.scale, 1), ("aspect_ratio", self.ratio, None)):
            for side, bound in zip(("min", "max"), bounds, strict=True):
                check_number(WHO, f"{side}_{name}", bound, 1e-6, high, traceable=False)
            if bounds[0] > bounds[1]:
                raise SpecError(f"{WHO} needs min_{name} up to max_{name}, got {bounds}")
        if not self.options:
            raise SpecError(f"{WHO} needs sampler_options, got none")
        for option in self.options:
            check_number(WHO, "sampler_options", option, 0, traceable=False)
        check_number(WHO, "trials", self.trials, 1, 1000, integer=True, traceable=False)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = position_spec(WHO, "boxes", xs[0])
        if x.rank != 2:
            raise SpecError(f"{WHO} needs boxes as float32[N,4], got {x}")
        return TensorSpec((4,), np.int32)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return rng.words(2), hw

    def reference(self, boxes: Array, words: Array, hw: Array) -> Array:
        height, width = (int(length) for length in hw)
        boxes, whole = checked_boxes(boxes).astype(np.float64), np.array([0, 0, height, width], np.int32)
        rng = BatchRng(int(words[0]), int(words[1]), np.zeros(1, np.uint64))
        for _ in range(ROUNDS if len(boxes) else 0):
            u = rng.uniform(1 + 4 * self.trials)[0]
            option = self.options[int(u[0] * len(self.options))]
            if option >= 1:
                break
            found = self._found(u[1:].reshape(self.trials, 4), option, boxes, height, width)
            if found is not None:
                return found
        return whole

    def _found(self, u: Array, overlap: float, boxes: Array, height: int, width: int) -> Array | None:
        """The first window of which a part is taken by a box, as much as `overlap` or more; None if none is."""
        low, high = self.scale
        w, h = (np.trunc(side * (low + u[:, i] * (high - low))) for i, side in ((0, width), (1, height)))
        x, y = np.trunc((width - w) * u[:, 2]), np.trunc((height - h) * u[:, 3])
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = w / h
        possible = (w > 0) & (h > 0) & (shape >= self.ratio[0]) & (shape <= self.ratio[1])
        first, last = np.stack([x, y], axis=1)[:, None], np.stack([x + w, y + h], axis=1)[:, None]  # [trials,1,2]
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = np.all((first < middle) & (middle < last), axis=2)
        shared = np.clip(np.minimum(last, boxes[:, 2:]) - np.maximum(first, boxes[:, :2]), 0, None).prod(axis=2)
        union = (w * h)[:, None] + (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - shared
        iou = np.where(inside, shared / np.where(union > 0, union, 1.0), -1.0).max(axis=1)
        fits = np.flatnonzero(possible & np.any(inside, axis=1) & (iou >= overlap))
        if not len(fits):
            return None
        n = fits[0]
        return np.array([y[n], x[n], h[n], w[n]], np.int32)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        boxes = np.array([[0, 1, 2, 3], [1, 1, 3, 4], [2, 2, 4, 4], [0, 0, 4, 1]], np.float32)  # of 4x4 pixels
        yield Case(cls(), (boxes,))
        yield Case(cls(options=(0.1,)), (boxes,), note="always")
        yield Case(cls(), (boxes[:0],), note="none")


def random_iou_crop(
    sample: T,
    min_scale: float = 0.3,
    max_scale: float = 1.0,
    min_aspect_ratio: float = 0.5,
    max_aspect_ratio: float = 2.0,
    sampler_options: Sequence[float] | None = None,
    trials: int = 40,
    *,
    seed: int | None = None,
) -> T:
    """Crop a window that overlaps with boxes as much as a drawn number says, as torchvision's `RandomIoUCrop` for SSD.

    A least overlap is drawn from `sampler_options`; 1 or more leaves the image as it is. Then up to `trials` windows
    are drawn until one has the centre of a box in it and overlaps with such a box that much (intersection by union); if
    none does, another overlap is drawn. Boxes whose centre is outside of the window are dropped, with their labels and
    keypoints, the others clipped. Without boxes the image stays as it is.

    Args:
        sample: a `Sample` with boxes.
        min_scale: the least share of the width, and of the height, that the window has.
        max_scale: the largest, up to 1.
        min_aspect_ratio: the least width / height of the window.
        max_aspect_ratio: the largest.
        sampler_options: overlaps; by default 0, 0.1, 0.3, 0.5, 0.7, 0.9 and 1.
        trials: how many windows are tried for one overlap.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, ``float32[N,4] -> float32[n,4]``

    Raises:
        PlanTypeError: `sample` is no Sample with boxes.
        SpecError: a number is out of range.

    Example:
        >>> from gpupipe.ops import Sample
        >>> s = Sample(np.zeros((40, 60, 3), np.uint8), [[10, 10, 50, 30]], labels=np.array([7]))
        >>> random_iou_crop(s, seed=1).labels
        array([7])
    """
    if not isinstance(sample, Sample) or sample.boxes is None:
        got = "a Sample without" if isinstance(sample, Sample) else type(sample).__name__
        raise PlanTypeError(f"{WHO} needs a Sample with boxes, got {got}; make one with ops.Sample(image, boxes)")
    options = OPTIONS if sampler_options is None else several(WHO, "sampler_options", sampler_options)
    bounds = (plain(min_scale), plain(max_scale)), (plain(min_aspect_ratio), plain(max_aspect_ratio))
    op = RandomIouCrop(*bounds, options, plain(trials))
    return by_rows(WHO, sample, lambda row: _cropped(op, row, seed))  # type: ignore[no-any-return]


def _cropped(op: RandomIouCrop, sample: Sample, seed: int | None) -> Any:
    (window,) = apply_together(op, [sample.boxes], of=[sample.image], seed=seed)
    parts = [part_of(window, i) if isinstance(window, Symbol) else int(window[i]) for i in range(4)]
    return clipped(WHO, crop_to_bounding_box(sample, *parts), centres=True)
