"""scaling: the base of ops that resize both sides of an image by one factor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.composite import Composite, Row
from gpupipe.ops._shared.geometry import check_pixels
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize, check_methods
from gpupipe.random import BatchRng

__all__ = ["Scaling"]


@dataclass(frozen=True, slots=True)
class Scaling(Composite):
    """Resize both sides by one factor. Subclasses define `scaled`. Executors differ as for `Resize` with antialias.

    Attributes:
        interpolation: one method per image.
        antialias: average over all source pixels when shrinking.

    Shapes: ``T[H,W,C]{HWC} -> T[h,w,C]{HWC}``, for each of the images.
    """

    parameters: ClassVar[tuple[str, ...]] = ("size",)

    interpolation: tuple[str, ...] = field(default=("bilinear",), kw_only=True)
    antialias: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        check_methods(self.name, self.interpolation, self.images)

    def scaled(self, rng: BatchRng, hw: Array) -> Array:
        """The sizes of the results, which are truncated: a float[B,2]."""
        raise TypeError(f"{type(self).__name__} does not define scaled")

    def row(self, image: int = 0) -> Row:
        method = self.interpolation[image]
        return ((Resize(method=method, antialias=self.antialias, keep_dtype=True, stage=self.name), (0,)),)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        check_pixels(self.name, hw)
        return (np.clip(self.scaled(rng, hw), 1, 1 << 30).astype(np.int32),)

    @classmethod
    def scaled_cases(cls, *settings: Any) -> Iterator[Case]:
        """Cases of an op with these settings, for several sizes and dtypes, and for an image with its mask."""
        for x in (noise(61, 83), noise(83, 50, 1), noise(40, 40, dtype="float32"), noise(20, 15)):
            yield ring_case(cls(*settings), x)
        both = cls(*settings, interpolation=("nearest", "nearest"), images=2)
        yield Case(both, (noise(61, 83), noise(61, 83, 1)), ("HWC", "HWC"), note="with-mask")


def ring_case(op: Scaling, x: Array, note: str = "") -> Case:
    """A case of which executors differ at the edges."""
    ring = "DALI repeats edge pixels, Pillow ignores what lies outside: only the outermost ring differs"
    return Case(op, (x,), ("HWC",), atol=1, ring=18, reason=ring, note=note)
