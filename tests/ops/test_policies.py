"""rand_augment, trivial_augment_wide, auto_augment, aug_mix: their ops against torchvision's, executors, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, PlanError, PlanTypeError, SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.policy import FIRST, MOST, NUMBER, OPS, Policy, laid_out, strengths
from gpupipe.ops.aug_mix import ALL, BINS, SIDE, AugMix
from gpupipe.ops.auto_augment import POLICIES, AutoAugment, _table
from gpupipe.ops.rand_augment import RandAugment
from gpupipe.ops.trivial_augment_wide import WIDE, TrivialAugmentWide
from gpupipe.random import BatchRng
from gpupipe.transform import machine
from gpupipe.transform.machine import has_dali
from tests.ops.originals import chw, hwc, original, photograph, torchvision

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

    def __init__(self, name: str, strength: float) -> None:
        super().__init__()
        object.__setattr__(self, "given", (NUMBER[name], strength))

    @property
    def layers(self) -> int:
        return 1

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        number, strength = self.given  # type: ignore[attr-defined]
        return np.full((len(hw), 1), number), np.full((len(hw), 1), strength)


def applied(image: Array, name: str, strength: float, fast: bool = False) -> Array:
    op = One(name, strength)
    params = [param[0] for param in op.draw(rng(1), sizes(1, *image.shape[:2]))]
    return op.fast(image, *params) if fast else op.reference(image, *params)


def theirs(image: Array, name: str, strength: float) -> Array:
    v2 = torchvision().v2
    transform = v2.RandAugment()
    made = transform._apply_image_or_video_transform(
        chw(image), THEIRS[name], strength, v2.InterpolationMode.NEAREST, transform._fill
    )
    return hwc(made)


@pytest.mark.parametrize("name", OPS)
def test_each_op_is_torchvisions_on_photographs(name: str) -> None:
    hw = np.array([[231, 203]], np.int32)
    for number in range(4):
        image = photograph(number)[:231, :203]
        every = strengths(name, 31, hw, WIDE if number % 2 else MOST, 6 if number % 2 else 4)[0]
        strength = float(every[(number * 7) % 31]) * (-1 if number % 3 == 0 and name in OPS[1:10] else 1)

        difference = np.abs(applied(image, name, strength).astype(int) - theirs(image, name, strength))

        if name in MOVING:  # a position on the edge of two pixels rounds to either, in a shear those of a few lines
            assert (difference.max(axis=2) > 0).mean() < (0.03 if name.startswith("shear") else 2e-3)
        else:  # a product and a sum that torch fuses may be one level lower
            assert difference.max() <= (1 if name in ("color", "contrast", "sharpness") else 0)
            assert (difference > 0).mean() < (0.05 if name == "color" else 1e-3)  # of gray pixels f x + (1 - f) x


def fed(op: Policy, kinds: Array, strength: Array) -> Any:
    """torchvision's transform of the same settings, with drawn ops and strengths in place of its own."""
    v2 = torchvision().v2
    how: dict[str, Any] = {"interpolation": v2.InterpolationMode(op.interpolation), "fill": [op.fill] * 3}
    names = [THEIRS[OPS[kind]] for kind in kinds.tolist()]
    each = iter(zip(names, strength.tolist(), strict=True))
    numbers = iter(strength.tolist())

    def item(_: Any) -> Any:
        name, value = next(each)
        return name, (lambda bins, *_: original("torch").full((bins,), value), False)

    if isinstance(op, RandAugment):
        transform = v2.RandAugment(op.num_ops, op.magnitude, op.num_magnitude_bins, **how)
    elif isinstance(op, TrivialAugmentWide):
        transform = v2.TrivialAugmentWide(op.num_magnitude_bins, **how)
    else:
        assert isinstance(op, AutoAugment)
        transform = v2.AutoAugment(v2.AutoAugmentPolicy(op.policy), **how)
        transform._policies = [[(name, 1.0, 0) for name in names]]
        always = (lambda bins, *_: original("torch").full((bins,), next(numbers)), False)
        transform._AUGMENTATION_SPACE = dict.fromkeys(names, always)
    transform._get_random_item = item
    return transform


