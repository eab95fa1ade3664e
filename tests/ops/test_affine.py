"""affine, rotate, perspective and their random forms against values by hand and torchvision's own code.

torchvision's functions of tensors. Positions are computed in float32 on both sides, in another order: where integers
are rounded they differ by 1 next to n + 0.5, and of two pixels that are equally near either may be taken.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.comparison.photographs import take
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.affine import inverse_affine
from gpupipe.ops._shared.homography import homographies
from gpupipe.ops._shared.warp import Warp
from gpupipe.ops.random_affine import RandomAffine
from gpupipe.ops.random_perspective import RandomPerspective
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.ops.originals import chw, hwc, torchvision
from tests.ops.refusals import refused
from tests.ops.value_chains import on

X = np.arange(1, 13, dtype=np.uint8).reshape(3, 4, 1)
COUNT = 4
ONE: Any = 1
BACKENDS = ["numpy"] + ["fast"] * machine.has_fast() + ["dali"] * machine.has_dali()


@pytest.fixture
def tv() -> Any:
    """torchvision's functions."""
    return torchvision().v2.functional


@lru_cache(COUNT)
def photograph(number: int) -> Array:
    """A part of a photograph of another size each, uint8[H,W,3] or, of a gray one, uint8[H,W,1]."""
    pixels = take((0, 2, 5, 11)[number])[1]  # two of them upright, one gray
    gray = pixels[..., None] if pixels.ndim == 2 else pixels
    return np.ascontiguousarray(gray[: 40 + 2 * number, : 80 - number])


def settings(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "angle": float(rng.uniform(-180, 180)),
        "translate": rng.integers(-15, 15, 2).tolist(),
        "scale": float(rng.uniform(0.6, 1.6)),
        "shear": rng.uniform(-20, 20, 2).tolist(),
        "center": None if number % 2 else rng.uniform(0, 60, 2).tolist(),
    }


def test_a_shift_moves_whole_pixels_and_fills_the_rest() -> None:
    got = ops.affine(X, translate=(1, -1), fill=9)[:, :, 0]

    np.testing.assert_array_equal(got, [[9, 5, 6, 7], [9, 9, 10, 11], [9, 9, 9, 9]])


def test_half_a_pixel_is_the_mean_of_two_and_of_image_and_fill() -> None:
    x = np.array([[[10], [20], [40]]], np.float32)

    got = ops.affine(x, translate=(0.5, 0), interpolation="bilinear", fill=100)

    np.testing.assert_allclose(got.ravel(), [55, 15, 30])


def test_an_angle_of_affine_goes_clockwise_and_one_of_rotate_counter_clockwise() -> None:
    square = X[:, :3]

    np.testing.assert_array_equal(ops.affine(square, 90), np.rot90(square, -1))
    np.testing.assert_array_equal(ops.rotate(square, 90), np.rot90(square))


def test_each_channel_has_its_fill() -> None:
    x = np.zeros((1, 2, 3), np.uint8)

    for method in ("nearest", "bilinear"):
        got = ops.affine(x, translate=(1, 0), interpolation=method, fill=(7, 8, 9))
        np.testing.assert_array_equal(got, [[[7, 8, 9], [0, 0, 0]]])


@pytest.mark.parametrize("k", range(-4, 5))
@pytest.mark.parametrize("backend", BACKENDS)
def test_quarter_turns_move_pixels_onto_pixels(backend: str, k: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 31, 31, 3), dtype=np.uint8)
    wide = np.random.default_rng(0).integers(0, 256, (2, 30, 51, 3), dtype=np.uint8)

    def turned(image: Any) -> Any:
        return ops.rotate(image, 90 * k), ops.rotate(image, 90.0 * k, "bilinear", expand=True)

    for images in (x, wide):
        for source, (near, mean) in zip(
            images, gp.Dataset.from_tensor_slices(images).map(turned).with_options(on(backend)), strict=True
        ):
            if images is x:
                np.testing.assert_array_equal(near, np.rot90(source, k))
            np.testing.assert_array_equal(mean, np.rot90(source, k))


