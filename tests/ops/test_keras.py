"""Keras: random_transform against its ImageDataGenerator, and the calls that the page on moving gives for its layers.

Both get the numbers that were drawn here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph import eager
from gpupipe.graph.op import Array, Op
from gpupipe.ops.random_transform import RandomTransform
from gpupipe.random import BatchRng
from tests.ops.originals import original
from tests.ops.refusals import refused
from tests.ops.test_affine import BACKENDS, COUNT, photograph
from tests.ops.value_chains import on

PAGE = Path(gp.__file__).parent / "guide" / "moving.md"

ROWS = dict(re.findall(r"^\| `layers\.(\w+)\(.*\)` \| `(.*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
"""The call for each layer."""

LEVEL = 0.1
"""Keras computes positions in float32, and resizes in float32: of levels of 0..255."""


@pytest.fixture
def layers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    original("torch")
    return original("keras.layers")


def turned(layers: Any, x: Any, drawn: list[Array]) -> Any:
    turn = float(np.arctan2(drawn[0][1, 0], drawn[0][0, 0])) / (2 * np.pi)
    assert abs(turn) < 0.1
    return layers.RandomRotation((turn, turn))(x, training=True)


def shifted(layers: Any, x: Any, drawn: list[Array]) -> Any:
    matrix, start = drawn[:2]
    # behind the lines and columns that were put before
    across, down = (matrix[:, 2] + start[::-1]) / (x.shape[1], x.shape[0])
    assert abs(down) < 0.2 and abs(across) < 0.3
    return layers.RandomTranslation((-down, -down), (-across, -across))(x, training=True)


def zoomed(layers: Any, x: Any, drawn: list[Array]) -> Any:
    across, down = float(drawn[0][0, 0]) - 1, float(drawn[0][1, 1]) - 1
    assert max(abs(down), abs(across)) < 0.3
    return layers.RandomZoom((down, down), (across, across))(x, training=True)


LAYERS: dict[str, Callable[[Any, Any, list[Array]], Any]] = {
    "RandomRotation": turned,
    "RandomTranslation": shifted,
    "RandomZoom": zoomed,
    "RandomFlip": lambda layers, x, drawn: layers.RandomFlip("horizontal").transform_images(
        x, {"flips": np.full((1, 1, 1), bool(drawn[0]))}
    ),
    "RandomContrast": lambda layers, x, drawn: layers.RandomContrast(0.3).transform_images(
        x, {"contrast_factor": float(drawn[0])}
    ),
    "RandomBrightness": lambda layers, x, drawn: layers.RandomBrightness(0.2).transform_images(
        x, {"rgb_delta": float(drawn[0])}
    ),
    "RandomCrop": lambda layers, x, drawn: layers.RandomCrop(32, 36).transform_images(x, tuple(drawn[0].tolist())),
    "CenterCrop": lambda layers, x, drawn: layers.CenterCrop(32, 36)(x),
    "Resizing": lambda layers, x, drawn: layers.Resizing(50, 70)(x),
    "Rescaling": lambda layers, x, drawn: layers.Rescaling(1 / 127.5, -1)(x),
}  # fmt: skip


def test_the_page_has_a_call_for_each_of_them() -> None:
    assert ROWS.keys() == LAYERS.keys()


@pytest.mark.parametrize("name", LAYERS)
def test_photographs_with_several_draws_each_are_those_of_the_layer(
    name: str, layers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, found = eager._params, list[Array]()

    def noted(op: Op, *how: Any) -> list[Array]:
        drawn = params(op, *how)
        if op.random:
            found.extend(drawn)
        return drawn

    monkeypatch.setattr(eager, "_params", noted)
    random = name.startswith("Random")
    for number in range(COUNT):
        x = photograph(number).astype(np.float32)
        for _ in range(COUNT if random else 1):
            found.clear()
            ours = eval(ROWS[name], {"ops": ops, "x": x})

            assert bool(found) == random
            theirs = np.asarray(LAYERS[name](layers, original("torch").from_numpy(x.copy()), found))
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=LEVEL)


MODES = {"nearest": "nearest", "constant": "constant", "reflect": "reflect", "wrap": "grid-wrap"}
"""What SciPy, which Keras hands its modes to, calls each; its "wrap" has one line and column less."""


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Keras' old module of image preprocessing, which needs SciPy."""
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    for name in ("torch", "scipy"):
        original(name)
    return original("keras.src.legacy.preprocessing.image")


def numbers(u: Array, h: int, w: int) -> dict[str, float]:
    """What Keras calls the draws of `RandomTransform(40, 0.2, 0.3, 20, (0.7, 1.3))`: it exchanges the two shifts."""
    return {
        "theta": 40 * (2 * u[0] - 1),
        "shear": 20 * (2 * u[1] - 1),
        "tx": 0.2 * (2 * u[2] - 1) * w,
        "ty": 0.3 * (2 * u[4] - 1) * h,
        "zx": 0.7 + 0.6 * u[6],
        "zy": 0.7 + 0.6 * u[7],
    }


