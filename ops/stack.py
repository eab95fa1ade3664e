"""stack: several values of one shape as one, along a new axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Case
from gpupipe.graph.shapes import Dims, Reshaping
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.operands import axis_of, spec_of_operand, values_of
from gpupipe.ops._shared.samples import noise
from gpupipe.spec import TensorSpec, byte_array

__all__ = ["Stack", "same_dtype", "stack"]


@dataclass(frozen=True, slots=True)
class Stack(Reshaping):
    """Put values of one shape next to each other along a new axis. Exact on every executor.

    Attributes:
        axis: of the result.
        count: number of values.

    Shapes: ``count values T[a...,b...] -> T[a...,count,b...]``
    """

    axis: int = 0
    count: int = 1

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        same_dtype("stack", xs)
        if any(x.shape is None for x in xs):
            return TensorSpec(None, xs[0].dtype)
        shapes = [x.shape or () for x in xs]
        ranks = set(map(len, shapes))
        sizes = [{n for n in dims if n is not None} for dims in zip(*shapes, strict=False)]
        if len(ranks) > 1 or any(len(known) > 1 for known in sizes):
            raise SpecError(f"stack needs values of one shape, got {', '.join(map(str, xs))}")
        return TensorSpec(self.dims(tuple(next(iter(known), None) for known in sizes)), xs[0].dtype)

    def dims(self, shape: Dims) -> Dims:
        if not -len(shape) - 1 <= self.axis <= len(shape):
            raise SpecError(f"stack needs an axis from {-len(shape) - 1} to {len(shape)}, got {self.axis}")
        at = self.axis % (len(shape) + 1)
        return (*shape[:at], self.count, *shape[at:])

    def reference(self, *xs: Any) -> Any:
        return byte_array(xs) if isinstance(xs[0], bytes) else np.stack(xs, self.axis)

    def dali(self, d: Any, *xs: Any) -> Any:
        rank = None if self.given is None else self.given.rank
        first = rank is not None and self.axis == -rank - 1  # DALI counts back by one axis less
        return self.named(d, d.fn.stack(*xs, axis=0 if first else self.axis))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = noise(4, 5)
        for axis in (0, 2, -1, -4):
            op = cls(axis, 2, given=TensorSpec(x.shape, x.dtype, "HWC"))
            yield Case(op, (x, x[::-1].copy()), ("HWC", "HWC"), note=f"axis={axis}")
        yield Case(cls(0, 3), tuple(map(np.int64, (3, 1, 2))), note="numbers")
        yield Case(cls(-1, 2), (np.arange(3.0), np.ones(3)), note="vectors")


def same_dtype(who: str, xs: tuple[TensorSpec, ...]) -> None:
    """Check that values have one dtype.

    Raises:
        SpecError: they have not.
    """
    if len({x.dtype for x in xs if x.dtype is not None}) > 1:
        raise SpecError(f"{who} needs values of one dtype, got {', '.join(map(str, xs))}; convert them with ops.cast")


def stack(values: Any, axis: int = 0) -> Any:
    """Put values of one shape and dtype next to each other along a new axis, as `tf.stack`.

    Args:
        values: a list or tuple of numbers, arrays, images or byte strings, traced or constant.
        axis: of the result; negative counts from the end. After `batch`, axis 0 is that of the rows.

    Shapes: ``n values T[a...,b...] -> T[a...,n,b...]``

    Raises:
        SpecError: shapes or dtypes differ, or there is no such axis.
        PlanTypeError: `values` is not a list or tuple.

    Example:
        >>> stack([1, 2, 3])
        array([1, 2, 3])
    """
    xs = values_of("stack", values)
    op = Stack(axis_of("stack", axis, *xs), len(xs), given=spec_of_operand(xs[0]))
    return apply(op, *xs)
