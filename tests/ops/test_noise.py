"""Noise and fields of noise: gaussian_noise, salt_and_pepper, elastic, and their laws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.grain import grain, grain_keys, normals
from gpupipe.ops.elastic import Displacement, Elastic
from gpupipe.ops.gaussian_noise import GaussianNoise
from gpupipe.ops.salt_and_pepper import SaltAndPepper
from gpupipe.random import BatchRng
from tests.ops.originals import chw, hwc, original, photograph, torchvision
from tests.ops.refusals import refused

X = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
GRAY = np.full((256, 320, 3), 128, np.uint8)


def rng(rows: int) -> BatchRng:
    return BatchRng(1, 0, np.arange(rows, dtype=np.uint64), 5)


def test_the_numbers_of_an_element_do_not_depend_on_the_other_images_of_its_batch() -> None:
    alone = grain_keys(rng(1), np.array([[5, 7]], np.int32))
    beside = grain_keys(rng(2), np.array([[5, 7], [90, 30]], np.int32))

    np.testing.assert_array_equal(alone[0], beside[0, : alone.shape[1]])


def correlations(noise: Array) -> Array:
    """Correlations of each value with that some lines, columns or channels further."""
    shifts = [(0, 0, 1), (0, 0, 2), *((y, x, 0) for y in range(4) for x in range(4) if y or x)]
    height, width, depth = noise.shape
    unit = (noise - noise.mean()) / noise.std()
    return np.array([(unit[y:, x:, c:] * unit[: height - y, : width - x, : depth - c]).mean() for y, x, c in shifts])


def test_gaussian_noise_is_normal_and_white() -> None:
    keys, _ = GaussianNoise().draw(rng(10), np.full((10, 2), 256, np.int32))
    moments, apart = [], []
    for row in keys:
        noise = normals()[grain(row, (256, 256, 3), True) >> np.uint32(16)].astype(np.float64)
        moments.append([noise.mean(), (noise**2).mean(), (noise**3).mean(), (noise**4).mean(), (noise > 2).mean()])
        apart.append(correlations(noise))

    count = 10 * 256 * 256 * 3
    # 4 standard deviations of the moments of independent normal numbers; the share above 2 is 0.02275
    expected, spread = [0, 1, 0, 3, 0.02275], [1, 2**0.5, 15**0.5, 96**0.5, 0.149]
    assert (np.abs(np.mean(moments, axis=0) - expected) < 4 * np.array(spread) / count**0.5 + 1e-3).all()
    # of one image a correlation of independent numbers is 0 within 1 / sqrt(its size): 0.0023
    assert (np.abs(np.mean(apart, axis=0)) < 4 / count**0.5 + 2e-3).all()
    assert np.std(apart, axis=0).max() < 3 / (256 * 256 * 3) ** 0.5


def test_gaussian_noise_by_hand() -> None:
    level = np.full((1, 1, 1), 100, np.uint8)

    assert ops.gaussian_noise(level, 0.2, 0).item() == 151
    assert ops.gaussian_noise(level, 0.9, 0).item() == 255
    assert ops.gaussian_noise(level.astype(np.float32) / 200, -0.75, 0).item() == 0
    assert ops.gaussian_noise(level.astype(np.float32) / 200, -0.75, 0, clip=False).item() == -0.25
    assert (ops.gaussian_noise(GRAY, 0, 0) == GRAY).all()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_photographs_with_several_draws_each_have_torchvisions_law_of_noise(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchvision gets the normal numbers that were drawn here."""
    torch, functional = original("torch"), torchvision().v2.functional
    for number in range(3):
        image = photograph(number)[:48, : 40 + number]
        x = image if dtype == "uint8" else image.astype(np.float32) / np.float32(255)
        hw = np.tile(np.array(x.shape[:2], np.int32), (8, 1))
        for draw in range(8):
            mean, sigma = np.random.default_rng([number, draw]).uniform((-0.3, 0), (0.3, 0.5)).tolist()
            op = GaussianNoise(mean, sigma, bool(draw % 4), toward_zero=bool(draw % 2), dtype=dtype)
            keys, noise = (drawn[draw] for drawn in op.draw(rng(8), hw))
            n = chw(normals()[grain(keys, x.shape, True) >> np.uint32(16)])
            monkeypatch.setattr(torch, "randn_like", lambda *_, n=n, **__: n)

            got, expected = op.reference(x, keys, noise), hwc(functional.gaussian_noise(chw(x), mean, sigma, op.clip))

            if dtype == "float32":
                np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)  # a product and a sum may be fused
            elif op.clip:  # truncating the noise toward 0, as torchvision does, and rounding it are up to a level apart
                most = 0 if op.toward_zero else 1
                assert np.abs(got.astype(int) - expected).max() <= most
                cut = np.trunc(n.numpy().transpose(1, 2, 0) * np.float32(sigma * 255) + np.float32(mean * 255))
                assert (expected == np.clip(x + cut, 0, 255)).mean() > 0.9999


