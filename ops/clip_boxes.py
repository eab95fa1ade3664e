"""clip_boxes: cut boxes off at the edges of their image, and drop those of which too little is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply_together
from gpupipe.integers import plain
from gpupipe.ops._shared.positions import checked_boxes, checked_points, position_spec
from gpupipe.ops._shared.travel import by_rows
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, flatten

__all__ = ["ClipBoxes", "clip_boxes", "clipped"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClipBoxes(Op):
    """Clip boxes to the image, and drop some with what belongs to them. Runs on the host under every executor.

    Attributes:
        min_visible: the share of its area that has to be left of a box, 0..1.
        min_size: the width and the height that have to be left, in pixels.
        centres: whether a box is dropped if its centre is not inside the image.
        boxes: whether the first input is boxes.
        keypoints: whether the next one is keypoints.
        stage: the op that users call, for errors.
        whole: whether a box that reaches outside of the image is dropped, not clipped.
        min_area: the area that has to be left, in square pixels.

    Shapes: ``float32[N,4], float32[N,K,3], T[N,...], ... -> float32[n,4], float32[n,K,3], T[n,...], ...``. The
    parameter is the size of the image.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    parameters: ClassVar[tuple[str, ...]] = ("hw",)

    min_visible: float = 0.0
    min_size: float = 0.0
    centres: bool = False
    boxes: bool = True
    keypoints: bool = False
    stage: str = "clip_boxes"
    whole: bool = False
    min_area: float = 0.0

    def __post_init__(self) -> None:
        check_number(self.stage, "min_visible", self.min_visible, 0, 1)
        check_number(self.stage, "min_size", self.min_size, 0)
        check_number(self.stage, "min_area", self.min_area, 0)

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        made = []
        for index, x in enumerate(xs):
            points = self.keypoints and index == int(self.boxes)
            if points or (self.boxes and index == 0):
                position_spec(self.stage, "keypoints" if points else "boxes", x)
            if x.shape is None or not x.shape or (index == 0 and self.boxes and len(x.shape) != 2):
                what = "boxes as float32[N,4]" if index == 0 and self.boxes else "a label for each box"
                raise SpecError(f"{self.stage} needs {what}, got {x}")
            alone = points and not (self.boxes and len(x.shape) == 3)
            made.append(x if alone else TensorSpec((None, *x.shape[1:]), x.dtype))
        return made[0] if len(made) == 1 else tuple(made)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (hw,)

    def reference(self, *args: Any) -> Any:
        *xs, hw = args
        height, width = (int(length) for length in hw)
        made, kept = [], None
        for index, x in enumerate(xs):
            if index == 0 and self.boxes:
                x, kept = self._boxes(checked_boxes(x), height, width)
            elif self.keypoints and index == int(self.boxes):
                x = _seen(checked_points(self._taken(x, kept) if x.ndim == 3 else x), height, width)
            else:
                x = self._taken(x, kept)
            made.append(x)
        return made[0] if len(made) == 1 else tuple(made)

    def _boxes(self, boxes: Array, height: int, width: int) -> tuple[Array, Array]:
        """The boxes that are left, and which of all they are."""
        ends = np.array([width, height], np.float32)
        made = np.clip(boxes, 0, np.concatenate([ends, ends]))
        size, before = made[:, 2:] - made[:, :2], boxes[:, 2:].astype(np.float64) - boxes[:, :2]
        kept = (size > 0).all(axis=1) & (size >= self.min_size).all(axis=1)
        kept &= size.astype(np.float64).prod(axis=1) >= self.min_visible * before.prod(axis=1) * (1 - 1e-6)
        kept &= size.prod(axis=1) >= self.min_area
        if self.whole:
            kept &= (made == boxes).all(axis=1)
        if self.centres:
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            kept &= ((middle > 0) & (middle < ends)).all(axis=1)
        return made[kept], kept

    def _taken(self, x: Array, kept: Array | None) -> Array:
        if kept is None:
            return x
        if len(x) != len(kept):
            raise DataError(f"needs a label and keypoints for each box, got {len(x)} for {len(kept)} boxes")
        return x[kept]

    @classmethod
    def cases(cls) -> Iterator[Case]:
        boxes = np.array([[-1, -1, 2, 2], [1, 1, 3, 5], [3, 4, 9, 9], [5, 0, 8, 1]], np.float32)  # of 4x4 pixels
        labels, points = np.arange(4), np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        yield Case(cls(), (boxes,))
        yield Case(cls(0.5, keypoints=True), (boxes, points, labels), note="keypoints")
        yield Case(cls(0.0, 2.0, True), (boxes, labels, labels * 0.5), note="centres")
        yield Case(cls(boxes=False, keypoints=True), (points,), note="points alone")
        yield Case(cls(min_size=1.0, whole=True, min_area=2.0), (boxes, labels), note="whole")


