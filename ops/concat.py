"""concat: several values as one, along an axis that they have."""

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
from gpupipe.ops.stack import same_dtype
from gpupipe.spec import TensorSpec

__all__ = ["Concat", "concat"]


@dataclass(frozen=True, slots=True)
class Concat(Reshaping):
    """Join values along an axis. Exact on every executor.

    Attributes:
        axis: along which they are joined.
        others: size of all but the first along the axis; None if not known.

    Shapes: ``T[a...,n,b...], T[a...,m,b...] -> T[a...,n+m,b...]``
    """

    axis: int = 0
    others: int | None = None

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        same_dtype("concat", xs)
        if any(x.shape is None for x in xs):
            return TensorSpec(None, xs[0].dtype)
        shapes = [x.shape or () for x in xs]
        rank = len(shapes[0])
        if any(len(shape) != rank for shape in shapes) or not -rank <= self.axis < rank:
            raise SpecError(f"concat needs values of one rank with axis {self.axis}, got {', '.join(map(str, xs))}")
        axis, sizes = self.axis % rank, []
        for index, dims in enumerate(zip(*shapes, strict=True)):
            known = {n for n in dims if n is not None}
            if index != axis and len(known) > 1:
                raise SpecError(
                    f"concat needs values that differ along axis {axis} only, got {', '.join(map(str, xs))}"
                )
            sizes.append(_sum(dims) if index == axis else next(iter(known), None))
        return TensorSpec(tuple(sizes), xs[0].dtype, self.layout(xs[0]))

    def dims(self, shape: Dims) -> Dims:
        axis = self.axis % len(shape)
        return tuple(_sum((n, self.others)) if index == axis else n for index, n in enumerate(shape))

    def layout(self, x: TensorSpec) -> str | None:
        return x.layout

    def reference(self, *xs: Any) -> Any:
        return np.concatenate(xs, self.axis)

    def dali(self, d: Any, *xs: Any) -> Any:
        return self.named(d, d.fn.cat(*xs, axis=self.axis))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x, y = noise(4, 5), noise(4, 5, 1)
        given = TensorSpec(x.shape, x.dtype, "HWC")
        yield Case(cls(-1, 1, given=given), (x, y), ("HWC", "HWC"), note="channels")
        yield Case(cls(0, 4, given=given), (x, x), ("HWC", "HWC"), note="rows")
        yield Case(cls(0, 3), (np.arange(3.0), np.ones(1), np.zeros(2)), note="vectors")


def _sum(sizes: Dims) -> int | None:
    known = [n for n in sizes if n is not None]
    return sum(known) if len(known) == len(sizes) else None


def concat(values: Any, axis: int = 0) -> Any:
    """Join values of one dtype along an axis that they have, as `tf.concat`.

    Args:
        values: a list or tuple of arrays or images, traced or constant.
        axis: along which they may differ in size; negative counts from the end. After `batch`, axis 0 is that of the
            rows.

    Shapes: ``T[a...,n,b...], T[a...,m,b...] -> T[a...,n+m,b...]``; images {HWC} give one.

    Raises:
        SpecError: ranks, dtypes or other dimensions differ, or images of unknown height or width are joined along it.
        PlanTypeError: `values` is not a list or tuple.

    Example:
        >>> concat([[1, 2], [3]])
        array([1, 2, 3])
    """
    xs = values_of("concat", values)
    axis = axis_of("concat", axis, *xs)
    specs = [spec_of_operand(x) for x in xs]
    shapes = [spec.shape or () for spec in specs]
    sizes = [shape[axis] if -len(shape) <= axis < len(shape) else None for shape in shapes]
    layout = specs[0].layout
    if layout is not None and layout[axis % len(layout)] != "C" and None in sizes[1:]:
        raise SpecError(
            f"concat needs images of known size along axis {axis}, got {', '.join(map(str, specs))}; "
            f"resize or crop them first"
        )
    return apply(Concat(axis, _sum(tuple(sizes[1:])), given=specs[0]), *xs)
