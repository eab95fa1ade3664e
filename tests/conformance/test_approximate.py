"""Options(approximate_decode=True) on every executor, against exact decoding: the mean difference and the PSNR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

import gpupipe as gp
from gpupipe import ops
from gpupipe.comparison.photographs import encode, photograph
from gpupipe.ops._shared.decode_smaller import ratio_of
from tests.conformance.harness import EXECUTORS, host

pytestmark = pytest.mark.conformance

PHOTOGRAPHS = 4
PEAK = 255.0


def photographs() -> list[bytes]:
    """JPEGs of 400 x 480 pixels, with colours at full and at half of the resolution."""
    drawn = [photograph(default_rng((5, number)), 400, 480, number) for number in range(PHOTOGRAPHS)]
    return [encode(pixels, 92, "4:2:0" if number % 2 else "4:4:4") for number, pixels in enumerate(drawn)]


def options(kind: str, **more: Any) -> gp.Options:
    """The options that run a chain on this kind of executor."""
    backend, _, device = kind.partition("-")
    return gp.Options(backend=backend, device=device or "cpu", threads=2, seed=3, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize(("side", "ratio", "mean", "decibels"), [(128, 2, 1.1, 44), (64, 4, 1.3, 43), (32, 8, 1.5, 42)])
def test_photographs_differ_from_exact_decoding_as_the_guide_says(
    side: int, ratio: int, mean: float, decibels: float, kind: str
) -> None:
    def cropped(data: Any) -> Any:
        image = ops.decode_jpeg(data, channels=3)
        return ops.random_resized_crop(image, side, scale=(0.9, 1), ratio=(1, 1.2), return_params=True)

    ds = gp.Dataset.from_list(photographs()).map(cropped).batch(PHOTOGRAPHS)
    exact, windows = next(iter(ds.with_options(options("numpy"))))
    here, _ = map(host, next(iter(ds.with_options(options(kind)))))
    smaller, same = map(host, next(iter(ds.with_options(options(kind, approximate_decode=True)))))

    np.testing.assert_array_equal(windows, same)
    assert {ratio_of(window[2:].tolist(), (side, side)) for window in windows} == {ratio}
    off = smaller.astype(float) - exact
    psnr = 10 * np.log10(PEAK**2 / (off**2).mean(axis=(1, 2, 3)))
    # libjpeg's smaller transforms drop high frequencies, where the resize would average over them
    assert np.abs(smaller.astype(float) - here).mean() > mean / 2  # it is not decoded exactly
    assert np.abs(off).mean() < mean
    assert psnr.mean() > decibels
