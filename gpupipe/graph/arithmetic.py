"""arithmetic: operators, `minimum` and `maximum` on traced values, with the same result on every executor.

NumPy, DALI and TensorFlow disagree (`uint8 / 255` is float64, float32, float32; `uint8 + 100` wraps, widens, wraps).
So for images: there is no float64; an integer image that is divided, or combined with a float, becomes float32; integer
`+ - *` would wrap and is refused. Everything else, also comparisons of images, follows NumPy, with one exception:
integers of 8 or 16 bits, and arrays of rank 3, which may be images, become float32 instead of float64 where a number
turns them into floats. So does TensorFlow; and `x / 255` does not depend on the op before it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ..classes import dataclass
from ..errors import SpecError
from ..spec import TensorSpec
from .op import Case, Op
from .selecting import constant, selected

__all__ = ["ALIKE", "OPERATORS", "Arithmetic", "broadcast", "is_narrow", "layout_among"]


def _dividing(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`//` or `%` that raises where an integer is divided by the integer 0; NumPy warns and gives 0."""

    def divide(a: Any, b: Any) -> Any:
        if not (b.all() if isinstance(b, np.ndarray) else b) and _whole(a) and _whole(b):
            raise ZeroDivisionError("integer division or modulo by zero")
        return function(a, b)

    return divide


def _whole(x: Any) -> bool:
    return np.asarray(x).dtype.kind in "biu"


OPERATORS: dict[str, Any] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": _dividing(operator.floordiv),
    "mod": _dividing(operator.mod),
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "neg": operator.neg,
    "invert": operator.invert,
    "abs": operator.abs,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


ALIKE = (*_COMPARISONS, "and", "or", "xor", "invert", "minimum", "maximum")
"""Operators that neither wrap nor divide: NumPy's rules hold for images, too, and DALI computes in NumPy's dtype."""


UNCHECKED = {"floordiv": operator.floordiv, "mod": operator.mod}
"""Operators for a divisor that is known not to be zero, or a result that does not matter."""


SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}


