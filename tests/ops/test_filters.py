"""gaussian_blur, adjust_sharpness and clahe: by hand, beside torchvision, OpenCV and albumentations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.lab import from_lab, to_lab
from gpupipe.ops.gaussian_blur import Blur
from gpupipe.ops.random_clahe import RandomClahe
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.ops.originals import albumentations, chw, hwc, original, photograph, torchvision
from tests.ops.refusals import refused

PHOTOGRAPHS = range(3)


def point(size: int, value: float = 1.0) -> Array:
    x = np.zeros((size, size, 1), np.float32)
    x[size // 2, size // 2] = value
    return x


def test_a_blurred_point_is_the_kernel() -> None:
    side = np.exp(-0.5)
    weights = np.array([side, 1, side]) / (1 + 2 * side)

    np.testing.assert_allclose(ops.gaussian_blur(point(5), 3, 1.0)[1:4, 1:4, 0], np.outer(weights, weights), atol=1e-7)


def test_sharpness_by_hand() -> None:
    x = np.full((3, 4, 1), 13, np.uint8)
    x[1, 1] = 26  # a thirteenth of 8 * 13 + 5 * 26 is 18

    assert ops.adjust_sharpness(x, 1).tolist() == x.tolist()
    assert ops.adjust_sharpness(x, 0)[1, :, 0].tolist() == [13, 18, 14, 13]
    assert ops.adjust_sharpness(x, 2)[1, :, 0].tolist() == [13, 34, 12, 13]  # 26 + (26 - 18), 13 - (14 - 13)
    assert ops.adjust_sharpness(x, 0)[[0, 2]].tolist() == x[[0, 2]].tolist()  # the ring stays
    assert ops.adjust_sharpness(x[:2], 0).tolist() == x[:2].tolist()


CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "blur 3": (lambda x: ops.gaussian_blur(x, 3), lambda F, x: F.gaussian_blur(x, [3, 3])),
    "blur 5x9": (lambda x: ops.gaussian_blur(x, (5, 9), (0.7, 2)), lambda F, x: F.gaussian_blur(x, [5, 9], [0.7, 2])),
    "blur 23": (lambda x: ops.gaussian_blur(x, 23, 1.9), lambda F, x: F.gaussian_blur(x, [23, 23], [1.9, 1.9])),
    "smooth": (lambda x: ops.adjust_sharpness(x, 0), lambda F, x: F.adjust_sharpness(x, 0)),
    "sharp": (lambda x: ops.adjust_sharpness(x, 1.9), lambda F, x: F.adjust_sharpness(x, 1.9)),
}


def blurred(image: Array, rng: np.random.Generator) -> tuple[Any, Any]:
    kernel, sigma = (2 * rng.integers(0, 8, 2) + 1).tolist(), rng.uniform(0.1, 3, 2).tolist()
    return ops.gaussian_blur(image, kernel, sigma), torchvision().v2.functional.gaussian_blur(chw(image), kernel, sigma)


def sharpened(image: Array, rng: np.random.Generator) -> tuple[Any, Any]:
    factor = float(rng.uniform(0, 3))
    return ops.adjust_sharpness(image, factor), torchvision().v2.functional.adjust_sharpness(chw(image), factor)


@pytest.mark.parametrize("drawn", [blurred, sharpened])
def test_photographs_with_several_draws_each_are_torchvisions(drawn: Callable[..., tuple[Any, Any]]) -> None:
    for number in PHOTOGRAPHS:
        image = photograph(number)[:96, : 60 + number]
        for draw in range(6):
            ours, theirs = drawn(image, np.random.default_rng([number, draw]))

            difference = np.abs(ours.astype(int) - hwc(theirs))

            assert difference.max() <= 1  # a sum next to a whole number
            assert (difference > 0).mean() < 3e-3


@pytest.mark.parametrize("name", CALLS)
def test_floats_are_as_torchvisions(name: str) -> None:
    ours, theirs = CALLS[name]
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number).astype(np.float32) / np.float32(255)

        # float32 sums of up to 529 products, in another order
        np.testing.assert_allclose(ours(image), hwc(theirs(functional, chw(image))), rtol=0, atol=2e-6)


@pytest.mark.skipif(not machine.has_fast(), reason="the extra `fast` is not installed")
def test_the_fast_form_is_the_reference_within_a_level() -> None:
    image = photograph(1)
    op, sigma = Blur((9, 5)), np.array([1.3, 2.1], np.float32)

    difference = np.abs(op.fast(image, sigma).astype(int) - op.reference(image, sigma))

    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


LIMITS = (0.0, 0.5, 1.0, 2.0, 3.7, 4.0, 40.0)
GRIDS = ((8, 8), (1, 1), (3, 5), (16, 2))


@pytest.fixture(scope="module")
def cv2() -> Any:
    return original("cv2")


def gray(levels: list[list[int]]) -> Array:
    return np.array(levels, np.uint8)[:, :, None]


def test_without_a_limit_one_tile_is_equalized() -> None:
    # the level of a pixel is the share of pixels that are not above it
    assert ops.clahe(gray([[10, 20], [20, 30]]), 0, 1)[..., 0].tolist() == [[64, 191], [191, 255]]


def test_what_is_above_the_limit_is_spread_over_all_levels() -> None:
    # 512 pixels of one level; a limit of 64 of them is 64 * 512 / 256 = 128, so 384 are spread: one for each level and
    # 128 more for every second one. Below level 9 are 9 + 5, with it 128 + 1 more.
    x = np.full((16, 32, 1), 9, np.uint8)

    assert np.unique(ops.clahe(x, 64, 1)).tolist() == [round((14 + 129) * 255 / 512)]


def test_tables_are_mixed_between_the_middles_of_tiles() -> None:
    x = np.zeros((1, 8, 1), np.uint8)
    x[:, 4:] = 200
    x[0, [0, 7], 0] = 200, 0
    # of the left tile, level 200 becomes 255 and 0 becomes 191; of the right one, 255 and 64
    assert ops.clahe(x, 0, (2, 1))[0, :, 0].tolist() == [255, 191, 191, 159, 255, 255, 255, 64]


def test_gray_photographs_are_as_opencvs(cv2: Any) -> None:
    for number in range(3):
        x = np.ascontiguousarray(photograph(number)[: 150 + number, : 203 - 2 * number, number % 3])
        for limit in LIMITS:
            for grid in GRIDS:
                expected = cv2.createCLAHE(limit, grid).apply(x)

                np.testing.assert_array_equal(ops.clahe(x[:, :, None], limit, grid)[:, :, 0], expected)


def test_albumentations_itself_gives_the_same_pixels() -> None:
    """Those of float32 go through 8 bits in both."""
    library = albumentations()
    op = RandomClahe((8, 8), (1.0, 8.0), 1.0)
    for number in range(2):
        x = photograph(number)[: 90 + number, : 120 - 2 * number]
        _, limits = op.draw(
            BatchRng(1, 0, np.arange(20, dtype=np.uint64) + 20 * number, 5), np.full((20, 2), 8, np.int32)
        )
        for draw, limit in enumerate(limits.tolist()):
            image = x if draw % 2 else np.ascontiguousarray(x[:, :, :1])
            theirs = library.CLAHE((limit, limit), GRIDS[draw % 4], p=1)

            np.testing.assert_array_equal(ops.clahe(image, limit, GRIDS[draw % 4]), theirs(image=image)["image"])


def test_colours_are_opencvs_there_and_back(cv2: Any) -> None:
    """Every 7th of all colours, which is each level of each channel with nearly each of the others."""
    number = np.arange(0, 1 << 24, 7, dtype=np.uint32)[: 2396 * 1000].reshape(2396, 1000)
    x = np.stack([number >> 16, number >> 8, number], axis=-1).astype(np.uint8)

    np.testing.assert_array_equal(np.stack(to_lab(x), axis=-1), cv2.cvtColor(x, cv2.COLOR_RGB2LAB))
    np.testing.assert_array_equal(from_lab(x[..., 0], x[..., 1], x[..., 2]), cv2.cvtColor(x, cv2.COLOR_LAB2RGB))


X = np.zeros((4, 4, 3), np.uint8)


test_mistakes_are_plan_errors = refused(
    (SpecError, "clahe needs clip_limit from 0 to", lambda: ops.clahe(X, -1)),
    (PlanTypeError, "clahe needs a number for clip_limit", lambda: ops.clahe(X, "a")),
    (SpecError, "clahe needs tile_grid_size from 1 to 256, got 0", lambda: ops.clahe(X, 2, (0, 3))),
    (PlanTypeError, "clahe needs tile_grid_size as two numbers", lambda: ops.clahe(X, 2, (2, 3, 4))),
    (SpecError, "clahe needs an image of 1 or 3 channels", lambda: ops.clahe(X[..., :2])),
    (SpecError, "clahe needs images of uint8", lambda: ops.clahe(X.astype(np.int32))),
    (SpecError, "random_clahe needs clip_limit from small to large", lambda: ops.random_clahe(X, (4, 2))),
    (SpecError, "random_clahe needs clip_limit from 1 to .*, got 0.5", lambda: ops.random_clahe(X, 0.5)),
    (SpecError, "random_clahe needs p from 0 to 1, got 2", lambda: ops.random_clahe(X, p=2)),
    (SpecError, r"gaussian_blur needs an odd kernel_size, got 4", lambda: ops.gaussian_blur(point(5), 4)),
    (SpecError, r"gaussian_blur needs sigma from 0.001 to inf, got 0", lambda: ops.gaussian_blur(point(5), 3, 0)),
    (PlanTypeError, r"kernel_size as one integer or \(width, h", lambda: ops.gaussian_blur(point(5), (3, 3, 3))),
    (PlanTypeError, r"sigma as one number or \(x, y\)", lambda: ops.gaussian_blur(point(5), 3, (1, 2, 3))),
    (SpecError, r"needs sigma from small to large", lambda: ops.random_gaussian_blur(point(5), 3, (2, 1))),
    (SpecError, "adjust_sharpness needs sharpness_factor from 0", lambda: ops.adjust_sharpness(point(5), -1)),
)
