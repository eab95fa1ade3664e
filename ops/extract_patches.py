"""extract_patches: the windows of each image at regular distances, one behind the other along the channels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.geometry import GeometryError, image_of
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["ExtractPatches", "extract_patches"]

T = TypeVar("T")

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ExtractPatches(Op):
    """Cut a patch at every position of a grid, and put its values in a row, as TensorFlow does.

    Exact on every executor. DALI cuts the image into blocks as high as a stride, puts as many of them next to one
    another as a patch needs, and keeps the lines that are a rate apart; then the same for columns.

    Attributes:
        sizes: rows and columns of a patch.
        strides: distances of patches in pixels, down and to the right.
        rates: distances of the pixels of a patch.
        padding: "VALID" for patches inside the image, "SAME" for zeros around it.

    Shapes: ``T[H,W,C]{HWC} -> T[rows,columns,sizes[0]*sizes[1]*C]{HWC}``
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    parameters: ClassVar[tuple[str, ...]] = ("start", "shape", "count")

    sizes: Pair
    strides: Pair
    rates: Pair = (1, 1)
    padding: str = "VALID"

    def __post_init__(self) -> None:
        for name in ("sizes", "strides", "rates"):
            for number in getattr(self, name):
                check_number(self.name, name, number, 1, 1 << 16, integer=True)
        if self.padding not in ("VALID", "SAME"):
            raise SpecError(f'{self.name} needs padding "VALID" or "SAME", got {self.padding!r}')

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = image_of(self.name, xs[0])
        assert x.shape is not None  # an image {HWC} has a rank
        *lengths, channels = x.shape
        counts = [self._counted(axis, length) for axis, length in enumerate(lengths)]
        if any(count is not None and count < 1 for count in counts):
            raise SpecError(
                f"{self.name} needs an image as large as a patch of {self._reach[0]}x{self._reach[1]}, got {x}"
            )
        values = None if channels is None else self.sizes[0] * self.sizes[1] * channels
        return TensorSpec((*counts, values), x.dtype, "HWC")

    def _counted(self, axis: int, length: int | None) -> int | None:
        if length is None:
            return None
        spare = length - 1 if self.padding == "SAME" else length - self._reach[axis]
        return spare // self.strides[axis] + 1

    @property
    def _reach(self) -> Pair:
        """Rows and columns from the first pixel of a patch to its last."""
        (height, width), (down, across) = self.sizes, self.rates
        return (height - 1) * down + 1, (width - 1) * across + 1

    @property
    def _blocks(self) -> Pair:
        """How many blocks of a stride a patch reaches over, down and to the right."""
        (height, width), (down, across) = self._reach, self.strides
        return -(-height // down), -(-width // across)

    def size(self, hw: Array, *params: Array) -> Array:
        return params[2]

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        reach, strides = np.array(self._reach), np.array(self.strides)
        count = (hw - (1 if self.padding == "SAME" else reach)) // strides + 1
        bad = np.flatnonzero((count < 1).any(axis=1)).tolist()
        if bad:
            needs = f"{self.name} needs an image as large as a patch of {reach[0]}x{reach[1]}"
            raise GeometryError.of_rows({row: f"{needs}, got {hw[row, 0]}x{hw[row, 1]}" for row in bad})
        before = np.maximum((count - 1) * strides + reach - hw, 0) // 2
        shape = (count - 1 + np.array(self._blocks)) * strides
        return (-before).astype(np.int32), shape.astype(np.int32), count.astype(np.int32)

    def reference(self, x: Array, start: Array, shape: Array, count: Array) -> Array:
        around = np.ascontiguousarray(Crop(pad=True).reference(x, start, shape))
        (rows, columns), (height, width), channels = count.tolist(), self.sizes, x.shape[2]
        line, pixel, value = around.strides
        steps = (self.strides[0] * line, self.strides[1] * pixel, self.rates[0] * line, self.rates[1] * pixel, value)
        patches = np.ndarray((rows, columns, height, width, channels), x.dtype, around, strides=steps)
        return patches.reshape(rows, columns, height * width * channels)

    def dali(self, d: Any, x: Any, start: Any, shape: Any, count: Any) -> Any:
        (down, across), (height, width) = self.strides, self.sizes
        x = Crop(pad=True).dali(d, x, start, shape)
        channels = x.shape(dtype=d.dtype(np.int32))[2]
        one, columns = count[0] * 0 + 1, shape[1]
        blocks = count[0] - 1 + self._blocks[0]
        x = d.fn.reshape(x, shape=d.fn.stack(one, blocks, columns * channels * down), layout="")
        x = self._patched(d, x, 0, count[0], columns * channels)
        blocks = count[1] - 1 + self._blocks[1]
        x = d.fn.reshape(x, shape=d.fn.stack(count[0] * height, blocks, channels * across))
        x = self._patched(d, x, 1, count[1], channels)
        x = d.fn.reshape(x, shape=d.fn.stack(count[0], one * height, count[1], channels * width))
        x = d.fn.transpose(x, perm=[0, 2, 1, 3])
        return d.fn.reshape(x, shape=d.fn.stack(count[0], count[1], channels * (height * width)), layout="HWC")

    def _patched(self, d: Any, x: Any, axis: int, count: Any, unit: Any) -> Any:
        """[n,blocks,stride*unit] -> [n,count,size*unit]: what a patch has of the blocks that it reaches over."""
        size, rate = self.sizes[axis], self.rates[axis]
        blocks = [d.fn.slice(x, first, count, axes=[1]) for first in range(self._blocks[axis])]
        wide = d.fn.cat(*blocks, axis=2) if len(blocks) > 1 else blocks[0]
        wide = d.fn.slice(wide, 0, unit * (size * rate), axes=[2], out_of_bounds_policy="pad", fill_values=0)
        if rate == 1:
            return wide
        before = wide.shape(dtype=d.dtype(np.int32))
        apart = d.fn.reshape(wide, shape=d.fn.stack(before[0], count, count * 0 + size, unit * rate))
        kept = d.fn.slice(apart, 0, unit, axes=[3])
        return d.fn.reshape(kept, shape=d.fn.stack(before[0], count, unit * size))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = noise(11, 14)
        for sizes, strides, rates in (
            ((3, 4), (3, 4), (1, 1)), ((3, 2), (2, 3), (1, 1)), ((2, 2), (5, 4), (1, 1)), ((4, 3), (1, 2), (1, 1)),
            ((2, 3), (2, 2), (3, 2)), ((1, 1), (2, 1), (1, 1)),
        ):  # fmt: skip
            for padding in ("VALID", "SAME"):
                note = "-".join("x".join(map(str, numbers)) for numbers in (sizes, strides, rates))
                yield Case(cls(sizes, strides, rates, padding), (x,), ("HWC",), note=f"{note}-{padding}")
        for y in (noise(11, 14, 1), noise(9, 9, 3, "float32"), noise(9, 9, 2, "int32")):
            yield Case(cls((2, 3), (2, 2)), (y,), ("HWC",))


def extract_patches(image: T, sizes: Any, strides: Any = None, rates: Any = 1, padding: str = "VALID") -> T:
    """Cut `image` into patches, and put the values of each in a row, as `tf.image.extract_patches`.

    Args:
        image: one image.
        sizes: (height, width) of a patch in pixels, or one integer for both; TensorFlow's (1, height, width, 1) too.
        strides: from a patch to the next one, down and to the right, in the same forms; None for `sizes`, which gives
            patches side by side, as a vision transformer needs them.
        rates: from a pixel of a patch to the next one, in the same forms: 2 takes every other pixel.
        padding: "VALID" for the patches that are inside the image; "SAME" for one at every stride, with zeros around
            the image.

    Shapes: ``T[H,W,C]{HWC} -> T[rows,columns,height*width*C]{HWC}``: the values of a patch line by line, each pixel's
        channels together.

    Raises:
        SpecError: `image` is not an image, is known to be smaller than a patch, or a parameter is out of range.
        ShapeError: at run time: the image is smaller than a patch.

    Example:
        >>> extract_patches(np.arange(8, dtype=np.uint8).reshape(2, 4, 1), 2)
        array([[[0, 1, 4, 5],
                [2, 3, 6, 7]]], dtype=uint8)
    """
    own = _pair("sizes", sizes)
    steps = own if strides is None else _pair("strides", strides)
    if not isinstance(padding, str):
        raise PlanTypeError(f'extract_patches needs padding "VALID" or "SAME", got {padding!r}')
    op = ExtractPatches(own, steps, _pair("rates", rates), padding.upper())
    return apply(op, image)  # type: ignore[no-any-return]


def _pair(name: str, value: Any) -> Pair:
    """Two integers from one, from two, or from TensorFlow's four."""
    value = plain(value)
    if is_integer(value):
        return value, value
    several = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
    numbers = tuple(map(plain, value)) if several else ()
    if len(numbers) == 4 and numbers[0] == numbers[3] == 1:
        numbers = numbers[1:3]
    if len(numbers) != 2:
        raise PlanTypeError(f"extract_patches needs {name} as one integer or (height, width), got {value!r}")
    return numbers[0], numbers[1]
