"""random_choice: apply one of several functions to each image."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.integers import plain
from gpupipe.ops._shared.choice import Choice, chosen, results_of
from gpupipe.ops._shared.operands import is_number
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.travel import by_rows
from gpupipe.random import BatchRng

__all__ = ["RandomChoice", "random_choice"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandomChoice(Choice):
    """Choose one of the results. Exact on every executor.

    Attributes:
        p: relative probability of each.

    Shapes: ``T[...], ... -> T[...]``
    """

    p: tuple[float, ...] = (1.0, 1.0)

    def __post_init__(self) -> None:
        for weight in self.p:
            check_number(self.name, "p", weight, 0)
        if len(self.p) != self.options or not 0 < sum(self.p) < np.inf:
            raise SpecError(f"{self.name} needs p as {self.options} numbers, not all of them 0, got {self.p}")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        ends = np.cumsum(np.array(self.p, np.float64) / sum(self.p))
        possible = np.flatnonzero(self.p)
        # A sum of fractions may end below 1: what lies beyond it belongs to the last that is possible.
        return (np.minimum(np.searchsorted(ends, rng.uniform(), side="right"), possible[-1]).astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        x = noise(7, 9)
        three = (x, x[::-1].copy(), 255 - x)
        yield Case(cls((1.0, 2.0, 1.0), options=3), three, ("HWC",) * 3)
        yield Case(cls((0.0, 1.0, 0.0), options=3), three, ("HWC",) * 3, note="always")
        masks = tuple(image[..., :1].copy() for image in three)
        pairs = tuple(image for pair in zip(three, masks, strict=True) for image in pair)
        op = cls((1.0, 2.0, 1.0), options=3, images=2, layouts=("HWC", "HWC"))
        yield Case(op, pairs, ("HWC",) * 6, note="with-mask")


def random_choice(
    functions: Sequence[Callable[[Any], Any]], image: T, p: Sequence[float] | None = None, *, seed: int | None = None
) -> T:
    """Apply one of `functions` to `image`, as torchvision's `RandomChoice`.

    All functions are computed for every image, and what is not chosen is dropped: it costs as much as all of them.

    Args:
        functions: each takes an image and returns one; their results have one shape and dtype. They are called once,
            with traced images. ``lambda x: x`` leaves an image as it is.
        image: one image, a `Sample`, or a tuple of images of equal size, which the functions get as a tuple.
        p: relative probability of each function; by default all are equally likely.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> U[h,w,c]{HWC}``

    Raises:
        SpecError: the results differ in shape or dtype, or `p` is not one number >= 0 for each function.
        ShapeError: at run time: the results differ in size.

    Example:
        >>> x = np.uint8([[[1], [2], [3]]])
        >>> random_choice([lambda x: x, lambda x: x[:, ::-1]], x, p=(0, 1)).ravel()
        array([3, 2, 1], dtype=uint8)
    """
    if not isinstance(functions, (list, tuple)) or not functions:
        raise PlanTypeError(f"random_choice needs a list of functions of an image, got {functions!r}")
    return by_rows("random_choice", image, lambda row: _one_of(functions, row, p, seed))  # type: ignore[no-any-return]


def _one_of(functions: Sequence[Callable[[Any], Any]], image: Any, p: Any, seed: int | None) -> Any:
    who = "random_choice"
    results = [results_of(who, function, image) for function in functions]
    if len(set(map(len, results))) > 1:
        raise PlanTypeError(f"{who} needs functions with as many results, got {[len(made) for made in results]}")
    given = isinstance(p, (list, tuple, np.ndarray))
    weights = (1.0,) * len(results) if p is None else plain(tuple(p)) if given else ()
    if not weights or not all(map(is_number, weights)):
        raise PlanTypeError(f"{who} needs p as a number for each function, got {p!r}")

    def make(images: int, layouts: tuple[str, ...]) -> RandomChoice:
        return RandomChoice(tuple(map(float, weights)), options=len(results), images=images, layouts=layouts)

    return chosen(who, make, results, seed)
