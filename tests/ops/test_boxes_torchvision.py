"""Boxes and keypoints beside torchvision's tv_tensors: several sets of boxes and draws."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.ops import Sample
from tests.ops.originals import torchvision

HEIGHT, WIDTH = 50, 70

MARGIN = 1e-3
"""Positions of some 100 pixels in float32, with sines of torchvision in float32."""


def corners(rng: np.random.Generator) -> tuple[list[list[int]], list[list[int]]]:
    start = [[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]]
    return start, [[x + int(rng.integers(-8, 9)), y + int(rng.integers(-8, 9))] for x, y in start]


def calls(rng: np.random.Generator, F: Any = None) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """A call of gpupipe and of torchvision for each op, with drawn numbers."""
    top, left, high, wide = (int(n) for n in rng.integers((0, 0, 10, 10), (20, 20, 30, 40)))
    angle, scale = float(rng.uniform(-180, 180)), float(rng.uniform(0.5, 2))
    shift = [int(n) for n in rng.integers(-9, 9, 2)]
    shear, center = [float(n) for n in rng.uniform(-20, 20, 2)], [float(n) for n in rng.uniform(10, 50, 2)]
    sides = [int(n) for n in rng.integers(0, 9, 4)]
    start, end = corners(rng)
    return {
        "flip_left_right": (ops.flip_left_right, lambda x: F.horizontal_flip(x)),
        "flip_up_down": (ops.flip_up_down, lambda x: F.vertical_flip(x)),
        "crop_to_bounding_box": (
            lambda s: ops.crop_to_bounding_box(s, top, left, high, wide), lambda x: F.crop(x, top, left, high, wide)
        ),
        "center_crop": (lambda s: ops.center_crop(s, (high, wide)), lambda x: F.center_crop(x, [high, wide])),
        "resize": (lambda s: ops.resize(s, (high, wide)), lambda x: F.resize(x, [high, wide])),
        "resize_shorter": (lambda s: ops.resize_shorter(s, high), lambda x: F.resize(x, [high])),
        "pad": (lambda s: ops.pad(s, sides), lambda x: F.pad(x, sides)),
        "affine": (
            lambda s: ops.affine(s, angle, shift, scale, shear, center=center),
            lambda x: F.affine(x, angle, shift, scale, shear, center=center),
        ),
        "rotate": (lambda s: ops.rotate(s, angle), lambda x: F.rotate(x, angle)),
        "rotate, expanded": (lambda s: ops.rotate(s, angle, expand=True), lambda x: F.rotate(x, angle, expand=True)),
        "rotate, around": (lambda s: ops.rotate(s, angle, center=center), lambda x: F.rotate(x, angle, center=center)),
        "perspective": (lambda s: ops.perspective(s, start, end), lambda x: F.perspective(x, start, end)),
    }  # fmt: skip


@pytest.mark.parametrize("name", calls(np.random.default_rng(0)))
def test_boxes_and_keypoints_are_torchvisions(name: str) -> None:
    torch, F = pytest.importorskip("torch"), torchvision().v2.functional
    tv_tensors = importlib.import_module("torchvision.tv_tensors")
    for draw in range(8):
        rng = np.random.default_rng(draw)
        ours, theirs = calls(rng, F)[name]
        low = rng.uniform(0, (WIDTH - 10, HEIGHT - 10), (6, 2))
        boxes = np.concatenate([low, low + rng.uniform(1, 10, (6, 2))], axis=1).astype(np.float32)
        points = rng.uniform(0, (WIDTH, HEIGHT), (5, 2)).astype(np.float32)
        made = ours(Sample(np.zeros((HEIGHT, WIDTH, 3), np.uint8), boxes, keypoints=points))
        size = {"canvas_size": (HEIGHT, WIDTH)}
        box = tv_tensors.BoundingBoxes(torch.tensor(boxes), format="XYXY", clamping_mode=None, **size)
        expected = theirs(box)
        found = theirs(tv_tensors.KeyPoints(torch.tensor(points), **size)).numpy().copy()
        if name.startswith("flip"):  # torchvision's flips take keypoints as numbers of pixels
            found[:, int(name == "flip_up_down")] += 1

        if name == "rotate, expanded":  # torchvision gives boxes another canvas than their image, and other middles
            image = theirs(torch.zeros((3, HEIGHT, WIDTH), dtype=torch.uint8))
            assert made.image.shape[:2] == tuple(image.shape[1:])
            np.testing.assert_allclose(made.boxes, expected.numpy(), atol=1)
            np.testing.assert_allclose(made.keypoints, found, atol=1)
            continue
        assert made.image.shape[:2] == tuple(expected.canvas_size)
        np.testing.assert_allclose(made.boxes, expected.numpy(), atol=MARGIN * 10, err_msg=f"draw {draw}")
        np.testing.assert_allclose(made.keypoints, found, atol=MARGIN * 10, err_msg=f"draw {draw}")