def test_salt_and_pepper_stand_where_the_numbers_of_pixels_are_small_and_large() -> None:
    x = np.full((5, 7, 3), 9, np.uint8)
    keys, _ = SaltAndPepper().draw(rng(1), np.array([[5, 7]], np.int32))
    numbers = grain(keys[0], x.shape, False).astype(np.int64)

    got = SaltAndPepper().reference(x, keys[0], np.array([1 << 30, 3 << 30]))

    np.testing.assert_array_equal(got[..., :1], np.select([numbers < 1 << 30, numbers >= 3 << 30], [0, 255], 9))
    assert set(np.unique(got)) == {0, 9, 255}


test_what_is_out_of_range_is_an_error = refused(
    (SpecError, r"gaussian_noise needs sigma from 0 to 1, got -1", lambda: ops.gaussian_noise(GRAY, sigma=-1)),
    (PlanTypeError, r"clip as True or False, got 1", lambda: ops.gaussian_noise(GRAY, clip=1)),  # type: ignore[arg-type]
    ((SpecError, ShapeError), r"an image of 1 or 2 or 3", lambda: ops.gaussian_noise(GRAY[..., [0] * 5])),
    (SpecError, r"salt_and_pepper needs amount from 0 to 1, got 1.5", lambda: ops.salt_and_pepper(GRAY, 1.5)),
    (SpecError, r"needs amount from small to large", lambda: ops.salt_and_pepper(GRAY, (0.3, 0.2))),
    (SpecError, r"needs a permutation of all channels", lambda: ops.permute_channels(GRAY, (0, 0, 1))),
    ((SpecError, ShapeError), r"an image of 2 channels", lambda: ops.permute_channels(GRAY, (1, 0))),
    (PlanTypeError, r"permutation as integers", lambda: ops.permute_channels(GRAY, (0.5, 1, 2))),  # type: ignore[arg-type]
    (SpecError, "elastic needs alpha from 0 to", lambda: ops.elastic(X, -1)),
    (PlanTypeError, "elastic needs alpha as 2 numbers", lambda: ops.elastic(X, (1, 2, 3))),
    (SpecError, "elastic needs sigma from 0.001 to 100, got 0.0", lambda: ops.elastic(X, 1, 0)),
    (SpecError, "elastic needs sigma from 0.001 to 100", lambda: ops.elastic(X, 1, 101)),
    (PlanTypeError, "elastic needs a number for alpha", lambda: ops.elastic(X, "a")),
    (SpecError, "elastic needs interpolation 'nearest' or 'bilinear'", lambda: ops.elastic(X, 1, 1, "bicubic")),
    (SpecError, "elastic needs a fill that fits the image", lambda: ops.elastic(X, fill=300)),
    (SpecError, "elastic needs an image", lambda: ops.elastic(X[0])),
)


SIDES = (40, 44)
"""Of the photographs that are compared, which torchvision takes most of the time for."""


