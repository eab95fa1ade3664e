"""libraries: the libraries of the extra `fast`: OpenCV and cykooz-resizer.

OpenCV releases the GIL. It divides the resize of one float image among threads of its own, whose number is the
process's: beside threads that each compute another image that takes 0.12 instead of 0.07 CPU-ms for 300x290 to 224x224.
cykooz-resizer releases the GIL, too, but not while an image is copied into it and out of it: about a fifth of the time
in which a window of 300x300 becomes 224x224.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any

import numpy as np

from gpupipe.graph.op import Array

__all__ = ["LOADERS", "ONE_THREAD", "OneThread", "averaged", "opencv", "turned"]

_PIXELS = {"uint8": "U8", "float32": "F32"}

_FILTERS = {"bilinear": "bilinear", "bicubic": "catmull_rom", "lanczos3": "lanczos3"}
"""The names of the kernels of `resampling`; catmull_rom is Keys with a = -0.5."""

_KEPT = 1 << 20
"""Bytes of the largest image that a thread keeps to resize the next one into: a new one is filled with zeros first."""


class _Own(threading.local):
    """What each thread has of its own: a resizer, and the image that it resized into last."""

    def __init__(self) -> None:
        from cykooz_resizer import ImageData, Resizer

        self.resizer = Resizer()
        self.new = ImageData
        self._last: Any = None
        self._key: Any = None

    def target(self, width: int, height: int, pixel: Any, nbytes: int) -> Any:
        """An image of any content, whose content is to be copied before the next call."""
        if nbytes > _KEPT:
            return self.new(width, height, pixel)
        if self._key != (key := (width, height, pixel)):
            self._last, self._key = self.new(width, height, pixel), key
        return self._last


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


def averaged(x: Array, height: int, width: int, method: str) -> Array:
    """Resize an image with antialias: integers are rounded, and held to their range, after each axis, as in Pillow.

    The reference begins with the width. But for roundings the order shows only where a kernel overshoots the range of
    integers, which "bilinear" never does: with it, and for floats, the resizer does both axes in one call.

    Args:
        x: uint8 or float32[H,W,C] of 1 to 4 channels, with at least one pixel.
        height: of the result.
        width: of the result.
        method: "bilinear", "bicubic" or "lanczos3".

    Returns:
        T[height,width,C], which may be read-only.
    """
    rows, columns, channels = x.shape
    (pixel, options), own = _way(x.dtype, channels, method), _own()
    image = own.new(columns, rows, pixel, x.tobytes())
    if x.dtype == np.uint8 and method != "bilinear" and columns != width and rows != height:
        narrow = own.new(width, rows, pixel)
        own.resizer.resize(image, narrow, options)
        image = narrow
    target = own.target(width, height, pixel, width * height * channels * x.itemsize)
    own.resizer.resize(image, target, options)
    return np.frombuffer(target.get_buffer(), x.dtype).reshape(height, width, channels)


def turned(x: Array) -> Array:
    """Copy uint8[H,W,3] with its channels the other way round: what blue, green, red is in a BMP, red, green, blue."""
    if not x.size:
        return x.copy()
    cv2 = opencv()
    image: Array = cv2.cvtColor(np.ascontiguousarray(x), cv2.COLOR_BGR2RGB)
    return image
