"""gaussian_blur, adjust_sharpness and clahe: by hand, beside torchvision, OpenCV, albumentations, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError, PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.lab import from_lab, to_lab
from gpupipe.ops.gaussian_blur import Blur
from gpupipe.ops.random_clahe import RandomClahe
from gpupipe.ops.random_gaussian_blur import RandomGaussianBlur
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.ops.frequencies import assert_shares
from tests.ops.originals import albumentations, chw, hwc, original, photograph, torchvision

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


def test_photographs_with_drawn_blurs_are_torchvisions() -> None:
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number)[:96, : 60 + number]
        for draw in range(6):
            rng = np.random.default_rng([number, draw])
            kernel, sigma = (2 * rng.integers(0, 8, 2) + 1).tolist(), rng.uniform(0.1, 3, 2).tolist()

            difference = np.abs(
                ops.gaussian_blur(image, kernel, sigma).astype(int)
                - hwc(functional.gaussian_blur(chw(image), kernel, sigma))
            )

            assert difference.max() <= 1  # as above
            assert (difference > 0).mean() < 3e-3


def test_photographs_with_drawn_sharpnesses_are_torchvisions() -> None:
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number)[:96, : 60 + number]
        for factor in np.random.default_rng(number).uniform(0, 3, 6).tolist():
            expected = hwc(functional.adjust_sharpness(chw(image), factor))
            difference = np.abs(ops.adjust_sharpness(image, factor).astype(int) - expected)

            assert difference.max() <= 1  # as above
            assert (difference > 0).mean() < 3e-3


@pytest.mark.parametrize("name", CALLS)
def test_floats_are_as_torchvisions(name: str) -> None:
    ours, theirs = CALLS[name]
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number).astype(np.float32) / np.float32(255)

        # float32 sums of up to 529 products, in another order
        np.testing.assert_allclose(ours(image), hwc(theirs(functional, chw(image))), rtol=0, atol=2e-6)


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * machine.has_dali())
@pytest.mark.parametrize("op", [lambda x, by: ops.gaussian_blur(x, 5, by), ops.adjust_sharpness], ids=["blur", "sharp"])
def test_the_amount_may_be_traced_and_the_image_an_array_of_ones_own(op: Any, backend: Any) -> None:
    x = point(9)
    ds = gp.Dataset.from_tensor_slices([0.5, 1.5]).map(lambda by: op(x, by)).batch(2)

    (rows,) = ds.with_options(gp.Options(device="cpu", backend=backend))

    np.testing.assert_allclose(rows, [op(x, 0.5), op(x, 1.5)], atol=1e-6)


@pytest.mark.skipif(not machine.has_fast(), reason="the extra `fast` is not installed")
def test_the_fast_form_is_the_reference_within_a_level() -> None:
    image = photograph(1)
    op, sigma = Blur((9, 5)), np.array([1.3, 2.1], np.float32)

    difference = np.abs(op.fast(image, sigma).astype(int) - op.reference(image, sigma))

    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


def test_sigmas_are_uniform_and_images_are_blurred_with_the_probability() -> None:
    count = 20_000
    rng = BatchRng(1, 0, np.arange(count, dtype=np.uint64), 5)

    applied, sigma = RandomGaussianBlur((3, 3), (0.1, 2.0), 0.5).draw(rng, np.full((count, 2), 64, np.int32))

    assert abs(applied.mean() - 0.5) < 4 * 0.5 / count**0.5  # 4 standard deviations
    assert (sigma[:, 0] == sigma[:, 1]).all()
    assert 0.1 <= sigma.min() < 0.11
    assert 1.99 < sigma.max() < 2.0
    assert abs(sigma.mean() - 1.05) < 4 * 1.9 / 12**0.5 / count**0.5


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


def test_draws_are_uniform_and_as_frequent_as_asked() -> None:
    count = 100_000
    hw = np.full((count, 2), 8, np.int32)
    applied, limit = RandomClahe((8, 8), (1.0, 4.0), 0.3).draw(BatchRng(1, 0, np.arange(count, dtype=np.uint64), 5), hw)

    assert_shares([applied.sum(), count - applied.sum()], [0.3, 0.7])
    assert limit.min() >= 1 and limit.max() < 4
    assert_shares(np.histogram(limit, 10, (1, 4))[0], 1 / 10)


def test_a_limit_may_be_traced() -> None:
    images = np.stack([photograph(0)[:64, :80]] * 2)
    limits = np.array([1.5, 4.0], np.float32)

    made = list(gp.Dataset.from_tensor_slices((images, limits)).map(lambda x, n: ops.clahe(x, n, 4)))

    for x, limit, got in zip(images, limits, made, strict=True):
        np.testing.assert_array_equal(got, ops.clahe(x, float(limit), 4))


X = np.zeros((4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: ops.clahe(X, -1), SpecError, "clahe needs clip_limit from 0 to"),
        (lambda: ops.clahe(X, "a"), PlanTypeError, "clahe needs a number for clip_limit"),
        (lambda: ops.clahe(X, 2, (0, 3)), SpecError, "clahe needs tile_grid_size from 1 to 256, got 0"),
        (lambda: ops.clahe(X, 2, (2, 3, 4)), PlanTypeError, "clahe needs tile_grid_size as two numbers"),
        (lambda: ops.clahe(X[..., :2]), SpecError, "clahe needs an image of 1 or 3 channels"),
        (lambda: ops.clahe(X.astype(np.int32)), SpecError, "clahe needs images of uint8"),
        (lambda: ops.random_clahe(X, (4, 2)), SpecError, "random_clahe needs clip_limit from small to large"),
        (lambda: ops.random_clahe(X, 0.5), SpecError, "random_clahe needs clip_limit from 1 to .*, got 0.5"),
        (lambda: ops.random_clahe(X, p=2), SpecError, "random_clahe needs p from 0 to 1, got 2"),
        (lambda: ops.gaussian_blur(point(5), 4), SpecError, r"gaussian_blur needs an odd kernel_size, got 4"),
        (lambda: ops.gaussian_blur(point(5), 3, 0), SpecError, r"gaussian_blur needs sigma from 0.001 to inf, got 0"),
        (lambda: ops.gaussian_blur(point(5), (3, 3, 3)), PlanTypeError, r"kernel_size as one integer or \(width, h"),
        (lambda: ops.gaussian_blur(point(5), 3, (1, 2, 3)), PlanTypeError, r"sigma as one number or \(x, y\)"),
        (lambda: ops.random_gaussian_blur(point(5), 3, (2, 1)), SpecError, r"needs sigma from small to large"),
        (lambda: ops.adjust_sharpness(point(5), -1), SpecError, "adjust_sharpness needs sharpness_factor from 0"),
    ],
)  # fmt: skip
def test_mistakes_are_plan_errors(call: Callable[[], Any], error: type[PlanError], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
