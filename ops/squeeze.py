"""squeeze: remove dimensions of size 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Case
from gpupipe.graph.shapes import Dims, Reshaping
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.operands import axis_of, spec_of_operand
from gpupipe.spec import TensorSpec

__all__ = ["Squeeze", "squeeze"]


@dataclass(frozen=True, slots=True)
class Squeeze(Reshaping):
    """Remove dimensions of size 1. Exact on every executor.

    Attributes:
        axes: the dimensions; None for all that have size 1.

    Shapes: ``T[a...,1,b...] -> T[a...,b...]``
    """

    axes: tuple[int, ...] | None = None

    def dims(self, shape: Dims) -> Dims:
        gone = self._gone(shape)
        return tuple(n for axis, n in enumerate(shape) if axis not in gone)

    def _gone(self, shape: Dims) -> tuple[int, ...]:
        if self.axes is None:
            if None in shape:
                raise SpecError(f"squeeze needs an axis where a dimension is not known, got a shape of {list(shape)}")
            return tuple(axis for axis, n in enumerate(shape) if n == 1)
        for axis in self.axes:
            if not -len(shape) <= axis < len(shape) or shape[axis] not in (1, None):
                raise SpecError(f"squeeze needs an axis of size 1, got axis {axis} of {list(shape)}")
        return tuple(axis % len(shape) for axis in self.axes)

    def reference(self, x: Any) -> Any:
        return np.squeeze(x, self.axes)

    def dali(self, d: Any, x: Any) -> Any:
        assert self.given is not None and self.given.shape is not None
        return self.named(d, d.fn.squeeze(x, axes=sorted(self._gone(self.given.shape))))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for shape, axes in (((4, 5, 1), (-1,)), ((1, 5, 3), (0,)), ((1, 5, 1), (0, 2))):
            x = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
            given = TensorSpec(shape, x.dtype, "HWC")
            yield Case(cls(axes, given=given), (x,), ("HWC",), note=f"axes={axes}")
        yield Case(cls(), (np.arange(3.0).reshape(1, 3, 1),), note="all")


def squeeze(x: Any, axis: Any = None) -> Any:
    """Remove dimensions of size 1, as `tf.squeeze`: a mask [H,W,1] becomes [H,W].

    Args:
        x: an array or an image.
        axis: one axis or several; None for all of size 1, which have to be known. After `batch`, axis 0 is that of the
            rows, and None keeps it.

    Shapes: ``T[a...,1,b...] -> T[a...,b...]``

    Raises:
        SpecError: a dimension is known to have another size.

    Example:
        >>> squeeze(np.zeros((2, 3, 1)), -1).shape
        (2, 3)
    """
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else None if axis is None else (axis,)
    taken = None if axes is None else tuple(axis_of("squeeze", one, x) for one in axes)
    return apply(Squeeze(taken, given=spec_of_operand(x)), x)
