"""minimum: the smaller of two values, number by number."""

from __future__ import annotations

from typing import Any

from gpupipe.graph.symbols import alike

__all__ = ["minimum"]


def minimum(a: Any, b: Any) -> Any:
    """The smaller of `a` and `b`, as `np.minimum`: where one is NaN, the result is.

    Args:
        a: an image, a number or an array of numbers.
        b: the same; both broadcast.

    Shapes: ``T[...], T[...] -> T[...]``; of two dtypes NumPy's common one, except that integers of up to 16 bits, and
    images, become float32 where a number makes them floats.

    Raises:
        SpecError: they do not broadcast, are bytes, or a number does not fit the integers beside it.

    Example:
        >>> minimum(np.array([1, 5, 9]), 5)
        array([1, 5, 5])
    """
    return alike("minimum", a, b)
