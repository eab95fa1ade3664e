"""gaussian_blur and adjust_sharpness: hand-computed values, torchvision's own code, Pillow, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops.gaussian_blur import Blur
from gpupipe.ops.random_gaussian_blur import RandomGaussianBlur
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.ops.originals import chw, hwc, photograph, torchvision

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


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: ops.gaussian_blur(x, 4), SpecError, r"gaussian_blur needs an odd kernel_size, got 4"),
        (lambda x: ops.gaussian_blur(x, 3, 0), SpecError, r"gaussian_blur needs sigma from 0.001 to inf, got 0"),
        (lambda x: ops.gaussian_blur(x, (3, 3, 3)), PlanTypeError, r"kernel_size as one integer or \(width, height\)"),
        (lambda x: ops.gaussian_blur(x, 3, (1, 2, 3)), PlanTypeError, r"sigma as one number or \(x, y\)"),
        (lambda x: ops.random_gaussian_blur(x, 3, (2, 1)), SpecError, r"needs sigma from small to large"),
        (lambda x: ops.adjust_sharpness(x, -1), SpecError, r"adjust_sharpness needs sharpness_factor from 0 to inf"),
    ],
)
def test_what_is_out_of_range_is_an_error(call: Callable[[Any], Any], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call(point(5))
