"""What random ops draw: numbers that are even over their range, values and orders that are equally likely, shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe.graph.op import Op
from gpupipe.ops.color_jitter import ColorJitter
from gpupipe.ops.mixup_or_cutmix import MixupOrCutmix
from gpupipe.ops.random_affine import RandomAffine
from gpupipe.ops.random_brightness import RandomBrightness
from gpupipe.ops.random_channel_permutation import RandomChannelPermutation
from gpupipe.ops.random_channel_shift import RandomChannelShift
from gpupipe.ops.random_clahe import RandomClahe
from gpupipe.ops.random_contrast import RandomContrast
from gpupipe.ops.random_crop import RandomCrop
from gpupipe.ops.random_erasing import RandomErasing
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight
from gpupipe.ops.random_flip_up_down import RandomFlipUpDown
from gpupipe.ops.random_gaussian_blur import RandomGaussianBlur
from gpupipe.ops.random_hue import RandomHue
from gpupipe.ops.random_jpeg_quality import RandomJpegQuality
from gpupipe.ops.random_rotation import RandomRotation
from gpupipe.ops.random_saturation import RandomSaturation
from gpupipe.ops.random_shortest_size import RandomShortestSize
from gpupipe.ops.salt_and_pepper import SaltAndPepper
from gpupipe.ops.scale_jitter import ScaleJitter
from gpupipe.random import BatchRng
from tests.ops.frequencies import deviations

COUNT = 24_000
HW = (40, 60)
MOST = 5
"""Standard deviations of a count."""

Pick = Callable[..., Any]

JITTER = ColorJitter((0.6, 1.4), (0.0, 2.0), (0.5, 1.0), (-0.1, 0.3))
BLUR, CLAHE = RandomGaussianBlur((3, 3), (0.1, 2.0), 0.5), RandomClahe((8, 8), (1.0, 4.0), 0.3)
AFFINE = RandomAffine((0.0, 9.0), (0.0, 0.0), (0.5, 2.0))
SALT = SaltAndPepper((0.2, 0.4), (0.5, 0.75))
CROP, WHOLE = RandomCrop(36, 52), 2.0**32


def angle(matrices: Any, _: Any) -> Any:
    """Counter-clockwise: the first column of the map of the result is (cos, sin)."""
    return np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0]))


def black(ends: Any) -> Any:
    return ends[:, 0] / WHOLE


def white(ends: Any) -> Any:
    return 1 - ends[:, 1] / WHOLE


EVEN: dict[str, tuple[Op, Pick, float, float]] = {
    "brightness": (RandomBrightness(0.3), lambda x: x, -0.3, 0.3),
    "contrast": (RandomContrast(0.5, 1.5), lambda x: x, 0.5, 1.5),
    "saturation": (RandomSaturation(0.5, 1.5), lambda x: x, 0.5, 1.5),
    "hue": (RandomHue(0.3), lambda x: x, -0.3, 0.3),
    "brightness of a jitter": (JITTER, lambda order, factors: factors[:, 0], 0.6, 1.4),
    "contrast of a jitter": (JITTER, lambda order, factors: factors[:, 1], 0.0, 2.0),
    "saturation of a jitter": (JITTER, lambda order, factors: factors[:, 2], 0.5, 1.0),
    "hue of a jitter": (JITTER, lambda order, factors: factors[:, 3], -0.1, 0.3),
    "blur": (BLUR, lambda applied, sigma: sigma.mean(axis=1), 0.1, 2.0),
    "clahe": (CLAHE, lambda applied, limit: limit, 1.0, 4.0),
    "changed by salt and pepper": (SALT, lambda keys, ends: black(ends) + white(ends), 0.2, 0.4),
    "share of salt": (SALT, lambda keys, ends: white(ends) / (black(ends) + white(ends)), 0.5, 0.75),
    "shift of channels": (RandomChannelShift(60), lambda shift: shift, -60, 60),
    "rotation": (RandomRotation(degrees=(-30.0, 60.0)), angle, -30, 60),
    "scale of a map": (AFFINE, lambda m: np.linalg.det(m[:, :, :2]) ** -0.5, 0.5, 2),
    "scale of a jitter": (ScaleJitter(80_000, 50_000, (0.5, 1.5)), lambda size: size[:, 0] / 50_000, 0.5, 1.5),
}


def drawn(op: Op) -> tuple[Any, ...]:
    """What an op draws for `COUNT` elements."""
    rng = BatchRng(seed=5, epoch=0, keys=np.arange(COUNT, dtype=np.uint64), site=1)
    return op.draw(rng, np.tile(np.array([HW], np.int32), (COUNT, 1)))


def assert_even(counts: Any) -> None:
    assert sum(counts) == COUNT
    assert np.abs(deviations(np.asarray(counts, np.float64), np.full(len(counts), 1 / len(counts)))).max() < MOST


@pytest.mark.parametrize("name", EVEN)
def test_numbers_are_even_over_their_range(name: str) -> None:
    op, pick, low, high = EVEN[name]
    numbers = np.asarray(pick(*drawn(op)), np.float64)

    rounding = 1e-4 * (high - low)
    assert numbers.min() >= low - rounding and numbers.max() <= high + rounding
    assert_even(np.histogram(numbers.clip(low, high), 20, (low, high))[0])


ALIKE: dict[str, tuple[Op, Pick, int]] = {
    "qualities below the upper bound": (RandomJpegQuality(60, 64), lambda quality: quality, 4),
    "the best qualities": (RandomJpegQuality(98, 101), lambda quality: quality, 3),
    "lengths": (RandomShortestSize((10, 20, 30, 40)), lambda size: size[:, 0], 4),
    "orders of channels": (RandomChannelPermutation(3), lambda order: order, 6),
    "orders of a jitter": (JITTER, lambda order, factors: order, 24),
    "rows of a crop, both ends included": (CROP, lambda start, shape: start[:, 0], 5),
    "columns of a crop, both ends included": (CROP, lambda start, shape: start[:, 1], 9),
    "places of a crop, which are independent": (CROP, lambda start, shape: start, 45),
}


@pytest.mark.parametrize("name", ALIKE)
def test_values_are_equally_likely(name: str) -> None:
    op, pick, number = ALIKE[name]
    values, counts = np.unique(np.asarray(pick(*drawn(op))), axis=0, return_counts=True)

    assert len(counts) == number and values.dtype.kind == "i"
    assert_even(counts)


SHARES: dict[str, tuple[Op, Pick, float]] = {
    **{f"left_right {p}": (RandomFlipLeftRight(p), lambda mirror: mirror, p) for p in (0, 0.1, 0.5, 1)},
    **{f"up_down {p}": (RandomFlipUpDown(p), lambda mirror: mirror, p) for p in (0, 0.1, 0.5, 1)},
    "erasing": (RandomErasing(0.3), lambda start, shape: shape[:, 0] > 0, 0.3),
    "blur": (BLUR, lambda applied, sigma: applied, 0.5),
    "clahe": (CLAHE, lambda applied, limit: applied, 0.3),
    **{f"cutmix {p}": (MixupOrCutmix(0.1, 1, p), lambda cuts, *_: cuts, p) for p in (0.0, 0.3, 0.5, 1.0)},
}


@pytest.mark.parametrize("name", SHARES)
def test_a_share_of_all_is_changed(name: str) -> None:
    op, pick, p = SHARES[name]
    flags = np.asarray(pick(*drawn(op)))

    assert set(np.unique(flags)) <= {0, 1}
    assert abs(flags.sum() - COUNT * p) <= MOST * (COUNT * p * (1 - p)) ** 0.5
