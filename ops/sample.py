"""sample: an image and what lies on it: boxes with their labels, keypoints and masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from gpupipe.brief import fields_in_brief
from gpupipe.classes import dataclass
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.ops._shared.positions import Narrowed
from gpupipe.ops.cast import cast
from gpupipe.spec import TensorSpec, flatten
from gpupipe.structure import Carrier

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True)
class Sample(Carrier):
    """An image and what lies on it, which ops move together.

    Every op that moves pixels (flips, crops, resizes, pads, warps and the random ones of these) takes a Sample where it
    takes an image, and gives one: the masks are moved with the image, each pixel the nearest of the image's, and the
    host computes where boxes and keypoints are then, from the same drawn numbers. Ops on colours, `cast`, `normalize`
    and the like change the image alone; `transpose` moves the channels of image and masks. What cannot keep the parts
    in step (`mixup`, `stack`, `five_crop`) refuses a Sample.

    Positions are in pixels from the upper left corner of the image: pixel i of a line reaches from i to i + 1, its
    centre is at i + 0.5. Boxes are edges: x1 and y1 where they begin, x2 and y2 where they end, so that x2 - x1 is the
    width; a flip turns x into width - x. Those of torchvision, of COCO (after `convert_boxes`) and of Pascal VOC (less
    1 for x1 and y1) are such. Keypoints obey the same law; add 0.5 to those that are numbers of pixels, as COCO's are.
    (torchvision's keypoints are edges for crops, resizes and warps, and numbers of pixels for flips: there a flip gives
    width - 1 - x.)

    Of ops with `interpolation=` and `fill=` a Sample takes those of its image: masks have the nearest pixel, and 0 from
    outside, or ``fill={"image": 114, "masks": 255}``.

    Nothing is clipped and nothing dropped until `clip_boxes`. After a turn by some angle a box encloses the turned box.

    A Sample is an element, or part of one, as any dataclass: `batch`, `padded_batch` and `ragged_batch` take it. Move
    boxes before they are padded: what is padded is moved like a box.

    Attributes:
        image: one image, or a clip, of which all frames are moved alike.
        boxes: float32[N,4], (x1, y1, x2, y2); see `convert_boxes` for other forms. None if there are none.
        labels: what belongs to each box: an array[N,...] or a dict, tuple or the like of them (classes, scores, areas).
            It is dropped with its box, and never changed. Anything else about the image stays outside of the Sample.
        keypoints: float32[K,2] (x, y), or float32[K,3] with a visibility, of which 0 says that a point has no place:
            it stays as it is. float32[N,K,2] and float32[N,K,3] are the points of each box, dropped with it.
        masks: an image of integers of the size of `image`, or a tuple or dict of them. For masks of single objects let
            the pixels of one mask be numbers that `labels` also has. Or let masks [N,H,W] be the channels of one image:
            ``ops.transpose(masks, "HWC")``; all are moved, and ``np.arange(N)`` in `labels` says whose boxes are left.

    Raises:
        PlanTypeError: boxes or keypoints are no numbers.
        SpecError: they have another shape, or there are more or fewer labels than boxes.
        DataError: float32 does not hold one of their numbers.

    Example:
        >>> s = Sample(np.zeros((40, 60, 3), np.uint8), boxes=[[10, 5, 30, 20]], labels=np.array([7]))
        >>> s.boxes
        array([[10.,  5., 30., 20.]], dtype=float32)
    """

    image: Any
    boxes: Any = None
    labels: Any = None
    keypoints: Any = None
    masks: Any = None

    __repr__ = fields_in_brief

    def __post_init__(self) -> None:
        if self.image is None or isinstance(self.image, (Sample, tuple, dict)):
            raise PlanTypeError(f"Sample needs one image, got {_named(self.image)}; masks= takes the others")
        object.__setattr__(self, "boxes", _positions("boxes", self.boxes, (4,)))
        object.__setattr__(self, "keypoints", _positions("keypoints", self.keypoints, (2, 3)))
        if isinstance(self.masks, (list, tuple, dict)):
            masks = tuple(self.masks) if isinstance(self.masks, list) else self.masks
            object.__setattr__(self, "masks", masks or None)
        count = _length(self.boxes, 2)
        for name, value, rank in (("labels", self.labels, None), ("keypoints", self.keypoints, 3)):
            for leaf in () if value is None else flatten(value)[0]:
                found = _length(leaf, rank)
                if None not in (count, found) and count != found:
                    what = "a label for each box" if name == "labels" else "keypoints for each box"
                    raise SpecError(f"Sample needs {what}, got {found} for {count} boxes")

    @property
    def images(self) -> tuple[Any, ...]:
        """The image, then the masks."""
        return (self.image, *(() if self.masks is None else flatten(self.masks)[0]))

    def with_images(self, images: tuple[Any, ...]) -> Sample:
        """The same with other images: the image, then the masks."""
        image, *masks = images
        made = flatten(self.masks)[1].unflatten(masks) if masks else self.masks
        return replace(self, image=image, masks=made)

    def through(self, call: Callable[[Any], Any]) -> Sample:
        """The same with `call` applied to the image."""
        return replace(self, image=call(self.image))


def _positions(name: str, value: Any, lasts: tuple[int, ...]) -> Any:
    """Boxes or keypoints as float32; what is neither an array nor traced, such as a tensor or a spec, stays as it is.

    Raises:
        PlanTypeError: they are no numbers, or one alone.
        SpecError: the last dimension is another.
        DataError: float32 does not hold a number.
    """
    if value is None:
        return None
    form = "float32[N,4]" if name == "boxes" else "float32[K,2], [K,3], [N,K,2] or [N,K,3]"
    if isinstance(value, (list, tuple)):
        if _has_traced(value):
            raise PlanTypeError(
                f"Sample needs {name} as {form}, got a {type(value).__name__} of traced values; ops.stack makes one "
                f"value of them: ops.stack([ops.stack([x1, y1, x2, y2])])"
            )
        value = _numbers(name, form, value)
    if isinstance(value, (bool, int, float, complex, str, bytes, dict, set, np.generic)):
        raise PlanTypeError(f"Sample needs {name} as {form}, got {value!r}")
    if not isinstance(value, (np.ndarray, Symbol)):
        return value
    if isinstance(value, np.ndarray) and value.shape == (0,) and name == "boxes":
        value = value.reshape(0, 4)
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iuf":
        raise PlanTypeError(f"Sample needs {name} as {form}, got {value.dtype}{list(value.shape)}")
    spec = value._value.spec if isinstance(value, Symbol) else TensorSpec(value.shape, value.dtype)
    if spec.dtype is bytes or (spec.dtype is not None and spec.dtype.kind not in "iuf"):
        raise PlanTypeError(f"Sample needs {name} as {form}, got {spec}")
    if spec.shape is not None and (len(spec.shape) < 2 or spec.shape[-1] not in (*lasts, None)):
        more = "; see ops.convert_boxes" if name == "boxes" else ""
        raise SpecError(f"Sample needs {name} as {form}, got {spec}{more}")
    if spec.dtype == np.float64:
        return apply(Narrowed(name), value)
    return value if spec.dtype is None or spec.dtype == np.float32 else cast(value, "float32")


def _numbers(name: str, form: str, value: Any) -> Any:
    """A list of boxes or keypoints as float64.

    Raises:
        PlanTypeError: something in it is no number, or its rows are of unequal length.
        DataError: float64 does not hold a number.
    """
    try:
        made = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise PlanTypeError(f"Sample needs {name} as {form}, got {_named(value)}") from error
    odd = [x for x in made.flat if not isinstance(x, Real) or isinstance(x, bool)] if made.dtype.kind == "O" else []
    if odd or made.dtype.kind not in "iufO":
        what = f"with {odd[0]!r}" if odd else f"of {made.dtype}"
        raise PlanTypeError(f"Sample needs {name} as {form}, got {_named(value)} {what}")
    try:
        return made.astype(np.float64)
    except OverflowError as error:
        text = f"needs {name} of numbers up to 3.4e38, which float32 holds, got an integer beyond 1e308"
        raise DataError(text, stage="Sample") from error


def _has_traced(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_traced, value))
    return isinstance(value, Symbol)


def _length(value: Any, rank: int | None) -> int | None:
    """The first dimension of an array or traced value of this rank; None if it is unknown."""
    if isinstance(value, Symbol):
        shape = value._value.spec.shape
    elif isinstance(value, list):
        shape = (len(value),)
    else:
        shape = value.shape if isinstance(value, np.ndarray) else None
    return shape[0] if shape and rank in (None, len(shape)) else None


def _named(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