@pytest.mark.parametrize("number", range(COUNT))
def test_affine_gives_the_pixels_of_torchvision(number: int, tv: Any) -> None:
    x = photograph(number)
    nearest, bilinear = tv.InterpolationMode.NEAREST, tv.InterpolationMode.BILINEAR
    for draw in range(COUNT):
        given = settings(100 * number + draw)

        means = ops.affine(x, **given, interpolation="bilinear")
        exact = ops.affine(x.astype(np.float32), **given, interpolation="bilinear")
        near = ops.affine(x, **given)

        theirs = hwc(tv.affine(chw(x), **given, interpolation=bilinear))
        assert np.abs(means.astype(int) - theirs).max() <= 1
        assert (means != theirs).mean() < 0.002
        real = hwc(tv.affine(chw(x).float(), **given, interpolation=bilinear))
        np.testing.assert_allclose(exact, real, rtol=0, atol=0.02)
        theirs = hwc(tv.affine(chw(x), **given, interpolation=nearest))
        assert (near != theirs).any(axis=2).mean() < 0.001


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("number", range(COUNT))
def test_rotate_gives_the_pixels_of_torchvision(number: int, expand: bool, tv: Any) -> None:
    x = photograph(number)
    for draw in range(COUNT):
        given = settings(100 * number + draw)
        how: dict[str, Any] = {"angle": given["angle"], "center": given["center"], "expand": expand}

        got = ops.rotate(x, **how, interpolation="bilinear")

        theirs = hwc(tv.rotate(chw(x), **how, interpolation=tv.InterpolationMode.BILINEAR))
        assert got.shape == theirs.shape
        assert np.abs(got.astype(int) - theirs).max() <= 1
        assert (got != theirs).mean() < 0.002


def test_an_expanded_rotation_is_as_large_as_torchvisions(tv: Any) -> None:
    rng = np.random.default_rng(0)
    for angle in [*range(-180, 181, 45), *rng.uniform(-180, 180, 20).tolist()]:
        height, width = rng.integers(1, 90, 2).tolist()
        x = np.zeros((height, width, 1), np.uint8)

        assert ops.rotate(x, angle, expand=True).shape[:2] == tuple(tv.rotate(chw(x), angle, expand=True).shape[1:])


def test_draws_of_random_affine_are_torchvisions_formulas() -> None:
    keys = np.arange(1, 4001, dtype=np.uint64)
    hw = np.tile(np.array([[40, 60]], np.int32), (4000, 1))
    op = RandomAffine((-30.0, 50.0), (0.1, 0.25), (0.5, 2.0), (-10.0, 20.0, -5.0, 5.0))

    (matrices,) = op.draw(BatchRng(0, 0, keys), hw)

    u = BatchRng(0, 0, keys).uniform(6)
    tx, ty = np.rint((2 * u[:, 1] - 1) * 6), np.rint((2 * u[:, 2] - 1) * 10)
    assert set(tx) == set(range(-6, 7))
    assert set(ty) == set(range(-10, 11))
    shears = (-10 + 30 * u[:, 4], -5 + 10 * u[:, 5])
    expected = inverse_affine(hw, -30 + 80 * u[:, 0], (tx, ty), 0.5 + 1.5 * u[:, 3], shears)
    np.testing.assert_array_equal(matrices, expected)
    scale = 1 / np.sqrt(np.linalg.det(matrices[:, :, :2].astype(np.float64)))
    assert 0.5 <= scale.min() < 0.51
    assert 1.98 < scale.max() <= 2.0001
    assert abs(np.mean(scale) - 1.25) < 0.03


def test_a_mask_of_large_labels_keeps_them() -> None:
    labels = np.array([[[1 << 30], [-(1 << 30) - 1]]], np.int32)

    np.testing.assert_array_equal(ops.affine(labels, translate=(1, 0), fill=-7).ravel(), [-7, 1 << 30])


