"""mixup: average every image and label of a batch with another of the batch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array
from gpupipe.ops._shared.mixing import MixingByBeta, beta, mixed
from gpupipe.random import BatchRng

__all__ = ["Mixup", "mixup"]


@dataclass(frozen=True, slots=True)
class Mixup(MixingByBeta):
    """``share x + (1 - share) previous(x)`` for images and labels, one share per batch, as in torchvision.

    Array code that runs after the executor. NumPy and CuPy agree within one float32 rounding.

    Shapes: ``T[B,H,W,C]{NHWC}, float32[B,K] -> float32[B,H,W,C]{NHWC}, float32[B,K]``, or NCHW
    """

    parameters: ClassVar[tuple[str, ...]] = ("share",)

    @property
    def ignores_layout(self) -> bool:
        return True

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (beta(rng, self.alpha).astype(np.float32),)

    def array(self, xp: Any, *args: Any) -> Any:
        *batches, share = args
        own, other = xp.float32(share), xp.float32(1 - share)
        results = []
        for x in batches:
            x = x.astype(xp.float32)
            y = xp.roll(x, 1, axis=0)
            y *= other
            x *= own
            y += x
            results.append(y)
        return tuple(results)


def mixup(
    images: Any,
    labels: Any,
    alpha: float = 0.2,
    num_classes: int | None = None,
    *,
    layout: Literal["HWC", "CHW"] | None = None,
    seed: int | None = None,
) -> Any:
    """Average every image of a batch, and its label, with the one before it, as torchvision's `MixUp`.

    For a map after `batch`. The share of the original image is drawn from Beta(alpha, alpha), once for the batch, with
    the key of its first element.

    Args:
        images: a batch of images, all of one size.
        labels: class numbers, or vectors of float32. A number outside [0, num_classes) has no class, and is
            logged, as in `one_hot`.
        alpha: above 0; small values mix little.
        num_classes: length of the vectors; needed for class numbers.
        layout: of one image, where it is not known; the default is HWC.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Returns:
        Images as float32, in their original units, and labels as float32 vectors.

    Shapes: ``T[B,H,W,C]{NHWC}, integer[B] -> float32[B,H,W,C]{NHWC}, float32[B,num_classes]``

    Raises:
        SpecError: called before `batch`, images or labels are of another kind, or `alpha` is out of range.

    Example:
        >>> images, labels = mixup(np.zeros((2, 4, 4, 3), np.uint8), np.array([0, 1]), num_classes=2, seed=1)
        >>> labels.sum(axis=1)
        array([1., 1.], dtype=float32)
    """
    return mixed(Mixup(alpha), images, labels, num_classes, layout, seed)
