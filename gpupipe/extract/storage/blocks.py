"""blocks: buffers that files are read into, reused once no view of them is left.

A fresh buffer costs a page fault for every 4 KB, more than reading a cached file does: a record of 110 KB takes 27 us
with a new megabyte for each block, 16 us with a reused one. CPython can tell when a block is free: every view, slice or
array over a bytearray holds a reference to it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque

from gpupipe.extract.storage.forking import renew_lock

__all__ = ["Blocks"]


def _references(blocks: deque[bytearray]) -> int:
    return sys.getrefcount(blocks[0])


# The reference count of an unused block, measured by the same expression: it differs between Python versions.
_IDLE = _references(deque([bytearray(1)])) if hasattr(sys, "getrefcount") else -1


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
        self._ring: deque[bytearray] = deque()
        renew_lock(self)

    def take(self) -> bytearray:
        """Return a buffer that is not in use. Its content is whatever was in it."""
        with self._lock:
            ring = self._ring
            for _ in range(min(len(ring), 16)):  # the oldest are the likeliest to be free; not all are searched
                if _IDLE >= 0 and _references(ring) == _IDLE:
                    block = ring.popleft()
                    ring.append(block)
                    return block
                ring.rotate(-1)
            block = bytearray(self.size)
            ring.append(block)
            if len(ring) > self._most:
                ring.popleft()
            return block