@pytest.mark.parametrize(
    "op",
    [
        RandAugment(2, 9),
        RandAugment(3, 14, interpolation="bilinear", fill=99),
        TrivialAugmentWide(),
        TrivialAugmentWide(interpolation="bilinear"),
        *map(AutoAugment, POLICIES),
    ],
    ids=lambda op: f"{op.name}-{op.interpolation}-{getattr(op, 'policy', '')}",
)
def test_photographs_with_several_draws_each_are_torchvisions(op: Policy) -> None:
    far = 0
    for number in range(4):
        image = photograph(number)[:131, : 123 - number]
        hw = sizes(6, *image.shape[:2])
        keys = np.arange(6, dtype=np.uint64) + np.uint64(6 * number)
        kinds, strength = op.plan(BatchRng(1, 0, keys, 5), hw)
        params = op.draw(BatchRng(1, 0, keys, 5), hw)
        for draw in range(6):
            if (
                op.fill and NUMBER["equalize"] in kinds[draw]
            ):  # enlarges what torchvision mixes twice on the border of a
                continue  # filled tensor (test_affine)
            ours = op.reference(image, *(param[draw] for param in params))

            difference = np.abs(ours.astype(int) - hwc(fed(op, kinds[draw], strength[draw])(chw(image))))

            far += difference.mean() > 0.4 or (difference > 4).mean() > 0.015
    # Of 24 pairs: equalizing, one of 14 ops of each layer, enlarges what torchvision mixes twice on the border of a
    # filled tensor (test_affine).
    assert far <= 4


LAYERS: dict[Policy, list[int]] = {
    RandAugment(2): [192, 128, 0],
    AutoAugment(): [192, 128, 0],
    TrivialAugmentWide(): [245, 155, 55],  # has one layer
    AugMix(1, 1, 2): [146, 121, 50],  # three quarters of 192, 128 and 0, and one of the image
}


@pytest.mark.parametrize("op", LAYERS, ids=lambda op: op.name)
def test_layers_are_applied_one_after_another_by_hand(op: Policy) -> None:
    x = np.array([[[10, 100, 200]]], np.uint8)  # inverted it is 245, 155, 55; with 2 bits of that, 192, 128, 0
    names, strength = [NUMBER["invert"], NUMBER["posterize"]], [0.0, 2.0]
    kinds, numbers, matrices = laid_out(np.array(names), np.array(strength), sizes(2, 1, 1))
    numbers = np.concatenate([np.zeros(FIRST), numbers[: op.layers], [0.25, 0.75]]).astype(np.float32)

    assert op.reference(x, kinds, numbers, matrices).ravel().tolist() == LAYERS[op]


@pytest.mark.skipif(not machine.has_fast(), reason="the extra `fast` is not installed")
@pytest.mark.parametrize("name", [*MOVING, "equalize"])
def test_the_fast_form_of_each_op_that_has_one_is_the_reference(name: str) -> None:
    for number in range(3):
        image = photograph(number)
        strength = {"posterize": 4, "solarize": 0.4, "rotate": 21.0, "translate_x": 17.0}.get(name, 0.27)

        np.testing.assert_array_equal(applied(image, name, strength, True), applied(image, name, strength))


@pytest.mark.parametrize("bins", [2, 10, 31, 256])
def test_strengths_are_torchvisions(bins: int) -> None:
    v2 = torchvision().v2
    hw = np.array([[231, 203], [97, 331]], np.int32)
    settings = (v2.RandAugment, MOST, 4), (v2.TrivialAugmentWide, WIDE, 6), (v2.AutoAugment, MOST, 4)
    for transform, most, bits in settings:
        for name, (function, signed) in transform._AUGMENTATION_SPACE.items():
            ours = next(key for key in OPS if THEIRS[key] == name)
            for row, (height, width) in enumerate(hw.tolist()):
                values = function(bins, height, width)
                expected = np.zeros(bins) if values is None else values.numpy().astype(np.float64)
                np.testing.assert_array_equal(strengths(ours, bins, hw, most, bits)[row], expected)
            assert signed == (ours in OPS[1:10])


