"""from_torchvision and from_timm give what the originals give, and refuse what ops do not do.

Differences are in levels of 0..255 of the resized image, on photographs; `EXACT` where both resize with Pillow.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.comparison.photographs import encode, take
from gpupipe.errors import PlanTypeError
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.transform.machine import has_dali
from tests.ops.originals import torchvision
from tests.ops.refusals import refused

torch = pytest.importorskip("torch")

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EXACT = (0.001, 0.001)  # of float32: (x / 255 - m) / s here is (x - 255 m) / (255 s)


@lru_cache(64)
def photograph(number: int) -> bytes:
    shot, pixels = take(number)
    return encode(pixels, shot.quality, shot.subsampling, shot.progressive)


def rgb(data: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def levels(
    fn: Callable[[Any], Any], original: Callable[[Any], Any], count: int, scale: float, backend: str = "numpy"
) -> tuple[float, float]:
    """The largest and the mean difference on `count` photographs, in units of `scale`."""
    most, means = 0.0, []
    with gp.preprocessor(fn, gp.Options(backend=backend, device="cpu")) as preprocess:  # type: ignore[arg-type]
        for number in range(count):
            ours = np.asarray(preprocess(photograph(number))[0], np.float64)
            theirs = np.asarray(original(rgb(photograph(number))), np.float64)
            assert ours.shape == theirs.shape
            off = np.abs(ours - theirs) / scale
            most = max(most, float(off.max()))
            means.append(float(off.mean()))
    return most, float(np.mean(means))


LEVEL = 1 / 255 / min(STD)  # no less than one level of 255 after the normalisation of any channel

# The original, photographs, what one level is in the result, the largest and the mean difference allowed.
TORCHVISION: dict[str, tuple[Callable[[Any, Any, Any], list[Any]], int, float, tuple[float, float]]] = {
    "evaluation of v1": (
        lambda v1, v2, mode: [v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(MEAN, STD)],
        8, LEVEL, EXACT,
    ),
    "evaluation of v2: tensors are resized by PyTorch, which rounds a few sums the other way": (
        lambda v1, v2, mode: [v2.ToImage(), v2.Resize(256, antialias=True), v2.CenterCrop(224),
                              v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)],
        4, LEVEL, (1.001, 0.02),
    ),
    "without antialias, as above": (
        lambda v1, v2, mode: [v2.ToImage(), v2.Resize([256], antialias=False), v2.CenterCrop((224, 200))],
        3, 1, (1, 0.25),
    ),
    "floats are resized without rounding": (
        lambda v1, v2, mode: [v2.PILToTensor(), v2.ConvertImageDtype(torch.float32), v2.Resize((99, 120)),
                              v2.Normalize([0.5], [0.5])],
        3, 2 / 255, (0.05, 0.005),  # sums of float32 in another order
    ),
    "Pillow may resize the height first; kernels that overshoot are then clipped elsewhere": (
        lambda v1, v2, mode: [v1.Resize((224, 300), mode.BICUBIC), v1.ToTensor()], 3, 1 / 255, (8, 0.5),
    ),
    "lanczos": (lambda v1, v2, mode: [v1.Resize(200, mode.LANCZOS), v1.CenterCrop(224)], 3, 1, EXACT),
    "nested, without a tensor, and larger than the image": (
        lambda v1, v2, mode: [v1.Compose([v1.CenterCrop(700)]), v2.Identity(), v2.RGB()], 3, 1, EXACT,
    ),
    "not scaled": (
        lambda v1, v2, mode: [v2.PILToTensor(), v2.CenterCrop([90]), v2.ToDtype(torch.float32), v2.ToPureTensor()],
        3, 1, EXACT,
    ),
    "certain draws": (
        lambda v1, v2, mode: [v1.RandomHorizontalFlip(1.0), v1.RandomVerticalFlip(1.0), v1.RandomResizedCrop(
            64, scale=(1, 1), ratio=(4 / 3, 4 / 3)), v1.ColorJitter(), v1.ToTensor()],
        1, 1 / 255, EXACT,
    ),
    "certain choices": (
        lambda v1, v2, mode: [v1.CenterCrop(90), v1.RandomApply([v2.RGB(), v1.RandomVerticalFlip(1.0)], 1.0),
                              v1.RandomChoice([v2.RGB(), v1.RandomHorizontalFlip(1.0)], [0, 1]),
                              v2.RandomOrder([v1.RandomHorizontalFlip(1.0), v2.RGB()]), v1.ToTensor(),
                              v2.RandomApply(torch.nn.ModuleList([v1.Normalize(MEAN, STD)]), 0.0)],
        2, 1 / 255, EXACT,
    ),
}  # fmt: skip


# Transforms without chance in them, of an image of Pillow where it gives the same pixels, else of a tensor: how many
# levels their values may be off, and the share of those that may be off by more.
CERTAIN: dict[str, tuple[Callable[[Any, Any, Any], list[Any]], tuple[int, float]]] = {
    "invert": (lambda v1, v2, mode: [v1.RandomInvert(1.0)], (0, 0)),
    "solarize everything": (lambda v1, v2, mode: [v2.RandomSolarize(-3, 1.0)], (0, 0)),
    "no bits": (lambda v1, v2, mode: [v2.ToImage(), v2.RandomPosterize(0, 1.0)], (0, 0)),
    "solarize": (lambda v1, v2, mode: [v2.RandomSolarize(99, 1.0)], (0, 0)),
    "posterize": (lambda v1, v2, mode: [v1.RandomPosterize(3, 1.0)], (0, 0)),
    "blur": (lambda v1, v2, mode: [v1.GaussianBlur((5, 9), (1.1, 1.1))], (1, 0)),
    "pad": (lambda v1, v2, mode: [v1.Pad((3, 4, 5, 6), 7), v2.Pad(9, padding_mode="reflect")], (0, 0)),
    "a padded crop": (lambda v1, v2, mode: [v1.CenterCrop(90), v1.RandomCrop(98, padding=4, fill=9)], (0, 0)),
    "gray by chance": (lambda v1, v2, mode: [v2.ToImage(), v1.RandomGrayscale(1.0)], (1, 0)),
    "gray": (lambda v1, v2, mode: [v2.ToImage(), v2.Grayscale(1)], (1, 0)),
    "gray in three channels": (lambda v1, v2, mode: [v2.ToImage(), v1.Grayscale(3)], (1, 0)),
    "the artifacts of JPEG": (lambda v1, v2, mode: [v1.CenterCrop(96), v2.JPEG(40)], (0, 0)),
    "a side that is limited": (lambda v1, v2, mode: [v1.Resize(100, max_size=110)], (0, 0)),
    "a longer side": (lambda v1, v2, mode: [v2.Resize(None, mode.BICUBIC, max_size=120)], (0, 0)),
    "no zoom": (lambda v1, v2, mode: [v2.RandomZoomOut(7, (1, 1), 1.0)], (0, 0)),
    "no elastic deformation": (lambda v1, v2, mode: [v1.ElasticTransform(0.0, 2.0)], (0, 0)),
    "one shortest size": (lambda v1, v2, mode: [v2.ToImage(), v2.RandomShortestSize(99, 120)], (1, 0)),
    "one scale": (lambda v1, v2, mode: [v2.ToImage(), v2.ScaleJitter((90, 70), (1.0, 1.0))], (1, 0)),
    "sharpness": (lambda v1, v2, mode: [v2.ToImage(), v2.RandomAdjustSharpness(2.5, 1.0)], (1, 0)),
    "autocontrast": (lambda v1, v2, mode: [v2.ToImage(), v2.RandomAutocontrast(1.0)], (1, 0)),
    "equalize": (lambda v1, v2, mode: [v2.ToImage(), v1.RandomEqualize(1.0)], (0, 0)),
    "rotation": (
        lambda v1, v2, mode: [v2.ToImage(), v1.RandomRotation((20, 20), mode.NEAREST, True, fill=3)], (1, 0.001),
    ),
    "affine": (
        lambda v1, v2, mode: [v2.ToImage(), v2.RandomAffine(
            (9, 9), (0, 0), (1.2, 1.2), (3, 3, 4, 4), mode.NEAREST, 8)],
        (1, 0.001),
    ),
    "fills that are whole numbers": (lambda v1, v2, mode: [v2.ToImage(), v2.RandAugment(0, fill=2.0)], (0, 0)),
    "no policy": (lambda v1, v2, mode: [v2.ToImage(), v2.RandAugment(0)], (0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CERTAIN)
def test_transforms_without_chance_give_torchvisions_pixels(name: str) -> None:
    make, (most, share) = CERTAIN[name]
    of = torchvision()
    original = of.v1.Compose(make(of.v1, of.v2, of.mode))
    fn = ops.from_torchvision(original)
    for number in range(2):
        theirs = original(rgb(photograph(number)))
        ours = fn(photograph(number)).astype(int)
        theirs = np.asarray(theirs).astype(int)
        assert ours.shape == theirs.shape
        difference = np.abs(ours - theirs)

        assert (difference > most).mean() <= share, number


def test_policies_get_the_settings_of_torchvisions() -> None:
    of = torchvision()
    transforms = [
        of.v2.ToImage(),
        of.v2.RandAugment(3, 7, 20, of.mode.BILINEAR, fill=[9, 9, 9]),
        of.v1.TrivialAugmentWide(16),
        of.v2.AutoAugment(of.v2.AutoAugmentPolicy.SVHN),
        of.v1.AugMix(5, 2, 1, 0.5, False),
        of.v2.RandomPerspective(0.4, 0.9),
        of.v2.RandomChannelPermutation(),
        of.v2.ElasticTransform([30.0, 40.0], 3.0, of.mode.NEAREST, fill=9),
        of.v2.ScaleJitter((90, 70), (0.5, 1.5), of.mode.BICUBIC),
        of.v2.RandomShortestSize([64, 96], 120),
        of.v2.RandomCrop((9, 8)),
        of.v2.RandomErasing(0.3, (0.1, 0.2), (0.5, 2.0), value=(1, 2, 3)),
    ]

    assert repr(ops.from_torchvision(of.v2.Compose(transforms))) == (
        "from_torchvision: decode_image -> rand_augment(num_ops=3, magnitude=7, num_magnitude_bins=20, "
        "interpolation='bilinear', fill=9) -> trivial_augment_wide(num_magnitude_bins=16, interpolation='nearest', "
        "fill=0) -> auto_augment(policy='svhn', interpolation='nearest', fill=0) -> aug_mix(severity=5, "
        "mixture_width=2, chain_depth=1, alpha=0.5, all_ops=False, interpolation='bilinear', fill=0) -> "
        "random_perspective(distortion_scale=0.4, p=0.9, interpolation='bilinear', fill=0) -> "
        "random_channel_permutation() -> "
        "elastic(alpha=(30.0, 40.0), sigma=(3.0, 3.0), interpolation='nearest', fill=9) -> "
        "scale_jitter(target_size=(90, 70), scale_range=(0.5, 1.5), interpolation='bicubic', antialias=True) -> "
        "random_shortest_size(min_size=(64, 96), max_size=120, interpolation='bilinear', antialias=True) -> "
        "random_crop(size=(9, 8)) -> random_erasing(p=0.3, scale=(0.1, 0.2), ratio=(0.5, 2.0), "
        "value=(1.0, 2.0, 3.0)) -> transpose()"
    )


@pytest.mark.parametrize("name", TORCHVISION)
def test_transforms_of_torchvision_give_its_pixels(name: str) -> None:
    make, count, level, (most, mean) = TORCHVISION[name]
    of = torchvision()
    original = of.v1.Compose(make(of.v1, of.v2, of.mode))
    found = levels(ops.from_torchvision(original), original, count, level)

    assert found[0] <= most, found
    assert found[1] <= mean, found


def test_nearest_takes_the_same_pixels_but_few() -> None:
    """Pillow counts positions in fixed point, and so takes the neighbour of some."""
    of = torchvision()
    original = of.v1.Resize(200, of.mode.NEAREST)
    fn = ops.from_torchvision(original)
    same = [np.mean(fn(photograph(n)) == np.asarray(original(rgb(photograph(n))))) for n in range(3)]

    assert min(same) > 0.9, same


@pytest.mark.skipif(not has_dali(), reason="needs DALI")
def test_on_dali_a_recipe_differs_as_its_ops_do() -> None:
    """By 1, but on the outermost ring, which the crop removes here: ops/README.md."""
    of = torchvision()
    transforms = [of.v1.Resize(256), of.v1.CenterCrop(192), of.v1.ToTensor(), of.v1.Normalize(MEAN, STD)]
    original = of.v1.Compose(transforms)

    assert levels(ops.from_torchvision(original), original, 3, LEVEL, "dali")[0] <= 1.001


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center"}, 4),
        ({"interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "squash", "input_size": (3, 160, 192)}, 3),
        ({"interpolation": "lanczos"}, 3),
    ],
)
def test_a_configuration_of_timm_gives_its_pixels(config: dict[str, Any], count: int) -> None:
    torchvision()
    timm = pytest.importorskip("timm.data")
    config = {"input_size": (3, 224, 224), "mean": MEAN, "std": STD, **config}
    original = timm.create_transform(**config)
    for fn in (ops.from_timm(config), ops.from_torchvision(original)):
        assert levels(fn, original, count if fn.source == "from_timm" else 3, LEVEL)[0] <= EXACT[0]


def test_training_of_timm_has_its_random_ops() -> None:
    torchvision()
    timm = pytest.importorskip("timm.data")
    config = {"input_size": (3, 96, 96), "mean": MEAN, "std": STD, "vflip": 0.25, "interpolation": "bicubic"}
    ours = ops.from_timm(config, is_training=True)
    theirs = ops.from_torchvision(timm.create_transform(**config, is_training=True))

    for shown in (repr(ours), repr(theirs)):
        for part in ("scale=(0.08, 1.0)", "'bicubic'", "random_flip_left_right(p=0.5)", "random_flip_up_down(p=0.25)"):
            assert part in shown
    assert "brightness=0.4" in repr(ours)
    assert "brightness=(0.6, 1.4)" in repr(theirs)
    with gp.preprocessor(ours) as preprocess:
        assert preprocess([photograph(0)] * 2).shape == (2, 3, 96, 96)


def circle(transform: Any) -> Any:
    transform.transforms.append(transform)
    return transform


def timm_policy() -> Any:
    return pytest.importorskip("timm.data").create_transform(32, is_training=True, auto_augment="rand-m9-mstd0.5")


REFUSED: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "an unknown transform": (
        lambda v1, v2, mode: v2.UniformTemporalSubsample(2), "UniformTemporalSubsample; call the",
    ),
    "no bits": (lambda v1, v2, mode: v1.RandomPosterize(0), r"equals RandomPosterize\(bits=0\) of an image that is no"),
    "a sign": (
        lambda v1, v2, mode: v2.Compose([v2.ToImage(), v2.RandomSolarize(-3)]), r"RandomSolarize\(threshold=-3\) of a",
    ),
    "a crop that may pad": (lambda v1, v2, mode: v2.RandomCrop(3, pad_if_needed=True), r"RandomCrop\(pad_if_needed=T"),
    "a policy of no tensor": (lambda v1, v2, mode: v2.RandAugment(), "RandAugment of an image that is no tensor; put"),
    "a policy of timm's": (lambda v1, v2, mode: timm_policy(), "equals timm's RandAugment"),
    "a fill for each kind": (lambda v1, v2, mode: v2.Pad(3, fill={torch.Tensor: 3}), r"Pad\(fill=\{"),
    "another size": (lambda v1, v2, mode: v1.RandomApply([v1.CenterCrop(3)]), "random_apply needs results of one type"),
    "another dtype": (lambda v1, v2, mode: v1.RandomChoice([v1.ToTensor()]), "equals RandomChoice of what makes"),
    "no order": (lambda v1, v2, mode: v1.RandomOrder([]), "random_order needs a list of 1 to 6 functions"),
    "no choice": (lambda v1, v2, mode: v1.RandomChoice([]), "random_choice needs a list of functions"),
    "a probability": (lambda v1, v2, mode: v1.RandomHorizontalFlip(2), "random_flip_left_right needs p from 0 to 1, g"),
    "a size below 1": (lambda v1, v2, mode: v1.CenterCrop((3, -3)), "center_crop needs width from 1 to .*, got -3"),
    "a size of no number": (lambda v1, v2, mode: v2.CenterCrop("ab"), "cannot take the settings of CenterCrop: inval"),
    "a scale": (lambda v1, v2, mode: v1.RandomResizedCrop(4, ratio=(-1, 1)), "random_resized_crop needs ratio"),
    "a deviation": (lambda v1, v2, mode: v1.Compose([v1.ToTensor(), v1.Normalize(0.5, 0.0)]), "needs std above 0"),
    "no list": (lambda v1, v2, mode: v1.Compose(5), "needs a Compose of transforms, got one of 5"),
    "a circle": (lambda v1, v2, mode: circle(v1.Compose([])), "do not hold themselves, got Compose"),
    "a circle of choices": (lambda v1, v2, mode: circle(v1.RandomApply([])), "do not hold themselves, got RandomAppl"),
    "a function": (lambda v1, v2, mode: v1.Compose([lambda x: x]), "equals function, which is not torchvision's"),
    "a largest side": (lambda v1, v2, mode: v2.Resize(9, max_size=9), "needs max_size above the length of the short"),
    "an interpolation": (lambda v1, v2, mode: v1.Resize(3, mode.BOX), "interpolation 'box'"),
    "nearest of tensors": (
        lambda v1, v2, mode: v2.Compose([v2.ToImage(), v2.Resize(3, mode.NEAREST)]), "use NEAREST_EXACT",
    ),
    "bicubic of tensors": (
        lambda v1, v2, mode: v2.Compose([v2.ToImage(), v2.Resize(3, mode.BICUBIC, antialias=False)]), "antialias=True",
    ),
    "integers to normalise": (lambda v1, v2, mode: v1.Normalize(0.5, 0.5), "Normalize of integers"),
    "half floats": (lambda v1, v2, mode: v2.Compose([v2.ToImage(), v2.ToDtype(torch.float16)]), r"as_torch\(dtype="),
    "a dtype for each kind": (
        lambda v1, v2, mode: v2.Compose([v2.ToImage(), v2.ToDtype({torch.Tensor: torch.float32})]), "ToDtype",
    ),
    "a dtype of no tensor": (lambda v1, v2, mode: v2.ToDtype(torch.float32, scale=True), "put ToImage before"),
    "noise": (lambda v1, v2, mode: v2.Compose([v2.ToImage(), v2.RandomErasing(value="random")]), "value='random'"),
    "a tensor twice": (lambda v1, v2, mode: v1.Compose([v1.ToTensor(), v1.ToTensor()]), "ToTensor of a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_op_equals_is_refused_by_name(name: str) -> None:
    make, text = REFUSED[name]
    of = torchvision()

    with pytest.raises(gp.PlanError, match=text):
        ops.from_torchvision(make(of.v1, of.v2, of.mode))


test_other_settings_are_refused_too = refused(
    (PlanTypeError, "transforms of torchvision, got int", lambda: ops.from_torchvision(7)),
    (gp.PlanError, "auto_augment='rand-m9'", lambda: ops.from_timm({"input_size": 9, "auto_augment": "rand-m9"})),
    (gp.PlanError, "crop_mode='center' with a size of 8x9", lambda: ops.from_timm({"input_size": (3, 8, 9)})),
    (gp.PlanError, "crop_mode='border'", lambda: ops.from_timm({"input_size": 9, "crop_mode": "border"})),
    (gp.PlanError, "interpolation 'random'", lambda: ops.from_timm({"input_size": 9, "interpolation": "random"})),
    (gp.PlanError, r"re_prob=0\.2", lambda: ops.from_timm({"input_size": 9, "re_prob": 0.2})),
    (gp.PlanError, "normalize=False", lambda: ops.from_timm({"input_size": 9, "normalize": False})),
    (PlanTypeError, "input_size", lambda: ops.from_timm({})),
    (PlanTypeError, "needs a dict", lambda: ops.from_timm(["vit"])),  # type: ignore[arg-type]
)


def test_a_recipe_is_part_of_a_chain_and_takes_images_of_any_kind() -> None:
    fn = ops.from_timm({"input_size": 8, "crop_pct": 1.0})
    files = [encoded(picture(20, 30), "PNG"), encoded(picture(20, 30, 1)), encoded(picture(20, 30, 4), "PNG")]
    batch = next(iter(gp.Dataset.from_list(files).map(fn).batch(3).with_options(gp.Options(backend="numpy"))))

    assert batch.shape == (3, 3, 8, 8)
    np.testing.assert_array_equal(batch[0], fn(picture(20, 30)))
    assert "resize_shorter" in str(gp.Dataset.from_list(files).map(fn).batch(3).explain())
