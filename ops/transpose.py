"""transpose: move the channels of an image, HWC to CHW or back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.one_size import of_one_size
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec

__all__ = ["Transpose", "transpose"]

T = TypeVar("T")

ORDER = {"CHW": (2, 0, 1), "HWC": (1, 2, 0)}

_SPELLINGS = {
    "2, 0, 1": "CHW",
    "0, 3, 1, 2": "CHW",
    "NCHW": "CHW",
    "1, 2, 0": "HWC",
    "0, 2, 3, 1": "HWC",
    "NHWC": "HWC",
}
"""What NumPy and others call the layouts, as text."""


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """Convert an image from the other layout to this one. Exact on every executor.

    Attributes:
        layout: of the result.

    Shapes: ``T[H,W,C]{HWC} -> T[C,H,W]{CHW}``, or the reverse.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "axes"

    layout: Literal["HWC", "CHW"] = "CHW"

    def __post_init__(self) -> None:
        if not isinstance(self.layout, str) or self.layout not in ORDER:
            wanted = _SPELLINGS.get(str(self.layout).strip("()[]"))
            instead = f'; write ops.transpose(x, "{wanted}")' if wanted else ""
            raise PlanError(f'transpose needs layout "CHW" or "HWC", got {self.layout!r}{instead}')

    @property
    def axes(self) -> tuple[int, int, int]:
        """Which axis of the image each axis of the result is."""
        return ORDER[self.layout]

    @property
    def takes(self) -> str:
        return "HWC" if self.layout == "CHW" else "CHW"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        x = x.require("transpose", layout=self.takes)
        shape = None if x.shape is None else tuple(x.shape[axis] for axis in ORDER[self.layout])
        return TensorSpec(shape, x.dtype, self.layout)

    def reference(self, x: Array, out: Array | None = None) -> Array:
        moved = x.transpose(ORDER[self.layout])
        if out is None:
            return np.ascontiguousarray(moved)
        out[...] = moved
        return out

    def stacked(self, x: Array) -> Array:
        return x.transpose(0, *(axis + 1 for axis in ORDER[self.layout]))

    def dali(self, d: Any, x: Any) -> Any:
        moved = d.fn.transpose(x, perm=list(ORDER[self.layout]), transpose_layout=False)
        return d.fn.reshape(moved, layout=self.layout)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for dtype in (np.uint8, np.float32, np.uint16):
            x = np.arange(5 * 4 * 3).reshape(5, 4, 3).astype(dtype)
            yield Case(cls("CHW"), (x,), ("HWC",), note="chw")
        yield Case(cls("HWC"), (np.arange(3 * 5 * 4, dtype=np.float32).reshape(3, 5, 4),), ("CHW",), note="hwc")
        yield Case(cls("CHW"), (np.arange(6, dtype=np.uint8).reshape(2, 3, 1),), ("HWC",), note="gray")


def transpose(image: T, layout: Literal["HWC", "CHW"] = "CHW") -> T:
    """Move the channels of `image`, or of image and masks of a `Sample`, to the front ("CHW") or to the end ("HWC").

    Shapes: ``T[H,W,C]{HWC} -> T[C,H,W]{CHW}``, or the reverse.

    Raises:
        SpecError: the image already has this layout, or is not an image.

    Example:
        >>> transpose(np.zeros((2, 5, 3), np.uint8)).shape
        (3, 2, 5)
    """
    op = Transpose(layout)
    made: Any = image
    if isinstance(made, Sample):
        images = of_one_size(op, made.images)
        return made.with_images(tuple(apply(op, x) for x in images))  # type: ignore[return-value]
    return apply(op, made)  # type: ignore[no-any-return]