@pytest.mark.parametrize("policy", POLICIES)
def test_the_pairs_of_auto_augment_are_torchvisions(policy: str) -> None:
    torch_policies = torchvision().v2.AutoAugment(torchvision().v2.AutoAugmentPolicy(policy))._policies
    table, p, index = _table(policy)

    ours = [
        tuple((THEIRS[OPS[table[k, n]]], float(p[k, n]), int(index[k, n])) for n in range(2)) for k in range(len(table))
    ]

    assert ours == [tuple((name, share, at or 0) for name, share, at in pair) for pair in torch_policies]


CALLS: dict[str, Callable[[Any], Any]] = {
    "rand_augment": ops.rand_augment,
    "trivial_augment_wide": ops.trivial_augment_wide,
    "cifar10": lambda x: ops.auto_augment(x, "cifar10"),
    "svhn": lambda x: ops.auto_augment(x, "svhn"),
    "aug_mix": ops.aug_mix,
    "aug_mix of two": lambda x: ops.aug_mix(x, 10, 2, 2, 0.3, all_ops=False, interpolation="nearest", fill=9),
}


@pytest.mark.skipif(not machine.has_dali(), reason="DALI is not installed")
@pytest.mark.parametrize("name", CALLS)
def test_dali_gives_the_pixels_of_numpy_whatever_the_batch_size(name: str) -> None:
    images = [photograph(number)[:150, :140] for number in range(6)]
    ds = gp.Dataset.range(60)

    def rows(backend: Any, size: int) -> list[Array]:
        chain = ds.map(lambda i: images[int(i) % 6]).map(CALLS[name]).batch(size)
        options = gp.Options(seed=3, device="cpu", backend=backend)
        return [row for batch in chain.with_options(options) for row in batch]

    expected = rows("numpy", 60)

    for got, meant in zip(rows("dali", 7), expected, strict=True):
        # pixels as near as others, and truncated products, which DALI computes in other steps of float32
        assert (np.abs(got.astype(int) - meant) > 4).mean() < 2e-3


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: ops.rand_augment(x.astype(np.float32)), r"rand_augment needs an image of uint8, got float32"),
        (lambda x: ops.rand_augment(x[..., :1]), r"rand_augment needs an image of 3 channels"),
        (lambda x: ops.rand_augment(x, 2, 31), r"magnitude below num_magnitude_bins, which is 31, got 31"),
        (lambda x: ops.rand_augment(x, -1), r"num_ops from 0 to 32, got -1"),
        (lambda x: ops.rand_augment(x, interpolation="cubic"), r"interpolation 'nearest' or 'bilinear', got 'cubic'"),
        (lambda x: ops.rand_augment(x, fill=256), r"fill from 0 to 255, got 256"),
        (lambda x: ops.auto_augment(x, "mnist"), "policy as one of imagenet, cifar10, svhn, got 'mnist'"),  # type: ignore[arg-type]
        (lambda x: ops.trivial_augment_wide(x, 1), r"num_magnitude_bins from 2"),
    ],
)
def test_what_is_out_of_range_is_an_error(call: Any, match: str) -> None:
    with pytest.raises(SpecError, match=match):
        call(photograph(0))


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
def test_several_images_are_no_image(name: str) -> None:
    with pytest.raises(PlanTypeError, match=f"{name} needs one image, got a tuple; call it for each of them"):
        FUNCTIONS[name]((X[0], X[1]))


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


def test_a_fill_that_a_policy_does_not_have_is_an_error() -> None:
    with pytest.raises(PlanTypeError, match="rand_augment needs numbers for fill, got a dict, which is for a Sample"):
        ops.rand_augment(X[0], fill={"image": 3})  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="rand_augment needs fill as a number or a dict of 'image' and 'masks'"):
        ops.rand_augment(ops.Sample(X[0]), fill={"boxes": 3})  # type: ignore[arg-type]


