"""flip: mirror each image whose drawn number is 1, and the base of the two random flips."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.ops._shared.composite import Composite, Row
from gpupipe.ops._shared.geometry import column, image_of, mirrored_positions
from gpupipe.ops._shared.samples import noise
from gpupipe.ops._shared.sometimes import where_dali
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["Direction", "Flip", "RandomFlip", "flipped", "mirrored"]

Direction = Literal["left_right", "up_down"]


@dataclass(frozen=True, slots=True)
class Flip(Op):
    """Mirror the image where `mirror` is 1. Exact on every executor, but see `ResizeFlip` for what follows a resize.

    Attributes:
        direction: "left_right" or "up_down".

    Shapes: ``T[H,W,C]{HWC}, int32[] -> T[H,W,C]{HWC}``
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "sequence"
    parameters: ClassVar[tuple[str, ...]] = ("mirror",)

    direction: Direction = "left_right"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return image_of(self.name, xs[0])

    def motion(self, hw: Array, *params: Array) -> Array:
        across = self.direction == "left_right"
        return mirrored_positions(hw, bool(params[0]) and across, bool(params[0]) and not across)

    def reference(self, x: Array, mirror: Array) -> Array:
        if not mirror:
            return x
        return x[:, ::-1] if self.direction == "left_right" else x[::-1]

    def stacked(self, x: Array, mirror: Array) -> Array:
        chosen, out = np.flatnonzero(mirror), x.copy()
        out[chosen] = mirrored(x[chosen]) if self.direction == "left_right" else x[chosen, ::-1]
        return out

    def dali(self, d: Any, x: Any, mirror: Any) -> Any:
        across = self.direction == "left_right"
        return flipped(d, x, across, not across, mirror)


def flipped(d: Any, x: Any, columns: bool, lines: bool, mirror: Any = 1) -> Any:
    """Images mirrored left-right, up-down or both by DALI, whose flip of one without channels ends the process.

    Args:
        d: what `Op.dali` gets.
        x: the images.
        columns: mirror left-right.
        lines: mirror up-down.
        mirror: 1, or a node of the host: 1 for each image that is mirrored, else 0.
    """

    def flip(x: Any, mirror: Any = 1) -> Any:
        return d.fn.flip(x, horizontal=mirror if columns else 0, vertical=mirror if lines else 0)

    given = () if isinstance(mirror, int) else (mirror,)
    return where_dali(d, x.shape()[2] > 0, x, given, flip) if d.unknown_channels else flip(x, *given)


def mirrored(x: Array) -> Array:
    """A mirrored copy of T[...,W,C], channel by channel: 7 times as fast as copying ``x[..., ::-1, :]``."""
    out = np.empty_like(x)
    for channel in range(x.shape[-1]):
        out[..., channel] = x[..., ::-1, channel]
    return out


@dataclass(frozen=True, slots=True)
class RandomFlip(Composite):
    """Mirror the image with probability `p` (0..1). Exact on every executor, as `Flip` is.

    Attributes:
        direction: of the flip.
        p: probability, 0..1.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, for each of the images.
    """

    random: ClassVar[bool] = True
    drawn: ClassVar[Literal["", "window", "flag"]] = "flag"
    parameters: ClassVar[tuple[str, ...]] = ("mirror",)
    traceable: ClassVar[tuple[str, ...]] = ("p",)
    direction: ClassVar[Direction]

    p: Any = 0.5

    def __post_init__(self) -> None:
        check_number(self.name, "p", self.p, 0, 1)

    def row(self, image: int = 0) -> Row:
        return ((Flip(self.direction), (0,)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return ((rng.uniform() < column(self.p, len(hw), np.float64)).astype(np.int32),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        for p in (0, 0.5, 1):
            for x in (noise(5, 4), noise(1, 7, 1), noise(6, 3, dtype=np.float32)):
                yield Case(cls(p), (x,), ("HWC",), note=f"p={p}")
        yield Case(cls(images=2), (noise(5, 4), noise(5, 4, 1)), ("HWC", "HWC"), note="with-mask")
