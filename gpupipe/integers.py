"""integers: which values of users count as integers.

NumPy's, and those of PyTorch, JAX and TensorFlow, are converted to Python's at once: they have at most 64 bits, so they
overflow where a seed is masked or a size is multiplied, and they change the digest of a chain.
"""

from __future__ import annotations

import operator
from operator import is_
from typing import Any

import numpy as np

__all__ = ["is_integer", "plain"]


def plain(value: Any) -> Any:
    """Convert integers that are no Python integers to these, also inside tuples; return the rest as it is.

    Those are NumPy's, 0-d integer arrays and tensors, and other objects with `__index__`. NumPy's times, which derive
    from its integers, masked arrays, and tensors of booleans are not converted.
    """
    if isinstance(value, (np.integer, np.ndarray)):
        if value.ndim == 0 and value.dtype.kind in "iu" and not isinstance(value, np.ma.MaskedArray):
            return int(value)
        return value
    kind = type(value)
    if not isinstance(value, (int, type)) and hasattr(kind, "__index__") and not kind.__module__.startswith("gpupipe."):
        return _index(value)
    if type(value) is tuple:
        items = tuple(map(plain, value))
        return value if all(map(is_, items, value)) else items
    return value


def _index(value: Any) -> Any:
    """The integer that an object stands for; the object itself if it stands for none."""
    dtype = getattr(value, "dtype", None)
    if "bool" in str(dtype) or bool(getattr(value, "ndim", False)):
        return value
    try:
        return operator.index(value)
    except Exception:  # of the object's class: a tensor of floats, a value that is being traced
        return value


def is_integer(value: Any) -> bool:
    """Whether a result of `plain` is an integer; a boolean is not one."""
    return isinstance(value, int) and not isinstance(value, bool)