def mixed_by_torchvision(op: AugMix, image: Array, row: int, count: int) -> Array:
    """What torchvision's AugMix makes of an image, given what `op` drew for a row of a batch of such images."""
    torch = pytest.importorskip("torch")
    v2 = torchvision().v2
    hw = sizes(count, *image.shape[:2])
    kinds, strength = op.plan(rng(count), hw)
    weights = op.draw(rng(count), hw)[1][row, op.weighed :]
    transform = v2.AugMix(
        op.severity,
        op.mixture_width,
        op.chain_depth,
        op.alpha,
        op.all_ops,
        op.interpolation,
        [op.fill] * 3 if op.fill else None,
    )
    steps: Iterator[tuple[int, float]] = iter(zip(kinds[row].tolist(), strength[row].tolist(), strict=True))
    # The weight of the image and those of the chains, which torchvision multiplies by what the image leaves.
    shares = iter([[*weights[:1].tolist(), 1.0], weights[1:].tolist()])
    transform._sample_dirichlet = lambda params: torch.tensor([next(shares)], dtype=torch.float32)
    transform.chain_depth = op.depth  # with steps that do nothing where a chain is shorter
    transform._get_random_item = lambda space: ("Identity", (lambda *_: None, False))
    apply_one = transform._apply_image_or_video_transform

    def applied(x: Any, name: str, magnitude: float, **how: Any) -> Any:
        kind, magnitude = next(steps)
        return apply_one(x, THEIRS[OPS[kind]], magnitude, **how)

    transform._apply_image_or_video_transform = applied
    return hwc(transform(chw(image)))


@pytest.mark.parametrize(
    "op",
    [
        AugMix(),
        AugMix(10, 3, -1, 1.0, True, interpolation="nearest", fill=99),
        AugMix(10, 2, 4, 0.4, False, interpolation="nearest"),
    ],
    ids=["as by default", "strong", "two chains of four"],
)
def test_it_is_torchvisions_with_the_same_draws(op: AugMix) -> None:
    count = 4
    hw = sizes(count, 131, 103)
    params = op.draw(rng(count), hw)
    for row in range(count):
        image = photograph(row)[:131, :103]

        ours = op.reference(image, *(param[row] for param in params))

        difference = np.abs(ours.astype(int) - mixed_by_torchvision(op, image, row, count))
        # Equalizing and truncated products enlarge the one level by which single ops differ; a position on the edge of
        # two pixels rounds to either, in shears those of a few lines (see test_policies).
        assert difference.mean() < 0.3
        assert (difference > 4).mean() < (0.002 if op.interpolation == "bilinear" else 0.03)


def test_strengths_of_aug_mix_are_torchvisions() -> None:
    space = torchvision().v2.AugMix._AUGMENTATION_SPACE
    assert {THEIRS[name] for name in ALL} == set(space)
    for name in ALL:
        values = space[THEIRS[name]][0](BINS, 231, 203)
        expected = np.zeros(BINS) if values is None else values.numpy().astype(np.float64)
        ours = strengths(name, BINS, sizes(1, 231, 203), SIDE, 4)[0] - (4 if name == "posterize" else 0)

        np.testing.assert_array_equal(ours, expected)


def test_equal_seeds_give_equal_images_and_mistakes_are_named() -> None:
    x = np.full((9, 8, 3), 100, np.uint8)

    assert np.array_equal(ops.aug_mix(x, 1, seed=3), ops.aug_mix(x, 1, seed=3))
    with pytest.raises(SpecError, match="aug_mix needs severity from 1 to 10, got 11"):
        ops.aug_mix(x, 11)
    with pytest.raises(SpecError, match=r"aug_mix needs alpha from 0.001 to 1000000.0?, got 0"):
        ops.aug_mix(x, alpha=0)
    with pytest.raises(SpecError, match="aug_mix needs all_ops to be a bool, got 2"):
        ops.aug_mix(x, all_ops=2)  # type: ignore[arg-type]