@pytest.mark.filterwarnings("ignore:Please import `affine_transform`:DeprecationWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", range(COUNT))
def test_one_map_for_each_image_is_that_of_keras(number: int, mode: str, keras: Any) -> None:
    x = photograph(number).astype(np.float32)
    side = min(x.shape[:2])
    x = x[:side, :side]  # of images that are not squares Keras takes another point for the middle
    keys = np.arange(1, COUNT + 1, dtype=np.uint64) + np.uint64(1000 * number)
    op = RandomTransform(40, 0.2, 0.3, 20, (0.7, 1.3), mode, 9.0)
    drawn = op.draw(BatchRng(0, 0, keys), np.array([[side, side]] * COUNT, np.int32))
    u = BatchRng(0, 0, keys).uniform(8)
    generator = keras.ImageDataGenerator(fill_mode=MODES[mode], cval=9.0, data_format="channels_last")
    for row in range(COUNT):
        got = op.reference(x, *(part[row] for part in drawn))

        theirs = generator.apply_transform(x, numbers(u[row], side, side))
        if mode == "constant":  # Keras does not mix image and cval: a pixel on each side of the border differs
            same = np.abs(got - theirs).max(axis=2) < 0.1
            assert same.mean() > 0.92
            assert set(np.unique(theirs[~same])) == {9.0}
        else:
            np.testing.assert_allclose(got, theirs, rtol=0, atol=0.1)


def test_shifts_are_along_the_axis_of_their_name() -> None:
    x = np.arange(1, 31, dtype=np.float32).reshape(5, 6, 1)

    across = ops.random_transform(x, width_shift_range=[2], fill_mode="constant", seed=3)[..., 0]
    down = ops.random_transform(x, height_shift_range=[2], fill_mode="constant", seed=3)[..., 0]

    assert any(np.array_equal(across, np.pad(x, ((0, 0), pad, (0, 0)))[:, cut, 0]) for pad, cut in _TWO)
    assert any(np.array_equal(down, np.pad(x, (pad, (0, 0), (0, 0)))[cut, :, 0]) for pad, cut in _TWO)


_TWO = (((2, 0), slice(None, -2)), ((0, 2), slice(2, None)))


def test_whole_shifts_are_all_below_their_number() -> None:
    hw = np.array([[40, 60]] * 3000, np.int32)
    op = RandomTransform(0.0, tuple(map(float, range(4))), 0.25)

    matrix = op.draw(BatchRng(0, 0, np.arange(1, 3001, dtype=np.uint64)), hw)[0]

    assert set(matrix[:, 0, 2]) == {-3, -2, -1, 0, 1, 2, 3}
    assert -10 <= matrix[:, 1, 2].min() < -9.9
    assert 9.9 < matrix[:, 1, 2].max() <= 10


@pytest.mark.parametrize("number", range(COUNT))
def test_a_change_of_brightness_is_that_of_keras(number: int, keras: Any) -> None:
    x = photograph(number).astype(np.float32)
    x = x if x.shape[2] == 3 else np.repeat(x, 3, axis=2)
    for factor in np.random.default_rng(number).uniform(0.3, 1.8, COUNT).tolist():
        got = ops.random_transform(x, brightness_range=(factor, factor))

        assert got.dtype == np.float32
        assert np.abs(got - keras.apply_brightness_shift(x, factor, False)).max() <= 1  # next to a whole number


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_everything_at_once_is_the_same_everywhere(backend: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 21, 30, 3), dtype=np.uint8)
    ds = gp.Dataset.from_tensor_slices(x).map(
        lambda x: ops.random_transform(x, 15, 0.1, 3, (0.5, 1.5), 5.0, 0.2, 20.0, "reflect", 0.0, True, True)
    )

    for got, expected in zip(
        *(ds.with_options(on(kind)).iterator(epoch=0) for kind in (backend, "numpy")), strict=True
    ):
        assert np.abs(got - expected).max() <= 2  # floats next to whole numbers are cut, then multiplied
        assert (got != expected).mean() < 0.01


def transformed(**settings: Any) -> Any:
    return ops.random_transform(np.zeros((4, 5, 3), np.uint8), **settings)


test_what_keras_has_no_meaning_for_is_an_error = refused(
    (SpecError, "fill_mode from nearest, constant, reflect, wrap", lambda: transformed(fill_mode="mirror")),
    (SpecError, "interpolation_order 0 or 1", lambda: transformed(interpolation_order=3)),
    (SpecError, "rotation_range from 0", lambda: transformed(rotation_range=-3)),
    (SpecError, "zoom_range from 0.001", lambda: transformed(zoom_range=1.0)),
    (PlanTypeError, "zoom_range as 2 numbers", lambda: transformed(zoom_range=(1, 2, 3))),
    (PlanTypeError, "a number for width_shift_range", lambda: transformed(width_shift_range="2")),
    (PlanTypeError, "horizontal_flip as True or False", lambda: transformed(horizontal_flip=1)),
    (SpecError, "intensity_range from 0", lambda: transformed(channel_shift_range=-1.0)),
)
