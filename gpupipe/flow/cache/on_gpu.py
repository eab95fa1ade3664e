"""on_gpu: the form of `cache` that keeps images in GPU memory, and everything else on the host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from ...classes import dataclass
from ...errors import DeviceError, GpupipeError
from ...options import Settings
from ...transform.array import to_host
from ...transform.cached_array import CachedArray
from ...transform.choose import resolve_device
from ...transform.device_memory import DeviceMemory, is_kept
from ..element import Element
from ..own_bytes import keep
from ..run import Run
from .memory import CacheKey, CacheStore, cache_key

__all__ = ["GpuCacheStore"]


@dataclass(eq=False)
class GpuCacheStore(CacheStore):
    """The elements of full passes, with their images on a GPU.

    Each pass that fills the cache has GPU memory of its own, which is freed if it ends early.

    Attributes:
        memory: bytes of GPU memory that a pass may take; None stands for `Options.device_memory`.
        spill: whether images beyond that stay on the host; else they are an error.
    """

    memory: int | None = None
    spill: bool = False

    label = "cache(device='gpu')"

    def __reduce__(self) -> tuple[Any, ...]:
        """Empty elsewhere: GPU memory belongs to this process."""
        return GpuCacheStore, ({}, {}, self.name, self.memory, self.spill)

    def key(self, settings: Settings) -> CacheKey:
        """The settings that the elements depend on, the GPU, and the process, since a forked one cannot use it."""
        return (*cache_key(settings), _gpu_of(settings), os.getpid())

    def keeper(self, run: Run, fills: bool) -> Callable[[Element], Element]:
        """Put images on the GPU if the pass fills the cache; if not, pass them on as if they were of the cache."""
        return _Keeping(self, run.settings) if fills else _named

    def usage(self, elements: Iterable[Element]) -> tuple[int, int]:
        """The number of elements, and the bytes of their images, wherever they are."""
        held = list(elements)
        columns = [column for element in held if type(element[0]) is tuple for column in element[0]]
        return len(held), sum(column.array.nbytes for column in columns if type(column) is CachedArray)


class _Keeping:
    """Puts the images of elements in GPU memory.

    Args:
        store: the cache.
        settings: of the run.
    """

    def __init__(self, store: GpuCacheStore, settings: Settings) -> None:
        self._store = store
        self._budget = store.memory or settings.device_memory
        device_id = _gpu_of(settings)
        assert device_id is not None  # lowering has refused any other machine
        self._memory = DeviceMemory(device_id, self._budget)
        self._count = 0

    def __call__(self, element: Element) -> Element:
        value, stream, position = keep(element)
        if type(value) is not tuple:
            return element
        self._count += 1
        return tuple([self._kept(column) if is_kept(column) else column for column in value]), stream, position

    def _kept(self, array: Any) -> CachedArray:
        trouble = ""
        try:
            there = self._memory.take(array)
        except DeviceError as error:
            there, trouble = None, str(error)
        if there is None and not self._store.spill:
            raise self._full(array, trouble)
        return CachedArray(to_host(array) if there is None else there)

    def _full(self, array: Any, trouble: str) -> DeviceError:
        needs = (
            f"may take {self._budget:,} bytes of GPU memory, and needs more: the {self._count - 1:,} elements before"
        )
        needs += f" this image of {array.nbytes:,} bytes fill {self._memory.nbytes:,}"
        return DeviceError(
            f"{self._store.label} {f'needs GPU memory, and {trouble}' if trouble else needs}; give it more with "
            "memory=, keep smaller images, leave the rest on the host with spill=True, or all with cache()"
        )


def _named(element: Element) -> Element:
    """The element of a pass that fills no cache, with its images where they are."""
    value, stream, position = keep(element)
    if type(value) is not tuple:
        return element
    return tuple([CachedArray(column) if is_kept(column) else column for column in value]), stream, position


def _gpu_of(settings: Settings) -> int | None:
    """The ordinal of the GPU that the options choose; None if they choose none here."""
    try:
        return resolve_device(settings).device_id
    except GpupipeError:  # running the chain raises this error
        return None
