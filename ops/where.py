"""where: choose between two values, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.arithmetic import Arithmetic, broadcast, layout_among
from gpupipe.graph.op import Case, Op
from gpupipe.graph.selecting import constant, selected
from gpupipe.graph.symbols import Symbol, apply, narrowed
from gpupipe.ops._shared.operands import is_number, spec_of_operand
from gpupipe.ops._shared.samples import noise
from gpupipe.spec import TensorSpec

__all__ = ["Where", "where"]


@dataclass(frozen=True, slots=True)
class Where(Op):
    """Choose `a` where the condition is true, else `b`. Exact on every executor.

    Attributes:
        a: a plain number; None if it is an input.
        b: the same.
        dtype: of the result; None if it is not known.

    Shapes: ``bool[...], T[...], T[...] -> T[...]``, which broadcast
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "any"
    broadcasts: ClassVar[bool] = True

    a: Any = None
    b: Any = None
    dtype: str | None = None

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        condition = xs[0]
        if condition.dtype is not None and condition.dtype != np.dtype(bool):
            raise SpecError(f"where needs a condition of booleans, got {condition}; compare it first: x != 0")
        if any(x.dtype is bytes for x in xs):
            raise SpecError(f"where needs numbers, got {', '.join(map(str, xs[1:]))}")
        if self.dtype is None and any(x.layout is not None for x in xs):
            raise SpecError(f"where needs values of known dtypes for an image, got {', '.join(map(str, xs[1:]))}")
        if any(not x.known for x in xs):
            return TensorSpec(None, self.dtype)
        shape = broadcast([x.shape or () for x in xs])
        return TensorSpec(shape, self.dtype, layout_among(xs, len(shape)))

    def reference(self, condition: Any, *xs: Any) -> Any:
        a, b = self._operands(xs)
        made = np.where(condition, a, b)
        return (made if self.dtype is None else made.astype(self.dtype, copy=False))[()]

    def dali(self, d: Any, condition: Any, *xs: Any) -> Any:
        dtype = np.dtype(self.dtype)
        a, b = (
            d.fn.cast(x, dtype=d.dtype(dtype)) if hasattr(x, "name") else constant(d, x, dtype)
            for x in self._operands(xs)
        )
        return selected(d, condition, a, b, dtype)

    def _operands(self, xs: tuple[Any, ...]) -> tuple[Any, Any]:
        given = iter(xs)
        return (next(given) if self.a is None else self.a), (next(given) if self.b is None else self.b)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = noise(6, 5)
        y, hit = x[::-1].copy(), x > 100
        for dtype in ("uint8", "int16", "float16", "float32", "float64", "int64", "bool"):
            a, b = x.astype(dtype), y.astype(dtype)
            yield Case(cls(dtype=dtype), (hit, a, b), ("HWC",) * 3, note=dtype)
        yield Case(cls(b=0, dtype="uint8"), (hit, x), ("HWC",) * 2, note="x or 0")
        yield Case(cls(a=-1.5, b=np.nan, dtype="float32"), (hit,), ("HWC",), note="numbers")
        yield Case(cls(a=0.1, dtype="float64"), (hit, y.astype(np.float64)), ("HWC",) * 2, note="double")
        yield Case(cls(dtype="float32"), (hit, x.astype(np.float32), y), ("HWC",) * 3, note="two dtypes")
        yield Case(cls(b=0, dtype="uint8"), (hit[..., :1].copy(), x), ("HWC",) * 2, note="mask")
        yield Case(cls(dtype="uint8"), (np.bool_(True), x, y), (None, "HWC", "HWC"), note="one flag")
        yield Case(cls(dtype="int64"), (np.array([True, False]), np.int64(3), np.array([1, 2])), note="labels")


def where(condition: Any, a: Any, b: Any) -> Any:
    """Choose `a` where `condition` is true, else `b`, as `np.where` and `tf.where` with three arguments.

    Args:
        condition: booleans: a comparison, or one flag for the whole value.
        a: an image, a number or an array of numbers; all three broadcast.
        b: the same.

    Shapes: ``bool[...], T[...], T[...] -> T[...]``; of two dtypes NumPy's common one, except that integers of up to 16
    bits, images and plain numbers give float32 where NumPy makes them float64.

    Raises:
        SpecError: the condition is not boolean, the values are bytes or do not broadcast.

    Example:
        >>> where(np.array([1, 5, 9]) > 4, 0, 7)
        array([7, 0, 0])
    """
    beside = [x._value.spec for x in (condition, a, b) if isinstance(x, Symbol)]
    inputs = [narrowed(value, beside) for value in (a, b) if not is_number(value)]
    left, right = (value if is_number(value) else None for value in (a, b))
    dtype = _common(left, right, [spec_of_operand(value) for value in inputs])
    return apply(Where(left, right, dtype), condition, *inputs)


def _common(left: Any, right: Any, specs: list[TensorSpec]) -> str | None:
    """The dtype of the result, by the rule of arithmetic."""
    if any(spec.dtype is bytes or not spec.known for spec in specs):
        return None
    if not specs:
        made = np.result_type(np.asarray(left), np.asarray(right))
        return "float32" if made == np.float64 and not isinstance(left, np.generic) else str(made)
    specs = [TensorSpec((1,) * (spec.rank or 0), spec.dtype) for spec in specs]  # the shapes are checked by `infer`
    try:
        op = Arithmetic("maximum", left=left, right=right).settled(*specs)
    except SpecError as error:
        dtypes = iter([str(spec.dtype) for spec in specs])
        a, b = (next(dtypes) if value is None else repr(value) for value in (left, right))
        raise SpecError(
            f"where finds no dtype for values of {a} and {b}; convert the array first: ops.cast(x, 'int64')"
        ) from error
    return "float32" if op.single else str(op.infer(*specs).dtype)
