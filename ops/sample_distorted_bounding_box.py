"""sample_distorted_bounding_box: a random window that keeps part of an object, tf.image's training crop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.keywords import keywords_after
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["SampleDistortedBoundingBox", "sample_distorted_bounding_box"]

WHO = "sample_distorted_bounding_box"

Box = tuple[int, int, int, int]
"""First row and column, then the row and column after the last."""


@dataclass(frozen=True, slots=True)
class SampleDistortedBoundingBox(Op):
    """Choose a window of random shape and size that covers part of some box. Runs on the host under every executor.

    Attributes:
        min_object_covered: the fraction of a box that the window has to cover, 0..1.
        aspect_ratio_range: bounds of width / height, above 0.
        area_range: bounds of the fraction of the image's area, above 0 and up to 1.
        max_attempts: after so many attempts the window is the whole image.
        use_image_if_no_bounding_boxes: whether the whole image counts as a box where there is none.

    Shapes: ``integer[3], float32[...,N,4] -> integer[3], integer[3], float32[1,1,4]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("u",)

    min_object_covered: float = 0.1
    aspect_ratio_range: tuple[float, float] = (0.75, 1.33)
    area_range: tuple[float, float] = (0.05, 1.0)
    max_attempts: int = 100
    use_image_if_no_bounding_boxes: bool = False

    def __post_init__(self) -> None:
        check_number(WHO, "min_object_covered", self.min_object_covered, 0, 1)
        check_number(WHO, "max_attempts", self.max_attempts, 1, 10_000, integer=True)
        for name, high in (("aspect_ratio_range", None), ("area_range", 1)):
            low, top = getattr(self, name)
            for bound in (low, top):
                check_number(WHO, name, bound, 1e-9, high)
            if low > top:
                raise SpecError(f"{WHO} needs {name} from small to large, got {(low, top)}")

    def infer(self, *xs: TensorSpec) -> tuple[TensorSpec, ...]:
        size, boxes = xs
        if size.dtype is bytes or size.dtype is None or np.dtype(size.dtype).kind not in "iu" or size.rank != 1:
            raise SpecError(f"{WHO} needs image_size as integers (height, width, channels), got {size}")
        if size.shape not in ((3,), (None,)):
            raise SpecError(f"{WHO} needs image_size as three integers, got {size}")
        if boxes.dtype is bytes or boxes.dtype is None or np.dtype(boxes.dtype).kind != "f":
            raise SpecError(f"{WHO} needs bounding_boxes as floats in 0..1, got {boxes}")
        if boxes.rank not in (2, 3) or (boxes.shape or (None,))[-1] not in (4, None):
            raise SpecError(f"{WHO} needs bounding_boxes of shape [1, N, 4] or [N, 4], got {boxes}")
        vector = TensorSpec((3,), size.dtype)
        return vector, vector, TensorSpec((1, 1, 4), "float32")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (rng.uniform(4 * self.max_attempts).reshape(len(hw), self.max_attempts, 4),)

    def reference(self, size: Any, boxes: Any, u: Array) -> tuple[Any, ...]:
        size = np.asarray(size)
        if size.shape != (3,) or (size[:2] < 1).any():
            raise DataError(f"needs image_size as (height, width, channels) from 1, got {size.tolist()}", stage=WHO)
        height, width, _ = (int(n) for n in size)
        objects = self._objects(np.asarray(boxes), height, width)
        top, left, bottom, right = self._window(height, width, objects, u)
        begin = np.array((top, left, 0), size.dtype)
        shape = np.zeros(3, size.dtype)
        shape[:2] = bottom - top, right - left
        shape[2:] = np.array(-1).astype(size.dtype)  # -1, all channels; the largest number of an unsigned dtype
        edges = (top / height, left / width, bottom / height, right / width)
        return begin, shape, np.array(edges, np.float32).reshape(1, 1, 4)

    def _objects(self, boxes: Array, height: int, width: int) -> list[Box]:
        """The boxes in whole pixels, rounded down.

        Raises:
            DataError: there is no box, or a coordinate is outside 0..1.
        """
        if boxes.size == 0:
            if self.use_image_if_no_bounding_boxes:
                return [(0, 0, height, width)]
            reason = "needs a bounding box, got none; set use_image_if_no_bounding_boxes=True"
            raise DataError(reason, stage=WHO)
        if boxes.shape[-1] != 4:
            raise DataError(f"needs bounding boxes of 4 coordinates, got {boxes.shape[-1]}", stage=WHO)
        inside = (boxes >= 0) & (boxes <= 1)  # False for NaN
        if not inside.all():
            reason = f"needs bounding box coordinates from 0 to 1, got {boxes[~inside].flat[0]}"
            raise DataError(reason, stage=WHO)
        pixels = (boxes.reshape(-1, 4).astype(np.float32) * np.array([height, width] * 2, np.float32)).astype(np.int64)
        return [(a, b, c, d) for a, b, c, d in pixels.tolist()]

    def _window(self, height: int, width: int, objects: Sequence[Box], u: Array) -> Box:
        low_ratio, high_ratio = self.aspect_ratio_range
        for ratio, share, down, across in u.tolist():
            shape = self._shape(height, width, low_ratio + ratio * (high_ratio - low_ratio), share)
            if shape is None:
                continue
            h, w = shape
            top = int(down * (height - h))  # the last offset is never drawn, as in TensorFlow
            left = int(across * (width - w))
            window = (top, left, top + h, left + w)
            if self._covers(window, objects):
                return window
        return 0, 0, height, width

    def _shape(self, height: int, width: int, ratio: float, share: float) -> tuple[int, int] | None:
        """Height and width of a window; None where no such window fits the image."""
        small, large = (bound * height * width for bound in self.area_range)
        lowest, highest = _rint((small / ratio) ** 0.5), _rint((large / ratio) ** 0.5)
        if _rint(highest * ratio) > width:
            highest = int((width + 0.5 - 1e-7) / ratio)  # the largest height whose rounded width is the image's
        highest = min(highest, height)
        lowest = min(lowest, highest)
        h = lowest + int(share * (highest - lowest + 1))  # the height is uniform, so the area is not
        w = _rint(h * ratio)
        if h * w < small:
            h += 1
            w = _rint(h * ratio)
        if h * w > large:
            h -= 1
            w = _rint(h * ratio)
        fits = small <= h * w <= large and 0 < w <= width and 0 < h <= height
        return (h, w) if fits else None

    def _covers(self, window: Box, objects: Sequence[Box]) -> bool:
        """Whether the window covers enough of at least one box."""
        if self.min_object_covered == 0:
            return True
        for top, left, bottom, right in objects:
            area = (bottom - top) * (right - left)
            if bottom <= top or right <= left:
                continue
            rows = min(bottom, window[2]) - max(top, window[0])
            columns = min(right, window[3]) - max(left, window[1])
            if rows > 0 and columns > 0 and rows * columns / area >= self.min_object_covered:
                return True
        return False

    @classmethod
    def cases(cls) -> Iterator[Case]:
        size = np.array([375, 500, 3], np.int32)
        whole = np.array([[[0, 0, 1, 1]]], np.float32)
        yield Case(cls(), (size, whole), note="whole")
        yield Case(
            cls(0.5, (0.5, 2.0), (0.2, 0.9), 10), (size, np.array([[0.1, 0.2, 0.6, 0.7]], np.float32)), note="box"
        )
        none = np.zeros((1, 0, 4), np.float32)
        yield Case(cls(use_image_if_no_bounding_boxes=True), (size, none), note="none")


