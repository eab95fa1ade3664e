"""one_hot: turn class numbers into vectors with one value at the class and another elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import MOST_PIXELS, Case, Op, check_number
from gpupipe.graph.sites import at_line, user_site
from gpupipe.graph.symbols import apply
from gpupipe.integers import plain
from gpupipe.log import logger
from gpupipe.spec import TensorSpec, as_dtype

__all__ = ["OneHot", "one_hot"]


@dataclass(frozen=True, slots=True)
class OneHot(Op):
    """Turn class numbers into vectors, on the host. A number outside [0, depth) has no class; but for -1 it is logged.

    Attributes:
        depth: number of classes.
        on_value: the value at the class.
        off_value: the value everywhere else.
        dtype: of the result.

    Shapes: ``integer[...] -> dtype[..., depth]``
    """

    domain: ClassVar[Literal["image", "host", "any"]] = "host"

    depth: int = 1
    on_value: float = 1
    off_value: float = 0
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_number("one_hot", "depth", self.depth, 1, MOST_PIXELS, integer=True)
        dtype = as_dtype(self.dtype, "one_hot")
        if dtype is None or dtype is bytes:
            raise SpecError(f"one_hot needs a numeric dtype, got {self.dtype!r}")
        object.__setattr__(self, "depth", plain(self.depth))
        object.__setattr__(self, "dtype", np.dtype(dtype).name)
        for name in ("on_value", "off_value"):
            value = plain(getattr(self, name))
            if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
                raise PlanTypeError(f"one_hot needs a number for {name}, got {value!r}")
            if not _fits(value, np.dtype(dtype)):
                raise SpecError(f"one_hot needs {name} that fits {self.dtype}, got {value!r}")
            object.__setattr__(self, name, value.item() if isinstance(value, np.generic) else value)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        if x.dtype is bytes or (x.dtype is not None and np.dtype(x.dtype).kind not in "iu"):
            raise SpecError(f"one_hot needs integers, got {x}; convert them first with ops.cast(x, 'int64')")
        return TensorSpec(None if x.shape is None else (*x.shape, self.depth), self.dtype)

    def reference(self, x: Any) -> Any:
        return self._vectors("", x)

    def compiled(self, line: str = "") -> Callable[..., Any]:
        return partial(self._vectors, line)

    def _vectors(self, line: str, x: Any) -> Any:
        x = np.asarray(x)
        if x.size * self.depth > max(x.size, MOST_PIXELS):
            raise ShapeError(
                f"one_hot needs a result of at most {MOST_PIXELS} numbers, got a shape of {[*x.shape, self.depth]}"
            )
        if x.size and not -1 <= (low := x.min() if x.ndim else x[()]) <= (x.max() if x.ndim else low) < self.depth:
            self._warn(line or user_site(), x[(x >= self.depth) | (x < -1)].flat[0])
        hit = x[..., None] == np.arange(self.depth)
        on, off = (np.dtype(self.dtype).type(value) for value in (self.on_value, self.off_value))
        return np.where(hit, on, off)

    def _warn(self, line: str, number: Any) -> None:
        """Log a number that is likely a mistake: the model would learn from a vector without a class."""
        logger.warning_once(
            "one_hot of %d classes%s got class number %d: its vector has no class; classes are numbered from 0 to %d, "
            "and -1 stands for none on purpose",
            self.depth,
            at_line(line),
            number,
            self.depth - 1,
            about=("one_hot", self.depth, line),
        )

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield Case(cls(5), (np.int64(2),), note="scalar")
        yield Case(cls(3, 0.9, 0.05), (np.array([0, 2, -1, 3], np.int32),), note="smooth")
        yield Case(cls(3, dtype="int64"), (np.array([[0], [2]], np.uint8),), note="matrix")


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a number stays what it is as this dtype; as a float, it may be rounded."""
    with np.errstate(all="ignore"):
        try:
            made = np.array(value).astype(dtype)
        except OverflowError:  # an integer that no float holds
            return False
    return bool(made == value) if dtype.kind != "f" else bool(np.isfinite(made)) or not math.isfinite(value)


def one_hot(indices: Any, depth: int, on_value: float = 1, off_value: float = 0, dtype: Any = "float32") -> Any:
    """Turn class numbers into vectors.

    Args:
        indices: integers; one outside [0, depth) gives a vector of `off_value` only, as in `tf.one_hot`. -1 stands for
            no class; any other is logged, once for a line, as it is likely a mistake.
        depth: number of classes, from 1 to 2**30.
        on_value: the value at the class.
        off_value: the value everywhere else.
        dtype: of the result.

    Shapes: ``integer[...] -> dtype[..., depth]``

    Raises:
        SpecError: `indices` are not integers, or a value does not fit `dtype`.
        ShapeError: the result would have more than 2**30 numbers.

    Example:
        >>> one_hot(1, 3)
        array([0., 1., 0.], dtype=float32)
    """
    return apply(OneHot(depth, on_value, off_value, dtype), indices)
