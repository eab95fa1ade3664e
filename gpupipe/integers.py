"""integers: which values of users count as integers.

NumPy's are converted to Python's at once: they have at most 64 bits, so they overflow where a seed is masked or a size
is multiplied, and they change the digest of a chain.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

__all__ = ["is_integer", "plain"]


def plain(value: Any) -> Any:
    """Convert NumPy integers and 0-d integer arrays to Python integers, also inside tuples; return the rest as it is.

    NumPy's times, which derive from its integers, and masked arrays are not converted.
    """
    if isinstance(value, (np.integer, np.ndarray)) and value.ndim == 0 and value.dtype.kind in "iu":
        return value if isinstance(value, np.ma.MaskedArray) else int(value)
    if type(value) is tuple:
        items = tuple(map(plain, value))
        return value if all(map(is_, items, value)) else items
    return value


def is_integer(value: Any) -> bool:
    """Whether a result of `plain` is an integer; a boolean is not one."""
    return isinstance(value, int) and not isinstance(value, bool)
