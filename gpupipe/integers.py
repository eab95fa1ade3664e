"""integers: what counts as one, wherever a user hands in a number.

NumPy's are Python's at once: they have 64 bits and fewer, so that they overflow where a seed is masked or a size is
multiplied, and in a digest of a chain they are something else.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

__all__ = ["is_integer", "plain"]


def plain(value: Any) -> Any:
    """A NumPy integer, or an array without axes of one, as Python's; anything else, tuples too, with these in it.

    A time is none, which NumPy derives from its integers, and neither is what is masked.
    """
    if isinstance(value, (np.integer, np.ndarray)) and value.ndim == 0 and value.dtype.kind in "iu":
        return value if isinstance(value, np.ma.MaskedArray) else int(value)
    if type(value) is tuple:
        items = tuple(map(plain, value))
        return value if all(map(is_, items, value)) else items
    return value


def is_integer(value: Any) -> bool:
    """Whether a value that is `plain` is an integer. A boolean is none."""
    return isinstance(value, int) and not isinstance(value, bool)
