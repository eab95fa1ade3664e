"""travel: how boxes, keypoints and masks go with their image through an op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.eager import over_rows, stacked
from gpupipe.graph.op import Array, Op
from gpupipe.graph.symbols import apply_together
from gpupipe.ops._shared.one_size import of_one_size
from gpupipe.ops._shared.positions import checked_boxes, checked_points, narrowed, position_spec
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec, flatten

__all__ = ["Moved", "by_rows", "has_motion", "moved"]

NEAR = 1e-6
"""How close to the horizon a position may be, as a share of the image's own distance: what is behind has no place."""


@dataclass(frozen=True, slots=True)
class Moved(Op):
    """Boxes or keypoints where another op moves them. Runs on the host under every executor.

    Attributes:
        op: the op; it has a `motion`.
        what: "boxes" or "keypoints".

    Shapes: ``float32[...,4] -> float32[...,4]``, or 2 or 3 for keypoints. The parameters are those of `op`, and the
    size of the image.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    op: Op
    what: str = "boxes"

    @property
    def stage(self) -> str:
        return self.op.stage

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.op.parameters, "hw")

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return position_spec(self.stage, self.what, xs[0])

    def reference(self, x: Array, *params: Array) -> Array:
        if not x.size:
            return x
        *drawn, hw = params
        matrix = self.op.motion(hw, *drawn)
        return _boxes(matrix, hw, checked_boxes(x)) if self.what == "boxes" else _points(matrix, hw, checked_points(x))


def _boxes(matrix: Array, hw: Array, boxes: Array) -> Array:
    """The boxes that enclose moved boxes."""
    flat = boxes.reshape(-1, 4).astype(np.float64)
    (a, b, c), (d, e, f), last = matrix.tolist()
    if b == d == 0 and last == [0, 0, 1]:  # sides stay sides
        left, top = 2 * (a < 0), 1 + 2 * (e < 0)
        ends: Array = flat[:, (left, top, 2 - left, 4 - top)] * (a, e, a, e) + (c, f, c, f)
        return narrowed("boxes", ends).reshape(boxes.shape)
    x, y, w = _projected(matrix, hw, flat[:, (0, 2, 2, 0)], flat[:, (1, 1, 3, 3)])
    if w is not None:
        if (w < NEAR).any():
            x, y, w = _in_sight(x, y, w)
        x, y = x / w, y / w
    around = np.stack([x.min(axis=1), y.min(axis=1), x.max(axis=1), y.max(axis=1)], axis=1)
    return narrowed("boxes", around).reshape(boxes.shape)


def _points(matrix: Array, hw: Array, points: Array) -> Array:
    """Moved keypoints; those of visibility 0 have no place and stay as they are."""
    made = points.reshape(-1, points.shape[-1]).copy()
    placed = made[:, 2] > 0 if made.shape[1] == 3 else slice(None)
    x, y, w = _projected(matrix, hw, *np.hsplit(made[placed, :2].astype(np.float64), 2))
    if w is not None:
        w = np.maximum(w, NEAR)
        x, y = x / w, y / w
    made[placed, :2] = narrowed("keypoints", np.hstack([x, y]))
    return made.reshape(points.shape)


def _projected(matrix: Array, hw: Array, x: Array, y: Array) -> tuple[Array, Array, Array | None]:
    """Positions of shapes, [N,corners] each, after a map: x, y and what they are to be divided by, None for 1.

    A horizon may go through the image, and the result shows what is on both sides of it. What the middle of a shape is
    divided by is positive, or, where that is outside of the image, what the part of the image next to it is.
    """
    if matrix[2].tolist() == [0, 0, 1]:
        (a, b, c), (d, e, f), _ = matrix.tolist()
        return a * x + b * y + c, d * x + e * y + f, None
    height, width = hw.tolist()
    distance = np.abs(matrix[2] * (width, height, 1)).sum()  # no part of the image has more
    (a, b, c), (d, e, f), (g, h, i) = (matrix / distance).tolist()
    across, down = (np.clip(z.mean(axis=1, keepdims=True), 0, size) for z, size in ((x, width), (y, height)))
    side = np.where(g * across + h * down + i < 0, -1.0, 1.0)
    return side * (a * x + b * y + c), side * (d * x + e * y + f), side * (g * x + h * y + i)


def _in_sight(x: Array, y: Array, w: Array) -> tuple[Array, Array, Array]:
    """Polygons of four corners, cut off at the horizon: eight corners each, some of them more than once."""
    made = np.empty((len(x), 8, 3))
    for n, corners in enumerate(np.stack([x, y, w], axis=2)):
        kept = []
        for here, there in zip(corners, np.roll(corners, -1, axis=0), strict=True):
            if here[2] >= NEAR:
                kept.append(here)
            if (here[2] >= NEAR) != (there[2] >= NEAR):
                kept.append(here + (there - here) * (NEAR - here[2]) / (there[2] - here[2]))
        kept = kept or [np.array([-1.0, -1.0, NEAR])]  # all of it is behind: far outside, without an area
        made[n] = kept + [kept[-1]] * (8 - len(kept))
    return made[:, :, 0], made[:, :, 1], made[:, :, 2]


def moved(
    op: Op,
    sample: Sample,
    seed: int | None = None,
    return_params: bool = False,
    for_masks: Callable[[Op, Any], Op] | None = None,
) -> Any:
    """A Sample after an op; with `return_params` and what the op drew, as a pair.

    Args:
        op: of the image, and of the masks unless `for_masks` makes another one of it, with the same parameters.
        sample: what is moved.
        seed: as in `apply`.
        return_params: also return what the op drew.
        for_masks: makes the op for a mask, of `op` and the mask.
    """
    return by_rows(op.name, sample, lambda row: _moved(op, row, seed, return_params, for_masks))


def _moved(
    op: Op, sample: Sample, seed: int | None, return_params: bool, for_masks: Callable[[Op, Any], Op] | None
) -> Any:
    images = of_one_size(op, sample.images)
    places = {"boxes": sample.boxes, "keypoints": sample.keypoints}
    there = {what: value for what, value in places.items() if value is not None}
    if there and not has_motion(op):
        raise PlanTypeError(
            f"{op.name} needs images, got a Sample with {' and '.join(there)}, which it cannot move: it does not say "
            f"where positions go; give it a Sample without them, or a tuple of images"
        )
    uses: list[Any] = []
    if for_masks is not None:
        uses = [(partial(_with, for_masks, mask), (mask,)) for mask in images[1:]]
    uses += [(partial(Moved, what=what), (value,)) for what, value in there.items()]
    taken = images if for_masks is None else images[:1]
    made = apply_together(op, taken, uses, of=images, seed=seed, return_params=return_params)
    params = made.pop(len(taken)) if return_params else None
    result = replace(
        sample.with_images(tuple(made[: len(images)])), **dict(zip(there, made[len(images) :], strict=True))
    )
    return (result, params) if return_params else result


def has_motion(op: Op) -> bool:
    """Whether an op, and each of the simpler ones that it is made of, says where it moves positions."""
    row = getattr(op, "row", None)
    return op.supports("motion") and (row is None or all(has_motion(part) for part, _ in row()))


def _with(make: Callable[[Op, Any], Op], mask: Any, op: Op) -> Op:
    return make(op, mask)


def by_rows(who: str, image: Any, call: Callable[[Any], Any]) -> Any:
    """What `call` makes of an image or a Sample; of a Sample that is a batch of arrays, of each row.

    Raises:
        PlanTypeError: the parts of the batch are not stacked arrays of as many rows.
        ShapeError: the results of rows have different shapes.
    """
    first = image.image if isinstance(image, Sample) else None
    if not isinstance(first, np.ndarray) or first.ndim < 4:
        return call(image)
    if first.ndim > 4:
        raise PlanTypeError(
            f"{who} needs an image, or a batch of them, got an array of rank {first.ndim}; clips are traced"
        )
    leaves, structure = flatten(image)
    if not all(isinstance(leaf, np.ndarray) and leaf.ndim and len(leaf) == len(first) for leaf in leaves):
        raise PlanTypeError(
            f"{who} needs one array for each part of a batch, got boxes or labels of other lengths; "
            f"call it before the batch"
        )
    if not len(first):
        raise SpecError(f"{who} needs a batch of at least one row, got none")
    return _joined(over_rows(lambda row: call(structure.unflatten(row)), zip(*leaves, strict=True)))


def _joined(rows: Sequence[Any]) -> Any:
    columns = zip(*(flatten(row)[0] for row in rows), strict=True)
    return flatten(rows[0])[1].unflatten([stacked(column) for column in columns])
