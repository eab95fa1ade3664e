"""libraries: the libraries of the extra `fast`: OpenCV and cykooz-resizer.

OpenCV releases the GIL. It divides the resize of one float image among threads of its own, whose number is the
process's: beside threads that each compute another image that takes 0.12 instead of 0.07 CPU-ms for 300x290 to 224x224.
cykooz-resizer releases the GIL, too, but not while an image is copied into it and out of it: about a fifth of the time
in which a window of 300x300 becomes 224x224.

What a resize needs beside its image is kept by each thread, or small: memory that is new for each image comes page by
page from the system, which takes longer than the resize itself (500x375 to 224x224 as float32: 3.8 ms, or 0.8).
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from gpupipe.graph.op import Array
from gpupipe.ops._shared.resampling import SUPPORT

__all__ = ["LOADERS", "ONE_THREAD", "OneThread", "Part", "averaged", "interpolated", "opencv", "reach_of", "turned"]

Part = tuple[float, float]
"""Where a part of an axis begins and ends, in pixels."""

_PIXELS = {"uint8": "U8", "float32": "F32"}

_FILTERS = {"bilinear": "bilinear", "bicubic": "catmull_rom", "lanczos3": "lanczos3"}
"""The names of the kernels of `resampling`; catmull_rom is Keys with a = -0.5."""

_KEPT = 4 << 20
"""Bytes of the largest image that a thread keeps to convert or resize the next one into."""

_BAND = 3 << 16
"""Bytes of the rows that are resized at once, unless that are few."""


class _Own(threading.local):
    """What each thread has of its own: a resizer, and the image that it resized into last."""

    def __init__(self) -> None:
        from cykooz_resizer import CropBox, ImageData, Resizer

        self.resizer = Resizer()
        self.box = CropBox
        self.new = ImageData
        self._last: Any = None
        self._key: Any = None
        self._floats = np.empty(0, np.float32)

    def target(self, width: int, height: int, pixel: Any, nbytes: int) -> Any:
        """An image of any content, whose content is to be copied before the next call."""
        if nbytes > _KEPT:
            return self.new(width, height, pixel)
        if self._key != (key := (width, height, pixel)):
            self._last, self._key = self.new(width, height, pixel), key
        return self._last

    def boxed(self, options: Any, box: tuple[float, ...], whole: tuple[int, int]) -> Any:
        """The options to resize a box (left, top, width, height) of an image of this width and height."""
        if box == (0, 0, *whole):
            return options
        made = options.copy()
        made.crop_box = self.box(*box)
        return made

    def floats(self, x: Array) -> Array:
        """An image as float32, for as long as the next one is not asked for."""
        if x.dtype == np.float32:
            return x
        if x.size * 4 > _KEPT:
            return x.astype(np.float32)
        if self._floats.size < x.size:
            self._floats = np.empty(x.size, np.float32)
        result = self._floats[: x.size].reshape(x.shape)
        np.copyto(result, x)
        return result


@lru_cache(1)
def opencv() -> Any:
    """OpenCV's module."""
    import cv2

    return cv2


@lru_cache(1)
def _own() -> _Own:
    return _Own()


class OneThread:
    """Keeps OpenCV, in the whole process, to the threads that call it while executors run. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executors = 0
        self._before = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def enter(self) -> None:
        """An executor starts."""
        with self._lock:
            if not self._executors:
                self._before = opencv().getNumThreads()
                opencv().setNumThreads(1)
            self._executors += 1

    def leave(self) -> None:
        """An executor ends: after the last one the number is what it was, unless somebody has changed it since."""
        with self._lock:
            self._executors -= 1
            if not self._executors and opencv().getNumThreads() == 1:
                opencv().setNumThreads(self._before)

    def _forked(self) -> None:
        """In a forked child no executor runs, and another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self._executors = 0


ONE_THREAD = OneThread()

LOADERS = {"cv2": opencv, "cykooz_resizer": _own}
"""What imports each library."""


@lru_cache(64)
def _way(dtype: np.dtype[Any], channels: int, method: str) -> tuple[Any, Any]:
    """The type of a pixel, and the options of the resizer."""
    from cykooz_resizer import FilterType, PixelType, ResizeAlg, ResizeOptions

    name = _PIXELS[dtype.name] + (f"x{channels}" if channels > 1 else "")
    kernel = ResizeAlg.convolution(FilterType[_FILTERS[method]])
    return PixelType[name], ResizeOptions(kernel, use_alpha=False)


