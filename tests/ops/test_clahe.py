"""clahe and random_clahe: hand-computed tables, OpenCV's own code, and albumentations' composition of it."""

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
from gpupipe.ops.random_clahe import RandomClahe
from gpupipe.random import BatchRng
from tests.ops.frequencies import assert_shares
from tests.ops.originals import albumentations, original, photograph

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
    ],
)  # fmt: skip
def test_mistakes_are_plan_errors(call: Callable[[], Any], error: type[PlanError], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