def _rint(x: float) -> int:
    return round(x)  # half to even, as rint


@keywords_after("write seed=, which is tf.image's third argument, and the names of the others")
def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    *,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Sequence[float] = (0.75, 1.33),
    area_range: Sequence[float] = (0.05, 1.0),
    max_attempts: int = 100,
    use_image_if_no_bounding_boxes: bool = False,
    seed: int | None = None,
) -> tuple[Any, Any, Any]:
    """Choose a random window of an image that covers part of an object, drawing as tf.image does.

    Each attempt draws width / height uniformly, then the window's height uniformly among those whose area is in
    `area_range`, then its offset. The first that covers `min_object_covered` of at least one box is returned.

    Args:
        image_size: (height, width, channels), e.g. from `extract_jpeg_shape`.
        bounding_boxes: (y_min, x_min, y_max, x_max) of each object, as fractions of height and width, 0..1.
        min_object_covered: the fraction of a box that the window has to cover; 0 needs no object.
        aspect_ratio_range: bounds of width / height.
        area_range: bounds of the window's fraction of the image's area.
        max_attempts: after so many attempts the window is the whole image.
        use_image_if_no_bounding_boxes: treat the whole image as the one box where there is none.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Returns:
        begin (row, column, 0) and size (rows, columns, -1), for `slice` or, item by item, `crop_to_bounding_box` and
        `decode_and_crop_jpeg`; and the window as a box of shape [1, 1, 4].

    Shapes: ``I[3], float32[1,N,4] -> I[3], I[3], float32[1,1,4]``

    Raises:
        SpecError: an input has another dtype or shape, or a parameter is out of range.
        DataError: at run time: there is no box, or a coordinate is outside 0..1.

    Example:
        >>> box = np.float32([[[0, 0, 1, 1]]])
        >>> begin, size, _ = sample_distorted_bounding_box(np.int32([375, 500, 3]), box, area_range=(1, 1), seed=1)
        >>> size.shape
        (3,)
    """
    for name, bounds in (("aspect_ratio_range", aspect_ratio_range), ("area_range", area_range)):
        if not isinstance(bounds, (tuple, list, np.ndarray)) or len(bounds) != 2:
            raise PlanTypeError(f"{WHO} needs {name} as two numbers, got {bounds!r}")
    if isinstance(bounding_boxes, (tuple, list)):
        bounding_boxes = np.asarray(bounding_boxes, np.float32)
    if isinstance(image_size, (tuple, list)) and not any(hasattr(type(n), "__gpupipe_symbol__") for n in image_size):
        image_size = np.asarray(image_size, np.int32)
    op = SampleDistortedBoundingBox(
        min_object_covered,
        (aspect_ratio_range[0], aspect_ratio_range[1]),
        (area_range[0], area_range[1]),
        max_attempts,
        bool(use_image_if_no_bounding_boxes),
    )
    begin, size, box = apply(op, image_size, bounding_boxes, seed=seed)
    return begin, size, box