test_what_no_map_takes_is_an_error = refused(
    (SpecError, "a fill that fits the image", lambda: ops.affine(X, fill=256)),
    (SpecError, "a fill that fits the image", lambda: ops.rotate(X, 3, fill=0.5)),
    (SpecError, "one fill or one per channel, got 2", lambda: ops.affine(X, fill=(1, 2))),
    (SpecError, "one fill, or one per image", lambda: ops.affine((X, X, X), fill=(1, 2))),
    (SpecError, "a number for fill, or one per channel, got none", lambda: ops.affine(X, fill=())),
    (PlanTypeError, "random|affine needs a number for fill, got 'red'", lambda: ops.affine(X, fill="red")),
    (SpecError, "affine needs scale from", lambda: ops.affine(X, scale=0)),
    (SpecError, "scale from small to large", lambda: ops.random_affine(X, 0, scale=(2, 1))),
    (PlanTypeError, "rotate needs a number for angle, got '90'", lambda: ops.rotate(X, "90")),
    (SpecError, "rotate needs angle from", lambda: ops.rotate(X, math.nan)),
    (SpecError, "degrees from small to large", lambda: ops.random_rotation(X, (5, 4))),
    (SpecError, "random_rotation needs degrees from 0", lambda: ops.random_rotation(X, -5)),
    (SpecError, "translate from 0 to 1", lambda: ops.random_affine(X, 0, (1.5, 0))),
    (PlanTypeError, "shear as 4 numbers", lambda: ops.random_affine(X, 0, shear=(1, 2, 3))),
    (PlanTypeError, "translate as 2 numbers", lambda: ops.affine(X, translate=(3,))),
    (SpecError, "'nearest' or 'bilinear'", lambda: ops.affine(X, interpolation="bicubic")),
    (SpecError, "or one per image", lambda: ops.affine(X, interpolation=("nearest",) * 2)),
    (PlanTypeError, "expand as True or False", lambda: ops.rotate(X, 3, expand=ONE)),
    (SpecError, "convert it first with ops.cast", lambda: ops.rotate(X.astype(np.int64), 3)),
    (SpecError, "needs", lambda: ops.affine(np.zeros(3, np.uint8))),
)


@pytest.mark.parametrize("fill", [(), (7.0,), (1.0, 2.0, 3.0)], ids=["edge", "one", "per channel"])
def test_lines_that_are_shifted_are_pixels_that_are_taken(fill: tuple[float, ...]) -> None:
    """Shears along lines and translations go a way of their own: the pixels are those of the general one."""
    rng = np.random.default_rng(5)
    op = Warp("nearest", fill)
    for _ in range(200):
        x = rng.integers(0, 256, (*rng.integers(1, 20, 2), 3)).astype(np.uint8)
        matrix = np.zeros((2, 3), np.float32)
        matrix[:, 1:] = rng.choice([0, 1, -1, 0.3, 1 / 3, -2.5, 100.25, 1e5, -1e9], (2, 2))
        matrix[0, 0] = 1
        size = rng.integers(1, 24, 2)

        taken = op._taken(x, *op.pixels(matrix, size))

        assert (op.reference(x, matrix, size) == taken).all()
        assert taken.shape == (*size, 3)


def test_nearest_pixels_hold_the_positions_whatever_the_map() -> None:
    rng = np.random.default_rng(6)
    for scale in (0.01, 1.0, 300.0, 1e6, 1e9):
        matrix = (rng.normal(size=(2, 3)) * scale).astype(np.float32)
        y, x = np.mgrid[:9, :13] + 0.5
        there = matrix.astype(np.float64) @ np.stack([x, y, np.ones_like(x)]).reshape(3, -1)

        found = np.stack(Warp("nearest").pixels(matrix, (9, 13))).reshape(2, -1)

        assert np.abs(found + 0.5 - there).max() <= 0.5 + 2.0**-15  # the terms of a sum are rounded to 1/65536


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_nowhere_is_outside(number: float) -> None:
    matrix = np.full((2, 3), number, np.float32)

    assert (Warp("nearest", (9.0,)).reference(np.ones((3, 4, 1), np.uint8), matrix) == 9).all()


CORNERS = [(0, 0), (3, 0), (3, 2), (0, 2)]


def corners_of(number: int, height: int, width: int) -> list[list[int]]:
    """Four corners of an image, each moved towards the middle."""
    u = np.random.default_rng(number).uniform(0, 0.3, (4, 2)) * (width, height)
    ends = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    return [[round(abs(x - dx)), round(abs(y - dy))] for (x, y), (dx, dy) in zip(ends, u.tolist(), strict=True)]


def test_points_that_all_move_alike_shift_the_image() -> None:
    got = ops.perspective(X, CORNERS, [(x + 1, y - 1) for x, y in CORNERS], fill=9)[:, :, 0]

    np.testing.assert_array_equal(got, [[9, 5, 6, 7], [9, 9, 10, 11], [9, 9, 9, 9]])


def test_corners_that_were_drawn_are_moved_as_those_that_are_given() -> None:
    ends = [(1, 0), (3, 1), (2, 2), (0, 1)]
    matrices, _ = homographies(np.array([CORNERS], np.float64), np.array([ends], np.float64))

    got = RandomPerspective().reference(X, matrices[0])

    np.testing.assert_array_equal(got, ops.perspective(X, CORNERS, ends, "nearest"))
    assert not np.array_equal(got, X)


