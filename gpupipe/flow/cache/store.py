"""store: where the elements of a memory cache are kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from ...extract.storage.forking import renew_lock
from ...options import Settings
from ..element import Element

__all__ = ["CacheStore", "Filled", "cache_key"]

CacheKey = tuple[Any, ...]


def cache_key(settings: Settings) -> CacheKey:
    """What the contents of a cache depend on: the seed, what bad elements do, and whose pixels they are."""
    s = settings
    known = () if s.bad_records is None else (s.bad_records,)
    return s.seed, s.on_error, s.max_pixels, s.device, s.backend, s.disabled_rules, *known


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A full pass.

    Attributes:
        elements: with their identities.
        element: their type, for a chain that is built on them.
        fixed: reading the input anew gives them in this order.
    """

    elements: list[Element]
    element: Any
    fixed: bool = True


@dataclass(eq=False)
class CacheStore:
    """The elements of full passes, by what they depend on."""

    filled: dict[CacheKey, Filled] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        renew_lock(self, "lock")

    def full(self, settings: Settings) -> bool:
        """Whether there was a full pass with these settings."""
        return cache_key(settings) in self.filled
