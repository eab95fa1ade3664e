"""clahe: even out the histogram of each part of an image, with a limit to the contrast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, tolerance
from gpupipe.ops._shared.geometry import pair
from gpupipe.ops._shared.lab import from_lab, to_lab
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops._shared.samples import picture, tones
from gpupipe.ops.convert_image_dtype import ConvertImageDtype, dtype_of
from gpupipe.random import BatchRng

__all__ = ["Clahe", "ClaheOf", "clahe"]

T = TypeVar("T")

MOST = 1e6
"""Largest clip limit; from 256 on nothing is clipped."""


@dataclass(frozen=True, slots=True)
class ClaheOf(Colour):
    """Contrast limited adaptive histogram equalization with a drawn limit, by OpenCV's law: base of the ops that do it.

    The image is divided into tiles. Each has a table that equalizes its histogram, of which what is above the limit has
    been spread over all levels; a pixel gets the mean of the four tables around it, weighted by their distance. Of
    colours this is done to the lightness, see `lab`.

    Exact on every executor: the operator of DALI takes one limit for a batch, and has another law for colours. So in a
    DALI graph the host computes it, also where the graph runs on a GPU.

    Attributes:
        tile_grid_size: tiles of a row and of a column.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    legal: ClassVar[tuple[int, ...] | None] = (1, 3)
    parameters: ClassVar[tuple[str, ...]] = ("limit",)

    tile_grid_size: tuple[int, int] = (8, 8)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        for count in self.tile_grid_size:
            check_number(self.name, "tile_grid_size", count, 1, 256, integer=True)

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        there, back = self._conversions()
        with np.errstate(all="ignore"):  # for floats that are not finite
            return back.reference(self._evened(there.reference(x), params[-1]))

    def fast(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        there, back = self._conversions()
        with np.errstate(all="ignore"):
            return back.reference(self._by_opencv(there.reference(x), params[-1]))

    def _evened(self, x: Array, limit: Any) -> Array:
        """The image of 8 bits, in NumPy: uint8[H,W,C] -> uint8[H,W,C]."""
        if not x.size:
            return x
        if x.shape[2] == 1:
            return _equalized(x[:, :, 0], float(limit), self.tile_grid_size)[:, :, None]
        lightness, a, b = to_lab(x)
        return from_lab(_equalized(lightness, float(limit), self.tile_grid_size), a, b)

    def _by_opencv(self, x: Array, limit: Any) -> Array:
        if not x.size:
            return x
        cv2 = opencv()
        evens = cv2.createCLAHE(float(limit), self.tile_grid_size)
        if x.shape[2] == 1:
            gray: Array = evens.apply(np.ascontiguousarray(x[:, :, 0]))
            return gray[:, :, None]
        lab = cv2.cvtColor(np.ascontiguousarray(x), cv2.COLOR_RGB2LAB)
        lab[:, :, 0] = evens.apply(lab[:, :, 0])
        colours: Array = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
        return colours

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        there, back = self._conversions()
        x = there.dali(d, self.checked_dali(d, x))
        if d.device == "gpu":
            x = x.cpu()
        x = d.fn.python_function(x, params[-1], function=self._evened, output_layouts="HWC")
        return back.dali(d, x.gpu() if d.device == "gpu" else x)

    def _conversions(self) -> tuple[ConvertImageDtype, ConvertImageDtype]:
        return ConvertImageDtype(self.dtype, "uint8"), ConvertImageDtype("uint8", self.dtype)


@dataclass(frozen=True, slots=True)
class Clahe(ClaheOf):
    """`ClaheOf` with a limit that is given.

    Attributes:
        clip_limit: most pixels of a level in a tile, as a multiple of what an even histogram has; 0 for no limit.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C 1 or 3
    """

    traceable: ClassVar[tuple[str, ...]] = ("clip_limit",)

    clip_limit: Any = 2.0

    def __post_init__(self) -> None:
        ClaheOf.__post_init__(self)
        check_number(self.name, "clip_limit", self.clip_limit, 0, MOST)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (rows_within(self.name, "clip_limit", self.clip_limit, len(hw), 0, MOST),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for tiles, limit in (((8, 8), 4.0), ((3, 2), 1.5), ((2, 5), 0.0)):
            op = cls(tiles, limit)
            for x in (picture(40, 48), picture(41, 50), picture(40, 31, 1)):
                yield Case(op, (x,), ("HWC",), note=f"{tiles[0]}x{tiles[1]}-{limit}")
        for x in tones():
            yield Case(cls((2, 3), 2.0, dtype=x.dtype.name), (x,), ("HWC",), **tolerance(x), note="tones")


def _equalized(x: Array, limit: float, tiles: tuple[int, int]) -> Array:
    """uint8[H,W] -> uint8[H,W], in float32 and rounded as in OpenCV."""
    (columns, rows), (height, width) = tiles, x.shape
    around = x
    if width % columns or height % rows:  # both get more, up to a whole tile's share
        around = np.pad(x, ((0, rows - height % rows), (0, columns - width % columns)), mode="reflect")
    h, w = around.shape[0] // rows, around.shape[1] // columns
    parts = around.reshape(rows, h, columns, w).swapaxes(1, 2).reshape(rows * columns, h * w)
    tables = _tables(parts, limit).reshape(rows, columns, 256)
    (top, bottom, down), (left, right, across) = _between(height, h, rows), _between(width, w, columns)
    top, bottom, down = top[:, None], bottom[:, None], down[:, None]
    one = np.float32(1)

    def line(row: Array) -> Array:
        mixed: Array = tables[row, left, x] * (one - across) + tables[row, right, x] * across
        return mixed

    result: Array = line(top) * (one - down) + line(bottom) * down
    return np.clip(np.rint(result), 0, 255).astype(np.uint8)


def _between(length: int, size: int, tiles: int) -> tuple[Array, Array, Array]:
    """For each pixel of an axis the tiles before and behind it, and the weight of the second: float32[length]."""
    at = np.arange(length, dtype=np.float32) * (np.float32(1) / np.float32(size)) - np.float32(0.5)
    first = np.floor(at).astype(np.intp)
    return np.maximum(first, 0), np.minimum(first + 1, tiles - 1), (at - first).astype(np.float32)


def _tables(parts: Array, limit: float) -> Array:
    """The levels that those of each tile become: uint8[N,P] -> float32[N,256]."""
    count, pixels = parts.shape
    numbers = parts + np.arange(count)[:, None] * 256
    histograms = np.bincount(numbers.reshape(-1), minlength=count * 256).reshape(count, 256)
    if limit > 0:
        most = max(int(limit * pixels / 256), 1)
        spare = np.maximum(histograms - most, 0).sum(axis=1)
        histograms = np.minimum(histograms, most) + (spare // 256)[:, None]
        for tile, rest in enumerate((spare % 256).tolist()):  # one more for some levels, at equal distances
            if rest:
                step = max(256 // rest, 1)
                histograms[tile, : rest * step : step] += 1
    scaled = np.cumsum(histograms, axis=1).astype(np.float32) * (np.float32(255) / np.float32(pixels))
    result: Array = np.clip(np.rint(scaled), 0, 255).astype(np.float32)
    return result


def clahe(image: T, clip_limit: Any = 2.0, tile_grid_size: Any = (8, 8)) -> T:
    """Equalize the histogram of each part of `image`, with a limit to the contrast: OpenCV's `CLAHE`.

    Of colours the lightness of CIE L*a*b* in 8 bits is changed, as albumentations does it.

    Args:
        image: of uint8, uint16, float16 or float32 with 1 channel, or red, green and blue. It goes through 8 bits:
            floats are clipped to 0..1.
        clip_limit: most pixels of a level in a tile, as a multiple of what an even histogram has, and so about the most
            by which a difference of levels grows; 0 for no limit. May be traced.
        tile_grid_size: how many tiles a row has, and a column (OpenCV's order), or one integer for both.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or a parameter is out of range.

    Example:
        >>> clahe(np.array([[[100], [101]]], np.uint8), 0, 1)
        array([[[128],
                [255]]], dtype=uint8)
    """
    tiles = pair("clahe", "tile_grid_size", tile_grid_size)
    return apply(Clahe(tiles, clip_limit, dtype=dtype_of("clahe", image)), image)  # type: ignore[no-any-return]
