"""Numbers that are known when the chain runs, clips and wrong names, in ops that resample or draw."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.transform import machine

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 9, 11, 3), np.uint8)
BACKENDS = ["numpy", *(["dali"] if machine.has_dali() else []), *(["fast"] if machine.has_fast() else [])]


class InterpolationMode(enum.Enum):
    """As torchvision's."""

    BILINEAR = "bilinear"


def _mapped(values: Any, function: Callable[..., Any], backend: Any = "numpy") -> list[Any]:
    dataset = gp.Dataset.from_tensor_slices(values).map(function)
    return [np.asarray(x) for x in dataset.with_options(gp.Options(device="cpu", backend=backend))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_traced_number_shears_along_x(backend: str) -> None:
    angles = np.array([0.0, 20.0, -30.0], np.float32)

    found = _mapped((IMAGES, angles), lambda x, angle: ops.affine(x, shear=angle), backend)

    for image, angle, result in zip(IMAGES, angles, found, strict=True):
        np.testing.assert_array_equal(result, ops.affine(image, shear=float(angle)))


def test_one_traced_number_is_both_sides_of_five_crops() -> None:
    found = _mapped((IMAGES, np.array([3, 4, 5])), ops.five_crop)

    assert [x.shape for x in found] == [(5, side, side, 3) for side in (3, 4, 5)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_clip_that_is_rotated_may_become_larger(backend: str) -> None:
    (found,) = _mapped(IMAGES[None], lambda clip: ops.rotate(clip, 20, expand=True), backend)

    np.testing.assert_array_equal(found, np.stack([ops.rotate(frame, 20, expand=True) for frame in IMAGES]))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: ops.rotate(x, 10, cast(Any, InterpolationMode.BILINEAR)), PlanTypeError, "rotate needs a name for"),
        (lambda x: ops.affine(x, interpolation=cast(Any, 2)), PlanTypeError, "affine needs a name for interpolation"),
        (lambda x: ops.resize_with_pad(x, 10, 10, cast(Any, None)), PlanTypeError, "resize_with_pad needs a name"),
        (lambda x: ops.rotate(x, 10, ("nearest", "nearest")), SpecError, "rotate needs one interpolation, or one per"),
        (lambda x: ops.posterize(x, 2**70), SpecError, "posterize needs bits from 0 to 8"),
        (lambda x: ops.random_invert(x, 2**70), SpecError, "random_invert needs p from 0 to 1"),
    ],
)
def test_what_is_wrong_is_named(call: Callable[[Any], Any], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call(IMAGES[0])


def test_bounds_of_salt_and_pepper_are_plain_numbers() -> None:
    shares = np.array([0.1, 0.2, 0.3], np.float32)

    with pytest.raises(PlanTypeError, match="salt_and_pepper needs amount as one number or two, got a traced value"):
        gp.Dataset.from_tensor_slices((IMAGES, shares)).map(ops.salt_and_pepper)
