"""resize_flip: resize an image and mirror it in one pass; the optimizer fuses those two into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.ops._shared.flip import Flip, mirrored
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["ResizeFlip"]


@dataclass(frozen=True, slots=True)
class ResizeFlip(Op):
    """Resize bilinearly, then mirror the image left-right where `mirror` is 1.

    Equal to its parts but on DALI, whose resize reads its tables from the other end: other float32 sums, which differ
    by 0.02 of 255, and by 1 next to n + 0.5 where integers are rounded.

    Attributes:
        resize: how.

    Shapes: ``T[H,W,C]{HWC}, int32[2], int32[] -> U[h,w,C]{HWC}``, U as for `resize`.
    """

    parameters: ClassVar[tuple[str, ...]] = ("size", "mirror")

    resize: Resize

    def __post_init__(self) -> None:
        if self.resize.method != "bilinear":
            raise SpecError(f"resize_flip needs a bilinear resize, got {self.resize.method!r}")

    @property
    def stage(self) -> str:
        """The op that the user wrote."""
        return self.resize.stage

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return self.resize.infer(*xs)

    def size(self, hw: Array, *params: Array) -> Array:
        return params[0]

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return *self.resize.draw(rng, hw), np.ones(len(hw), np.int32)

    def reference(self, x: Array, size: Array, mirror: Array) -> Array:
        y = self.resize.reference(x, size)
        return mirrored(y) if mirror else y

    def fast(self, x: Array, size: Array, mirror: Array) -> Array:
        """As `reference` of what `resize` gives: OpenCV mirrors, in place where the resized image is in own memory."""
        y = self.resize.fast(x, size)
        if not mirror:
            return y
        if not y.size or y.shape[2] > 4 or y.dtype.char not in "Bf":
            return mirrored(y)
        own = y.flags.writeable and not np.may_share_memory(x, y)
        flipped: Array = opencv().flip(y, 1, dst=y if own else None)
        return flipped.reshape(y.shape)

    def dali(self, d: Any, x: Any, size: Any, mirror: Any) -> Any:
        return self.resize.mirrored_dali(d, x, size, mirror)

    def decompose(self) -> tuple[tuple[Op, tuple[int, ...]], ...]:
        return (self.resize, (0,)), (Flip("left_right"), (1,))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        ring = (
            "DALI repeats edge pixels, Pillow and TensorFlow ignore what lies outside: only the outermost ring differs"
        )
        single = "float32 rounding of weights"
        for x in (noise(61, 83), noise(24, 31), noise(20, 90, 1), noise(61, 83, 4)):
            for keep in (False, True):
                how: Any = {"atol": 1 if keep else 0.02, "reason": single}
                note = f"{'x'.join(map(str, x.shape))}{'-keep' * keep}"
                yield Case(cls(Resize(24, 31, keep_dtype=keep)), (x,), ("HWC",), note=note, **how)
                how.update(ring=18, reason=ring)
                aa = Resize(24, 31, antialias=True, keep_dtype=keep)
                yield Case(cls(aa), (x,), ("HWC",), note=f"{note}-aa", **how)
        f = noise(61, 83).astype(np.float32)
        yield Case(cls(Resize(24, 31)), (f,), ("HWC",), atol=0.02, reason=single, note="float")
        fit = Resize(50, 50, preserve_aspect_ratio=True)
        yield Case(cls(fit), (noise(61, 83),), ("HWC",), atol=0.02, reason=single, note="fit")
