"""blocks: memory that files are read into, used again once nobody looks at it.

A fresh buffer costs a page fault for every 4 KB, more than reading a cached file does: 27 us a record of 110 KB with a
new megabyte for each block, 16 us with one used before. A block is free when no view of it lives, and CPython can tell:
every view, slice or array over a bytearray holds a reference to it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque

from gpupipe.extract.storage.forking import renew_lock

__all__ = ["Blocks"]


def _references(blocks: deque[bytearray]) -> int:
    return sys.getrefcount(blocks[0])


# What an unused block counts to, measured by the same expression: it differs between Python versions.
_IDLE = _references(deque([bytearray(1)])) if hasattr(sys, "getrefcount") else -1


class Blocks:
    """A ring of equal buffers.

    Args:
        size: bytes of a buffer.
        limit: how many bytes of buffers are remembered for another use. What is held by views beyond that is freed
            by its last view, as any buffer.
    """

    def __init__(self, size: int, limit: int = 64 << 20) -> None:
        self.size = size
        self._most = max(limit // size, 1)
        self._lock = threading.Lock()
        self._ring: deque[bytearray] = deque()
        renew_lock(self)

    def take(self) -> bytearray:
        """Give a buffer that nobody looks at. Its content is whatever was in it."""
        with self._lock:
            ring = self._ring
            for _ in range(min(len(ring), 16)):  # the oldest are the likeliest to be free; no walk over all
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
