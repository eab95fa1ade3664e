"""cutmix: paste a window of another image of the batch into every image, and average their labels."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array
from gpupipe.ops._shared.mixing import MixingByBeta, beta, mixed
from gpupipe.random import BatchRng

__all__ = ["Cutmix", "cutmix"]


@dataclass(frozen=True, slots=True)
class Cutmix(MixingByBeta):
    """Paste a window of the previous image, one window per batch; average labels by area, as torchvision does.

    Array code that runs after the executor. NumPy and CuPy agree within one float32 rounding of the labels.

    Beta(alpha, alpha) gives the share of the original image, before the window is clipped at the border.

    Shapes: ``T[B,H,W,C]{NHWC}, float32[B,K] -> float32[B,H,W,C]{NHWC}, float32[B,K]``, or NCHW
    """

    parameters: ClassVar[tuple[str, ...]] = ("window", "share")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        half = 0.5 * np.sqrt(1 - beta(rng, self.alpha))[:, None]
        centre = np.floor(rng.uniform(2) * hw)
        reach = np.floor(half * hw)
        window = np.concatenate([np.maximum(centre - reach, 0), np.minimum(centre + reach, hw)], axis=1)
        area = (window[:, 2] - window[:, 0]) * (window[:, 3] - window[:, 1])
        return window.astype(np.int32), (1 - area / hw.prod(axis=1, dtype=np.float64)).astype(np.float32)

    def array(self, xp: Any, *args: Any) -> Any:
        images, labels, window, share = args
        top, left, bottom, right = (int(n) for n in window)
        where: tuple[Any, ...] = (slice(None), slice(top, bottom), slice(left, right))
        if self.layout == "CHW":
            where = (slice(None), *where)
        result = images.astype(xp.float32)
        result[where] = xp.roll(images[where], 1, axis=0)
        return result, labels * xp.float32(share) + xp.roll(labels, 1, axis=0) * xp.float32(1 - share)


def cutmix(
    images: Any,
    labels: Any,
    alpha: float = 1.0,
    num_classes: int | None = None,
    *,
    layout: Literal["HWC", "CHW"] | None = None,
    seed: int | None = None,
) -> Any:
    """Paste a window of the image before it into every image of a batch, as torchvision's `CutMix`.

    For a map after `batch`. The window is the same for the whole batch and drawn with the key of its first element.
    Its area is about 1 - share of the image's, with share from Beta(alpha, alpha); labels are averaged by area.

    Args:
        images: a batch of images, all of one size.
        labels: class numbers, or vectors of float32. A number outside [0, num_classes) has no class, and is
            logged, as in `one_hot`.
        alpha: above 0; 1 makes every share equally likely.
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
        >>> images, labels = cutmix(np.zeros((2, 4, 4, 3), np.uint8), np.array([0, 1]), num_classes=2, seed=1)
        >>> labels.sum(axis=1)
        array([1., 1.], dtype=float32)
    """
    return mixed(Cutmix(alpha), images, labels, num_classes, layout, seed)
