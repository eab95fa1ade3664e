"""random_order: apply functions to each image, in an order drawn for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import permutations
from typing import Any, ClassVar, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError
from gpupipe.graph.eager import over_rows, stacked
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.choice import Choice, chosen, results_of
from gpupipe.ops._shared.geometry import column
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.travel import by_rows
from gpupipe.ops.random_uniform import random_uniform
from gpupipe.random import BatchRng

__all__ = ["RandomOrder", "random_order"]

T = TypeVar("T")

MOST_FUNCTIONS = 6
"""That is 720 orders, and 36 results for each image."""


@lru_cache(MOST_FUNCTIONS)
def orders(count: int) -> Array:
    """All orders of `count` things, in lexicographic order: int32[count!,count]."""
    return np.array(list(permutations(range(count))), np.int32)


@dataclass(frozen=True, slots=True)
class RandomOrder(Choice):
    """Choose the result of the function whose turn it is. Exact on every executor.

    Attributes:
        position: which turn it is, from 0.
        order: number of the order among all of them, plain or traced.

    Shapes: ``T[...], ... -> T[...]``
    """

    random: ClassVar[bool] = False
    traceable: ClassVar[tuple[str, ...]] = ("order",)

    position: int = 0
    order: Any = 0

    def __post_init__(self) -> None:
        check_number(self.name, "position", self.position, 0, self.options - 1, integer=True)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (orders(self.options)[column(self.order, len(hw)), self.position],)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = noise(7, 9)
        three = (x, x[::-1].copy(), 255 - x)
        yield Case(cls(1, 3, options=3), three, ("HWC",) * 3)
        yield Case(cls(2, 4, options=3), three, ("HWC",) * 3, note="a later turn")
        pairs = tuple(image for y in three for image in (y, y[..., :1].copy()))
        yield Case(cls(1, 5, options=3, images=2, layouts=("HWC", "HWC")), pairs, ("HWC",) * 6, note="with-mask")


def random_order(functions: Sequence[Callable[[Any], Any]], image: T, *, seed: int | None = None) -> T:
    """Apply all of `functions` to `image`, in an order drawn for each image, as torchvision's `RandomOrder`.

    At each turn all functions are computed, and what is not chosen is dropped: it costs as much as n * n of them.

    Args:
        functions: 1 to 6, each takes an image and returns one of the same shape and dtype. They are called n times
            each, in a map with traced images; random ops in them draw anew at each turn unless they have a seed.
        image: one image, a `Sample`, or a tuple of images of equal size, which the functions get as a tuple.
        seed: identifies the draw of the order; by default the call's number does. Calls with equal seeds draw the same
            for one element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        PlanTypeError: `functions` is not a list of 1 to 6 functions that return what they are given.
        SpecError: the results differ in shape or dtype.
        ShapeError: at run time: the results differ in size.

    Example:
        >>> x = np.uint8([[[1], [2], [3]]])
        >>> random_order([lambda x: x[:, ::-1], lambda x: x * 2], x).ravel()
        array([6, 4, 2], dtype=uint8)
    """
    if not isinstance(functions, (list, tuple)) or not 0 < len(functions) <= MOST_FUNCTIONS:
        given = f"{len(functions)} of them" if isinstance(functions, (list, tuple)) else type(functions).__name__
        raise PlanTypeError(f"random_order needs a list of 1 to {MOST_FUNCTIONS} functions of an image, got {given}")
    return by_rows("random_order", image, lambda row: _in_order(functions, row, seed))  # type: ignore[no-any-return]


def _in_order(functions: Sequence[Callable[[Any], Any]], image: Any, seed: int | None) -> Any:
    images = image if isinstance(image, tuple) else (image,)
    if images and all(isinstance(x, np.ndarray) and x.ndim == 4 for x in images):  # each image its own order
        single = not isinstance(image, tuple)
        rows = over_rows(lambda row: _in_order(functions, row[0] if single else row, seed), zip(*images, strict=True))
        return stacked(rows) if single else tuple(map(stacked, zip(*rows, strict=True)))
    made = image
    order = random_uniform(0, len(orders(len(functions))), dtype="int32", seed=seed)
    for position in range(len(functions)):
        results = [results_of("random_order", function, made) for function in functions]
        if any(len(result) != len(images) for result in results):
            raise PlanTypeError("random_order needs functions that return one image for each that they are given")
        made = chosen("random_order", partial(_turn, position, order, len(results)), results)
    return made


def _turn(position: int, order: Any, options: int, images: int, layouts: tuple[str, ...]) -> RandomOrder:
    return RandomOrder(position, order, options=options, images=images, layouts=layouts)
