"""convert_boxes: write boxes in another form: corners or a corner and a size, in pixels or as shares of the image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import Symbol, apply_together
from gpupipe.ops._shared.geometry import full, pair
from gpupipe.ops._shared.positions import narrowed
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, as_leaf, spec_of

__all__ = ["ConvertBoxes", "convert_boxes"]

WHO = "convert_boxes"

FORMS = ("xyxy", "yxyx", "xywh", "cxcywh")
"""The forms in pixels; "rel_" before one is for shares of width and height."""


@dataclass(frozen=True, slots=True)
class ConvertBoxes(Op):
    """Boxes in another form. Runs on the host under every executor.

    Attributes:
        in_fmt: the form they have.
        out_fmt: the form they get.
        height: of the image; None for that of the image whose size is drawn.
        width: as `height`.

    Shapes: ``T[...,4] -> float32[...,4]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    traceable: ClassVar[tuple[str, ...]] = ("height", "width")

    in_fmt: str = "xywh"
    out_fmt: str = "xyxy"
    height: Any = None
    width: Any = None

    def __post_init__(self) -> None:
        for name in ("in_fmt", "out_fmt"):
            form = getattr(self, name)
            if not isinstance(form, str) or form.removeprefix("rel_") not in FORMS:
                raise SpecError(f"{WHO} needs {name} from {', '.join(FORMS)}, each also with rel_, got {form!r}")
        for name in self.traceable:
            if getattr(self, name) is not None:
                check_number(WHO, name, getattr(self, name), 1, 1 << 30, integer=True)

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("hw",) if self.in_fmt.startswith("rel_") is not self.out_fmt.startswith("rel_") else ()

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        if x.dtype is bytes or x.dtype is None or np.dtype(x.dtype).kind not in "iuf":
            raise SpecError(f"{WHO} needs boxes of numbers, got {x}")
        if not x.shape or x.shape[-1] not in (4, None):
            raise SpecError(f"{WHO} needs boxes of four numbers each, got {x}")
        return TensorSpec((*x.shape[:-1], 4), np.float32)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (hw if self.height is None else full(self.height, self.width, len(hw)),)

    def reference(self, x: Any, hw: Array | None = None) -> Array:
        x = np.asarray(x, np.float64)
        if x.shape[-1] != 4:
            raise DataError(f"needs boxes of four numbers each, got {x.shape[-1]}")
        corners = _TO_CORNERS[self.in_fmt.removeprefix("rel_")](*np.moveaxis(x, -1, 0))
        if hw is not None:
            sides = np.array([hw[1], hw[0], hw[1], hw[0]], np.float64).reshape(4, *(1,) * (x.ndim - 1))
            corners = np.stack(corners) * sides if self.in_fmt.startswith("rel_") else np.stack(corners) / sides
        return narrowed("boxes", np.stack(_FROM_CORNERS[self.out_fmt.removeprefix("rel_")](*corners), axis=-1))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        boxes = np.array([[10, 20, 30, 40], [0, 0, 5, 7]], np.int64)
        for one, other in (("xywh", "xyxy"), ("xyxy", "cxcywh"), ("cxcywh", "yxyx"), ("yxyx", "xywh")):
            yield Case(cls(one, other), (boxes,), note=f"{one}-{other}")
        yield Case(cls("xyxy", "rel_cxcywh", 50, 60), (boxes.astype(np.float32),), note="relative")
        yield Case(cls("rel_yxyx", "xyxy", 50, 60), (np.zeros((0, 4), np.float32),), note="none")


_TO_CORNERS: dict[str, Any] = {
    "xyxy": lambda a, b, c, d: (a, b, c, d),
    "yxyx": lambda a, b, c, d: (b, a, d, c),
    "xywh": lambda x, y, w, h: (x, y, x + w, y + h),
    "cxcywh": lambda x, y, w, h: (x - w / 2, y - h / 2, x + w / 2, y + h / 2),
}

_FROM_CORNERS: dict[str, Any] = {
    "xyxy": lambda a, b, c, d: (a, b, c, d),
    "yxyx": lambda a, b, c, d: (b, a, d, c),
    "xywh": lambda a, b, c, d: (a, b, c - a, d - b),
    "cxcywh": lambda a, b, c, d: ((a + c) / 2, (b + d) / 2, c - a, d - b),
}


def convert_boxes(boxes: Any, in_fmt: str, out_fmt: str, size: Any = None) -> Any:
    """Write `boxes` in another form, as torchvision's `box_convert`.

    Forms: "xyxy" (left, top, right, bottom), which a `Sample` needs and Pascal VOC has; "xywh" (left, top, width,
    height), COCO's; "cxcywh" (centre, width, height); "yxyx", tf.image's order. "rel_" before one of these is for
    shares of width and height, 0..1: "rel_cxcywh" is YOLO's and DETR's, "rel_yxyx" that of TensorFlow's data sets.

    Args:
        boxes: of any dtype.
        in_fmt: the form they have.
        out_fmt: the form they get.
        size: of the image, where one of the two forms is in pixels and the other in shares: (height, width), numbers
            or traced host values, or the image itself, or its `Sample`.

    Shapes: ``T[...,4] -> float32[...,4]``

    Raises:
        SpecError: a form is unknown, boxes have other than four numbers, or `size` is missing.

    Example:
        >>> convert_boxes([[10, 20, 30, 40]], "xywh", "rel_cxcywh", size=(80, 100))
        array([[0.25, 0.5 , 0.3 , 0.5 ]], dtype=float32)
    """
    op = ConvertBoxes(in_fmt, out_fmt)
    if isinstance(boxes, (list, tuple)) and not any(isinstance(item, Symbol) for item in boxes):
        boxes = np.asarray(boxes, np.float32).reshape(-1, 4) if len(boxes) == 0 else np.asarray(boxes)
    image = size.image if isinstance(size, Sample) else size
    if not op.parameters:
        return apply_together(op, [boxes])[0]
    if image is None:
        raise SpecError(f"{WHO} needs size= for {in_fmt} and {out_fmt}: (height, width) in pixels, or the image")
    spec = image._value.spec if isinstance(image, Symbol) else None
    if spec is None and isinstance(image, (np.ndarray, bytes)):
        spec = spec_of(as_leaf(image))
    if spec is not None and spec.dtype is bytes:
        raise PlanTypeError(f"{WHO} needs size as (height, width) or an image, got {spec}; decode it first")
    if spec is not None and (spec.rank or 0) >= 2:
        return apply_together(op, [boxes], of=[image])[0]
    return apply_together(ConvertBoxes(in_fmt, out_fmt, *pair(WHO, "size", image)), [boxes])[0]
