"""cast: convert numbers to another dtype, saturating those that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.spec import TensorSpec, as_dtype, same_dtype

__all__ = ["Cast", "cast", "saturated", "saturated_dali"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cast(Op):
    """Convert to `dtype`, saturating; floats are truncated toward zero. Exact on every executor.

    Equal to `tf.saturate_cast`. Between floats, numbers that are too large become infinite; as bool everything but 0
    is True; NaN as an integer is undefined.

    Attributes:
        dtype: name of the result's dtype.

    Shapes: ``T[...] -> dtype[...]``, the layout stays.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    still: ClassVar[bool] = True
    domain: ClassVar[Literal["image", "host", "any"]] = "any"

    dtype: str = "float32"

    def __post_init__(self) -> None:
        dtype = as_dtype(self.dtype, "cast")
        if dtype is None or dtype is bytes:
            raise SpecError(f"cast needs a numeric dtype, got {self.dtype!r}")
        object.__setattr__(self, "dtype", np.dtype(dtype).name)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        if x.dtype is bytes:
            raise SpecError(f"cast needs numbers, got {x}; decode or parse the bytes first")
        return TensorSpec(x.shape, self.dtype, x.layout)

    def reference(self, x: Any) -> Any:
        return saturated(x, np.dtype(self.dtype))

    def stacked(self, x: Any) -> Any:
        return self.reference(x)

    def dali(self, d: Any, x: Any) -> Any:
        return saturated_dali(d, x, np.dtype(self.dtype))

    def is_identity(self, x: TensorSpec) -> bool:
        return same_dtype(x.dtype, np.dtype(self.dtype))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        numbers = [-1e6, -300.5, -128.5, -1.5, -0.9, -0.5, 0, 0.2, 0.5, 0.9, 1.5, 127.5, 254.9, 255.5, 70000, 1e6]
        f = np.array(numbers, np.float32).reshape(4, 4, 1)
        for dtype in ("uint8", "int8", "uint16", "int16", "int32", "int64", "uint32", "bool", "float16", "float64"):
            yield Case(cls(dtype), (f,), ("HWC",), note=dtype)
        i = np.array([-(2**31), -70000, -1, 0, 1, 255, 256, 2**31 - 1], np.int32).reshape(2, 4, 1)
        for dtype in ("uint8", "int8", "uint16", "uint32", "int64", "bool", "float32"):
            yield Case(cls(dtype), (i,), ("HWC",), note=dtype)
        u = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
        for dtype in ("float32", "float16", "int8", "uint8"):
            yield Case(cls(dtype), (u,), ("HWC",), note=dtype)
        large = np.array([-2e9, 3e9, -3e9, 1e20], np.float32).reshape(2, 2, 1)
        yield Case(cls("int32"), (large,), ("HWC",), note="large")
        yield Case(cls("uint8"), (f.astype(np.float64),), ("HWC",), note="uint8")


def saturated(x: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a NumPy value toward zero, saturating. Returns the input itself where it has the dtype."""
    x = np.asarray(x)
    if x.dtype == dtype:
        return x[()]
    if dtype.kind not in "iu" or x.dtype.kind == "b":
        with np.errstate(
            over="ignore"
        ):  # float16 ends at 65504: larger numbers become infinite, as in DALI and TensorFlow
            return x.astype(dtype)[()]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if x.dtype.kind in "iu":
        mine = np.iinfo(x.dtype)
        return np.clip(x, max(low, mine.min), min(high, mine.max)).astype(dtype)[()]
    if x.dtype.itemsize < 4:
        x = x.astype(np.float32)  # float16 cannot hold the bounds
    with np.errstate(invalid="ignore"):  # for NaN, and for the bounds of 32 and 64 bits, which floats round up
        whole = np.clip(x, low, high).astype(dtype)
    if dtype.itemsize < 4:
        return whole[()]
    # No float32 lies just below 2**31: the bound itself overflows in the conversion and is corrected here.
    return np.where(x >= float(high), dtype.type(high), whole)[()]


def saturated_dali(d: Any, x: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a DALI node as `saturated` does. DALI's cast saturates but rounds: step back where it left zero.

    A node does not know its dtype, so this must hold for every dtype, integers included. float64 is
    compared, since DALI has no arithmetic on float16 and considers a negative integer less than the equal float.
    """
    if dtype.kind == "b":
        return d.fn.cast(x, dtype=d.dtype(np.float64)) != 0.0
    whole = d.fn.cast(x, dtype=d.dtype(dtype))
    if dtype.kind == "f":
        return whole
    exact, found = (d.fn.cast(node, dtype=d.dtype(np.float64)) for node in (x, whole))
    result = whole - ((found > exact) & (exact > 0.0))
    return result if dtype.kind == "u" else result + ((found < exact) & (exact < 0.0))


def cast(x: T, dtype: Any) -> T:
    """Convert `x` to `dtype`, saturating values that do not fit; floats become integers toward zero.

    Args:
        x: an image, or any number or array of numbers.
        dtype: NumPy dtype of the result.

    Shapes: ``T[...] -> dtype[...]``

    Raises:
        SpecError: `x` is bytes, or `dtype` is not numeric.

    Example:
        >>> cast(np.array([-3.5, 2.9, 300], np.float32), "uint8")
        array([  0,   2, 255], dtype=uint8)
    """
    return apply(Cast(dtype), x)  # type: ignore[no-any-return]
