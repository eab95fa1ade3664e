"""Keras' preprocessing layers: the calls that the page on moving gives for them, on the same images and draws.

Each call is evaluated as it stands on the page, what its op drew is noted, and the layer's own code gets these numbers.
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
from gpupipe.graph import eager
from gpupipe.graph.op import Array, Op
from tests.ops.originals import original
from tests.ops.test_affine import COUNT, photograph

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

    def noted(op: Op, first: Any, seed: int | None) -> list[Array]:
        drawn = params(op, first, seed)
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
