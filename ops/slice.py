"""slice: cut a window out of an image, with tf.slice's arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import Symbol, part_of
from gpupipe.ops._shared.composite import Composite, Row, call
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import GeometryError, column, image_of, images_of, static, window, windows_inside
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.sample import Sample
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, spec_of

__all__ = ["Slice", "slice"]

T = TypeVar("T")

REST = -1
"""A size that means everything from the offset on."""


@dataclass(frozen=True, slots=True)
class Slice(Composite):
    """Cut `height` x `width` pixels at (`top`, `left`); a size of -1 extends to the end. Exact on every executor.

    Attributes:
        top: first row.
        left: first column.
        height: rows, or -1.
        width: columns, or -1.
        first: the channel where the window starts, if known at run time only; has to be 0.
        channels: number of channels, where the caller gives it; only checked.
        depth: channels of the images, where known.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")
    traceable: ClassVar[tuple[str, ...]] = ("top", "left", "height", "width", "first", "channels")

    top: Any
    left: Any
    height: Any
    width: Any
    first: Any = 0
    channels: Any = None
    depth: int | None = None

    def __post_init__(self) -> None:
        for name in ("first", "channels"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int):
                check_number("slice", name, value, integer=True)
        for name in self.traceable[:4]:
            low = 0 if name in ("top", "left") else REST
            value = getattr(self, name)
            check_number("slice", name, value, low, 1 << 30, integer=True)
            if low == REST and isinstance(value, (int, np.integer)) and value == 0:
                raise SpecError(f"slice needs {name} of at least 1, or -1 for the rest, got 0")

    def row(self, image: int = 0) -> Row:
        height, width = (None if static(n) == REST else static(n) for n in (self.height, self.width))
        return ((Crop(height, width), (0, 1)),)

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        x = image_of(self.name, x)
        assert x.shape is not None  # an image {HWC} has a rank
        if static(self.channels) is not None and x.shape[2] not in (None, self.channels):
            raise SpecError(f"slice keeps all channels, got a size of {self.channels} for {x}")
        shape: list[int | None] = []
        for offset, length, size in ((self.top, self.height, x.shape[0]), (self.left, self.width, x.shape[1])):
            first, known = static(offset), static(length)
            if size is not None and (first or 0) + max(known or 1, 1) > size:
                raise SpecError(f"slice needs a window inside the image, got {first} + {known} of {size} in {x}")
            rest = None if size is None or first is None else size - first
            shape.append(rest if known == REST else known)
        return TensorSpec((*shape, x.shape[2]), x.dtype, "HWC")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        count = len(hw)
        self._check_channels(count)
        start, size = window(self.top, self.left, self.height, self.width, count)
        return windows_inside("slice", hw, start, np.where(size == REST, hw - start, size).astype(np.int32))

    def _check_channels(self, count: int) -> None:
        """Check channels that are known at run time only.

        Raises:
            GeometryError: a row does not keep all channels.
        """
        first = column(self.first, count)
        legal = first == 0
        last = np.full(count, REST) if self.channels is None else column(self.channels, count, None)
        if self.channels is not None and static(self.channels) is None:
            rest = np.iinfo(last.dtype).max if last.dtype.kind == "u" else REST  # -1 as an unsigned integer
            legal &= (last == rest) | (last == self.depth)
        bad = np.flatnonzero(~legal).tolist()
        if bad:
            needs = f"slice keeps all channels: it needs begin 0 and size -1 or {self.depth or 'all'} of them"
            raise GeometryError.of_rows({row: f"{needs}, got {first[row]} and {last[row]}" for row in bad})

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for x in (noise(7, 9), noise(7, 9, 1), noise(7, 9, dtype="float32")):
            yield Case(cls(1, 2, 5, 4), (x,), ("HWC",))
        yield Case(cls(3, 4, -1, -1), (noise(7, 9),), ("HWC",), note="rest")
        yield Case(cls(0, 0, 7, -1, images=2), (noise(7, 9), noise(7, 9, 1)), ("HWC", "HWC"), note="with-mask")


def slice(image: T, begin: Any, size: Any) -> T:
    """Cut a window out of `image`, as `tf.slice`.

    Args:
        image: one image, a `Sample`, or a tuple of images of equal size.
        begin: (row, column, channel) of its first pixel; the channel has to be 0. Plain or traced, as returned by
            `sample_distorted_bounding_box`; after `batch`, one vector per row.
        size: (rows, columns, channels); -1 extends to the end; channels have to be all of them. A traced number of
            channels has to be -1 where that of the image is not known before run time.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``

    Raises:
        SpecError: `image` is not an image, or the window is known to reach beyond it.
        ShapeError: at run time: the window reaches beyond the image, or drops a channel.

    Example:
        >>> slice(np.arange(6, dtype=np.uint8).reshape(2, 3, 1), (0, 1, 0), (1, -1, -1)).ravel()
        array([1, 2], dtype=uint8)
    """
    xs = images_of(image)
    top, left, first = _three("begin", begin)
    height, width, channels = _three("size", size)
    if isinstance(first, int) and first != 0:
        raise SpecError(f"slice keeps all channels, got begin {begin!r}")
    kept = None if isinstance(channels, int) and channels == REST else channels
    depth = _depth(xs) if not isinstance(image, Sample) else None
    return call(Slice(top, left, height, width, first, kept, depth, images=len(xs)), image)  # type: ignore[no-any-return]


def _depth(xs: tuple[Any, ...]) -> int | None:
    """The number of channels of these images; None where it is unknown or differs."""
    specs = [x._value.spec if isinstance(x, Symbol) else spec_of(x) for x in xs]
    depths = {spec.shape[-1] if spec.shape else None for spec in specs}
    return depths.pop() if len(depths) == 1 else None


def _three(name: str, value: Any) -> tuple[Any, Any, Any]:
    """Three numbers, plain or traced, from any sequence."""
    if isinstance(value, Symbol):
        return part_of(value, 0), part_of(value, 1), part_of(value, 2)
    if isinstance(value, (tuple, list, np.ndarray)) and len(value) == 3:
        one, two, three = (item.item() if isinstance(item, np.generic) else item for item in value)
        return one, two, three
    raise PlanTypeError(f"slice needs {name} as three numbers (rows, columns, channels), got {value!r}")
