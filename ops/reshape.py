"""reshape: the same numbers in another shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Case
from gpupipe.graph.shapes import Dims, Reshaping
from gpupipe.graph.symbols import apply
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.operands import is_batch, spec_of_operand
from gpupipe.spec import TensorSpec

__all__ = ["Reshape", "reshape"]

REST = -1
"""A dimension that follows from the others."""


@dataclass(frozen=True, slots=True)
class Reshape(Reshaping):
    """Arrange the numbers in another shape, row by row. Exact on every executor.

    Attributes:
        shape: of the result; at most one -1.

    Shapes: ``T[...] -> T[shape]``
    """

    shape: tuple[int, ...] = (REST,)

    def dims(self, shape: Dims) -> Dims:
        known = math.prod(n for n in self.shape if n != REST)
        total = None if None in shape else math.prod(n for n in shape if n is not None)
        rest = None if total is None or not known else total // known
        made = tuple(rest if n == REST else n for n in self.shape)
        if total is not None and (None in made or math.prod(n for n in made if n is not None) != total):
            raise SpecError(f"reshape needs a shape of as many numbers, got {list(self.shape)} for {list(shape)}")
        return made

    def reference(self, x: Any) -> Any:
        return np.reshape(x, self.shape)

    def dali(self, d: Any, x: Any) -> Any:
        return self.named(d, d.fn.reshape(x, shape=list(self.shape), layout=""))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
        for shape in ((-1,), (4, 15), (-1, 3, 5), (2, 2, 5, 3), (60,)):
            yield Case(cls(shape, given=TensorSpec(x.shape, x.dtype, "HWC")), (x,), ("HWC",), note=str(shape))
        yield Case(cls((2, -1)), (np.arange(6.0),), note="vector")
        yield Case(cls((1,)), (np.int64(3),), note="number")


def reshape(x: Any, shape: Any) -> Any:
    """Arrange the numbers of `x` in another shape, as `tf.reshape`.

    Args:
        x: an image, a number or an array.
        shape: plain integers; one of them may be -1 and follows from the others. After `batch` it has to start with -1,
            for the rows.

    Shapes: ``T[...] -> T[shape]``; a result is no image, but one of rank 3 may be passed to ops on images {HWC}.

    Raises:
        SpecError: the result would have another number of values, or `x` is one byte string.

    Example:
        >>> reshape(np.arange(6), (2, -1))
        array([[0, 1, 2],
               [3, 4, 5]])
    """
    sizes: Any = plain(tuple(shape) if isinstance(shape, list) else shape)
    sizes = (sizes,) if is_integer(sizes) else sizes
    legal = isinstance(sizes, tuple) and all(is_integer(n) and n >= REST for n in sizes)
    if not legal or sizes.count(REST) > 1:
        raise PlanTypeError(f"reshape needs shape as plain integers, at most one of them -1, got {shape!r}")
    if is_batch(x):
        if not sizes or sizes[0] != REST:
            raise SpecError(f"reshape works on each row of a batch and needs a shape of (-1, ...) there, got {shape!r}")
        sizes = sizes[1:]
    return apply(Reshape(sizes, given=spec_of_operand(x)), x)
