"""rand_augment: apply a few random ops of one strength to each image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.integers import plain
from gpupipe.ops._shared.policy import MOST, USED, Policy, augmented, settings_of, signed_strengths
from gpupipe.random import BatchRng

__all__ = ["RandAugment", "rand_augment"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RandAugment(Policy):
    """Apply `num_ops` ops, each drawn from 14, at the strength `magnitude`, as torchvision does.

    Attributes:
        num_ops: how many ops, one after another.
        magnitude: index of the strength, from 0.
        num_magnitude_bins: how many strengths there are.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        self.check("num_ops", 0, 32)
        self.check("num_magnitude_bins", 2, 10_000)
        self.check("magnitude", 0, None)
        if self.magnitude >= self.num_magnitude_bins:
            raise SpecError(
                f"{self.name} needs magnitude below num_magnitude_bins, which is {self.num_magnitude_bins}, "
                f"got {self.magnitude}"
            )

    @property
    def layers(self) -> int:
        return self.num_ops

    @property
    def used(self) -> tuple[str, ...]:
        return USED

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        u = rng.uniform(2 * self.num_ops).reshape(len(hw), self.num_ops, 2)
        ops = np.floor(u[:, :, 0] * len(USED)).astype(np.int32)
        return ops, signed_strengths(ops, self.magnitude, u[:, :, 1] < 0.5, self.num_magnitude_bins, hw, MOST, 4)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.policy_cases(cls(), cls(3, 30, interpolation="bilinear", fill=128), cls(0))


def rand_augment(
    image: T,
    num_ops: int = 2,
    magnitude: int = 9,
    num_magnitude_bins: int = 31,
    interpolation: str = "nearest",
    fill: int | None = None,
    *,
    seed: int | None = None,
) -> T:
    """Apply `num_ops` random ops of one strength to `image`, as torchvision's `RandAugment` with tensors.

    Of 14 ops: nothing, shears, translations, rotation, brightness, color, contrast, sharpness, posterize, solarize,
    autocontrast, equalize. DALI and NumPy compute for each image only what was drawn for it.

    Args:
        image: 3 channels of uint8, or a `Sample` of such an image.
        num_ops: how many ops, one after another.
        magnitude: index of the strength, 0 to `num_magnitude_bins` - 1.
        num_magnitude_bins: how many strengths there are.
        interpolation: of shears, translations and rotations: "nearest" or "bilinear".
        fill: what they bring in from outside, 0..255, in all channels; black by default.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels of uint8, or a parameter is out of range.

    Example:
        >>> rand_augment(np.zeros((4, 4, 3), np.uint8), seed=1).shape
        (4, 4, 3)
    """
    op = RandAugment(
        plain(num_ops),
        plain(magnitude),
        plain(num_magnitude_bins),
        **settings_of("rand_augment", image, interpolation, fill),
    )
    return augmented(op, image, fill, seed)  # type: ignore[no-any-return]
