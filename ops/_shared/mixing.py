"""mixing: the base of ops that mix the images of a batch, with labels as vectors and the drawn share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import Symbol, apply
from gpupipe.ops._shared.geometry import layout_of
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.one_hot import one_hot
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec, as_leaf, spec_of

__all__ = ["Mixing", "MixingByBeta", "beta", "checked_alpha", "dirichlet", "mixed"]

DTYPES = tuple(map(np.dtype, ("uint8", "uint16", "int16", "int32", "float16", "float32")))
"""Dtypes whose values float32 holds."""


@dataclass(frozen=True, slots=True)
class Mixing(Op):
    """An op that mixes every image of a batch, and its label, with the previous one, and the first with the last.

    Subclasses define `draw` and `array`.

    Attributes:
        layout: of the images.

    Shapes: ``T[B,H,W,C]{NHWC}, float32[B,K] -> float32[B,H,W,C]{NHWC}, float32[B,K]``, or NCHW
    """

    levels: ClassVar[Literal["", "kept", "unit"]] = "kept"
    rows: ClassVar[Literal["each", "batch"]] = "batch"
    random: ClassVar[bool] = True

    layout: Literal["HWC", "CHW"] = field(default="HWC", kw_only=True)

    def __post_init__(self) -> None:
        if self.layout not in ("HWC", "CHW"):
            raise SpecError(f'{self.name} needs layout "HWC" or "CHW", got {self.layout!r}')

    @property
    def takes(self) -> str:
        return self.layout

    def infer(self, *xs: TensorSpec) -> tuple[TensorSpec, ...]:
        image, label = xs
        image = image.require(self.name, layout=self.layout)
        if image.dtype not in DTYPES:
            names = ", ".join(map(str, DTYPES))
            raise SpecError(f"{self.name} needs images of {names}, got {image}; convert them first with ops.cast")
        if label.dtype != np.dtype(np.float32) or label.rank != 1:
            raise SpecError(f"{self.name} needs a vector of float32 as the label of each image, got {label}")
        return TensorSpec(image.shape, np.float32, self.layout), label

    def case(self, note: str = "") -> Case:
        """A case of this op: three images, and their labels."""
        images = np.stack([noise(6, 5), noise(6, 5)[::-1], noise(6, 5)[:, ::-1]])
        return Case(self, (images, np.eye(3, dtype=np.float32)), ("NHWC",), note=note)


@dataclass(frozen=True, slots=True)
class MixingByBeta(Mixing):
    """Base of the ops whose share is drawn from Beta(alpha, alpha).

    Attributes:
        alpha: from 0.001 to 1,000,000.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        Mixing.__post_init__(self)
        object.__setattr__(self, "alpha", checked_alpha(self.name, "alpha", self.alpha))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield cls().case()


def checked_alpha(who: str, name: str, alpha: Any) -> float:
    """The parameter of a beta distribution, from 0.001 to 1,000,000."""
    check_number(who, name, alpha, 1e-3, 1e6)
    return float(alpha)


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


_TRIES = 10
"""Numbers of which `dirichlet` takes the first that is not refused; that all are has a probability below 1e-12."""


def dirichlet(rng: BatchRng, alpha: float, count: int) -> Array:
    """Shares of one, drawn from the symmetric Dirichlet distribution: float64[B,count].

    Gamma variates divided by their sum (G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables",
    2000; below 1 by its section 6), as logarithms, since those of a small `alpha` are less than the smallest float.
    """
    u = 1 - rng.uniform(count * (3 * _TRIES + 1)).reshape(rng.size, count, -1)  # not 0
    tries = u[:, :, 1:].reshape(rng.size, count, _TRIES, 3)
    normal = np.sqrt(-2 * np.log(tries[..., 0])) * np.cos(2 * np.pi * tries[..., 1])
    d = (alpha + 1 if alpha < 1 else alpha) - 1 / 3
    v = (1 + normal / np.sqrt(9 * d)) ** 3
    log_v = np.log(np.where(v > 0, v, 1))
    good = (v > 0) & (np.log(tries[..., 2]) < normal**2 / 2 + d - d * v + d * log_v)
    good[..., -1] |= v[..., -1] > 0
    first = good.argmax(axis=2)[..., None]
    log = np.log(d) + np.take_along_axis(log_v, first, axis=2)[..., 0]
    if alpha < 1:
        log += np.log(u[:, :, 0]) / alpha
    shares = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def mixed(op: Mixing, images: Any, labels: Any, num_classes: Any, layout: Any, seed: Any) -> Any:
    """Apply a mixing op to images of this layout, after turning class numbers into vectors."""
    who = op.name
    spec = labels._value.spec if isinstance(labels, Symbol) else spec_of(as_leaf(labels))
    if spec.dtype is None or spec.dtype is bytes or np.dtype(spec.dtype).kind == "b":
        raise SpecError(f"{who} needs labels as class numbers or as vectors of float32, got {spec}")
    if np.dtype(spec.dtype).kind in "iu":
        if num_classes is None:
            raise PlanTypeError(f"{who} needs num_classes to make vectors of the class numbers {spec}")
        labels = one_hot(labels, num_classes)
    elif num_classes is not None and spec.shape and spec.shape[-1] not in (None, num_classes):
        raise SpecError(f"{who} needs labels of num_classes={num_classes} numbers, got {spec}")
    return apply(replace(op, layout=layout or layout_of(images)), images, labels, seed=seed)
