"""aug_mix: torchvision's own AugMix with the numbers that were drawn here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.policy import OPS, strengths
from gpupipe.ops.aug_mix import ALL, BINS, SIDE, AugMix
from tests.ops.originals import chw, hwc, photograph, torchvision
from tests.ops.test_policies import THEIRS, rng, sizes


def theirs(op: AugMix, image: Array, row: int, count: int) -> Array:
    """What torchvision's AugMix makes of an image, given what `op` drew for a row of a batch of such images."""
    torch = pytest.importorskip("torch")
    v2 = torchvision().v2
    hw = sizes(count, *image.shape[:2])
    kinds, strength = op.plan(rng(count), hw)
    weights = op.draw(rng(count), hw)[1][row, op.weighed :]
    transform = v2.AugMix(
        op.severity,
        op.mixture_width,
        op.chain_depth,
        op.alpha,
        op.all_ops,
        op.interpolation,
        [op.fill] * 3 if op.fill else None,
    )
    steps: Iterator[tuple[int, float]] = iter(zip(kinds[row].tolist(), strength[row].tolist(), strict=True))
    # The weight of the image and those of the chains, which torchvision multiplies by what the image leaves.
    shares = iter([[*weights[:1].tolist(), 1.0], weights[1:].tolist()])
    transform._sample_dirichlet = lambda params: torch.tensor([next(shares)], dtype=torch.float32)
    transform.chain_depth = op.depth  # with steps that do nothing where a chain is shorter
    transform._get_random_item = lambda space: ("Identity", (lambda *_: None, False))
    apply_one = transform._apply_image_or_video_transform

    def applied(x: Any, name: str, magnitude: float, **how: Any) -> Any:
        kind, magnitude = next(steps)
        return apply_one(x, THEIRS[OPS[kind]], magnitude, **how)

    transform._apply_image_or_video_transform = applied
    return hwc(transform(chw(image)))


@pytest.mark.parametrize(
    "op",
    [
        AugMix(),
        AugMix(10, 3, -1, 1.0, True, interpolation="nearest", fill=99),
        AugMix(10, 2, 4, 0.4, False, interpolation="nearest"),
    ],
    ids=["as by default", "strong", "two chains of four"],
)
def test_it_is_torchvisions_with_the_same_draws(op: AugMix) -> None:
    count = 4
    hw = sizes(count, 131, 103)
    params = op.draw(rng(count), hw)
    for row in range(count):
        image = photograph(row)[:131, :103]

        ours = op.reference(image, *(param[row] for param in params))

        difference = np.abs(ours.astype(int) - theirs(op, image, row, count))
        # Equalizing and truncated products enlarge the one level by which single ops differ; a position on the edge of
        # two pixels rounds to either, in shears those of a few lines (see test_policies).
        assert difference.mean() < 0.3
        assert (difference > 4).mean() < (0.002 if op.interpolation == "bilinear" else 0.03)


def test_strengths_are_torchvisions() -> None:
    space = torchvision().v2.AugMix._AUGMENTATION_SPACE
    assert {THEIRS[name] for name in ALL} == set(space)
    for name in ALL:
        values = space[THEIRS[name]][0](BINS, 231, 203)
        expected = np.zeros(BINS) if values is None else values.numpy().astype(np.float64)
        ours = strengths(name, BINS, sizes(1, 231, 203), SIDE, 4)[0] - (4 if name == "posterize" else 0)

        np.testing.assert_array_equal(ours, expected)


def test_equal_seeds_give_equal_images_and_mistakes_are_named() -> None:
    x = np.full((9, 8, 3), 100, np.uint8)

    assert np.array_equal(ops.aug_mix(x, 1, seed=3), ops.aug_mix(x, 1, seed=3))
    with pytest.raises(SpecError, match="aug_mix needs severity from 1 to 10, got 11"):
        ops.aug_mix(x, 11)
    with pytest.raises(SpecError, match=r"aug_mix needs alpha from 0.001 to 1000000.0?, got 0"):
        ops.aug_mix(x, alpha=0)
    with pytest.raises(SpecError, match="aug_mix needs all_ops to be a bool, got 2"):
        ops.aug_mix(x, all_ops=2)  # type: ignore[arg-type]
