"""random_shortest_size and scale_jitter: hand-computed sizes, and torchvision's own code on the same draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError, PlanTypeError, ShapeError, SpecError
from gpupipe.ops.random_shortest_size import RandomShortestSize
from gpupipe.ops.scale_jitter import ScaleJitter
from gpupipe.random import BatchRng
from gpupipe.transform.machine import has_dali
from tests.ops.originals import chw, hwc, photograph, torchvision

IMAGES, DRAWS = range(3), 20
X = np.zeros((50, 80, 3), np.uint8)


def sizes(op: Any, hw: tuple[int, int], count: int = DRAWS) -> tuple[list[tuple[int, int]], BatchRng]:
    """The sizes that an op draws for `count` elements, and a generator that draws the same numbers once more."""
    keys = np.arange(count, dtype=np.uint64)
    (size,) = op.draw(BatchRng(3, 0, keys, 5), np.tile(np.array(hw, np.int32), (count, 1)))
    assert size.dtype == np.int32
    return list(map(tuple, size.tolist())), BatchRng(3, 0, keys, 5)


def test_the_shorter_side_gets_a_length_and_the_longer_one_no_more_than_the_most() -> None:
    assert ops.random_shortest_size(X, 25).shape == (25, 40, 3)
    assert ops.random_shortest_size(X, 25, 30).shape == (18, 30, 3)  # 50 * 30 / 80 is 18.75
    assert ops.random_shortest_size(X.transpose(1, 0, 2), (25,), 30).shape == (30, 18, 3)
    assert ops.random_shortest_size(np.zeros((2, 90, 1), np.uint8), 9, 30).shape == (1, 30, 1)  # not 0


def test_a_product_that_misses_an_integer_is_truncated_as_torchvisions_is() -> None:
    # 7 / 55 * 55 is 6.999999999999999
    assert ops.random_shortest_size(np.zeros((55, 110, 1), np.uint8), 7).shape == (6, 13, 1)


def test_every_length_is_drawn_equally_often() -> None:
    found, _ = sizes(RandomShortestSize((10, 20, 30, 40)), (50, 80), 8000)

    counts = [sum(size[0] == length for size in found) for length in (10, 20, 30, 40)]
    assert sum(counts) == 8000
    assert all(abs(count - 2000) < 4 * (8000 * 0.25 * 0.75) ** 0.5 for count in counts)


def test_scales_are_those_of_an_image_that_fits() -> None:
    assert ops.scale_jitter(X, (40, 40), (1, 1)).shape == (25, 40, 3)
    assert ops.scale_jitter(X, (40, 10), (1, 1)).shape == (10, 16, 3)  # 40 wide, 10 high
    assert ops.scale_jitter(X, 40, (2, 2)).shape == (50, 80, 3)
    assert ops.scale_jitter(np.zeros((2, 90, 1), np.uint8), 9, (0.1, 0.1)).shape == (1, 1, 1)  # 0.04 x 0.9
    found, _ = sizes(ScaleJitter(800, 500, (0.5, 1.5)), (50, 80), 4000)
    widths = np.array([width for _, width in found])
    assert widths.min() >= 399 and widths.max() <= 1200
    assert abs(widths.mean() - 800) < 4 * 1000 / 12**0.5 / 4000**0.5 + 1


def test_lengths_are_drawn_as_torchvision_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    of = torchvision()
    torch = pytest.importorskip("torch")
    for number in IMAGES:
        x = photograph(number)
        lengths = tuple(range(20 + number, 400, 37))
        for most in (None, 300):
            op = RandomShortestSize(lengths, most)
            found, rng = sizes(op, x.shape[:2])
            for draw, index in enumerate(rng.integers(0, len(lengths)).tolist()):
                monkeypatch.setattr(torch, "randint", lambda *_, index=index: torch.tensor(index))
                theirs = of.v2.RandomShortestSize(list(lengths), most)
                assert found[draw] == theirs.make_params([chw(x)])["size"]


def test_scales_are_drawn_as_torchvision_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    of = torchvision()
    torch = pytest.importorskip("torch")
    for number in IMAGES:
        x = photograph(number)
        op = ScaleJitter(321, 200 + 9 * number, (0.1, 2.0))
        found, rng = sizes(op, x.shape[:2])
        for draw, u in enumerate(rng.uniform().tolist()):
            monkeypatch.setattr(torch, "rand", lambda *_, u=u: torch.tensor([u], dtype=torch.float32))
            theirs = of.v2.ScaleJitter((321, 200 + 9 * number), (0.1, 2.0))
            assert found[draw] == theirs.make_params([chw(x)])["size"]


def test_products_of_large_images_are_rounded_to_float32_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    found, rng = sizes(ScaleJitter(20_000, 15_000, (0.1, 2.0)), (7001, 9973), 50_000)

    scale = 0.1 + torch.from_numpy(rng.uniform().astype(np.float32)) * (2.0 - 0.1)
    factor = min(15_000 / 7001, 20_000 / 9973) * scale
    assert found == list(zip((7001 * factor).int().tolist(), (9973 * factor).int().tolist(), strict=True))


@pytest.mark.parametrize("op", [RandomShortestSize((60, 100, 300), 310), ScaleJitter(200, 200, (0.3, 1.5))], ids=str)
def test_pixels_are_torchvisions_but_for_sums_that_it_rounds_the_other_way(op: Any) -> None:
    of = torchvision()
    for number in IMAGES:
        x = photograph(number)
        for size in dict.fromkeys(sizes(op, x.shape[:2], 4)[0]):
            theirs = hwc(of.v2.functional.resize(chw(x), list(size), antialias=True)).astype(int)
            difference = np.abs(op.reference(x, np.array(size)).astype(int) - theirs)

            assert difference.max() <= 1
            assert difference.mean() < 0.02


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "random_shortest_size": lambda x, y: ops.random_shortest_size(
        (x, y), (20, 30, 40), 44, ("bilinear", "nearest"), return_params=True
    ),
    "scale_jitter": lambda x, y: ops.scale_jitter(
        (x, y), (40, 50), (0.4, 1.5), ("bilinear", "nearest"), return_params=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
@pytest.mark.parametrize("name", CALLS)
def test_an_image_and_its_mask_get_one_size_which_is_given(name: str, backend: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 50, 60, 3), dtype=np.uint8)
    ds = gp.Dataset.from_tensor_slices((images, images[..., :1])).map(CALLS[name])

    found = list(ds.with_options(gp.Options(device="cpu", backend=backend)).iterator(epoch=0))

    assert ds.element_spec[1] == gp.TensorSpec((2,), "int32")
    given = [tuple(size) for _, size in found]
    for (image, mask), size in found:
        assert image.shape == (*size, 3) and mask.shape == (*size, 1)
        assert size.dtype == np.int32
    assert len(set(given)) > 1
    numpy = ds.with_options(gp.Options(device="cpu", backend="numpy"))
    assert given == [tuple(size) for _, size in numpy.iterator(epoch=0)]


def test_lengths_and_scales_may_be_traced() -> None:
    lengths = np.array([10, 20, 30])
    ds = gp.Dataset.from_tensor_slices((np.stack([X] * 3), lengths))
    numpy = gp.Options(device="cpu", backend="numpy")

    shorter = [x.shape for x in ds.map(lambda x, n: ops.random_shortest_size(x, (n, n), n + 2)).with_options(numpy)]
    jittered = [x.shape for x in ds.map(lambda x, n: ops.scale_jitter(x, (n, n), (1, n / n))).with_options(numpy)]

    assert shorter == [(7, 12, 3), (13, 22, 3), (20, 32, 3)]
    assert jittered == [(6, 10, 3), (12, 20, 3), (18, 30, 3)]
    bad = ds.map(lambda x, n: ops.random_shortest_size(x, n - 10)).with_options(numpy)
    with pytest.raises(ShapeError, match=r"random_shortest_size needs an integer for min_size from 1 to .*, got 0"):
        list(bad)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: ops.random_shortest_size(X, ()), SpecError, "a length for min_size, or several to draw from, got no"),
        (lambda: ops.random_shortest_size(X, 0), SpecError, "random_shortest_size needs min_size from 1 to"),
        (lambda: ops.random_shortest_size(X, (9, 2.5)), PlanTypeError, "needs an integer for min_size, got 2.5"),  # type: ignore[arg-type]
        (lambda: ops.random_shortest_size(X, "9"), PlanTypeError, "needs min_size as an integer or a list of"),  # type: ignore[arg-type]
        (lambda: ops.random_shortest_size(X, range(0)), SpecError, "a length for min_size, or several to draw from"),
        (lambda: ops.scale_jitter(X, range(9)), PlanTypeError, r"needs target_size as two numbers, got range\(0, 9\)"),
        (lambda: ops.random_shortest_size(X.astype(np.int32), 9), SpecError, "random_shortest_size needs an image of"),
        (lambda: ops.scale_jitter(X.astype(np.int32), 9), SpecError, "scale_jitter needs an image of uint8"),
        (lambda: ops.resize_shorter(X.astype(np.int32), 9), SpecError, "resize_shorter needs an image of uint8"),
        (lambda: ops.resize_with_pad(X.astype(np.int32), 9, 9), SpecError, "resize_with_pad needs an image of uint8"),
        (lambda: ops.random_resized_crop(X.astype(np.int32), (9, 9)), SpecError, "random_resized_crop needs an image"),
        (lambda: ops.random_shortest_size(X, 9, -1), SpecError, "random_shortest_size needs max_size from 1 to"),
        (lambda: ops.random_shortest_size(X, 9, 9, "box"), SpecError, "needs interpolation from .*, got 'box'"),
        (lambda: ops.random_shortest_size(X[0], 9), SpecError, "random_shortest_size needs an image"),
        (lambda: ops.scale_jitter(X, (9, 0)), SpecError, "scale_jitter needs height from 1 to"),
        (lambda: ops.scale_jitter(X, (9, 9, 9)), PlanTypeError, "scale_jitter needs target_size as two numbers"),
        (lambda: ops.scale_jitter(X, 9, (2, 1)), SpecError, "scale_jitter needs scale_range from small to large"),
        (lambda: ops.scale_jitter(X, 9, (0, 1)), SpecError, "scale_jitter needs scale_range from 1e-06"),
        (lambda: ops.scale_jitter((X, X), 9, interpolation=("nearest",)), SpecError, "one interpolation, or one per"),
        (lambda: ops.scale_jitter(X, 9, return_params=1), PlanTypeError, "needs return_params as True or False"),  # type: ignore[call-overload]
    ],
)  # fmt: skip
def test_mistakes_are_plan_errors(call: Callable[[], Any], error: type[PlanError], match: str) -> None:
    with pytest.raises(error, match=match):
        call()


def test_lengths_may_be_a_range_or_an_array() -> None:
    for lengths in (range(10, 31, 10), np.array([10, 20, 30]), [10, 20, 30]):
        found = {ops.random_shortest_size(X, lengths, seed=seed).shape[0] for seed in range(30)}  # type: ignore[arg-type]
        assert found == {10, 20, 30}