@dataclass(frozen=True, slots=True)
class Arithmetic(Op):
    """One Python operator on traced values.

    Attributes:
        operator: a key of `OPERATORS`.
        left: a Python number on the left of the value, if the value is on the right.
        right: a Python number on the right of the value.
        image: whether an operand is an image, so that the rules for images apply.
        single: whether integers are computed as float32; see `settled`.
        result: where the rules for images do not apply, the dtype of the result, which DALI needs; None if unknown.
        operand: of an operator in `ALIKE`, the dtype to which NumPy converts the operands; None if unknown.

    Shapes: NumPy's broadcasting; the other operand of an image is a number, a per-channel vector or an image of the
        same size.
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "any"
    broadcasts: ClassVar[bool] = True

    operator: str = "add"
    left: Any = None
    right: Any = None
    image: bool = False
    single: bool = False
    result: Any = None
    operand: Any = None

    def settled(self, *xs: TensorSpec) -> Arithmetic:
        """This operator for such specs: `single` if NumPy would turn narrow integers alone into float64."""
        if self.image or any(x.dtype is bytes or not x.known for x in xs):
            return self
        result = self.infer(*xs).dtype
        narrow = [is_narrow(x) for x in xs if x.dtype.kind in "biu"]  # beside a wider integer float32 is not enough
        if result == np.float64 and any(narrow) and all(narrow) and not any(x.dtype == np.float64 for x in xs):
            single = replace(self, single=True, result=np.dtype(np.float32))
            return replace(single, operand=single.result) if self.operator in ALIKE else replace(self, single=True)
        return replace(self, result=result, operand=self._common(*xs) if self.operator in ALIKE else None)

    def _common(self, *xs: TensorSpec) -> Any:
        """The dtype in which NumPy compares values of these types with the numbers of this operator."""
        numbers = [number for number in (self.left, self.right) if number is not None]
        common = np.result_type(*(x.dtype for x in xs), *numbers)
        if common.kind in "iu" and any(not _fits(number, common) for number in numbers):
            return np.dtype(np.int64)
        return common

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        if self.image:
            return self._infer_image(*xs)
        if any(x.dtype is bytes for x in xs):
            if self.operator in ("eq", "ne"):
                return TensorSpec((), "bool")
            raise SpecError(f"{self.operator!r} is not defined for bytes; got {', '.join(map(str, xs))}")
        if any(not x.known for x in xs):
            return TensorSpec(None, None)
        # NumPy decides: the operator runs on ones of the smallest such shapes.
        dtypes = [np.float32 if self.single else x.dtype for x in xs]
        shapes = [[1 if n is None else n for n in x.shape or ()] for x in xs]
        samples = [np.ones(shape, dtype)[()] for shape, dtype in zip(shapes, dtypes, strict=True)]
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(self._run(samples, function=UNCHECKED.get(self.operator)))
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            raise SpecError(f"{self.operator!r} is not defined for {', '.join(map(str, xs))}: {error}") from error
        shape = broadcast([x.shape or () for x in xs])
        return TensorSpec(shape, result.dtype, layout_among(xs, len(shape)))

    def _infer_image(self, *xs: TensorSpec) -> TensorSpec:
        if self.operator == "neg":
            if xs[0].dtype.kind != "f":
                raise SpecError(f"-x on an image needs floats, got {xs[0]}; convert it with ops.cast(x, 'float32')")
            return xs[0]
        if self.operator not in ("add", "sub", "mul", "truediv"):
            raise SpecError(f"an image supports + - * / and comparisons, got {self.operator!r}; use ops.py_function")
        numbers = [number for number in (self.left, self.right) if number is not None]
        floats = any(isinstance(number, (float, np.floating)) for number in numbers) or any(
            x.dtype.kind == "f" for x in xs
        )
        if self.operator != "truediv" and not floats:
            raise SpecError(
                f"integer {SIGNS[self.operator]} on an image wraps in NumPy and widens in DALI, got "
                f"{', '.join(map(str, xs))}; convert it first with ops.cast(x, 'float32')"
            )
        image = next(x for x in xs if x.layout is not None)
        return TensorSpec(broadcast([x.shape or () for x in xs]), np.float32, image.layout)

    def reference(self, *xs: Any) -> Any:
        return self._run([np.asarray(x, np.float32) for x in xs] if self.image or self.single else list(xs))

    def stacked(self, *xs: Any) -> Any:
        rank = max(x.ndim for x in xs)
        return self.reference(*(x.reshape(len(x), *(1,) * (rank - x.ndim), *x.shape[1:]) for x in xs))

    def compiled(self, line: str = "") -> Callable[..., Any]:
        function, left, right = OPERATORS[self.operator], self.left, self.right
        if self.operator in UNCHECKED and right is not None and np.all(right):
            function = UNCHECKED[self.operator]
        if self.single and left is None and right is not None:
            number = np.float32(right)
            return lambda x: function(np.asarray(x, np.float32), number)
        if self.image or self.single or (left is not None and right is not None):
            return self.reference
        if left is not None:
            return partial(function, left)
        return function if right is None else lambda x: function(x, right)

    def dali(self, d: Any, *xs: Any) -> Any:
        if self.operand is not None:
            return self._alike(d, xs)
        if self.result is None or self.result.kind == "b":
            return self._run([_cast(d, x, np.float32) for x in xs], d)
        # DALI promotes differently, so compute in the widest dtype of the kind, where NumPy's result is exact.
        wide = np.float64 if self.result.kind == "f" else np.int64
        made = self._run([_cast(d, x, wide) for x in xs], d)
        if self.result.kind in "iu" and self.result.itemsize <= 2:  # NumPy wraps, DALI's cast saturates
            lowest = int(np.iinfo(self.result).min)
            made = ((made - lowest) & ((1 << 8 * self.result.itemsize) - 1)) + lowest
        return _cast(d, made, self.result)

    def _alike(self, d: Any, xs: tuple[Any, ...]) -> Any:
        """An operator of `ALIKE` in DALI, whose arithmetic knows neither float16 nor an order of booleans."""
        bits = self.operator in ("and", "or", "xor", "invert")
        work = {"e": np.float32, "?": np.bool_ if bits else np.uint8}.get(self.operand.char, self.operand)
        work = np.dtype(work)
        given = [x for x in (self.left, *xs, self.right) if x is not None]
        a, *rest = (
            _cast(d, x, work) if hasattr(x, "name") else constant(d, np.asarray(x).astype(self.operand), work)
            for x in given
        )
        if self.operator == "invert":
            made = a ^ constant(d, ~np.zeros((), work), work)
        elif self.operator in ("minimum", "maximum"):
            made = self._extreme(d, a, rest[0], work)
        else:
            made = OPERATORS[self.operator](a, rest[0])
        return made if self.result in (work, np.bool_) and work.kind != "u" else _cast(d, made, self.result)

    def _extreme(self, d: Any, a: Any, b: Any, work: np.dtype[Any]) -> Any:
        least = self.operator == "minimum"
        if work.kind != "f":
            return d.math.min(a, b) if least else d.math.max(a, b)
        # A NaN wins, as in NumPy: it is not equal to itself, and no comparison with it is true.
        return selected(d, (a <= b if least else a >= b) | (a != a), a, b, work)

    def _run(self, xs: list[Any], d: Any = None, function: Callable[..., Any] | None = None) -> Any:
        if function is None and d is not None:
            function = UNCHECKED.get(self.operator)  # DALI nodes have no values to check
        call: Callable[..., Any] = OPERATORS[self.operator] if function is None else function
        if self.left is not None:
            xs = [self._number(self.left, d), *xs]
        if self.right is not None:
            xs = [*xs, self._number(self.right, d)]
        return call(*xs)

    def _number(self, value: Any, d: Any) -> Any:
        if not (self.image or self.single):
            return value
        return np.float32(value) if d is None else float(value)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
        f = x.astype(np.float32) / 7
        reason = "on the GPU the division may be a product with the reciprocal: one float32 rounding of values below 1"
        yield Case(cls("truediv", right=255, image=True), (x,), ("HWC",), atol=1e-6, reason=reason, note="x/255")
        yield Case(cls("mul", left=2, image=True), (f,), ("HWC",), note="2*x")
        yield Case(cls("mul", right=0.5, image=True), (x,), ("HWC",), note="x*0.5")
        yield Case(cls("sub", right=1, image=True), (f,), ("HWC",), note="x-1")
        yield Case(cls("sub", left=1.5, image=True), (x,), ("HWC",), note="1.5-x")
        yield Case(cls("add", image=True), (f, f * 2), ("HWC", "HWC"), note="x+y")
        yield Case(cls("add", image=True), (f, np.array([1, 2, 3], np.float32)), ("HWC", None), note="x+vector")
        yield Case(cls("neg", image=True), (f,), ("HWC",), note="-x")
        yield from _cases_alike(x, f)


def _cases_alike(x: Any, f: Any) -> Iterator[Case]:
    """Comparisons and the like, for images of several dtypes."""
    hwc = TensorSpec((4, 5, 3), np.uint8, "HWC")
    nan = np.where(f > 7, np.float32(np.nan), f)
    wide = x.astype(np.int64) + (1 << 40)

    def case(name: str, *inputs: Any, note: str, **numbers: Any) -> Case:
        op = Arithmetic(name, **numbers).settled(*(replace(hwc, dtype=a.dtype, shape=a.shape) for a in inputs))
        return Case(op, inputs, ("HWC",) * len(inputs), note=note)

    for name in _COMPARISONS:
        yield case(name, x, note=f"x {name} 20", right=20)
    yield case("gt", x, note="x gt 300", right=300)
    yield case("lt", x, note="0.5 lt x", left=0.5)
    yield case("ge", f, x[::-1].copy(), note="floats and integers")
    yield case("le", f.astype(np.float16), note="half", right=2.1)
    yield case("eq", wide, note="wide", right=(1 << 40) + 3)
    for name in ("minimum", "maximum"):
        yield case(name, x, note=f"{name} 20", right=20)
        yield case(name, x, note=f"{name} 20.5", right=20.5)
        yield case(name, x, x[::-1].copy(), note=name)
        yield case(name, nan, f[::-1].copy(), note=f"{name} NaN")
        yield case(name, f[::-1].copy(), nan, note=f"{name} other NaN")
        yield case(name, f.astype(np.float16), note=f"{name} half", right=2.1)
        yield case(name, f.astype(np.float64), note=f"{name} double", left=2.1)
        yield case(name, wide, note=f"{name} wide", right=(1 << 40) + 3)
        yield case(name, x > 20, note=f"{name} True", right=True)
    for name in ("and", "or", "xor"):
        yield case(name, x > 20, x < 40, note=f"booleans {name}")
        yield case(name, x, note=f"x {name} 6", right=6)
    for value in (x, x > 20, x.astype(np.int16) - 30, x.astype(np.uint32)):
        yield case("invert", value, note=f"invert {value.dtype}")


def _fits(number: Any, dtype: np.dtype[Any]) -> bool:
    return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)


def _cast(d: Any, x: Any, dtype: Any) -> Any:
    """Cast a DALI node; a number stays as it is."""
    return d.fn.cast(x, dtype=d.dtype(np.dtype(dtype))) if hasattr(x, "name") else x


def is_narrow(x: TensorSpec) -> bool:
    """Whether a value has integers (or booleans) that fit float32, or that may be pixels."""
    return (
        x.known
        and isinstance(x.dtype, np.dtype)
        and x.dtype.kind in "biu"
        and (x.dtype.itemsize <= 2 or (x.rank or 0) >= 3)
    )


def layout_among(xs: Sequence[TensorSpec], rank: int) -> str | None:
    """The layout of a result of this rank: that of the first operand that has both."""
    return next((x.layout for x in xs if x.layout is not None and x.rank == rank), None)


def broadcast(shapes: list[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """The shape of the result of values of these shapes, by NumPy's rules.

    Raises:
        SpecError: they do not broadcast.
    """
    rank = max(map(len, shapes))
    out: list[int | None] = []
    for dims in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        sizes = {n for n in dims if n != 1}
        if len(sizes) > 1 and None not in sizes:
            raise SpecError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        known = [n for n in sizes if n is not None]
        out.append(known[0] if known else None if sizes else 1)
    return tuple(out)
