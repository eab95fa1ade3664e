"""auto_augment: apply two ops of a learned policy to each image."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.policy import MOST, NUMBER, OPS, Policy, augmented, settings_of, signed_strengths
from gpupipe.random import BatchRng

__all__ = ["AutoAugment", "auto_augment"]

T = TypeVar("T")

POLICIES = {
    "imagenet": """
        posterize 0.4 8, rotate 0.6 9
        solarize 0.6 5, autocontrast 0.6
        equalize 0.8, equalize 0.6
        posterize 0.6 7, posterize 0.6 6
        equalize 0.4, solarize 0.2 4
        equalize 0.4, rotate 0.8 8
        solarize 0.6 3, equalize 0.6
        posterize 0.8 5, equalize 1.0
        rotate 0.2 3, solarize 0.6 8
        equalize 0.6, posterize 0.4 6
        rotate 0.8 8, color 0.4 0
        rotate 0.4 9, equalize 0.6
        equalize 0.0, equalize 0.8
        invert 0.6, equalize 1.0
        color 0.6 4, contrast 1.0 8
        rotate 0.8 8, color 1.0 2
        color 0.8 8, solarize 0.8 7
        sharpness 0.4 7, invert 0.6
        shear_x 0.6 5, equalize 1.0
        color 0.4 0, equalize 0.6
        equalize 0.4, solarize 0.2 4
        solarize 0.6 5, autocontrast 0.6
        invert 0.6, equalize 1.0
        color 0.6 4, contrast 1.0 8
        equalize 0.8, equalize 0.6
    """,
    "cifar10": """
        invert 0.1, contrast 0.2 6
        rotate 0.7 2, translate_x 0.3 9
        sharpness 0.8 1, sharpness 0.9 3
        shear_y 0.5 8, translate_y 0.7 9
        autocontrast 0.5, equalize 0.9
        shear_y 0.2 7, posterize 0.3 7
        color 0.4 3, brightness 0.6 7
        sharpness 0.3 9, brightness 0.7 9
        equalize 0.6, equalize 0.5
        contrast 0.6 7, sharpness 0.6 5
        color 0.7 7, translate_x 0.5 8
        equalize 0.3, autocontrast 0.4
        translate_y 0.4 3, sharpness 0.2 6
        brightness 0.9 6, color 0.2 8
        solarize 0.5 2, invert 0.0
        equalize 0.2, autocontrast 0.6
        equalize 0.2, equalize 0.6
        color 0.9 9, equalize 0.6
        autocontrast 0.8, solarize 0.2 8
        brightness 0.1 3, color 0.7 0
        solarize 0.4 5, autocontrast 0.9
        translate_y 0.9 9, translate_y 0.7 9
        autocontrast 0.9, solarize 0.8 3
        equalize 0.8, invert 0.1
        translate_y 0.7 9, autocontrast 0.9
    """,
    "svhn": """
        shear_x 0.9 4, invert 0.2
        shear_y 0.9 8, invert 0.7
        equalize 0.6, solarize 0.6 6
        invert 0.9, equalize 0.6
        equalize 0.6, rotate 0.9 3
        shear_x 0.9 4, autocontrast 0.8
        shear_y 0.9 8, invert 0.4
        shear_y 0.9 5, solarize 0.2 6
        invert 0.9, autocontrast 0.8
        equalize 0.6, rotate 0.9 3
        shear_x 0.9 4, solarize 0.3 3
        shear_y 0.8 8, invert 0.7
        equalize 0.9, translate_y 0.6 6
        invert 0.9, equalize 0.6
        contrast 0.3 3, rotate 0.8 4
        invert 0.8, translate_y 0.0 2
        shear_y 0.7 6, solarize 0.4 8
        invert 0.6, rotate 0.8 4
        shear_y 0.3 7, translate_x 0.9 3
        shear_x 0.1 6, invert 0.6
        solarize 0.7 2, translate_y 0.6 7
        shear_y 0.8 4, invert 0.8
        shear_x 0.7 9, translate_y 0.8 3
        shear_y 0.8 5, autocontrast 0.7
        shear_x 0.7 2, invert 0.1
    """,
}
"""The policies of Cubuk et al., "AutoAugment: learning augmentation policies from data", 2019: one pair of ops a line,
each with its probability and the index of its strength."""

BINS = 10


@lru_cache(8)
def _table(policy: str) -> tuple[Array, Array, Array]:
    """The ops of a policy, their probabilities and strengths: [pairs,2] each."""
    lines = [line.split(",") for line in POLICIES[policy].strip().splitlines()]
    words = [[op.split() for op in line] for line in lines]
    ops = np.array([[NUMBER[op[0]] for op in pair] for pair in words], np.int32)
    index = np.array([[int(op[2]) if len(op) > 2 else 0 for op in pair] for pair in words])
    return ops, np.array([[float(op[1]) for op in pair] for pair in words]), index


@dataclass(frozen=True, slots=True)
class AutoAugment(Policy):
    """Draw one of the policy's pairs of ops, and apply each of the two with its probability, as torchvision does.

    Attributes:
        policy: "imagenet", "cifar10" or "svhn".

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``
    """

    policy: str = "imagenet"

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise SpecError(f"{self.name} needs policy as one of {', '.join(POLICIES)}, got {self.policy!r}")

    @property
    def layers(self) -> int:
        return 2

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(OPS[number] for number in np.unique(_table(self.policy)[0]).tolist())

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        ops, p, index = _table(self.policy)
        u = rng.uniform(5)
        pair = np.floor(u[:, 0] * len(ops)).astype(np.int64)
        drawn = np.where(u[:, 1:3] < p[pair], ops[pair], NUMBER["identity"])
        return drawn, signed_strengths(drawn, index[pair], u[:, 3:] < 0.5, BINS, hw, MOST, 4)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.policy_cases(*(cls(policy) for policy in POLICIES))


def auto_augment(
    image: T,
    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet",
    interpolation: str = "nearest",
    fill: int | None = None,
    *,
    seed: int | None = None,
) -> T:
    """Apply two ops of a learned policy to `image`, as torchvision's `AutoAugment` with tensors.

    Args:
        image: 3 channels of uint8, or a `Sample` of such an image.
        policy: "imagenet", "cifar10" or "svhn": each 25 pairs of ops with their probabilities and strengths.
        interpolation: of shears, translations and rotations: "nearest" or "bilinear".
        fill: what they bring in from outside, 0..255, in all channels; black by default.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels of uint8, or a parameter is out of range.

    Example:
        >>> auto_augment(np.zeros((4, 4, 3), np.uint8), "cifar10", seed=1).shape
        (4, 4, 3)
    """
    op = AutoAugment(
        policy,
        **settings_of("auto_augment", image, interpolation, fill),
    )
    return augmented(op, image, fill, seed)  # type: ignore[no-any-return]
