"""blocks: buffers that files are read into, reused once no view of them is left.

A fresh buffer costs a page fault for every 4 KB, more than reading a cached file does: a record of 110 KB takes 27 us
with a new megabyte for each block, 16 us with a reused one. Where the system has huge pages, large blocks are parts of
one allocation that asks for them: then a new block costs 8 us a record. CPython can tell when a block is free: every
memoryview of it, and whatever is made of that, holds a reference to it. Without the GIL it cannot, as an object then
has two counts of references, which other threads change while both are read; so each block is a new one there.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import Any

import numpy as np

from gpupipe.extract.storage.forking import renew_lock
from gpupipe.extract.storage.sharing import gil_is_on

__all__ = ["Blocks"]


Block = Any  # uint8[size]; type checkers do not know before Python 3.12 that an array is a buffer


def _references(blocks: deque[Block]) -> int:
    return sys.getrefcount(blocks[0])


# The reference count of an unused block, measured by the same expression: it differs between Python versions.
_IDLE = _references(deque([np.empty(1, np.uint8)])) if hasattr(sys, "getrefcount") else -1

_LARGE = 1 << 20
"""Bytes of a large block."""

_TOGETHER = 4 << 20
"""Bytes that are allocated at once, of which large blocks are parts: the fewest for which NumPy asks for huge pages.

A view of one block keeps all of them."""


class Blocks:
    """A ring of buffers of one size.

    Args:
        size: bytes of a buffer.
        limit: how many bytes of buffers are kept for reuse. Others are freed by their last view, as any buffer is.
    """

    def __init__(self, size: int, limit: int = 64 << 20) -> None:
        self.size = size
        self._most = max(limit // size, 1)
        self._lock = threading.Lock()
        self._ring: deque[Block] = deque()
        self._new: list[Block] = []  # not used yet
        renew_lock(self)

    def take(self) -> memoryview:
        """Return a buffer that is not in use. Its content is whatever was in it.

        The memoryview, and all that is made of it, holds the block: a view that NumPy makes of the block itself would
        hold only the allocation that it is a part of.
        """
        with self._lock:
            ring, counts = self._ring, _IDLE >= 0 and gil_is_on()
            for _ in range(min(len(ring), 16)):  # the oldest are the likeliest to be free; not all are searched
                if counts and _references(ring) == _IDLE:
                    block = ring.popleft()
                    ring.append(block)
                    return memoryview(block)
                ring.rotate(-1)
            if not self._new:
                together = max(1, min(_TOGETHER // self.size, self._most)) if self.size >= _LARGE else 1
                self._new = np.split(np.empty(together * self.size, np.uint8), together)
            new: Block = self._new.pop()
            if counts:
                ring.append(new)
            if len(ring) > self._most:
                ring.popleft()
            return memoryview(new)
