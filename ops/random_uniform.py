"""random_uniform: random numbers of a uniform distribution, drawn for each element."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.integers import is_integer, plain
from gpupipe.ops._shared.geometry import column
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, as_dtype

__all__ = ["RandomUniform", "random_uniform"]

WHO = "random_uniform"
MOST = 1 << 20
"""Largest number of values that one element draws."""


@dataclass(frozen=True, slots=True)
class RandomUniform(Op):
    """Draw numbers in [minval, maxval), on the host under every executor.

    Attributes:
        minval: lower bound, included.
        maxval: upper bound, excluded.
        shape: of the result.
        dtype: of the result.

    Shapes: ``-> dtype[shape]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"
    random: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("values",)
    traceable: ClassVar[tuple[str, ...]] = ("minval", "maxval")

    minval: Any = 0
    maxval: Any = 1
    shape: tuple[int, ...] = ()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        found = as_dtype(self.dtype, WHO)
        dtype = np.dtype(bool if found is None or found is bytes else found)
        if dtype.kind not in "iuf":
            raise SpecError(f"{WHO} needs a dtype of integers or floats, got {self.dtype!r}")
        object.__setattr__(self, "dtype", dtype.name)
        whole = dtype.kind != "f"
        least, most = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if whole else _ends(dtype)
        for name, high in (("minval", most), ("maxval", min(most + 1, np.iinfo(np.int64).max) if whole else most)):
            check_number(WHO, name, getattr(self, name), least, high, integer=whole)
        if all(isinstance(x, (int, float)) for x in (self.minval, self.maxval)) and self.minval >= self.maxval:
            raise SpecError(f"{WHO} needs minval below maxval, got {self.minval} and {self.maxval}")

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        rows, count = rng.size, math.prod(self.shape)
        dtype = np.dtype(self.dtype)
        low, high = (
            column(bound, rows, np.float64 if dtype.kind == "f" else np.int64)[:, None]
            for bound in (self.minval, self.maxval)
        )
        bad = np.flatnonzero(low >= high).tolist()
        if bad:
            needs = f"{WHO} needs minval below maxval"
            raise DataError.of_rows({row: f"{needs}, got {low[row, 0]} and {high[row, 0]}" for row in bad})
        make = _floats if dtype.kind == "f" else _integers
        return (make(rng.words(2 * count).reshape(rows, count, 2), low, high, dtype).reshape(rows, *self.shape),)

    def reference(self, values: Any) -> Any:
        return values.copy() if self.shape else values

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield Case(cls(), (), note="coin")
        yield Case(cls(-2.5, 1e-3, (3,), "float64"), (), note="vector")
        yield Case(cls(0, 2, (2, 2), "float16"), (), note="half")
        yield Case(cls(-5, 6, (4,), "int64"), (), note="integers")
        yield Case(cls(0, 256, dtype="uint8"), (), note="all bytes")


def _ends(dtype: np.dtype[Any]) -> tuple[float, float]:
    most = float(np.finfo(dtype).max)
    return -most, most


def _floats(words: Array, low: Array, high: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers in [low, high) from 53 random bits each."""
    u = ((words[..., 0] >> 5) * 2.0**26 + (words[..., 1] >> 6)) / 2.0**53
    made = (low * (1 - u) + high * u).astype(dtype)
    # Rounding may reach the upper bound, which is excluded, or leave the range that the dtype's bounds span.
    low, high = low.astype(dtype), high.astype(dtype)
    kept: Array = np.maximum(np.minimum(made, np.nextafter(high, low)), low)
    return kept


def _integers(words: Array, low: Array, high: Array, dtype: np.dtype[Any]) -> Array:
    """Integers in [low, high) from 64 random bits each."""
    span = high.astype(np.uint64) - low.astype(np.uint64)  # wraps, as does the sum
    made: Array = low.astype(np.uint64) + (words[..., 0] << np.uint64(32) | words[..., 1]) % span
    return made.astype(np.int64).astype(dtype)


def random_uniform(
    minval: Any = 0, maxval: Any = None, shape: Any = (), dtype: Any = "float32", *, seed: int | None = None
) -> Any:
    """Draw numbers of a uniform distribution for each element, as `tf.random.uniform`: a coin, a factor, an index.

    They are host values that several ops can share. As of any random op, they depend on seed, epoch, element and call
    only: not on batch size, threads, shards or executor. After `batch`, each row draws its own.

    Args:
        minval: lower bound, included; a number, plain or traced.
        maxval: upper bound, excluded; None is 1 for floats.
        shape: of the result; () for one number.
        dtype: of the result, integers or floats.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``-> dtype[shape]``

    Raises:
        SpecError: the range is empty or does not fit `dtype`; `maxval` is missing for integers.
        DataError: at run time: a traced range is empty.

    Example:
        >>> coin = random_uniform() < 0.5
        >>> random_uniform(5, 6, shape=3, dtype="int64")
        array([5, 5, 5])
    """
    shape = plain(shape)
    sizes = (shape,) if is_integer(shape) else plain(tuple(shape)) if isinstance(shape, (tuple, list)) else None
    if sizes is None or not all(is_integer(n) and n >= 0 for n in sizes):
        raise PlanTypeError(f"{WHO} needs shape as integers of at least 0, got {shape!r}")
    if isinstance(minval, (tuple, list)):
        raise PlanTypeError(f"{WHO} needs a number for minval, got {minval!r}; shape is the third argument")
    if math.prod(sizes) > MOST:
        raise SpecError(f"{WHO} needs a shape of at most {MOST} numbers, got {list(sizes)}")
    if maxval is None:
        kind = as_dtype(dtype, WHO)
        if kind is not None and kind is not bytes and np.dtype(kind).kind != "f":
            raise SpecError(f"{WHO} needs maxval for {kind}, got None")
        maxval = 1
    return apply(RandomUniform(minval, maxval, sizes, dtype), seed=seed)
