"""buffers: memory of batches, used again when nobody holds the batch any more.

New memory of this size comes from the system page by page, which costs as much as a tenth of decoding the images in it.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import numpy as np

from ..extract.storage.sharing import gil_is_on
from ..graph.op import Array

__all__ = ["Buffers"]

ALIGNMENT = 64
"""Bytes; JAX takes arrays that start at a multiple of it without a copy. DALI's do, too."""

LEAST = 1 << 20
"""Bytes of a batch whose memory is kept: the C library keeps smaller blocks itself."""

MOST = 8
"""Blocks that are kept. A run holds fewer: the batches in work, those that wait, and the user's."""


def _free(blocks: list[Array], size: int, unheld: int) -> Array | None:
    """A block of a size with so many references; at least those by the list, the loop over it, and `getrefcount`."""
    for block in blocks:
        if block.size == size and sys.getrefcount(block) == unheld:
            return block
    return None


def _unheld() -> int:
    """The references that `_free` finds to a block that no array uses: 3, or 2 from Python 3.14 on."""
    return next(n for n in range(8) if _free([np.empty(0, np.uint8)], 0, n) is not None)


_UNHELD = _unheld()


class Buffers:
    """Memory for arrays. May be used by several threads."""

    def __init__(self) -> None:
        self._blocks: list[Array] = []
        self._lock = threading.Lock()
        # Without the GIL a count of references is no more than a hint.
        self._kept = MOST if gil_is_on() else 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An array of any values that starts at a multiple of `ALIGNMENT`, with memory that nothing else uses."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            return np.empty(shape, dtype)
        size = math.prod(shape) * dtype.itemsize
        block = self._block(size + ALIGNMENT) if size >= LEAST else np.empty(size + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        array: Array = block[start : start + size].view(dtype).reshape(shape)
        return array

    def _block(self, size: int) -> Array:
        """uint8[size] that no array uses. Views refer to it directly: NumPy does not chain them."""
        with self._lock:
            if (block := _free(self._blocks, size, _UNHELD)) is not None:
                return block
            new = np.empty(size, np.uint8)
            if len(self._blocks) < self._kept:
                self._blocks.append(new)
            return new
