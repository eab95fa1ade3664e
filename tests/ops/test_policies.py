"""rand_augment, trivial_augment_wide, auto_augment, aug_mix: their ops against torchvision's, layers, settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, PlanError, PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.policy import FIRST, MOST, NUMBER, OPS, Policy, laid_out, strengths
from gpupipe.ops.aug_mix import ALL, BINS, SIDE, AugMix
from gpupipe.ops.auto_augment import AutoAugment
from gpupipe.ops.rand_augment import RandAugment
from gpupipe.ops.trivial_augment_wide import WIDE, TrivialAugmentWide
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from gpupipe.transform.machine import has_dali
from tests.ops.originals import chw, hwc, photograph, torchvision
from tests.ops.refusals import refused

THEIRS: dict[str, str] = dict(
    zip(
        OPS,
        "Identity ShearX ShearY TranslateX TranslateY Rotate Brightness Color Contrast Sharpness Posterize Solarize "
        "AutoContrast Equalize Invert".split(),
        strict=True,
    )
)
MOVING = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")


def rng(rows: int) -> BatchRng:
    return BatchRng(1, 0, np.arange(rows, dtype=np.uint64), 5)


def sizes(rows: int, height: int = 224, width: int = 224) -> Array:
    return np.tile(np.array([height, width], np.int32), (rows, 1))


class One(Policy):
    """One op of one strength."""

    def __init__(self, name: str, strength: float, interpolation: Any = "nearest") -> None:
        super().__init__(interpolation=interpolation)
        object.__setattr__(self, "given", (NUMBER[name], strength))

    @property
    def layers(self) -> int:
        return 1

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        number, strength = self.given  # type: ignore[attr-defined]
        return np.full((len(hw), 1), number), np.full((len(hw), 1), strength)


def applied(image: Array, name: str, strength: float, fast: bool = False, interpolation: str = "nearest") -> Array:
    op = One(name, strength, interpolation)
    params = [param[0] for param in op.draw(rng(1), sizes(1, *image.shape[:2]))]
    return op.fast(image, *params) if fast else op.reference(image, *params)


def theirs(image: Array, name: str, strength: float, interpolation: str = "nearest") -> Array:
    v2 = torchvision().v2
    transform, mode = v2.RandAugment(), v2.InterpolationMode(interpolation)
    make = transform._apply_image_or_video_transform
    return hwc(make(chw(image), THEIRS[name], strength, mode, transform._fill))


def strength_of(name: str, number: int) -> float:
    every = strengths(name, 31, np.array([[231, 203]]), WIDE if number % 2 else MOST, 6 if number % 2 else 4)[0]
    return float(every[(number * 7) % 31]) * (-1 if number % 3 == 0 and name in OPS[1:10] else 1)


@pytest.mark.parametrize("name", OPS)
def test_each_op_is_torchvisions_on_photographs(name: str) -> None:
    for number in range(4):
        image, strength = photograph(number)[:231, :203], strength_of(name, number)

        difference = np.abs(applied(image, name, strength).astype(int) - theirs(image, name, strength))

        if name in MOVING:  # a position on the edge of two pixels rounds to either, in a shear those of a few lines
            assert (difference.max(axis=2) > 0).mean() < (0.03 if name.startswith("shear") else 2e-3)
        else:  # a product and a sum that torch fuses may be one level lower
            assert difference.max() <= (1 if name in ("color", "contrast", "sharpness") else 0)
            assert (difference > 0).mean() < (0.05 if name == "color" else 1e-3)  # of gray pixels f x + (1 - f) x


@pytest.mark.parametrize("name", MOVING)
def test_a_bilinear_move_is_torchvisions_on_photographs(name: str) -> None:
    for number in range(4):
        image, strength = photograph(number)[:131, : 123 - number], strength_of(name, number)
        ours = applied(image, name, strength, interpolation="bilinear").astype(int)

        difference = np.abs(ours - theirs(image, name, strength, "bilinear"))

        assert difference.max() <= (2 if name.startswith("shear") else 1)  # which is moved by 1/256 of a pixel
        assert (difference > 0).mean() < (0.04 if name.startswith("shear") else 1e-3)


LAYERS: dict[Policy, tuple[list[float], list[int]]] = {
    RandAugment(2): ([], [192, 128, 0]),
    AutoAugment(): ([], [192, 128, 0]),
    TrivialAugmentWide(): ([], [245, 155, 55]),  # has one layer
    AugMix(1, 1, 2): ([0.25, 0.75], [146, 121, 50]),  # three quarters of 192, 128 and 0, and one of the image
    AugMix(1, 2, 1): ([0.25, 0.5, 0.25], [125, 118, 125]),  # a quarter of the image and of 0, 64, 192, half inverted
}


@pytest.mark.parametrize("op", LAYERS, ids=lambda op: op.name)
def test_layers_are_applied_one_after_another_by_hand(op: Policy) -> None:
    x = np.array([[[10, 100, 200]]], np.uint8)  # inverted it is 245, 155, 55; with 2 bits of that, 192, 128, 0
    names, strength = [NUMBER["invert"], NUMBER["posterize"]], [0.0, 2.0]
    kinds, numbers, matrices = laid_out(np.array(names), np.array(strength), sizes(2, 1, 1))
    weights, expected = LAYERS[op]
    numbers = np.concatenate([np.zeros(FIRST), numbers[: op.layers], weights]).astype(np.float32)

    assert op.reference(x, kinds, numbers, matrices).ravel().tolist() == expected


@pytest.mark.skipif(not machine.has_fast(), reason="the extra `fast` is not installed")
@pytest.mark.parametrize("name", [*MOVING, "equalize"])
def test_the_fast_form_of_each_op_that_has_one_is_the_reference(name: str) -> None:
    for number in range(3):
        image = photograph(number)
        strength = {"posterize": 4, "solarize": 0.4, "rotate": 21.0, "translate_x": 17.0}.get(name, 0.27)

        np.testing.assert_array_equal(applied(image, name, strength, True), applied(image, name, strength))


@pytest.mark.parametrize("bins", [2, BINS, 31, 256])
def test_strengths_are_torchvisions(bins: int) -> None:
    v2 = torchvision().v2
    hw = np.array([[231, 203], [97, 331]], np.int32)
    settings = [(v2.RandAugment, MOST, 4), (v2.TrivialAugmentWide, WIDE, 6), (v2.AutoAugment, MOST, 4)]
    settings += [(v2.AugMix, SIDE, 4)] * (bins == BINS)
    assert {THEIRS[name] for name in ALL} == set(v2.AugMix._AUGMENTATION_SPACE)
    for transform, most, bits in settings:
        for name, (function, signed) in transform._AUGMENTATION_SPACE.items():
            ours = next(key for key in OPS if THEIRS[key] == name)
            for row, (height, width) in enumerate(hw.tolist()):
                values = function(bins, height, width)
                expected = np.zeros(bins) if values is None else values.numpy().astype(np.float64)
                more = 4 if (transform, ours) == (v2.AugMix, "posterize") else 0
                np.testing.assert_array_equal(strengths(ours, bins, hw, most, bits)[row] - more, expected)
            assert signed == (ours in OPS[1:10])


X = np.random.default_rng(0).integers(0, 256, (2, 6, 7, 3), dtype=np.uint8)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rand_augment": ops.rand_augment,
    "trivial_augment_wide": ops.trivial_augment_wide,
    "auto_augment": ops.auto_augment,
    "aug_mix": ops.aug_mix,
}

SETTINGS = [
    ("rand_augment", "num_ops"), ("rand_augment", "magnitude"), ("rand_augment", "num_magnitude_bins"),
    ("trivial_augment_wide", "num_magnitude_bins"), ("aug_mix", "severity"), ("aug_mix", "mixture_width"),
    ("aug_mix", "chain_depth"), ("aug_mix", "alpha"), *((name, "fill") for name in FUNCTIONS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_an_array_of_one_number_is_no_number(name: str, setting: str) -> None:
    kind = "a number" if setting == "alpha" else "an integer"
    with pytest.raises(PlanTypeError, match=rf"{name} needs {kind} for {setting}, got array\(\[3\]\)"):
        FUNCTIONS[name](X[0], **{setting: np.array([3])})


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_a_traced_setting_is_an_error_of_the_line(name: str, setting: str) -> None:
    ds = gp.Dataset.from_tensor_slices((X, np.array([1, 2])))
    with pytest.raises(SpecError, match=rf"{name} needs a plain value for {setting}, got a traced one, at .*\.py:\d+"):
        ds.map(lambda x, n: FUNCTIONS[name](x, **{setting: n}), traced=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_image_without_pixels_stays_one(name: str) -> None:
    for seed in range(30):  # warnings are errors
        assert FUNCTIONS[name](X[0, :0], seed=seed).shape == (0, 7, 3)


@pytest.mark.parametrize("backend", ["numpy"] + ["dali"] * has_dali())
@pytest.mark.parametrize("p", [0, 0.01, 1.0])
def test_gray_images_are_refused_by_random_grayscale_whether_it_changes_them_or_not(backend: Any, p: float) -> None:
    gray = gp.TensorSpec((None, None, None), "uint8", "HWC")
    ds = gp.Dataset.from_generator(lambda: iter([X[0, :, :, :1]]), output_signature=gray)

    with pytest.raises((DataError, PlanError), match=r"channels|[Rr]eshape"):
        list(
            ds.map(lambda x: ops.random_grayscale(x, p, seed=1)).with_options(gp.Options(device="cpu", backend=backend))
        )


SEVERAL = "needs one image, got a tuple; call it for each of them"
NO_DICT = "rand_augment needs numbers for fill, got a dict, which is for a Sample"

test_what_is_out_of_range_is_an_error = refused(
    *[(PlanTypeError, f"{name} {SEVERAL}", partial(call, (X[0], X[1]))) for name, call in FUNCTIONS.items()],
    (PlanTypeError, NO_DICT, lambda: ops.rand_augment(X[0], fill={"image": 3})),  # type: ignore[arg-type]
    (SpecError, "a dict of 'image' and 'masks'", lambda: ops.rand_augment(ops.Sample(X[0]), fill={"boxes": 3})),  # type: ignore[arg-type]
    (SpecError, r"needs an image of uint8, got float32", lambda: ops.rand_augment(X[0].astype(np.float32))),
    (SpecError, r"rand_augment needs an image of 3 channels", lambda: ops.rand_augment(X[0][..., :1])),
    (SpecError, r"magnitude below num_magnitude_bins, which is 31, got 31", lambda: ops.rand_augment(X[0], 2, 31)),
    (SpecError, r"num_ops from 0 to 32, got -1", lambda: ops.rand_augment(X[0], -1)),
    (SpecError, r"'nearest' or 'bilinear', got 'cubic'", lambda: ops.rand_augment(X[0], interpolation="cubic")),
    (SpecError, r"fill from 0 to 255, got 256", lambda: ops.rand_augment(X[0], fill=256)),
    (SpecError, "policy as one of imagenet, cifar10, svhn, got 'mnist'", lambda: ops.auto_augment(X[0], "mnist")),  # type: ignore[arg-type]
    (SpecError, r"num_magnitude_bins from 2", lambda: ops.trivial_augment_wide(X[0], 1)),
    (SpecError, "aug_mix needs severity from 1 to 10, got 11", lambda: ops.aug_mix(X[0], 11)),
    (SpecError, r"aug_mix needs alpha from 0.001 to 1000000.0?, got 0", lambda: ops.aug_mix(X[0], alpha=0)),
    (SpecError, "aug_mix needs all_ops to be a bool, got 2", lambda: ops.aug_mix(X[0], all_ops=2)),  # type: ignore[arg-type]
)