def test_coefficients_divide_by_the_distance() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 8, 1)

    got = ops.perspective(x, coefficients=(2, 0, 0, 0, 1, 0, 1, 0), interpolation="bilinear", fill=-4)

    # x = 0.5, 1.5, ... lead to 2 x / (x + 1), y = 0.5 to 0.5 / (x + 1): the first is inside, at 2/3 - 1/2 and 1/3 - 1/2
    share = 0.5 + 0.5 / 1.5
    np.testing.assert_allclose(got[0, 0, 0], share * (2 / 3 - 1 / 2) - (1 - share) * 4, rtol=1e-5)


@pytest.mark.parametrize("number", range(COUNT))
def test_perspective_gives_the_pixels_of_torchvision(number: int, tv: Any) -> None:
    x = photograph(number)
    height, width = x.shape[:2]
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    others = []
    for draw in range(COUNT):
        end = corners_of(100 * number + draw, height, width)
        modes = tv.InterpolationMode

        means = ops.perspective(x, start, end)
        exact = ops.perspective(x.astype(np.float32), start, end)
        near = ops.perspective(x, start, end, "nearest")

        theirs = hwc(tv.perspective(chw(x), start, end, interpolation=modes.BILINEAR))
        assert np.abs(means.astype(int) - theirs).max() <= 1
        assert (means != theirs).mean() < 0.004
        real = hwc(tv.perspective(chw(x).float(), start, end, interpolation=modes.BILINEAR))
        np.testing.assert_allclose(exact, real, rtol=0, atol=0.1)
        theirs = hwc(tv.perspective(chw(x), start, end, interpolation=modes.NEAREST))
        others.append((near != theirs).any(axis=2).mean())
    assert np.mean(others) < 0.005  # "nearest" goes 0.001 aside: a line right between two pixels may be the other one


def test_corners_are_drawn_as_torchvision_draws_them() -> None:
    count, height, width = 4000, 20, 31
    op = RandomPerspective(0.5, 0.75)

    (matrices,) = op.draw(BatchRng(0, 0, np.arange(1, count + 1, dtype=np.uint64)), np.array([[height, width]] * count))

    moved = (matrices != np.eye(3)).any(axis=(1, 2))
    assert abs(moved.mean() - 0.75 * (1 - (6 * 8) ** -4.0)) < 3 * (0.75 * 0.25 / count) ** 0.5
    inverse = np.linalg.inv(matrices[moved].astype(np.float64))
    ends = ((0, 0, 0, 0), (30, 0, 23, 0), (30, 19, 23, 14), (0, 19, 0, 14))  # corners, and the least x and y of each
    for x, y, least_x, least_y in ends:
        a, b, w = (inverse @ np.array([x, y, 1.0])).T
        across, down = np.rint(a / w), np.rint(b / w)
        assert set(across) == set(range(least_x, least_x + 8))
        assert set(down) == set(range(least_y, least_y + 6))


ON_A_LINE = [(0, 0), (1, 1), (2, 2), (0, 2)]

test_what_is_no_perspective_is_an_error = refused(
    (ShapeError, "points of which no three lie on a line", lambda: ops.perspective(X, CORNERS, ON_A_LINE)),
    (SpecError, "either startpoints and endpoints, or coefficients", lambda: ops.perspective(X)),
    (SpecError, "either startpoints and", lambda: ops.perspective(X, CORNERS, CORNERS, coefficients=[0] * 8)),
    (PlanTypeError, "startpoints as four points", lambda: ops.perspective(X, CORNERS[:3], CORNERS)),
    (PlanTypeError, "as 2 numbers", lambda: ops.perspective(X, [(1, 2, 3)] * 4, CORNERS)),
    (PlanTypeError, "coefficients as 8 numbers", lambda: ops.perspective(X, coefficients=[1] * 9)),
    (SpecError, "1, 3 or 4 channels", lambda: ops.random_perspective(X.reshape(3, 2, 2))),
    (SpecError, "use ops.cast", lambda: ops.random_perspective(X.astype(np.int32), interpolation="nearest")),
    (SpecError, "distortion_scale from 0 to 1", lambda: ops.random_perspective(X, 1.5)),
    (SpecError, "p from 0 to 1", lambda: ops.random_perspective(X, p=2)),
)


def test_an_image_of_one_line_is_left_alone() -> None:
    for shape in ((1, 9, 1), (9, 1, 3), (1, 1, 1)):
        x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        for seed in range(5):
            np.testing.assert_array_equal(ops.random_perspective(x, p=1, seed=seed), x)
