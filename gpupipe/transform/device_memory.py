"""device_memory: memory of a GPU into which a cache puts its arrays, one after the other, within a budget."""

from __future__ import annotations

from typing import Any

from .array import allocated, goes_to_gpu, on_gpu, put

__all__ = ["DeviceMemory", "is_kept"]

FIRST, LARGEST = 1 << 20, 64 << 20
"""Bytes that are allocated at a time, from the first to the largest block: few allocations, and at most one image's
bytes of each are lost at its end."""

ALIGNED = 256
"""Bytes: each array starts at a multiple, as if it had memory of its own."""


def is_kept(leaf: Any) -> bool:
    """Whether a leaf is what a cache keeps on a GPU: an image or a clip, numbers with three axes or more."""
    if on_gpu(leaf):
        return len(leaf.shape) >= 3 and leaf.nbytes > 0
    return goes_to_gpu(leaf) and leaf.ndim >= 3 and leaf.nbytes > 0 and bool(leaf.dtype.isnative)


class DeviceMemory:
    """Memory of one GPU, allocated in blocks as it is needed. It is freed with the last array in it.

    Args:
        device_id: ordinal of the GPU.
        budget: bytes that may be allocated.

    Attributes:
        nbytes: allocated so far.
    """

    def __init__(self, device_id: int, budget: int) -> None:
        self.nbytes = 0
        self._device_id = device_id
        self._budget = budget
        self._block: Any = None
        self._at = 0

    def take(self, array: Any) -> Any | None:
        """A copy of an array in this memory; None if the budget has no room for it.

        Raises:
            DeviceError: the GPU has no room for another block.
        """
        if self._block is None or self._at + array.nbytes > len(self._block):
            size = min(max(self.nbytes, FIRST), LARGEST)  # as much as there is already, while that is little
            size = min(max(size, array.nbytes), self._budget - self.nbytes)
            if size < array.nbytes:
                return None
            self._block, self._at = allocated(size, self._device_id), 0
            self.nbytes += size
        start = self._at
        self._at = -(-(start + array.nbytes) // ALIGNED) * ALIGNED
        return put(array, self._block, start)
