"""autocontrast and equalize: hand-computed values, torchvision's own code and Pillow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array
from tests.ops.originals import chw, hwc, photograph, torchvision

PHOTOGRAPHS = range(3)


def column(*levels: int) -> Array:
    return np.array(levels, np.uint8).reshape(-1, 1, 1)


def test_autocontrast_by_hand() -> None:
    assert ops.autocontrast(column(50, 72, 94)).ravel().tolist() == [0, 127, 255]  # 22 / (44 / 255) is 127.5
    assert ops.autocontrast(column(7, 7)).ravel().tolist() == [7, 7]
    assert ops.autocontrast(column(0, 255, 3)).ravel().tolist() == [0, 255, 3]
    assert ops.autocontrast(np.array([[[0.5], [1.0], [2.5]]], np.float32)).ravel().tolist() == [0, 0.25, 1]


def test_the_highest_level_may_be_truncated_to_254_as_torchvisions_is() -> None:
    x = column(50, 100, 150)  # 100 / (100 * float32(1 / 255)) is 254.99998

    assert ops.autocontrast(x).ravel().tolist() == [0, 127, 254]
    assert hwc(torchvision().v2.functional.autocontrast(chw(x))).ravel().tolist() == [0, 127, 254]


def test_each_channel_is_stretched_alone() -> None:
    x = np.array([[[0, 10, 20], [44, 32, 20]]], np.uint8)

    assert ops.autocontrast(x).tolist() == [[[0, 0, 20], [255, 255, 20]]]


def test_equalize_by_hand() -> None:
    # 510 pixels are below the highest level: a step is 2, and (0 + 1) // 2, (255 + 1) // 2, (510 + 1) // 2 follow.
    x = np.repeat(np.array([10, 20, 30], np.uint8), 255).reshape(-1, 3, 1)

    assert np.unique(ops.equalize(x)).tolist() == [0, 128, 255]
    assert ops.equalize(column(3, 5, 7)).ravel().tolist() == [3, 5, 7]  # a step of 0 changes nothing
    assert ops.equalize(np.full((40, 40, 1), 9, np.uint8)).max() == 9


def test_a_table_that_passes_255_is_cut() -> None:
    # 509 pixels are below the highest level: a step is 1, and the highest level becomes 509.
    x = np.repeat(np.array([10, 20], np.uint8), [509, 1]).reshape(-1, 1, 1)

    assert np.unique(ops.equalize(x)).tolist() == [0, 255]


CALLS: dict[str, Callable[[Any], Any]] = {"autocontrast": ops.autocontrast, "equalize": ops.equalize}


@pytest.mark.parametrize("name", CALLS)
def test_photographs_are_as_torchvisions(name: str) -> None:
    theirs = getattr(torchvision().v2.functional, name)
    for number in PHOTOGRAPHS:
        image = photograph(number) // 2 + 30  # uses only a part of the range

        np.testing.assert_array_equal(CALLS[name](image), hwc(theirs(chw(image))))


def test_floats_are_as_torchvisions() -> None:
    functional = torchvision().v2.functional
    for number in PHOTOGRAPHS:
        image = photograph(number).astype(np.float32) / np.float32(255)

        np.testing.assert_allclose(ops.autocontrast(image), hwc(functional.autocontrast(chw(image))), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: ops.autocontrast(np.zeros((2, 2, 1), np.int32)), r"autocontrast needs images of uint8"),
        (lambda: ops.random_equalize(column(1), -1), r"random_equalize needs p from 0 to 1, got -1"),
    ],
)
def test_what_is_out_of_range_is_an_error(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(SpecError, match=match):
        call()
