"""elastic: fields computed by hand, and torchvision's own code with the same noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError, PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.grain import grain_keys
from gpupipe.ops.elastic import Displacement, Elastic
from gpupipe.random import BatchRng
from gpupipe.transform.machine import has_dali
from tests.ops.originals import chw, hwc, photograph, torchvision

X = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)

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


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
def test_an_image_and_its_mask_are_moved_alike(backend: Any) -> None:
    masks = np.repeat((X[None, :, :, :1] > 128).astype(np.uint8), 4, axis=0)
    images = np.repeat(masks, 3, axis=3) * 200
    ds = gp.Dataset.from_tensor_slices((images, masks)).map(
        lambda x, y: ops.elastic((x, y), 80, 2, ("nearest", "nearest"), (0, 0))
    )

    made = list(ds.with_options(gp.Options(device="cpu", backend=backend)))

    for image, mask in made:
        np.testing.assert_array_equal(image, np.repeat(mask, 3, axis=2) * 200)
        assert (mask != masks[0]).any()
    assert (made[0][1] != made[1][1]).any()


def test_a_field_does_not_depend_on_the_size_of_other_images() -> None:
    op, small = Elastic(), X[:30, :20]
    numbers = BatchRng(1, 0, np.array([7, 8], np.uint64), 5)
    keys, strength = op.draw(numbers, np.array([[30, 20], [200, 300]], np.int32))

    np.testing.assert_array_equal(
        op.reference(small, keys[0], strength[0]), op.reference(small, *drawn(op, (30, 20), 7))
    )


def test_frames_of_a_clip_are_moved_alike_and_a_strength_may_be_traced() -> None:
    clips = np.stack([np.stack([X, X]), np.stack([X, X])])
    ds = gp.Dataset.from_tensor_slices((clips, np.array([0.0, 60.0], np.float32)))

    still, moved = ds.map(lambda x, a: ops.elastic(x, (a, a), 2.0))

    np.testing.assert_array_equal(still, clips[0])
    np.testing.assert_array_equal(moved[0], moved[1])
    assert (moved[0] != X).mean() > 0.5


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: ops.elastic(X, -1), SpecError, "elastic needs alpha from 0 to"),
        (lambda: ops.elastic(X, (1, 2, 3)), PlanTypeError, "elastic needs alpha as 2 numbers"),
        (lambda: ops.elastic(X, 1, 0), SpecError, "elastic needs sigma from 0.001 to 100, got 0.0"),
        (lambda: ops.elastic(X, 1, 101), SpecError, "elastic needs sigma from 0.001 to 100"),
        (lambda: ops.elastic(X, "a"), PlanTypeError, "elastic needs a number for alpha"),
        (lambda: ops.elastic(X, 1, 1, "bicubic"), SpecError, "elastic needs interpolation 'nearest' or 'bilinear'"),
        (lambda: ops.elastic(X, fill=300), SpecError, "elastic needs a fill that fits the image"),
        (lambda: ops.elastic(X[0]), SpecError, "elastic needs an image"),
    ],
)  # fmt: skip
def test_mistakes_are_plan_errors(call: Callable[[], Any], error: type[PlanError], match: str) -> None:
    with pytest.raises(error, match=match):
        call()
