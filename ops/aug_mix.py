"""aug_mix: mix each image with several chains of random ops of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.integers import plain
from gpupipe.ops._shared.mixing import dirichlet
from gpupipe.ops._shared.policy import FIRST, MOST, NUMBER, OPS, Policy, settings_of, signed_strengths
from gpupipe.random import BatchRng

__all__ = ["AugMix", "aug_mix"]

T = TypeVar("T")

BINS = 10
"""Strengths, of which the first `severity` are drawn."""

DEEPEST = 3
"""Ops in a chain of random length."""

SIDE = {**MOST, "translate_x": 1 / 3, "translate_y": 1 / 3}
"""The greatest strengths: an image moves by a third of its side at most."""

ALL = tuple(name for name in OPS if name not in ("identity", "invert"))
FEW = tuple(name for name in ALL if name not in ("brightness", "color", "contrast", "sharpness"))


@dataclass(frozen=True, slots=True)
class AugMix(Policy):
    """Mix an image with chains of ops that are applied to it, as torchvision does.

    Attributes:
        severity: how many of the 10 strengths are drawn, the weakest first.
        mixture_width: how many chains.
        chain_depth: how many ops in each; below 1, drawn from 1 to 3.
        alpha: of the Dirichlet distribution of the weights of the chains, and of the Beta distribution of the image's.
        all_ops: whether brightness, color, contrast and sharpness are among the ops.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: str = field(default="bilinear", kw_only=True)

    def __post_init__(self) -> None:
        Policy.__post_init__(self)
        self.check("severity", 1, BINS)
        self.check("mixture_width", 1, 16)
        self.check("chain_depth", -1, 16)
        self.check("alpha", 1e-3, 1e6, integer=False)
        if not isinstance(self.all_ops, bool):
            raise SpecError(f"{self.name} needs all_ops to be a bool, got {self.all_ops!r}")

    @property
    def depth(self) -> int:
        """Ops of a chain at most."""
        return self.chain_depth if self.chain_depth > 0 else DEEPEST

    @property
    def layers(self) -> int:
        return self.mixture_width * self.depth

    @property
    def used(self) -> tuple[str, ...]:
        return ALL if self.all_ops else FEW

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        count, layers = len(hw), self.layers
        u = rng.uniform(3 * layers + self.mixture_width)
        kinds = np.array([NUMBER[name] for name in self.used])[np.floor(u[:, :layers] * len(self.used)).astype(int)]
        index = np.floor(u[:, layers : 2 * layers] * self.severity).astype(np.int64)
        strength = signed_strengths(kinds, index, u[:, 2 * layers : 3 * layers] < 0.5, BINS, hw, SIDE, 4)
        strength[kinds == NUMBER["posterize"]] -= 4  # it leaves 4 bits to 0
        if self.chain_depth < 1:
            depth = 1 + np.floor(u[:, 3 * layers :] * DEEPEST)
            beyond = np.arange(self.depth) >= depth[:, :, None]
            kinds[beyond.reshape(count, layers)] = NUMBER["identity"]
        return kinds, strength

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        kinds, numbers, matrices = Policy.draw(self, rng, hw)
        of_image = dirichlet(rng, self.alpha, 2)
        chains = dirichlet(rng, self.alpha, self.mixture_width) * of_image[:, 1:]
        # The weights are in one array with the numbers: on a GPU each array is a copy for every batch.
        return kinds, np.hstack([numbers, of_image[:, :1], chains]).astype(np.float32), matrices

    @property
    def weighed(self) -> int:
        """Where the weights begin among the numbers: that of the image, then those of the chains."""
        return FIRST + self.layers

    motion = Op.motion  # the chains move the image each in its own way

    def _applied(self, x: Array, params: Any, form: int) -> Array:
        weights = params[1][self.weighed :]
        mix: Array = x * weights[0]
        for chain, weight in zip(self._chains(), weights[1:], strict=True):
            mix += self.chained(x, params, form, chain) * weight
        return mix.astype(np.uint8)

    def nodes(self, d: Any, x: Any, *params: Any) -> Any:
        weights = params[1].gpu() if d.device == "gpu" else params[1]
        mix = x * weights[self.weighed]
        for number, chain in enumerate(self.chains_dali(d, x, params, list(self._chains())), self.weighed + 1):
            mix = mix + chain * weights[number]
        return d.fn.reshape(d.fn.cast(d.math.floor(mix), dtype=d.dtype(np.uint8)), layout="HWC")

    def _chains(self) -> Iterator[range]:
        """The layers of each chain."""
        return (range(first, first + self.depth) for first in range(0, self.layers, self.depth))

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from cls.policy_cases(cls(), cls(10, 2, 1, 0.3, False, interpolation="nearest", fill=128))


def aug_mix(
    image: T,
    severity: int = 3,
    mixture_width: int = 3,
    chain_depth: int = -1,
    alpha: float = 1.0,
    all_ops: bool = True,
    interpolation: str = "bilinear",
    fill: int | None = None,
    *,
    seed: int | None = None,
) -> T:
    """Mix `image` with several chains of random ops of itself, as torchvision's `AugMix`.

    The result is the weighted sum of the image and of the ends of the chains. Ops are those of `rand_augment` except
    the identity. Of posterizing, 4 bits or fewer are left, as in torchvision.

    Args:
        image: 3 channels of uint8.
        severity: how many of 10 strengths are drawn, the weakest first, 1 to 10.
        mixture_width: how many chains, 1 to 16.
        chain_depth: how many ops in each, up to 16; 0 or -1: drawn from 1 to 3 for each chain.
        alpha: the weights of the chains are drawn from a Dirichlet distribution with it, that of the image against
            all of them from a Beta distribution; 0.001 to a million.
        all_ops: whether brightness, color, contrast and sharpness are among the ops.
        interpolation: of shears, translations and rotations: "nearest" or "bilinear".
        fill: what they bring in from outside, 0..255, in all channels; black by default.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Shapes: ``uint8[H,W,3]{HWC} -> uint8[H,W,3]{HWC}``

    Raises:
        SpecError: `image` is not an image of 3 channels of uint8, or a parameter is out of range.

    Example:
        >>> aug_mix(np.zeros((4, 4, 3), np.uint8), seed=1).shape
        (4, 4, 3)
    """
    op = AugMix(
        plain(severity),
        plain(mixture_width),
        plain(chain_depth),
        plain(alpha),
        bool(all_ops) if isinstance(all_ops, np.bool_) else all_ops,
        **settings_of("aug_mix", image, interpolation, fill),
    )
    return apply(op, image, seed=seed)  # type: ignore[no-any-return]
