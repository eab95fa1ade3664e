"""pixels: the difference between the images of two executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Difference", "compare_pixels"]

# Executors differ by a rounding here and there, and by their edge rule on the outermost ring. Another crop or a missed
# flip changes an image by tens of levels on average; a mean of 2 is far from both.
SAME_CROP_MEAN = 2.0


@dataclass(frozen=True, slots=True)
class Difference:
    """The absolute difference between two executors' pixels, in levels of 0..255, before rounding.

    Attributes:
        mean: the mean over all values of all images.
        inside: the maximum without the outermost ring of pixels.
        ring: the maximum on that ring, where the edge rules of resizers differ.
        worst_image: the largest mean of one image.
    """

    mean: float
    inside: float
    ring: float
    worst_image: float

    @property
    def same_crops(self) -> bool:
        """Whether every image shows the same part of the same picture, with the same flip."""
        return self.worst_image <= SAME_CROP_MEAN


def compare_pixels(images: npt.NDArray[Any], reference: npt.NDArray[Any], std: Any) -> Difference:
    """Compare normalised images of two executors.

    Args:
        images: of one executor.
        reference: of the other.
        std: the divisors of the channels, to get levels of 0..255.

    Shapes: ``float32[N,H,W,3]{NHWC}, float32[N,H,W,3]{NHWC}``
    """
    gap = np.abs(images - reference) * np.asarray(std, np.float32)
    ring = max(float(edge.max()) for edge in (gap[:, 0], gap[:, -1], gap[:, :, 0], gap[:, :, -1]))
    worst = float(gap.mean(axis=(1, 2, 3)).max())
    return Difference(float(gap.mean()), float(gap[:, 1:-1, 1:-1].max()), ring, worst)
