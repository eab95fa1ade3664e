"""random_erasing: torchvision's law restated attempt by attempt, its distribution, and what it leaves alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.ops.random_erasing import RandomErasing, erased_windows
from gpupipe.random import BatchRng
from gpupipe.transform import machine

BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()


def restated(u: Any, height: int, width: int, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
    """RandomErasing.get_params of torchvision with given uniform numbers: (y, x, h, w); nothing is erased by zeros."""
    for attempt in range(10):
        area = height * width * (scale[0] + u[attempt] * (scale[1] - scale[0]))
        low, high = math.log(ratio[0]), math.log(ratio[1])
        shape = math.exp(low + u[10 + attempt] * (high - low))
        h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if not (h < height and w < width):
            continue
        if not h or not w:
            return 0, 0, 0, 0
        return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    return 0, 0, 0, 0


@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.02, 0.33), (0.3, 3.3)), ((0.5, 1.0), (0.2, 5.0)), ((0.0, 0.01), (1.0, 1.0))]
)
def test_rectangles_are_torchvisions(scale: Any, ratio: Any) -> None:
    u = np.random.default_rng(0).random((500, 22))
    hw = np.random.default_rng(1).integers(1, 90, (500, 2)).astype(np.int32)

    start, shape = erased_windows(u, hw, scale, ratio)

    for row, (height, width), got in zip(u, hw.tolist(), np.concatenate([start, shape], 1).tolist(), strict=True):
        assert tuple(got) == restated(row, height, width, scale, ratio)


def test_the_share_of_images_is_the_probability() -> None:
    count = 4000
    rng = BatchRng(1, 0, np.arange(count, dtype=np.uint64), 5)

    _, shape = RandomErasing(0.3).draw(rng, np.full((count, 2), 64, np.int32))

    # 5 standard deviations of a share of 0.3 among 4000
    assert abs((shape[:, 0] > 0).mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / count)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_one_rectangle_is_filled_and_nothing_else_changes(backend: Any, layout: str) -> None:
    x = np.random.default_rng(0).integers(1, 200, (12, 20, 30, 3), dtype=np.uint8)

    def chain(image: Any) -> Any:
        if layout == "CHW":
            image = ops.transpose(image)
        image = ops.random_erasing(image, 0.7, value=(0, 250, 251))
        return ops.transpose(image, "HWC") if layout == "CHW" else image

    got = list(gp.Dataset.from_tensor_slices(x).map(chain).with_options(gp.Options(device="cpu", backend=backend)))

    erased = 0
    for image, source in zip(got, x, strict=True):
        changed = (image != source).any(axis=2)
        if not changed.any():
            continue
        erased += 1
        y, left = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        assert changed[y[0] : y[-1] + 1, left[0] : left[-1] + 1].all()
        assert (image[changed] == [0, 250, 251]).all()
    assert 0 < erased < 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_array_can_be_said_to_be_chw(backend: Any) -> None:
    x = np.ones((8, 3, 40, 50), np.float32)
    ds = gp.Dataset.from_tensor_slices(x).map(lambda i: ops.random_erasing(i, 1, (0.3, 0.3), (1, 1), layout="CHW"))

    for image in ds.with_options(gp.Options(device="cpu", backend=backend)):
        # sqrt(0.3 * 2000) = 24.5: 24 rows and columns of each of the 3 channels
        assert (image == 0).sum() == 3 * 24 * 24


def test_eager_calls_leave_their_input_alone() -> None:
    x = np.ones((9, 9, 1), np.uint8)

    erased = ops.random_erasing(x, 1, (0.2, 0.3), seed=1)

    assert erased.min() == 0
    assert x.min() == 1


def test_mistakes_are_plan_errors() -> None:
    x = np.ones((9, 9, 3), np.uint8)
    with pytest.raises(SpecError, match="values that fit the image"):
        ops.random_erasing(x, value=300)
    with pytest.raises(SpecError, match="values that fit the image"):
        ops.random_erasing(x, value=0.5)
    with pytest.raises(SpecError, match="one value or one per channel"):
        ops.random_erasing(x, value=(1, 2))
    with pytest.raises(SpecError, match="needs a number for value, or one per channel, got 'random'"):
        ops.random_erasing(x, value="random")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="scale from small to large"):
        ops.random_erasing(x, scale=(0.5, 0.1))
    with pytest.raises(SpecError, match="p from 0 to 1"):
        ops.random_erasing(x, 1.5)
    with pytest.raises(PlanTypeError, match="needs a number for value"):
        ops.random_erasing(x, value=(None,))  # type: ignore[arg-type]
