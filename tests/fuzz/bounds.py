"""Bounds that only large inputs come to, lowered for a while, so that small ones do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def lowered(module: ModuleType, **bounds: Any) -> Iterator[None]:
    """Give some names of a module other values."""
    before = {name: getattr(module, name) for name in bounds}
    vars(module).update(bounds)
    try:
        yield
    finally:
        vars(module).update(before)
