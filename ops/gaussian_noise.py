"""gaussian_noise: add normally distributed noise to every value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.colour import Colour, rows_within, together_dali, tolerance
from gpupipe.ops._shared.grain import grain, grain_dali, grain_keys, normals
from gpupipe.ops._shared.samples import tones
from gpupipe.ops.convert_image_dtype import LARGEST, dtype_of
from gpupipe.random import BatchRng

__all__ = ["GaussianNoise", "gaussian_noise"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GaussianNoise(Colour):
    """Add ``mean + sigma n`` with a normal n for each value; integers are rounded or truncated, and saturate.

    The noise of each value is one of 65,536 levels, chosen by `grain`: equal on every executor.

    Attributes:
        mean: of the noise, in shares of the largest integer.
        sigma: standard deviation, in the same unit, at least 0.
        clip: whether floats are clipped to 0..1.
        toward_zero: whether what is added to integers is truncated toward 0, not the sum rounded.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, C up to 4.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    random: ClassVar[bool] = True
    legal: ClassVar[tuple[int, ...] | None] = (1, 2, 3, 4)
    parameters: ClassVar[tuple[str, ...]] = ("keys", "noise")
    traceable: ClassVar[tuple[str, ...]] = ("mean", "sigma")

    mean: Any = 0.0
    sigma: Any = 0.1
    clip: bool = True
    toward_zero: bool = False

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        check_number(self.name, "mean", self.mean, -self._most, self._most)
        check_number(self.name, "sigma", self.sigma, 0, self._most)

    @property
    def _truncates(self) -> bool:
        return self.toward_zero and LARGEST[self.dtype] != 1

    @property
    def _most(self) -> float:
        """The bound of both numbers: the whole range, but for floats that are not clipped to it."""
        return np.inf if LARGEST[self.dtype] == 1 and not self.clip else 1

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        mean = rows_within(self.name, "mean", self.mean, len(hw), -self._most, self._most)
        sigma = rows_within(self.name, "sigma", self.sigma, len(hw), 0, self._most)
        noise = np.stack([mean, sigma], axis=1) * LARGEST[self.dtype]
        return grain_keys(rng, hw), noise.astype(np.float32)

    def reference(self, x: Array, *params: Any) -> Array:
        self.check_channels(x)
        keys, (mean, sigma) = params
        with np.errstate(all="ignore"):  # for floats that are not finite
            y = np.take(normals(), grain(keys, x.shape, True) >> np.uint32(16))
            y *= sigma
            y += mean
            if self._truncates:
                y = np.trunc(y)
            y += x
            if LARGEST[self.dtype] != 1:
                y = np.clip(np.floor(y + np.float32(0.5)), 0, LARGEST[self.dtype])
            elif self.clip:
                y = np.clip(y, 0, 1)
            return y.astype(self.dtype)

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        keys, noise = params
        x = self.checked_dali(d, x)
        upper = grain_dali(d, keys, x, True) // d.types.Constant(65536, dtype=d.dtype(np.uint32))
        levels = d.fn.cast(upper, dtype=d.dtype(np.uint16))
        table = {"keys": list(range(65536)), "values": normals().tolist()}
        n = d.fn.lookup_table(levels, **table, dtype=d.dtype(np.float32))
        mean, sigma = together_dali(d, (noise[0], noise[1]))
        added = n * sigma + mean
        if self._truncates:
            added = d.math.floor(d.math.max(added, 0.0)) + d.math.ceil(d.math.min(added, 0.0))
        y = d.fn.cast(x, dtype=d.dtype(np.float32)) + added
        if LARGEST[self.dtype] != 1:
            y = d.math.floor(y + 0.5)  # the cast saturates
        elif self.clip:
            y = d.math.clamp(y, 0.0, 1.0)
        return d.fn.reshape(d.fn.cast(y, dtype=d.dtype(self.dtype)), layout="HWC")

    @classmethod
    def cases(cls) -> Iterator[Case]:
        fused = "a product and a sum may be fused, which can move a value across the half between two integers"
        for mean, sigma, clip in ((0.0, 0.1, True), (0.1, 0.02, False)):
            for x in tones():
                op = cls(mean, sigma, clip, dtype=x.dtype.name)
                yield Case(op, (x,), ("HWC",), **tolerance(x, fused, 1, 1e-6), note=f"{mean}-{sigma}")
        for x in tones():
            op = cls(-0.05, 0.1, toward_zero=True, dtype=x.dtype.name)
            yield Case(op, (x,), ("HWC",), **tolerance(x, fused, 1, 1e-6), note="toward-zero")


def gaussian_noise(
    image: T,
    mean: Any = 0.0,
    sigma: Any = 0.1,
    clip: bool = True,
    *,
    toward_zero: bool = False,
    seed: int | None = None,
) -> T:
    """Add Gaussian noise to every value of `image`, as torchvision's `GaussianNoise`.

    Of integers the sum is rounded. The noise is a function of the element, as all that is drawn, and equal on every
    executor.

    Args:
        image: up to 4 channels of uint8, uint16, float16 or float32.
        mean: of the noise; 1 is the largest integer, or 1.0. May be traced.
        sigma: standard deviation, at least 0, in the same unit. May be traced.
        clip: whether floats are clipped to 0..1. Integers always saturate.
        toward_zero: truncate what is added to integers toward 0, as torchvision does.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``

    Raises:
        SpecError: `image` is not an image of such a type, or `sigma` is negative.

    Example:
        >>> gaussian_noise(np.full((1, 1, 1), 100, np.uint8), mean=0.2, sigma=0)
        array([[[151]]], dtype=uint8)
    """
    op = GaussianNoise(mean, sigma, clip, toward_zero, dtype=dtype_of("gaussian_noise", image))
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
