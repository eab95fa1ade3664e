"""buffers: the methods of a `Dataset`: steps that hold elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import integer, integer_or_none
from ..errors import PlanError, PlanTypeError
from ..options import AUTOTUNE
from ..plan.steps import Cache, Prefetch, Shuffle
from .base import Chain

if TYPE_CHECKING:
    from .core import Dataset

__all__ = ["Buffers"]


class Buffers(Chain):
    """The methods of a `Dataset`: steps that hold elements."""

    def shuffle(
        self, buffer_size: int, seed: int | None = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """Draw elements at random from a buffer of `buffer_size`.

        Args:
            buffer_size: output p holds an element of input index <= p + buffer_size - 1. Records of local files are
                held as references of about 250 bytes, not as payloads.
            seed: mixed with the chain's.
            reshuffle_each_iteration: False gives the same order in every epoch and pass.
        """
        size = integer("shuffle", "buffer_size", buffer_size)
        if size < 1:
            raise PlanError(f"shuffle needs buffer_size >= 1, got {size}")
        integer_or_none("shuffle", "seed", seed)
        return self._then(Shuffle(self.plan, size, seed, reshuffle_each_iteration is not False))

    def prefetch(self, buffer_size: int | None) -> Dataset:
        """Make up to `buffer_size` elements ahead, in the background; `AUTOTUNE` or None lets gpupipe choose."""
        size = AUTOTUNE if buffer_size is None else integer("prefetch", "buffer_size", buffer_size)
        if size < AUTOTUNE:
            raise PlanError(f"prefetch needs buffer_size >= 0 or AUTOTUNE, got {size}")
        return self._then(Prefetch(self.plan, size))

    def cache(self, filename: str = "") -> Dataset:
        """Keep the elements of the first full pass in memory.

        Random ops before the cache are drawn once; those behind it differ from epoch to epoch.
        """
        if not isinstance(filename, str) and not hasattr(filename, "__fspath__"):
            raise PlanTypeError(f"cache needs a file name, got {filename!r}")
        if filename:
            raise PlanError(
                f"cache keeps elements in memory in this version, got the file name {filename!r}; use cache()"
            )
        from ..flow.buffers import CacheStore

        return self._then(Cache(self.plan, CacheStore()))