def drawn(op: Elastic, hw: tuple[int, int], key: int) -> tuple[Array, Array]:
    keys, strength = op.draw(BatchRng(1, 0, np.array([key], np.uint64), 5), np.array([hw], np.int32))
    return keys[0], strength[0]


def mixed(op: Elastic, keys: Array, strength: Array) -> Array:
    """Where a result has a share of the fill that is neither 0 nor 1."""
    part = Displacement(sigma=op.sigma)
    ends = zip(part._places(part._field(keys, (*SIDES, 3)), strength), SIDES[::-1], strict=True)
    columns, rows = ((abs(at) < 0.5001) | (abs(at - length) < 0.5001) for at, length in ends)
    result: Array = columns | rows
    return result


def test_a_pixel_is_that_of_the_place_its_field_leads_to() -> None:
    op = Elastic((60.0, 60.0), (2.0, 2.0), interpolation=("nearest",), fill=((7.0,),))
    keys, strength = drawn(op, (40, 50), 3)
    part = Displacement(sigma=op.sigma)
    columns, rows = (np.floor(at).astype(int) for at in part._places(part._field(keys, X.shape), strength))
    inside = (columns >= 0) & (columns < 50) & (rows >= 0) & (rows < 40)

    got = op.reference(X, keys, strength)

    np.testing.assert_array_equal(got[inside], X[rows[inside], columns[inside]])
    assert (got[~inside] == 7).all() and 0.5 < inside.mean() < 1


def test_noise_is_even_and_white() -> None:
    keys = grain_keys(BatchRng(1, 0, np.array([3], np.uint64), 5), np.array([[300, 400]], np.int32))[0]
    noise = Displacement()._noise(keys, (300, 400, 3))

    assert noise.min() >= -1 and noise.max() < 1
    room = 4 / (300 * 400) ** 0.5
    for n in range(2):
        field = noise[:, :, n]
        assert abs(field.mean()) < room * 3**-0.5
        assert abs(field.var() - 1 / 3) < room * (1 / 5 - 1 / 9) ** 0.5
        for apart in ((0, 1), (1, 0), (1, 1), (2, 3)):
            assert abs((field * np.roll(field, apart, (0, 1))).mean()) < room / 3
    assert abs((noise[..., 0] * noise[..., 1]).mean()) < room / 3


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch with one thread: on images this small, more of them wait for each other."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
@pytest.mark.parametrize(("alpha", "sigma"), [((50.0, 50.0), (5.0, 5.0)), ((90.0, 30.0), (2.0, 3.0))])
def test_photographs_with_several_draws_each_are_torchvisions_with_its_noise(
    interpolation: str, alpha: Any, sigma: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions differ by 0.00002 pixels: levels by 1 where they are rounded, and pixels where two are as near.

    That is 2 of 100,000 values at most: with "nearest" 2 of a million are another pixel's.

    Where a bilinear result is mixed of image and fill, torchvision takes the share of the image twice: left out.
    """
    of = torchvision()
    torch = pytest.importorskip("torch")
    op = Elastic(alpha, sigma, interpolation=(interpolation,), fill=((9.0,),))
    mode = getattr(of.mode, interpolation.upper())
    apart = []
    for number in range(4):
        x = photograph(number)[: SIDES[0], : SIDES[1]]
        for draw in range(6):
            keys, strength = drawn(op, SIDES, 20 * number + draw)
            noise = Displacement()._noise(keys, x.shape)
            given = iter([torch.from_numpy((noise[:, :, n] + 1) / 2)[None, None] for n in range(2)])
            monkeypatch.setattr(torch, "rand", lambda *_, given=given: next(given))
            theirs = hwc(of.v2.ElasticTransform(list(alpha), list(sigma), mode, 9)(chw(x))).astype(int)

            difference = np.abs(op.reference(x, keys, strength).astype(int) - theirs)
            if interpolation == "bilinear":
                difference = difference[~mixed(op, keys, strength)]

            apart.append(difference.ravel())
    every = np.concatenate(apart)
    assert (every > 0).mean() < 0.00005
    assert interpolation == "nearest" or every.max() <= 1
