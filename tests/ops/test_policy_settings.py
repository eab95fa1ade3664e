"""Settings and images that policies do not take: an error that says so, of the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, PlanError, PlanTypeError, SpecError
from gpupipe.transform.machine import has_dali

X = np.random.default_rng(0).integers(0, 256, (2, 6, 7, 3), dtype=np.uint8)

POLICIES: dict[str, Callable[..., Any]] = {
    "rand_augment": ops.rand_augment,
    "trivial_augment_wide": ops.trivial_augment_wide,
    "auto_augment": ops.auto_augment,
    "aug_mix": ops.aug_mix,
}

SETTINGS = [
    ("rand_augment", "num_ops"), ("rand_augment", "magnitude"), ("rand_augment", "num_magnitude_bins"),
    ("trivial_augment_wide", "num_magnitude_bins"), ("aug_mix", "severity"), ("aug_mix", "mixture_width"),
    ("aug_mix", "chain_depth"), ("aug_mix", "alpha"), *((name, "fill") for name in POLICIES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_an_array_of_one_number_is_no_number(name: str, setting: str) -> None:
    kind = "a number" if setting == "alpha" else "an integer"
    with pytest.raises(PlanTypeError, match=rf"{name} needs {kind} for {setting}, got array\(\[3\]\)"):
        POLICIES[name](X[0], **{setting: np.array([3])})


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_a_traced_setting_is_an_error_of_the_line(name: str, setting: str) -> None:
    ds = gp.Dataset.from_tensor_slices((X, np.array([1, 2])))
    with pytest.raises(SpecError, match=rf"{name} needs a plain value for {setting}, got a traced one, at .*\.py:\d+"):
        ds.map(lambda x, n: POLICIES[name](x, **{setting: n}), traced=True)


@pytest.mark.parametrize("name", POLICIES)
def test_several_images_are_no_image(name: str) -> None:
    with pytest.raises(PlanTypeError, match=f"{name} needs one image, got a tuple; call it for each of them"):
        POLICIES[name]((X[0], X[1]))


@pytest.mark.parametrize("name", POLICIES)
def test_an_image_without_pixels_stays_one(name: str) -> None:
    for seed in range(30):  # warnings are errors
        assert POLICIES[name](X[0, :0], seed=seed).shape == (0, 7, 3)


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
@pytest.mark.parametrize("p", [0, 0.01, 1.0])
def test_gray_images_are_refused_by_random_grayscale_whether_it_changes_them_or_not(backend: Any, p: float) -> None:
    gray = gp.TensorSpec((None, None, None), "uint8", "HWC")
    ds = gp.Dataset.from_generator(lambda: iter([X[0, :, :, :1]]), output_signature=gray)

    with pytest.raises((DataError, PlanError), match=r"channels|[Rr]eshape"):
        list(
            ds.map(lambda x: ops.random_grayscale(x, p, seed=1)).with_options(gp.Options(device="cpu", backend=backend))
        )


def test_a_fill_that_a_policy_does_not_have_is_an_error() -> None:
    with pytest.raises(PlanTypeError, match="rand_augment needs numbers for fill, got a dict, which is for a Sample"):
        ops.rand_augment(X[0], fill={"image": 3})  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="rand_augment needs fill as a number or a dict of 'image' and 'masks'"):
        ops.rand_augment(ops.Sample(X[0]), fill={"boxes": 3})  # type: ignore[arg-type]
