"""cutmix: paste a window of another image of the batch into every image, and average the labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.graph.op import Array, Case
from gpupipe.ops._shared.mixing import Mixing, beta, mixed
from gpupipe.ops._shared.samples import noise
from gpupipe.random import BatchRng

__all__ = ["Cutmix", "cutmix"]


@dataclass(frozen=True, slots=True)
class Cutmix(Mixing):
    """Paste a window of the previous image, the same for the batch; labels by the areas: torchvision's law.

    Array code behind the executor. Between NumPy and CuPy within one rounding of float32 in the labels.

    Attributes:
        alpha: the share of the own image, before the window is cut at the border, is drawn from Beta(alpha, alpha).

    Shapes: ``T[B,H,W,C]{NHWC}, float32[B,K] -> float32[B,H,W,C]{NHWC}, float32[B,K]``, the same for NCHW
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

    @classmethod
    def cases(cls) -> Iterator[Case]:
        images = np.stack([noise(6, 5), noise(6, 5)[::-1], noise(6, 5)[:, ::-1]])
        yield Case(cls(1.0), (images, np.eye(3, dtype=np.float32)), ("NHWC",))


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

    For a map behind `batch`. The window is the same for the whole batch and drawn by the key of its first element: its
    area is about 1 - share of the image's, share of Beta(alpha, alpha); labels are averaged by the areas.

    Args:
        images: of a batch, all of one size.
        labels: class numbers, or vectors of float32. A number outside [0, num_classes) has no class, as in `one_hot`.
        alpha: above 0; 1 makes every share equally likely.
        num_classes: length of the vectors; needed for class numbers.
        layout: of one image, where it is not known: an array of rank 3 is taken for HWC.
        seed: draws with this number instead of the count of such calls. Equal seeds draw equally for one element,
            behind a `zip` too, but not in the inputs of one.

    Returns:
        Images as float32, in the units that they had, and labels as vectors of float32.

    Shapes: ``T[B,H,W,C]{NHWC}, integer[B] -> float32[B,H,W,C]{NHWC}, float32[B,num_classes]``

    Raises:
        SpecError: not behind `batch`, images or labels of another kind, or `alpha` out of range.

    Example:
        >>> images, labels = cutmix(np.zeros((2, 4, 4, 3), np.uint8), np.array([0, 1]), num_classes=2, seed=1)
        >>> labels.sum(axis=1)
        array([1., 1.], dtype=float32)
    """
    return mixed(Cutmix, images, labels, alpha, num_classes, layout, seed)
