"""sharing: what one thread may hand to another where CPython runs without the GIL.

A memoryview and all its slices are counted together, and CPython does so without a lock (python/cpython#127716): while
one thread slices a view and another drops one, a count can be lost. Then the memory is given back while views of it are
in use. So without the GIL threads hand bytes to one another, never views, at the price of a copy: 10 us for 110 KB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["gil_is_on", "handed_over"]

gil_is_on: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
"""Whether one thread at a time runs Python. The import of a library can turn the GIL on; nothing turns it off again."""


def handed_over(value: Any) -> Any:
    """A value, or a tuple of columns, that other threads may use: without the GIL its memoryviews become bytes."""
    if gil_is_on():
        return value
    if type(value) is tuple:
        return tuple(map(handed_over, value))
    return bytes(value) if type(value) is memoryview else value
