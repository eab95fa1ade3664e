"""color_jitter: torchvision's own steps with the drawn factors and orders, their distribution, executors alike."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops.color_jitter import ColorJitter
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from tests.ops.originals import chw, hwc, torchvision

BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()
X = np.random.default_rng(0).integers(0, 256, (9, 8, 3), dtype=np.uint8)
NAMES = ("brightness", "contrast", "saturation", "hue")
ALL = {"brightness": (0.4, 1.6), "contrast": (0.4, 1.6), "saturation": (0.0, 2.0), "hue": (-0.5, 0.5)}


def floats(values: Any) -> Any:
    """An array of float32."""
    return np.array(values, np.float32)


def of_torchvision(x: Any, order: Any, factors: Any) -> Any:
    """Its steps in an order, with factors."""
    y = chw(x)
    for step in order:
        if step >= 0:
            y = getattr(torchvision().v2.functional, f"adjust_{NAMES[step]}")(y, float(factors[step]))
    return hwc(y).astype(np.float64)


def test_each_step_by_hand() -> None:
    x = np.array([[[10, 100, 200], [250, 0, 0]]], np.uint8)

    def fixed(**factor: float) -> Any:
        bounds = {name: (value, value) for name, value in factor.items()}
        return ops.color_jitter(x, **bounds)[0].tolist()  # type: ignore[arg-type]

    assert fixed(brightness=1.5) == [[15, 150, 255], [255, 0, 0]]
    # grays: trunc(2.989 + 58.7 + 22.8) = 84 and trunc(74.725) = 74, mean 79; 0.5 x + 39.5
    assert fixed(contrast=0.5) == [[44, 89, 139], [164, 39, 39]]
    assert fixed(saturation=0.5) == [[47, 92, 142], [162, 37, 37]]
    # a third of a turn moves red to green, green to blue and blue to red
    assert fixed(hue=1 / 3) == [[200, 10, 100], [0, 250, 0]]


@pytest.mark.parametrize("steps", [steps for n in range(1, 5) for steps in itertools.combinations(NAMES, n)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_reference_is_torchvisions(dtype: str, steps: tuple[str, ...]) -> None:
    x = X if dtype == "uint8" else X.astype(np.float32) / 255
    op = ColorJitter(**{name: ALL[name] for name in steps}, dtype=dtype)
    orders, factors = op.draw(BatchRng(3, 0, np.arange(8, dtype=np.uint64), 5), np.zeros((8, 2), np.int32))

    for order, factor in zip(orders, factors, strict=True):
        got = op.reference(x, order, factor).astype(np.float64)
        difference = np.abs(got - of_torchvision(x, order, factor))
        if dtype == "float32":
            assert difference.max() < 1e-4  # float32 against float64; a hue divides by the span of its pixel
        else:  # a value next to a whole number is cut off to either side, and the steps after it pass that on
            assert (difference > 0).mean() < 0.02
            assert difference.max() <= 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_floats_beyond_0_and_1_are_not_clamped_by_a_step_that_is_absent(backend: Any) -> None:
    x = floats([[[[1.5, -0.5, 0.25]]]] * 8)  # enough for both orders

    def chain(image: Any) -> Any:
        return ops.color_jitter(image, brightness=(0.5, 0.5), hue=(1 / 3, 1 / 3))

    images = list(gp.Dataset.from_tensor_slices(x).map(chain).with_options(gp.Options(device="cpu", backend=backend)))

    op = ColorJitter((0.5, 0.5), None, None, (1 / 3, 1 / 3), dtype="float32")
    factors = floats([0.5, 1, 1, 1 / 3])
    # brightness first: 0.75, 0, 0.125 and then the turn; hue first: 0.25, 1.5, -0.5 and then half of it, clamped
    for order in ((0, 3), (3, 0)):
        np.testing.assert_allclose(op.reference(x[0], np.array(order), factors)[0, 0], [0.125, 0.75, 0.0], atol=1e-6)
    for image in images:
        np.testing.assert_allclose(image[0, 0], [0.125, 0.75, 0.0], atol=1e-6)


def test_factors_are_uniform_and_orders_equally_likely() -> None:
    count = 24 * 200
    op = ColorJitter((0.6, 1.4), (0.0, 2.0), (0.5, 1.0), (-0.1, 0.3))

    orders, factors = op.draw(BatchRng(1, 0, np.arange(count, dtype=np.uint64), 9), np.zeros((count, 2), np.int32))

    for n, (low, high) in enumerate([(0.6, 1.4), (0.0, 2.0), (0.5, 1.0), (-0.1, 0.3)]):
        assert factors[:, n].min() >= np.float32(low)
        assert factors[:, n].max() <= np.float32(high)
        # 5 standard errors of the mean of a uniform distribution
        assert abs(factors[:, n].mean() - (low + high) / 2) < 5 * (high - low) / math.sqrt(12 * count)
    seen, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(seen) == 24
    # chi-square with 23 degrees of freedom exceeds 58.6 once in 16,000 samples
    assert ((counts - 200) ** 2 / 200).sum() < 58.6
    assert np.abs(np.corrcoef(factors.T) - np.eye(4)).max() < 0.08  # 5 / sqrt(4800)


def test_a_number_is_a_spread_about_its_centre() -> None:
    def bounds(**arguments: Any) -> Any:
        recorded: list[ColorJitter] = []

        def chain(image: Any) -> Any:
            result = ops.color_jitter(image, **arguments)
            recorded.append(result._value.op)
            return result

        gp.Dataset.from_tensor_slices(X[None]).map(chain)
        return recorded[0].bounds

    assert bounds(brightness=0.4, hue=0.1) == ((0.6, 1.4), None, None, (-0.1, 0.1))
    assert bounds(contrast=3) == (None, (0.0, 4.0), None, None)
    assert bounds(saturation=(0.5, 0.75)) == (None, None, (0.5, 0.75), None)
    assert bounds() == (None, None, None, None)


def test_a_seed_repeats_and_epochs_differ() -> None:
    ds = gp.Dataset.from_tensor_slices(X[None]).map(lambda i: ops.color_jitter(i, 0.5, 0.5, 0.5, 0.5))

    first, again, later = (next(iter(ds.iterator(epoch=n))) for n in (0, 0, 1))

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, later)
    a, b = (ops.color_jitter(X, 0.5, seed=4) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_mistakes_are_plan_errors() -> None:
    with pytest.raises(SpecError, match="brightness from 0 to inf"):
        ops.color_jitter(X, brightness=-0.1)
    with pytest.raises(SpecError, match=r"hue from 0 to 0\.5"):
        ops.color_jitter(X, hue=0.6)
    with pytest.raises(SpecError, match=r"hue from -0\.5 to 0\.5"):
        ops.color_jitter(X, hue=(-0.6, 0))
    with pytest.raises(SpecError, match="contrast from small to large"):
        ops.color_jitter(X, contrast=(1.5, 0.5))
    with pytest.raises(PlanTypeError, match="a number or two bounds for saturation"):
        ops.color_jitter(X, saturation="0.5")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="image of 3 channels"):
        ops.color_jitter(X[..., :1], 0.5)
    with pytest.raises(SpecError, match="color_jitter needs"):
        ops.color_jitter(X.astype(np.int32), 0.5)
