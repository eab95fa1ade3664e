"""Painted Samples: masks show where boxes and keypoints are. And programs that move them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpupipe import ops
from gpupipe.ops import Sample
from gpupipe.ops._shared.fitting import fit

__all__ = ["MOVES", "Move", "check", "check_image", "drawn", "painted", "program"]

HEIGHT, WIDTH = 60, 80

REACH = 3
"""Pixels that a painted keypoint reaches to each side of its own."""


def painted(
    rng: np.random.Generator, boxes: int = 2, points: int = 4, size: tuple[int, int] = (HEIGHT, WIDTH)
) -> Sample:
    """An image with boxes and keypoints at whole numbers.

    Boxes may be behind one another: each is painted in a mask of its own; keypoints are squares in one mask, by number.
    """
    height, width = size
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    x, y = (np.sort(rng.choice(np.arange(length + 1), (boxes, 2)), axis=1) for length in (width, height))
    x[:, 1], y[:, 1] = np.minimum(x[:, 0] + 12, width), np.minimum(y[:, 0] + 9, height)
    x[:, 0], y[:, 0] = x[:, 1] - 12, y[:, 1] - 9
    corners = np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)
    places = rng.integers(REACH, (width - REACH, height - REACH), (points, 2))
    masks = np.zeros((boxes, height, width, 1), np.uint8)
    for number, (x1, y1, x2, y2) in enumerate(corners):
        masks[number, y1:y2, x1:x2] = 1
    dots = np.zeros((height, width, points), np.uint8)
    for number, (across, down) in enumerate(places):
        dots[down - REACH : down + REACH + 1, across - REACH : across + REACH + 1, number] = 1
    keypoints = np.concatenate([places + 0.5, np.full((points, 1), 2)], axis=1)
    return Sample(image, corners, np.arange(boxes), keypoints, (*masks, dots))


def check(sample: Sample, exact: bool) -> int:
    """Compare boxes and keypoints with what is painted; returns how many could be compared.

    Args:
        sample: what became of a painted one, as arrays.
        exact: whether every box is as tight as its object; after turns it may be larger.
    """
    *masks, dots = sample.masks
    height, width = sample.image.shape[:2]
    compared = 0
    for mask, box, label in zip(masks, sample.boxes, sample.labels, strict=True):
        assert mask.shape[:2] == (height, width)
        compared += _check_box(box, label, mask[..., 0] > 0, exact, 2)
    for number, (x, y, v) in enumerate(sample.keypoints):
        assert v == 2
        if 1 <= x < width - 1 and 1 <= y < height - 1:
            around = dots[int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2, number]
            assert around.any(), f"point {number} at {x}, {y} is not on what was painted"
            compared += 1
    return compared


def drawn(rng: np.random.Generator) -> Sample:
    """An image with two boxes in the first channels and a keypoint in the last, as white on black, and masks of these.

    There are keypoints at the corners of its square, too: while they are in sight, so is all of it.
    Pixels that are interpolated tell where an edge is by less than a pixel, also after several ops.
    """
    sample = painted(rng, points=1)
    *masks, dots = sample.masks
    middle = sample.keypoints[0, :2]
    corners = [middle + np.array(ends) * (REACH + 0.5) for ends in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    points = np.concatenate([[middle], corners]).astype(np.float32)
    seen = np.concatenate([points, np.full((5, 1), 2, np.float32)], axis=1)
    return replace(sample, image=255 * np.concatenate([*masks, dots], axis=2), keypoints=seen)


def check_image(sample: Sample, exact: bool, clipped: bool = True) -> int:
    """Compare boxes and keypoints with what is in the channels of a `drawn` image; returns how many could be.

    Args:
        sample: what became of one.
        exact: whether every box is as tight as its object.
        clipped: whether it was clipped after every op; a crop cuts off what keypoints outside of it say.
    """
    height, width = sample.image.shape[:2]
    compared = 0
    for box, label in zip(sample.boxes, sample.labels, strict=True):
        compared += _check_box(box, label, sample.image[..., label] > 127, exact, 3)
    dot, (x, y, v) = sample.image[..., 2].astype(np.float64), sample.keypoints[0]
    if v and 1 <= x < width - 1 and 1 <= y < height - 1 and clipped:
        assert dot[int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2].max() > 63, f"the point is not at {x}, {y}"
        compared += 1
    if sample.keypoints[:, 2].all() and clipped:
        rows, columns = np.mgrid[:height, :width] + 0.5
        middle = np.array([(dot * columns).sum(), (dot * rows).sum()]) / dot.sum()
        assert np.abs(middle - (x, y)).max() <= 1, f"the point at {middle} is not at {x}, {y}"
    return compared


def _check_box(box: Any, label: int, shown: Any, exact: bool, pale: int) -> bool:
    """Compare a box with where its object is shown; one of up to `pale` pixels may not be to be seen."""
    height, width = shown.shape
    seen = np.clip(box, 0, (width, height, width, height))
    found = _extent(shown)
    if found is None:
        assert not exact or (seen[2:] - seen[:2]).min() <= pale, f"object {label} is gone, its box is {box}"
        return False
    apart = np.array([seen[0] - found[0], seen[1] - found[1], found[2] - seen[2], found[3] - seen[3]])
    assert apart.max() <= 1, f"object {label} at {found} is not in {box}"
    wide = (seen[2:] - seen[:2]).min() >= 2  # of what is narrower, the corners are too pale to be seen
    assert not (exact and wide) or apart.min() >= -1, f"box {box} is larger than its object at {found}"
    return True


def _extent(shown: Any) -> Any:
    """The box around what is shown; None if nothing is."""
    rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) if len(rows) else None


@dataclass(frozen=True)
class Move:
    """One op on a Sample, whatever its size.

    Attributes:
        name: of the op.
        call: takes a Sample, or an image.
        exact: whether boxes stay as tight as they were.
        drawn: whether white stays white and black black.
    """

    name: str
    call: Callable[[Any], Any]
    exact: bool = True
    drawn: bool = True


def _moves(n: Callable[[int, int], int], gray: int) -> list[Move]:
    """All of them, with numbers from `n`, which gives one between two bounds; images are filled with `gray`."""

    def fill(s: Any) -> Any:
        return {"image": gray, "masks": 0} if isinstance(s, Sample) else gray

    seed = n(0, 1 << 30)
    high, wide = n(40, 90), n(40, 90)
    angle = n(-60, 60)
    return [
        Move("flip_left_right", ops.flip_left_right),
        Move("flip_up_down", ops.flip_up_down),
        Move("random_flip_left_right", lambda s: ops.random_flip_left_right(s, seed=seed)),
        Move("random_flip_up_down", lambda s: ops.random_flip_up_down(s, seed=seed)),
        Move("rot90", lambda s: ops.rot90(s, seed % 7)),
        Move("center_crop", lambda s: ops.center_crop(s, (high, wide))),
        Move("central_crop", lambda s: ops.central_crop(s, 0.5 + seed % 50 / 100)),
        Move("crop_to_bounding_box", lambda s: ops.crop_to_bounding_box(ops.center_crop(s, (64, 64)), 3, 5, 50, 52)),
        Move("slice", lambda s: ops.slice(ops.center_crop(s, (64, 64)), (3, 5, 0), (50, -1, -1))),
        Move(
            "pad_to_bounding_box",
            lambda s: ops.pad_to_bounding_box(ops.resize(s, (50, 60), "nearest"), 7, 2, 61, 70),
            drawn=False,
        ),
        Move("resize_with_crop_or_pad", lambda s: ops.resize_with_crop_or_pad(s, high, wide)),
        Move("random_crop", lambda s: ops.random_crop(ops.center_crop(s, (70, 80)), (51, 47), seed=seed)),
        Move("random_resized_crop", lambda s: ops.random_resized_crop(s, (high, wide), scale=(0.4, 1.0), seed=seed)),
        Move("resize", lambda s: ops.cast(ops.resize(s, (high, wide)), "uint8")),
        Move("resize, nearest", lambda s: ops.resize(s, (high, wide), "nearest", True), drawn=False),
        Move("resize_shorter", lambda s: ops.resize_shorter(s, high)),
        Move("resize_shorter, limited", lambda s: ops.resize_shorter(s, high, max_size=high + 5)),
        Move("fit", lambda s: fit(s, "shortest and longest", (high, high + 20), multiple=4)),
        Move("random_shortest_size", lambda s: ops.random_shortest_size(s, (high, 60), seed=seed)),
        Move("scale_jitter", lambda s: ops.scale_jitter(s, (high, wide), (0.7, 1.5), seed=seed)),
        Move("resize_with_pad", lambda s: ops.cast(ops.resize_with_pad(s, high, wide, fill=fill(s)), "uint8")),
        Move("pad", lambda s: ops.pad(s, (seed % 9, 2, 3, 4), fill(s))),
        Move("random_zoom_out", lambda s: ops.random_zoom_out(s, fill(s), (1.0, 1.4), 0.7, seed=seed)),
        Move("random_size_crop", lambda s: ops.random_size_crop(s, 40, 60, seed=seed)),
        Move("affine", lambda s: ops.affine(s, angle, (3, -4), 1.1, (8, -5), "bilinear", fill(s)), False),
        Move("affine, shifted", lambda s: ops.affine(s, 0, (angle / 10, 5), 1.2, (0, 0), "bilinear", fill(s))),
        Move("rotate", lambda s: ops.rotate(s, angle, fill=fill(s)), False, False),
        Move("rotate, expanded", lambda s: ops.rotate(s, angle, "bilinear", True, fill=fill(s)), False),
        Move("random_affine", lambda s: _mapped(s, fill(s), seed), False),
        Move("random_rotation", lambda s: ops.random_rotation(s, 45, seed=seed), False, False),
        Move("random_perspective", lambda s: ops.random_perspective(s, 0.3, 1.0, fill=fill(s), seed=seed), False),
        Move("perspective", lambda s: ops.perspective(s, coefficients=(1.1, 0.1, -3, 0.05, 0.9, 2, 1e-3, 5e-4)), False),
        Move("random_transform", lambda s: _transformed(s, seed), False),
        Move("rand_augment", lambda s: ops.rand_augment(s, 3, 20, seed=seed), False, False),
        Move("trivial_augment_wide", lambda s: ops.trivial_augment_wide(s, fill=9, seed=seed), False, False),
        Move("auto_augment", lambda s: ops.auto_augment(s, seed=seed), False, False),
        Move("random_apply", lambda s: ops.random_apply(ops.flip_left_right, s, seed=seed)),
        Move("random_choice", lambda s: ops.random_choice([ops.flip_up_down, _twice, lambda x: x], s, seed=seed)),
        Move("random_order", lambda s: ops.random_order([ops.flip_up_down, _shifted], s, seed=seed)),
        Move("colours", lambda s: _coloured(s, seed), drawn=False),
    ]


def _twice(s: Any) -> Any:
    return ops.flip_left_right(ops.flip_up_down(s))


def _shifted(s: Any) -> Any:
    return ops.affine(s, translate=(4, 3))


def _mapped(s: Any, fill: Any, seed: int) -> Any:
    return ops.random_affine(s, 30, (0.1, 0.1), (0.8, 1.2), 8, "bilinear", fill, seed=seed)


def _coloured(s: Any, seed: int) -> Any:
    return ops.random_erasing(ops.color_jitter(s, 0.2, 0.2, 0.2, 0.1, seed=seed), 1, seed=seed)


def _transformed(s: Any, seed: int) -> Any:
    made = ops.random_transform(s, 25, 0.1, 0.1, None, 5, 0.1, 0, "constant", horizontal_flip=True, seed=seed)
    return ops.cast(made, "uint8")


MOVES = {move.name: move for move in _moves(lambda low, high: (2 * low + high) // 3, 114)}
"""Every op that moves a Sample, once."""


def program(rng: np.random.Generator, length: int) -> list[Move]:
    """Some in a row that can be seen in `drawn` images, with other numbers each."""

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    moves = []
    for _ in range(length):
        every = [move for move in _moves(number, 0) if move.drawn]
        moves.append(every[number(0, len(every) - 1)])
    return moves