def averaged(
    x: Array,
    height: int,
    width: int,
    method: str,
    dtype: np.dtype[Any],
    out: Array | None = None,
    part: tuple[Part, Part] | None = None,
) -> Array:
    """Resize an image with antialias: integers are rounded, and held to their range, after each axis, as in Pillow.

    The reference begins with the width. But for roundings the order shows only where a kernel overshoots the range of
    integers, which "bilinear" never does: with it the resizer does both axes in one call.

    Args:
        x: [H,W,C] of 1 to 4 channels, with at least one pixel.
        height: of the result.
        width: of the result.
        method: "bilinear", "bicubic" or "lanczos3".
        dtype: of the result: float32, or uint8 if that is the image's.
        out: an array for the result, which is used where that saves a copy.
        part: where the resized part of the image begins and ends, top and bottom, then left and right, in pixels, also
            between them; kernels reach beyond it, not beyond the image. None for the whole image.

    Returns:
        dtype[height,width,C], which may be read-only.
    """
    rows, columns, channels = x.shape
    (upper, lower), (left, right) = part or ((0, rows), (0, columns))
    (pixel, options), own = _way(dtype, channels, method), _own()
    # Of a part of both axes that begins at a pixel's centre, cykooz-resizer 4.0 enlarges the second row without what is
    # before it: the kernel is 0 there for the first row, which it takes to be so for all. That holds for a triangle.
    two_steps = method != "bilinear" and right - left != width and lower - upper != height

    def resized(image: Array, begin: float, end: float, height: int) -> Array:
        """The rows from `begin` to `end` of an image."""
        lines = len(image)
        source = own.new(columns, lines, pixel, (image if image.dtype == dtype else own.floats(image)).tobytes())
        begins, across = left, min(right, columns) - left
        if two_steps:
            narrow = own.new(width, lines, pixel)
            own.resizer.resize(source, narrow, own.boxed(options, (begins, 0, across, lines), (columns, lines)))
            source, begins, across = narrow, 0, width
        target = own.target(width, height, pixel, width * height * channels * dtype.itemsize)
        box = (begins, begin, across, min(end, lines) - begin)
        own.resizer.resize(source, target, own.boxed(options, box, (width if two_steps else columns, lines)))
        return np.frombuffer(target.get_buffer(), dtype).reshape(height, width, channels)

    scale = (lower - upper) / height
    bands = _bands(rows, upper, scale, height, method, _BAND // (columns * channels * dtype.itemsize))
    if len(bands) == 1:
        return resized(x, upper, lower, height)
    out = np.empty((height, width, channels), dtype) if out is None else out
    for begin, end, top, bottom in bands:
        low, high = upper + begin * scale - top, upper + end * scale - top
        out[begin:end] = resized(x[top:bottom], low, high, end - begin)
    return out


@lru_cache(256)
def _bands(
    rows: int, upper: float, scale: float, height: int, method: str, most: int
) -> list[tuple[int, int, int, int]]:
    """Rows of the result that are computed together, and the source rows that they need.

    Args:
        rows: of the source.
        upper: where the part that is resized begins.
        scale: source rows for one of the result.
        height: of the result.
        method: the kernel.
        most: source rows of a band, unless most of them would be needed by its neighbours as well.
    """
    reach = SUPPORT[method] * max(scale, 1.0)
    step = max(int((most - 2 * reach) / scale), int(np.ceil(4 * reach / scale)), 1)
    count = -(-height // step)
    edges = [height * k // count for k in range(count + 1)]
    return [
        (begin, end, *reach_of(upper + begin * scale, scale, end - begin, rows, method))
        for begin, end in pairwise(edges)
    ]


def reach_of(begin: float, scale: float, length: int, whole: int, method: str) -> tuple[int, int]:
    """The source pixels of an axis, from the first to behind the last, that a part of the result is made of.

    Args:
        begin: where the part begins in the source, in pixels.
        scale: source pixels for one of the result.
        length: pixels of the part.
        whole: pixels of the source.
        method: the kernel, with antialias.
    """
    reach = SUPPORT[method] * max(scale, 1.0)
    low = int(begin + 0.5 * scale - reach) - 1  # one to spare for rounding
    return max(low, 0), min(int(begin + (length - 0.5) * scale + reach) + 2, whole)


def interpolated(x: Array, height: int, width: int, out: Array | None = None) -> Array:
    """Resize an image by "bilinear" without antialias: float32[height,width,C], which is nobody else's.

    Args:
        x: [H,W,C] of 1 to 4 channels, with at least one pixel.
        height: of the result.
        width: of the result.
        out: an array for the result.
    """
    cv2, own = opencv(), _own()
    y: Array = cv2.resize(own.floats(x), (width, height), dst=out, interpolation=cv2.INTER_LINEAR)
    return y if y is out else y.reshape(height, width, x.shape[2])


def turned(x: Array) -> Array:
    """Copy uint8[H,W,3] with its channels the other way round: what blue, green, red is in a BMP, red, green, blue."""
    if not x.size:
        return x.copy()
    cv2 = opencv()
    image: Array = cv2.cvtColor(np.ascontiguousarray(x), cv2.COLOR_BGR2RGB)
    return image
