"""Laws of other libraries for the size of a result, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.errors import SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.fitting import LAWS, Fit, fit
from gpupipe.ops._shared.recipe import resize_to
from gpupipe.ops._shared.samples import noise
from tests.ops.refusals import refused

# Height and width, the numbers of a law, and what it makes of them.
SIZES: dict[str, list[tuple[tuple[int, int], tuple[Any, ...], tuple[int, int]]]] = {
    "dpt": [
        ((100, 70), ((40, 35), False, 7), (42, 35)),  # 40 / 7 is 5.7
        ((100, 70), ((40, 63), True, 7), (91, 63)),  # 0.9 is nearer to 1 than 0.4: 90 and 63
        ((70, 100), ((50, 200), True, 1), (50, 71)),
    ],
    "longest": [((100, 67), (33,), (33, 22)), ((67, 100), (50,), (34, 50)), ((9, 9), (4,), (4, 4))],  # 33.5 is 34
    "own": [((31, 17), (), (31, 17))],
    "rounded": [((100, 67), (33,), (49, 33)), ((50, 77), (25,), (25, 38)), ((50, 75), (25,), (25, 38))],  # 38.5, 37.5
    "shortest": [((100, 67), (33,), (49, 33)), ((67, 100), (33,), (33, 49))],
    "shortest and longest": [
        ((100, 67), (33, 60), (49, 33)),
        ((100, 30), (33, 60), (60, 18)),
        ((30, 101), (33, 60), (18, 60)),  # 17.8 is rounded, and 60 comes of 17.8
        ((18, 61), (20, 60), (18, 61)),  # 17.7 is rounded to the side that the image has
    ],
    "vilt": [((100, 70), (40,), (57, 40)), ((30, 90), (40,), (22, 66))],  # 1333 / 800 of 40 is 66
    "within": [((100, 70), (40, 60), (40, 28)), ((100, 70), (200, 60), (85, 60))],
    "yolos": [((18, 61), (20, 60), (18, 61)), ((61, 18), (20, 60), (60, 18)), ((67, 100), (33, 60), (33, 49))],
}


@pytest.mark.parametrize("law", LAWS)
def test_sizes_of_a_law_by_hand(law: str) -> None:
    for hw, numbers, made in SIZES[law]:
        assert LAWS[law](*hw, *numbers) == made


def test_multiples_are_above_or_below() -> None:
    x = noise(31, 50)

    assert fit(x, "own", multiple=8).shape == (24, 48, 3)
    assert fit(x, "own", multiple=8, up=True).shape == (32, 56, 3)
    assert fit(x, "own", multiple=64).shape == (1, 1, 3)  # no image has less


def test_the_pixels_are_those_of_a_resize_to_this_size() -> None:
    for x in (noise(50, 31), noise(31, 50)):
        made: Array = fit(x, "shortest", (20,), "bicubic", multiple=8, up=True)

        assert sorted(made.shape[:2]) == [24, 32]
        np.testing.assert_array_equal(made, resize_to(x, made.shape[:2], "bicubic"))


test_settings_are_checked = refused(
    (SpecError, "fit needs a law from dpt, longest, .*, got 'widest'", lambda: Fit("widest")),
    (SpecError, "interpolation", lambda: fit(noise(9, 9), "own", interpolation="area")),
)
