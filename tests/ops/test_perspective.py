"""perspective and random_perspective against values by hand and torchvision's own code; see test_affine.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops._shared.homography import homographies
from gpupipe.ops.random_perspective import RandomPerspective
from gpupipe.random import BatchRng
from tests.ops.test_affine import BACKENDS, COUNT, X, array, on, photograph, tensor, tv

__all__ = ["tv"]  # a fixture

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

        theirs = array(tv.perspective(tensor(x), start, end, interpolation=modes.BILINEAR))
        assert np.abs(means.astype(int) - theirs).max() <= 1
        assert (means != theirs).mean() < 0.004
        real = array(tv.perspective(tensor(x).float(), start, end, interpolation=modes.BILINEAR))
        np.testing.assert_allclose(exact, real, rtol=0, atol=0.1)
        theirs = array(tv.perspective(tensor(x), start, end, interpolation=modes.NEAREST))
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_points_may_differ_from_image_to_image(backend: str) -> None:
    x = np.random.default_rng(1).integers(0, 256, (3, 7, 9, 3), dtype=np.uint8)
    shifts = np.arange(3)
    ds = gp.Dataset.from_tensor_slices((x, shifts)).map(
        lambda i, n: ops.perspective(i, CORNERS, [(a + n, b) for a, b in CORNERS])
    )

    for source, n, got in zip(x, shifts, ds.with_options(on(backend)), strict=True):
        np.testing.assert_array_equal(got[:, n:], source[:, : 9 - n])
        assert not got[:, :n].any()


def test_three_points_on_a_line_are_an_error_of_their_row() -> None:
    with pytest.raises(ShapeError, match="perspective needs points of which no three lie on a line"):
        ops.perspective(X, CORNERS, [(0, 0), (1, 1), (2, 2), (0, 2)])


BAD: dict[str, tuple[Any, Any, str]] = {
    "nothing": (SpecError, lambda: ops.perspective(X), "either startpoints and endpoints, or coefficients"),
    "all": (SpecError, lambda: ops.perspective(X, CORNERS, CORNERS, coefficients=[0] * 8), "either startpoints and"),
    "three points": (PlanTypeError, lambda: ops.perspective(X, CORNERS[:3], CORNERS), "startpoints as four points"),
    "points of three": (PlanTypeError, lambda: ops.perspective(X, [(1, 2, 3)] * 4, CORNERS), "as 2 numbers"),
    "nine coefficients": (PlanTypeError, lambda: ops.perspective(X, coefficients=[1] * 9), "coefficients as 8 numbers"),
    "two channels": (SpecError, lambda: ops.random_perspective(X.reshape(3, 2, 2)), "1, 3 or 4 channels"),
    "int32": (SpecError, lambda: ops.random_perspective(X.astype(np.int32), interpolation="nearest"), "use ops.cast"),
    "a distortion above 1": (SpecError, lambda: ops.random_perspective(X, 1.5), "distortion_scale from 0 to 1"),
    "a probability above 1": (SpecError, lambda: ops.random_perspective(X, p=2), "p from 0 to 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_map_takes_is_an_error(name: str) -> None:
    error, call, words = BAD[name]

    with pytest.raises(error, match=words):
        call()


def test_an_image_of_one_line_is_left_alone() -> None:
    for shape in ((1, 9, 1), (9, 1, 3), (1, 1, 1)):
        x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        for seed in range(5):
            np.testing.assert_array_equal(ops.random_perspective(x, p=1, seed=seed), x)
