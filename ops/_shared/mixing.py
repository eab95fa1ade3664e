"""mixing: the base of ops that mix the images of a batch, with labels as vectors and the drawn share."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Op, check_number
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.ops._shared.geometry import layout_of
from gpupipe.ops.one_hot import one_hot
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, as_leaf, spec_of

__all__ = ["Mixing", "beta", "mixed"]

DTYPES = tuple(map(np.dtype, ("uint8", "uint16", "int16", "int32", "float16", "float32")))
"""Dtypes whose values float32 holds."""


@dataclass(frozen=True, slots=True)
class Mixing(Op):
    """An op that mixes every image of a batch, and its label, with the previous one, and the first with the last.

    Subclasses define `draw` and `array`.

    Attributes:
        alpha: above 0; the share of the original image is drawn from Beta(alpha, alpha).
        layout: of the images.

    Shapes: ``T[B,H,W,C]{NHWC}, float32[B,K] -> float32[B,H,W,C]{NHWC}, float32[B,K]``, or NCHW
    """

    rows: ClassVar[Literal["each", "batch"]] = "batch"
    random: ClassVar[bool] = True

    alpha: float = 1.0
    layout: Literal["HWC", "CHW"] = field(default="HWC", kw_only=True)

    def __post_init__(self) -> None:
        check_number(self.name, "alpha", self.alpha, 1e-3, 1e6)
        if self.layout not in ("HWC", "CHW"):
            raise SpecError(f'{self.name} needs layout "HWC" or "CHW", got {self.layout!r}')

    def infer(self, *xs: TensorSpec) -> tuple[TensorSpec, ...]:
        image, label = xs
        image = image.require(self.name, layout=self.layout)
        if image.dtype not in DTYPES:
            names = ", ".join(map(str, DTYPES))
            raise SpecError(f"{self.name} needs images of {names}, got {image}; convert them first with ops.cast")
        if label.dtype != np.dtype(np.float32) or label.rank != 1:
            raise SpecError(f"{self.name} needs a vector of float32 as the label of each image, got {label}")
        return TensorSpec(image.shape, np.float32, self.layout), label


def beta(rng: BatchRng, alpha: float) -> Array:
    """One number from Beta(alpha, alpha) per element, 0..1: float64[B].

    Computed from two uniform numbers, exact for every alpha (L. Devroye, "Random variate generation in one line of
    code", 1996): with Student's t of 2 alpha degrees of freedom, ``1/2 + t / (2 sqrt(2 alpha + t^2))``.
    """
    u = rng.uniform(2)
    turn = np.cos(2 * np.pi * u[:, 1])
    with np.errstate(divide="ignore", over="ignore"):  # for a very small first number, where the share is 0 or 1
        square = (u[:, 0] ** (-1 / alpha) - 1) * turn**2
        away: Array = 0.5 / np.sqrt(1 + 1 / square)
    return 0.5 + np.sign(turn) * away


def mixed(op: type[Mixing], images: Any, labels: Any, alpha: Any, num_classes: Any, layout: Any, seed: Any) -> Any:
    """Apply a mixing op, after turning class numbers into vectors."""
    who = op(1.0).name
    check_number(who, "alpha", alpha, 1e-3, 1e6)
    spec = labels._value.spec if isinstance(labels, Symbol) else spec_of(as_leaf(labels))
    if spec.dtype is None or spec.dtype is bytes or np.dtype(spec.dtype).kind == "b":
        raise SpecError(f"{who} needs labels as class numbers or as vectors of float32, got {spec}")
    if np.dtype(spec.dtype).kind in "iu":
        if num_classes is None:
            raise PlanTypeError(f"{who} needs num_classes to make vectors of the class numbers {spec}")
        labels = one_hot(labels, num_classes)
    elif num_classes is not None and spec.shape and spec.shape[-1] not in (None, num_classes):
        raise SpecError(f"{who} needs labels of num_classes={num_classes} numbers, got {spec}")
    return apply(op(float(alpha), layout=layout or layout_of(images)), images, labels, seed=seed)
