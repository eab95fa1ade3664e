"""composite: the base of ops that are a sequence of simpler ones, and of ops on several images at once."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import ShapeError, SpecError
from gpupipe.graph.op import Array, Op, check_flag, unlike
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.geometry import image_of, images_of
from gpupipe.ops._shared.one_size import of_one_size
from gpupipe.ops._shared.travel import moved
from gpupipe.ops.sample import Sample
from gpupipe.spec import TensorSpec

__all__ = ["Composite", "Row", "call"]

Row = tuple[tuple[Op, tuple[int, ...]], ...]
"""Ops applied one after another, each with the indices of the parameters that it takes."""


@dataclass(frozen=True, slots=True)
class Composite(Op):
    """An op that draws parameters and passes them to simpler ops. Subclasses define `row` and, if needed, `draw`.

    With several images there is one draw, from the size of the first, and one result per image.

    Attributes:
        images: number of images.
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"

    images: int = field(default=1, kw_only=True)

    def row(self, image: int = 0) -> Row:
        """The simpler ops for image number `image`."""
        raise TypeError(f"{type(self).__name__} does not define row")

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        if len(xs) != self.images:
            raise SpecError(f"{self.name} needs {self.images} images, got {len(xs)}")
        results = tuple(self._infer(index, image_of(self.name, x)) for index, x in enumerate(xs))
        sizes = [x.shape[:2] for x in xs if x.shape is not None and None not in x.shape[:2]]
        for other in sizes[1:]:
            if other != sizes[0]:
                raise SpecError(f"{self.name} {unlike(sizes[0], other)}")
        return results[0] if len(results) == 1 else results

    def _infer(self, index: int, x: TensorSpec) -> TensorSpec:
        for op, _ in self.row(index):
            inferred = op.infer(x)
            assert isinstance(inferred, TensorSpec)  # the simpler ops have one result
            x = inferred
        return x

    def size(self, hw: Array, *params: Array) -> Array:
        for op, taken in self.row():
            hw = op.size(hw, *(params[i] for i in taken))
        return hw

    def motion(self, hw: Array, *params: Array) -> Array:
        made = np.eye(3)
        for op, taken in self.row():
            given = [params[i] for i in taken]
            made = op.motion(hw, *given) @ made
            hw = op.size(hw[None], *(param[None] for param in given))[0]
        return made

    def reference(self, *args: Any) -> Any:
        xs, params = args[: self.images], args[self.images :]
        results = []
        for index, x in enumerate(xs):
            if x.shape[:2] != xs[0].shape[:2]:
                raise ShapeError(unlike(xs[0].shape[:2], x.shape[:2]))
            for op, taken in self.row(index):
                x = op.reference(x, *(params[i] for i in taken))
            results.append(x)
        return results[0] if len(results) == 1 else tuple(results)

    def dali(self, d: Any, *args: Any) -> Any:
        xs, params = args[: self.images], args[self.images :]
        results = []
        for index, x in enumerate(xs):
            for op, taken in self.row(index):
                x = op.dali(d, x, *(params[i] for i in taken))
            results.append(x)
        return results[0] if len(results) == 1 else tuple(results)

    def decompose(self) -> Row:
        return self.row() if self.images == 1 else ()


def call(op: Op, image: Any, seed: int | None = None, return_params: bool = False) -> Any:
    """The results of an op for an image, several or a Sample; with `return_params` and what it drew, as a pair."""
    check_flag(op.name, "return_params", return_params)
    if isinstance(image, Sample):
        return moved(op, image, seed, return_params)
    made = apply(op, *of_one_size(op, images_of(image)), seed=seed, return_params=return_params)
    if not return_params:
        return made
    *images, params = made
    return (images[0] if len(images) == 1 else tuple(images)), params