def _seen(points: Array, height: int, width: int) -> Array:
    """Keypoints with a visibility, without those that are outside of the image: all of it is 0 there, as in COCO."""
    if points.shape[-1] != 3:
        return points
    out = points.copy()
    out[((points[..., :2] < 0) | (points[..., :2] > (width, height))).any(axis=-1)] = 0
    return out


def clip_boxes(sample: T, min_visible: float = 0.0, min_size: float = 0.0) -> T:
    """Clip the boxes of `sample` to its image, and drop those of which too little is left.

    A box of which nothing is left is always dropped, and with a box go its labels and its keypoints. All may be
    dropped: boxes are then float32[0,4]. Keypoints with a visibility that are outside of the image become (0, 0, 0), as
    COCO writes those that are not labelled; keypoints without one stay as they are.

    Args:
        sample: a `Sample` with boxes or keypoints; the image is not changed.
        min_visible: the share of its area that has to be left of a box, 0..1. (A box that was turned encloses more than
            its object.)
        min_size: the width and the height that have to be left, in pixels.

    Shapes: ``float32[N,4] -> float32[n,4]``, and labels and keypoints alike

    Raises:
        PlanTypeError: `sample` is no Sample.
        SpecError: it has neither boxes nor keypoints, or a number is out of range.
        DataError: at run time: a box ends before it begins, or there are more or fewer labels than boxes.

    Example:
        >>> from gpupipe.ops import Sample
        >>> s = Sample(np.zeros((10, 10, 3), np.uint8), [[-4, 2, 4, 6], [9, 9, 30, 30]], labels=np.array([7, 8]))
        >>> s = clip_boxes(s, min_visible=0.5)
        >>> s.boxes, s.labels
        (array([[0., 2., 4., 6.]], dtype=float32), array([7]))
    """
    return clipped("clip_boxes", sample, min_visible=plain(min_visible), min_size=plain(min_size))  # type: ignore[no-any-return]


def clipped(who: str, sample: Any, **settings: Any) -> Any:
    """A Sample with clipped boxes, by these settings of `ClipBoxes`."""
    if not isinstance(sample, Sample):
        raise PlanTypeError(
            f"{who} needs a Sample, got {type(sample).__name__}; make one with ops.Sample(image, boxes)"
        )
    if sample.boxes is None and sample.keypoints is None:
        raise SpecError(f"{who} needs a Sample with boxes or keypoints, got one without")
    return by_rows(who, sample, lambda row: _clipped(who, row, settings))


def _clipped(who: str, sample: Sample, settings: dict[str, Any]) -> Sample:
    labels, nesting = flatten(sample.labels)
    there = {"boxes": sample.boxes, "keypoints": sample.keypoints}
    names = [name for name, value in there.items() if value is not None]
    op = ClipBoxes(boxes="boxes" in names, keypoints="keypoints" in names, stage=who, **settings)
    made = apply_together(op, [*(there[name] for name in names), *labels], of=[sample.image])
    changed = dict(zip(names, made, strict=False))
    return replace(sample, labels=nesting.unflatten(made[len(names) :]) if labels else None, **changed)
