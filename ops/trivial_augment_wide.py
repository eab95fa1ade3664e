"""trivial_augment_wide: apply one random op of a random strength to each image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case
from gpupipe.integers import plain
from gpupipe.ops._shared.policy import USED, Policy, augmented, settings_of, signed_strengths
from gpupipe.random import BatchRng

__all__ = ["WIDE", "TrivialAugmentWide", "trivial_augment_wide"]

T = TypeVar("T")

WIDE: dict[str, float] = {
    **dict.fromkeys(("shear_x", "shear_y"), 0.99),
    **dict.fromkeys(("translate_x", "translate_y"), 32.0),
    "rotate": 135.0,
    **dict.fromkeys(("brightness", "color", "contrast", "sharpness"), 0.99),
}
"""The greatest strength of each op that has one; translations in pixels."""


@dataclass(frozen=True, slots=True)
class TrivialAugmentWide(Policy):
    """Apply one op, drawn from 14, at a random strength, as torchvision does.

    Attributes:
        num_magnitude_bins: how many strengths there are.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``
    """

    num_magnitude_bins: int = 31

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        self.check("num_magnitude_bins", 2, 10_000)

    @property
    def layers(self) -> int:
        return 1

    @property
    def used(self) -> tuple[str, ...]:
        return USED

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        u = rng.uniform(3)
        ops = np.floor(u[:, :1] * len(USED)).astype(np.int32)
        index = np.floor(u[:, 1:2] * self.num_magnitude_bins).astype(np.int64)
        return ops, signed_strengths(ops, index, u[:, 2:] < 0.5, self.num_magnitude_bins, hw, WIDE, 6)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.policy_cases(cls(), cls(5, interpolation="bilinear", fill=128))


def trivial_augment_wide(
    image: T,
    num_magnitude_bins: int = 31,
    interpolation: str = "nearest",
    fill: int | None = None,
    *,
    seed: int | None = None,
) -> T:
    """Apply one random op of a random strength to `image`, as torchvision's `TrivialAugmentWide` with tensors.

    Of the 14 ops of `rand_augment`. DALI and NumPy compute for each image only the one that was drawn for it.

    Args:
        image: 3 channels of uint8, or a `Sample` of such an image.
        num_magnitude_bins: how many strengths there are.
        interpolation: of shears, translations and rotations: "nearest" or "bilinear".
        fill: what they bring in from outside, 0..255, in all channels; black by default.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels of uint8, or a parameter is out of range.

    Example:
        >>> trivial_augment_wide(np.zeros((4, 4, 3), np.uint8), seed=1).shape
        (4, 4, 3)
    """
    op = TrivialAugmentWide(
        plain(num_magnitude_bins),
        **settings_of("trivial_augment_wide", image, interpolation, fill),
    )
    return augmented(op, image, fill, seed)  # type: ignore[no-any-return]
