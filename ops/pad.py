"""pad: put pixels around an image, as torchvision does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.graph.symbols import Symbol
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.fill import Fill, fills_of
from gpupipe.ops._shared.geometry import GeometryError, check_sides, full, images_of, static
from gpupipe.ops._shared.padding import MODES, Padding
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.turn import WIDENED
from gpupipe.random import BatchRng

__all__ = ["Pad", "pad"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pad(Composite):
    """Put pixels around the image. Exact on every executor.

    Attributes:
        left: pixels on the left.
        top: above.
        right: on the right.
        bottom: below.
        fill: of mode "constant", one per image.
        mode: see `Padding`.
        widened: for each image whether `Padding` widens it; () for none.

    Shapes: ``T[H,W,C]{HWC} -> T[top+H+bottom,left+W+right,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape", "after")
    traceable: ClassVar[tuple[str, ...]] = ("left", "top", "right", "bottom")

    left: Any
    top: Any
    right: Any
    bottom: Any
    fill: tuple[Fill, ...] = ((0.0,),)
    mode: str = "constant"
    widened: tuple[bool, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_sides(self, *self.traceable, low=0)
        if self.mode not in MODES:
            raise SpecError(f"pad needs padding_mode from {', '.join(MODES)}, got {self.mode!r}")

    def row(self, image: int = 0) -> Row:
        around = (static(self.top), static(self.left), static(self.bottom), static(self.right))
        widened = any(self.widened[image : image + 1])
        return ((Padding(self.mode, self.fill[image], around, widened), (0, 1, 2)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        before, after = full(self.top, self.left, len(hw)), full(self.bottom, self.right, len(hw))
        if self.mode in ("reflect", "symmetric"):
            most = hw - (self.mode == "reflect")
            bad = np.flatnonzero((np.maximum(before, after) > most).any(axis=1)).tolist()
            if bad:
                reasons = {}
                for row in bad:
                    (h, w), got = hw[row].tolist(), [*before[row].tolist(), *after[row].tolist()]
                    reasons[row] = f"pad reflects less than the image, got top, left, bottom, right {got} for {h}x{w}"
                raise GeometryError.of_rows(reasons)
        return -before, (before + hw + after).astype(np.int32), after

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for mode in MODES:
            for x in (noise(5, 6), noise(5, 6, 1), noise(5, 6, dtype="float32"), noise(4, 5, 2, "int32")):
                yield Case(cls(1, 2, 3, 0, mode=mode), (x,), ("HWC",), note=mode)
            wide = noise(5, 6).astype(np.uint16) * 257
            yield Case(cls(1, 2, 3, 4, mode=mode, widened=(True,)), (wide,), ("HWC",), note=mode)
            both = cls(4, 3, 2, 1, ((7.0, 8.0, 9.0), (255.0,)), mode, images=2)
            yield Case(both, (noise(5, 6), noise(5, 6, 1)), ("HWC", "HWC"), note=f"{mode}-with-mask")
        yield Case(cls(0, 0, 0, 0, mode="reflect"), (noise(5, 6),), ("HWC",), note="none")
        yield Case(cls(6, 5, 6, 5, mode="symmetric"), (noise(5, 6),), ("HWC",), note="whole")
        yield Case(cls(2, 0, 0, 3, fill=((-1.5,),)), (noise(5, 6, dtype="float32"),), ("HWC",), note="fill")


def pad(image: T, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> T:
    """Put pixels around `image`, as torchvision's function `pad`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        padding: pixels: one number for all sides; (left and right, top and bottom); or (left, top, right, bottom).
            Numbers or traced host values.
        fill: of "constant": a number, or one per channel; for several images one number, or such a fill per image.
        padding_mode: "constant"; "edge", the pixel at the edge again; "reflect", a mirror image without that pixel, as
            in c b | a b c | b a; or "symmetric", one with it, as in b a | a b c | c b. "edge" needs uint8, int8,
            uint16, int16, int32 or float32.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, `fill` does not fit it, or more is reflected than there is.
        ShapeError: at run time: more is reflected than there is.

    Example:
        >>> pad(np.uint8([[[1], [2], [3]]]), (2, 0), padding_mode="reflect").ravel()
        array([3, 2, 1, 2, 3, 2, 1], dtype=uint8)
    """
    xs = images_of(image)
    dtypes = [x._value.spec.dtype if isinstance(x, Symbol) else np.asarray(x).dtype for x in xs]
    widened = tuple(dtype in WIDENED for dtype in dtypes)
    op = Pad(*_sides(padding), fills_of("pad", image, fill), padding_mode, widened, images=len(xs))
    return call(op, image)  # type: ignore[no-any-return]


def _sides(padding: Any) -> tuple[Any, Any, Any, Any]:
    """Left, top, right and bottom from what torchvision takes."""
    padding = plain(padding)
    if is_integer(padding) or (isinstance(padding, Symbol) and padding._value.spec.rank == 0):
        return padding, padding, padding, padding
    if isinstance(padding, (tuple, list, np.ndarray)) and len(padding) in (1, 2, 4):
        items: Sequence[Any] = [plain(item) for item in padding]
        if len(items) == 4:
            left, top, right, bottom = items
            return left, top, right, bottom
        return items[0], items[-1], items[0], items[-1]
    raise PlanTypeError(f"pad needs padding as one, two or four numbers of pixels, got {padding!r}")
