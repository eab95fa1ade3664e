"""selecting: constants and choices between numbers as DALI nodes, exact for every dtype. DALI itself is passed in."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["constant", "selected"]


def constant(d: Any, value: Any, dtype: np.dtype[Any]) -> Any:
    """One number as a DALI constant of this dtype."""
    number = np.asarray(value).astype(dtype)
    if dtype.itemsize == 8:  # DALI's constants have 32 bits, so this one is two of them
        return d.fn.reinterpret(
            d.types.Constant(number.reshape(1).view(np.int32), device=d.device), dtype=d.dtype(dtype)
        )
    return d.types.Constant(number.item(), dtype=d.dtype(dtype))


def selected(d: Any, condition: Any, a: Any, b: Any, dtype: np.dtype[Any]) -> Any:
    """`a` where `condition`, else `b`, in the shape to which the three broadcast.

    DALI has no such operator. Here it is an expression of bits, which DALI computes in one pass; unlike one of
    products, it is exact and knows NaN and infinity.

    Args:
        d: a `Lowering`.
        condition: booleans.
        a: a node of this dtype, or a constant made by `constant`.
        b: the same.
        dtype: of both.
    """
    bits = np.dtype(f"int{8 * dtype.itemsize}")
    mask = d.fn.cast(condition, dtype=d.dtype(bits)) * constant(d, -1, bits)
    x, y = (d.fn.reinterpret(value, dtype=d.dtype(bits)) for value in (a, b))
    return d.fn.reinterpret(y ^ ((x ^ y) & mask), dtype=d.dtype(dtype))
