"""positions: boxes and keypoints as values: their specs, dtype and checks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.spec import TensorSpec

__all__ = ["Narrowed", "checked_boxes", "checked_points", "narrowed", "position_spec"]


@dataclass(frozen=True, slots=True)
class Narrowed(Op):
    """Boxes or keypoints of a `Sample` as float32. Runs on the host under every executor.

    Attributes:
        what: "boxes" or "keypoints".

    Shapes: ``float64[...] -> float32[...]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    what: str = "boxes"

    @property
    def name(self) -> str:
        return "Sample"  # what users call

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec(xs[0].shape, np.float32)

    def reference(self, x: Any) -> Array:
        return narrowed(self.what, np.asarray(x))


def narrowed(what: str, x: Array) -> Array:
    """Positions as float32; keypoints of visibility 0, which have no place, may become infinite.

    Raises:
        DataError: another number is beyond what float32 holds.
    """
    with np.errstate(over="ignore"):
        made = x.astype(np.float32)
    if not np.isfinite(made.sum(dtype=np.float64)):
        lost = np.isinf(made) & np.isfinite(x)
        if what == "keypoints":
            lost &= _placed(x)
        if lost.any():
            raise DataError(f"needs {what} of numbers up to 3.4e38, which float32 holds, got {_first(x, lost)}")
    return made


def position_spec(who: str, what: str, x: TensorSpec) -> TensorSpec:
    """Check the spec of boxes or keypoints, and return it.

    Raises:
        SpecError: they are something else.
    """
    lasts = (4, None) if what == "boxes" else (2, 3, None)
    if x.dtype != np.float32 or x.shape is None or len(x.shape) < 2 or x.shape[-1] not in lasts:
        raise SpecError(f"{who} needs {what} as float32[...,{'4' if what == 'boxes' else '2 or 3'}], got {x}")
    return x


def checked_boxes(boxes: Array) -> Array:
    """Check the values of boxes.

    Raises:
        DataError: a coordinate is no number, or a box ends before it begins.
    """
    if not np.isfinite(boxes.sum(dtype=np.float64)):
        raise DataError(f"needs boxes of finite numbers, got {_first(boxes, ~np.isfinite(boxes))}")
    ends = boxes[..., 2:] < boxes[..., :2]
    if ends.any():
        raise DataError(
            f"needs boxes (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2, got {_first(boxes, ends)}; of other forms "
            f"ops.convert_boxes makes such"
        )
    return boxes


def checked_points(points: Array) -> Array:
    """Check the values of keypoints.

    Raises:
        DataError: a coordinate is no number.
    """
    if np.isfinite(points.sum(dtype=np.float64)):
        return points
    bad = ~np.isfinite(points) & _placed(points)
    if bad.any():
        raise DataError(f"needs keypoints of finite numbers, got {_first(points, bad)}")
    return points


def _placed(points: Array) -> Array:
    """Which numbers of keypoints have to be some: what has no place may say anything."""
    placed = np.ones(points.shape, bool)
    if points.shape[-1] == 3:
        placed[..., :2] = points[..., 2:] != 0
    return placed


def _first(values: Array, bad: Array) -> str:
    """The first row in which something is bad."""
    row = values.reshape(-1, values.shape[-1])[bad.reshape(-1, bad.shape[-1]).any(axis=1)][0]
    return str(row.tolist())
