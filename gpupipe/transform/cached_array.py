"""cached_array: an array that a cache keeps on a GPU, as steps pass it on; what reads it gets a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..spec import read_only

__all__ = ["CachedArray"]


class CachedArray:
    """An array that a cache keeps: a graph on its GPU takes it from there, all else reads a copy on the host.

    Attributes:
        array: on the GPU; of the host if it found no room there.
        tensor: the array on the GPU for DALI, once it was fed.
    """

    __slots__ = ("array", "tensor")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.tensor: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        """NumPy dtype of the array."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.array.shape)

    def read(self) -> Any:
        """The array on the host: a copy, or a view that cannot be written to."""
        return read_only(self.array) if isinstance(self.array, np.ndarray) else self.array.get()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("a CachedArray may be on a GPU and is not converted to NumPy implicitly; use its read()")

    def __repr__(self) -> str:
        where = "host" if isinstance(self.array, np.ndarray) else "GPU"
        return f"CachedArray({self.dtype}{list(self.shape)} on the {where})"
