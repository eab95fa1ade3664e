"""from_torchvision of what takes or gives more than one image: crops, boxes, batches, and the transforms of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.graph.op import Array
from gpupipe.transform.machine import has_dali
from tests.ops.originals import chw, photograph, torchvision

torch = pytest.importorskip("torch")

UNITS = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def presets() -> Any:
    torchvision()
    from torchvision.transforms import _presets

    return _presets


@pytest.mark.parametrize(
    "make",
    [
        lambda v2: [v2.ToImage(), v2.FiveCrop(64)],
        lambda v2: [
            v2.ToImage(),
            v2.FiveCrop([40, 64]),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*UNITS),
        ],
        lambda v2: [v2.ToImage(), v2.TenCrop(64), v2.ToDtype(torch.float32, scale=True)],
        lambda v2: [v2.TenCrop((33, 64), vertical_flip=True), v2.ToImage()],
    ],
    ids=["five", "five, normalised", "ten", "ten, upside down"],
)
def test_several_crops_are_torchvisions_in_one_array(make: Callable[[Any], list[Any]]) -> None:
    original = torchvision().v2.Compose(make(torchvision().v2))
    theirs = np.stack([np.asarray(crop) for crop in original(_pillow(photograph(1)))])

    ours = ops.from_torchvision(original)(photograph(1))

    np.testing.assert_allclose(ours, theirs, atol=1e-5 if theirs.dtype == np.float32 else 0)  # rounding of float32


def _pillow(image: Array) -> Any:
    from PIL import Image

    return Image.fromarray(image)


@lru_cache(1)
def weights() -> list[Any]:
    """The transforms of all weights that torchvision has, each kind of settings once."""
    torchvision()
    from torchvision import models

    every = [one.transforms() for name in models.list_models() for one in models.get_model_weights(name)]
    return list({f"{type(one).__name__} {one!r}": one for one in every}.values())


def test_the_transforms_of_all_weights_for_images_give_torchvisions_pixels() -> None:
    kinds = ("ImageClassification", "SemanticSegmentation", "ObjectDetection")
    there = [original for original in weights() if type(original).__name__ in kinds]
    assert len(there) >= 30
    for original in (*there, presets().SemanticSegmentation(resize_size=None)):
        theirs = original(_pillow(photograph(2))).numpy()

        ours = ops.from_torchvision(original)(photograph(2))

        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5, err_msg=repr(original))  # rounding of float32


def test_of_all_weights_only_those_for_two_images_are_refused() -> None:
    refused = set()
    for original in weights():
        try:
            ops.from_torchvision(original)
        except gp.PlanError:
            refused.add(type(original).__name__)
    assert refused == {"OpticalFlow"}


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("dali", marks=pytest.mark.skipif(not has_dali(), reason="needs DALI"))]
)
@pytest.mark.parametrize("size", [(64, 80), (70,)])
def test_frames_of_a_video_are_torchvisions(size: Any, backend: Any) -> None:
    """PyTorch rounds a few sums the other way: up to one level, in a quarter of the values without antialias."""
    original = presets().VideoClassification(crop_size=(48, 56), resize_size=size)
    clip = np.stack([photograph(3)[k : k + 90, k : k + 120] for k in range(4)])
    theirs = original(torch.from_numpy(clip.transpose(0, 3, 1, 2).copy())).numpy()

    ds = gp.Dataset.from_list([clip]).map(ops.from_torchvision(original)).batch(1)
    ours = next(iter(ds.with_options(gp.Options(backend=backend, device="cpu"))))[0]

    off = np.abs(ours - theirs) * 255 * min(original.std)
    assert ours.shape == theirs.shape == (3, 4, 48, 56)
    assert off.max() <= 1.001
    assert off.mean() <= 0.3


BOXES = np.array(
    [[5, 5, 60, 70], [90, 20, 200, 180], [0, 0, 30, 8], [150, 100, 203, 231], [20, 30, 20.5, 90], [60, 60, 62, 62]],
    np.float32,
)

SANITIZED: dict[str, Callable[[Any], list[Any]]] = {
    "as it is": lambda v2: [],
    "larger": lambda v2: [v2.SanitizeBoundingBoxes(min_size=9.0, min_area=5000.0)],
    "clamped": lambda v2: [v2.Pad((0, 0, 5, 9)), v2.CenterCrop((150, 90)), v2.ClampBoundingBoxes()],
    "cropped and padded": lambda v2: [v2.CenterCrop((120, 100)), v2.Pad(20), v2.Resize((90, 200))],
    "turned": lambda v2: [v2.RandomRotation((90, 90)), v2.RandomHorizontalFlip(1.0)],
    "moved": lambda v2: [v2.RandomAffine((0, 0), scale=(1.5, 1.5))],
    "not clamped": lambda v2: [v2.ClampBoundingBoxes(clamping_mode=None)],
    "zoomed by nothing": lambda v2: [v2.RandomZoomOut(side_range=(1, 1), p=1.0)],
    "left as it is": lambda v2: [v2.RandomIoUCrop(sampler_options=[1.0])],
}


@pytest.mark.parametrize("name", SANITIZED)
def test_sanitized_boxes_are_torchvisions(name: str) -> None:
    v2 = torchvision().v2
    from torchvision import tv_tensors

    image = photograph(4)
    original = v2.Compose([v2.ToImage(), *SANITIZED[name](v2), v2.SanitizeBoundingBoxes()])
    given = {
        "image": tv_tensors.Image(chw(image)),
        "boxes": tv_tensors.BoundingBoxes(torch.from_numpy(BOXES), format="XYXY", canvas_size=image.shape[:2]),
        "labels": torch.arange(len(BOXES)),
    }
    theirs = original(given)

    ours = ops.from_torchvision(original)(ops.Sample(image, BOXES, labels=np.arange(len(BOXES))))

    assert ours.image.shape == tuple(theirs["image"].shape)
    np.testing.assert_array_equal(ours.labels, theirs["labels"].numpy())
    np.testing.assert_allclose(ours.boxes, theirs["boxes"].numpy(), atol=1e-3)  # rounding of float32 at 200 pixels


def test_boxes_outside_of_the_image_are_dropped_where_nothing_clamps_them() -> None:
    v2 = torchvision().v2
    sample = ops.Sample(np.zeros((9, 9, 3), np.uint8), [[-1, 2, 5, 6], [1, 2, 5, 6], [3, 3, 9, 9.5]])

    assert ops.from_torchvision(v2.SanitizeBoundingBoxes())(sample).boxes.tolist() == [[1, 2, 5, 6]]
    assert len(ops.from_torchvision(v2.Compose([v2.Pad(0), v2.SanitizeBoundingBoxes()]))(sample).boxes) == 3


def test_masks_of_a_sample_keep_their_numbers() -> None:
    v2 = torchvision().v2
    masks = np.random.default_rng(0).choice(np.array([3, 200], np.uint8), (40, 50, 1))
    sample = ops.Sample(photograph(4)[:40, :50], BOXES, masks=masks)

    made = ops.from_torchvision(v2.Resize((23, 31)))(sample)

    assert made.masks.shape == (23, 31, 1)
    assert set(made.masks.ravel()) == {3, 200}


def test_transforms_for_detection_run_in_a_chain() -> None:
    v2 = torchvision().v2
    transforms = [
        v2.ToImage(), v2.RandomZoomOut([9, 8, 7], (1.0, 2.0), 0.4), v2.RandomIoUCrop(0.4, 0.9, trials=9),
        v2.RandomHorizontalFlip(), v2.Resize(80, max_size=100), v2.SanitizeBoundingBoxes(2.0, 5.0),
        v2.ToDtype(torch.float32, scale=True),
    ]  # fmt: skip
    fn = ops.from_torchvision(v2.Compose(transforms))

    assert repr(fn) == (
        "from_torchvision: decode_image -> random_zoom_out(fill=(9, 8, 7), side_range=(1.0, 2.0), p=0.4) -> "
        "random_iou_crop(min_scale=0.4, max_scale=0.9, min_aspect_ratio=0.5, max_aspect_ratio=2.0, trials=9, "
        "sampler_options=(0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)) -> random_flip_left_right(p=0.5) -> "
        "resize_shorter(size=80, interpolation='bilinear', antialias=True, max_size=100) -> "
        "sanitize_boxes(min_size=2.0, min_area=5.0) -> normalize(std=255.0) -> transpose()"
    )
    sample = ops.Sample(photograph(4), BOXES, labels=np.arange(len(BOXES)))
    for made in gp.Dataset.from_list([sample] * 8).map(fn):
        height, width = made.image.shape[1:]
        assert max(height, width) <= 100
        assert len(made.boxes) == len(made.labels) > 0
        assert (made.boxes >= 0).all()
        assert (made.boxes <= (width, height, width, height)).all()


def mixing(make: Callable[[Any], Any], seed: int) -> tuple[Any, Array, Any, Any]:
    """A transform of batches, a batch, and what its function makes of it in a chain."""
    original = make(torchvision().v2)
    images = np.random.default_rng(seed).random((6, 3, 20, 24), np.float32)
    ds = gp.Dataset.from_tensor_slices((images.transpose(0, 2, 3, 1), np.arange(6)))
    ds = ds.map(lambda x, y: (ops.transpose(x), y)).batch(6).map(ops.from_torchvision(original))
    return original, images, *next(iter(ds.with_options(gp.Options(seed=seed, backend="numpy"))))


def share(labels: Array) -> float:
    """Of each image in its own result."""
    own = float(labels[0, 0])
    roll = np.roll(np.eye(6), 1, axis=0)
    np.testing.assert_allclose(labels, own * np.eye(6) + (1 - own) * roll, atol=1e-6)  # rounding of float32
    return own


@pytest.mark.parametrize("seed", range(3))
def test_a_mixed_batch_is_what_torchvision_makes_with_this_share(seed: int) -> None:
    original, images, made, labels = mixing(lambda v2: v2.MixUp(alpha=0.7, num_classes=6), seed)
    given = {"labels": torch.arange(6), "batch_size": 6, "lam": share(labels)}

    np.testing.assert_allclose(made, original.transform(torch.from_numpy(images), given), atol=1e-6)  # of float32


@pytest.mark.parametrize("seed", range(3))
def test_a_pasted_window_is_what_torchvision_makes_with_this_window(seed: int) -> None:
    original, images, made, labels = mixing(lambda v2: v2.CutMix(alpha=1.0, num_classes=6), seed)
    lines, columns = (np.flatnonzero((made != images).any(axis=axes)) for axes in ((0, 1, 3), (0, 1, 2)))
    window = (columns[0], lines[0], columns[-1] + 1, lines[-1] + 1) if len(lines) else (0, 0, 0, 0)
    given = {"labels": torch.arange(6), "batch_size": 6, "box": window}

    np.testing.assert_array_equal(made, original.transform(torch.from_numpy(images), given))
    assert share(labels) == pytest.approx(1 - (window[2] - window[0]) * (window[3] - window[1]) / 480)


def test_mixing_gets_the_settings_of_torchvisions_and_takes_arrays_as_tensors() -> None:
    v2 = torchvision().v2
    choice = v2.RandomChoice([v2.CutMix(alpha=0.5, num_classes=6), v2.MixUp(alpha=0.25, num_classes=6)], p=[1, 3])
    images = np.random.default_rng(0).random((6, 3, 20, 24), np.float32)

    assert repr(ops.from_torchvision(v2.MixUp(alpha=0.25))) == "from_torchvision: mixup(alpha=0.25, num_classes=None)"
    assert repr(ops.from_torchvision(choice)) == (
        "from_torchvision: mixup_or_cutmix(mixup_alpha=0.25, cutmix_alpha=0.5, switch_prob=0.25, num_classes=6)"
    )
    made, _ = ops.from_torchvision(v2.CutMix(num_classes=6))(images, np.arange(6))
    changed = np.asarray(made) != images
    np.testing.assert_array_equal(changed, np.broadcast_to(changed[:, :1], changed.shape))  # of all channels alike


def test_random_settings_are_those_of_torchvisions() -> None:
    v2 = torchvision().v2
    noise = [v2.ToDtype(torch.float32, scale=True), v2.GaussianNoise(0.1, 0.2, False)]

    assert repr(ops.from_torchvision(v2.Compose([v2.ToImage(), v2.JPEG((50, 100)), v2.GaussianNoise(), *noise]))) == (
        "from_torchvision: decode_image -> random_jpeg_quality(min_jpeg_quality=50, max_jpeg_quality=101) -> "
        "gaussian_noise(mean=0.0, sigma=0.1, toward_zero=True) -> "
        "normalize(std=255.0) -> gaussian_noise(mean=0.1, sigma=0.2, clip=False) -> transpose()"
    )


FACTORS = {"brightness": 1.1, "contrast": 0.6, "saturation": 1.4, "hue": 0.1}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_distorted_photographs_are_torchvisions_with_the_same_choices_and_as_often(dtype: Any) -> None:
    """With one factor each there are few results. Each has torchvision's pixels, and as many images as it is likely."""
    v2 = torchvision().v2
    bounds = {name: (factor, factor) for name, factor in FACTORS.items()}
    original = v2.RandomPhotometricDistort(**bounds, p=0.4)
    image = photograph(3)[::24, ::24]
    steps = [v2.ToImage(), v2.ToDtype(dtype, scale=True)]
    results = {}
    for used in product((False, True), repeat=4):
        given = {f"{name}_factor": FACTORS[name] if use else None for name, use in zip(FACTORS, used, strict=True)}
        for before in (True, False)[: 1 + used[1]]:
            for order in permutations(range(3)):
                given |= {"contrast_before": before, "channel_permutation": torch.tensor(order)}
                made = original.transform(v2.Compose(steps)(image), given).numpy()
                results[used, before, order] = made

    ds = (
        gp.Dataset.from_list([image]).repeat(1500).map(ops.from_torchvision(v2.Compose([*steps, original]))).batch(1500)
    )
    ours = next(iter(ds.with_options(gp.Options(backend="numpy"))))

    names, made = list(results), np.stack(list(results.values())).astype(np.float32)
    off = np.stack([np.abs(made - one).mean(axis=(1, 2, 3)) for one in ours])
    most = np.abs(made[off.argmin(axis=1)] - ours).max()
    assert most <= (4 if dtype == torch.uint8 else 1e-4)  # rounding of color_jitter, which later steps may double
    found = [names[at] for at in off.argmin(axis=1)]
    for step in range(4):
        assert np.mean([used[step] for used, _, _ in found]) == pytest.approx(0.4, abs=0.05)
    both = [before for used, before, _ in found if used[1] and (used[2] or used[3])]  # elsewhere both are the same
    assert np.mean(both) == pytest.approx(0.5, abs=0.1)
    orders = Counter(order for _, _, order in found)
    assert orders.pop((0, 1, 2)) / 1500 == pytest.approx(0.6 + 0.4 / 6, abs=0.05)
    assert [count / 1500 for count in orders.values()] == pytest.approx([0.4 / 6] * 5, abs=0.03)


@pytest.mark.skipif(not has_dali(), reason="needs DALI")
def test_distortions_are_equal_on_each_executor() -> None:
    v2 = torchvision().v2
    fn = ops.from_torchvision(v2.Compose([v2.RandomPhotometricDistort(), v2.JPEG((90, 100)), v2.ToImage()]))
    ds = gp.Dataset.from_list([photograph(4)[:40, :50]]).repeat(40).map(fn).batch(40)
    chosen: list[Any] = ["numpy", "dali", "fast"]
    assert "random_apply(random_channel_permutation(), p=0.5) -> random_jpeg_quality(min_jpeg_quality=90, " in repr(fn)
    wanted, *others = [next(iter(ds.with_options(gp.Options(backend=one, device="cpu")))) for one in chosen]

    assert len({image.tobytes() for image in wanted}) > 30
    for found in others:  # on the CPU the host computes colours and JPEG, inside of the graph
        np.testing.assert_array_equal(found, wanted)


def test_distortions_of_a_sample_change_its_image_alone() -> None:
    v2 = torchvision().v2
    fn = ops.from_torchvision(
        v2.Compose([v2.ToImage(), v2.RandomPhotometricDistort(p=1.0), v2.SanitizeBoundingBoxes()])
    )
    made = fn(ops.Sample(photograph(4), BOXES, labels=np.arange(len(BOXES))))

    assert (made.image != photograph(4).transpose(2, 0, 1)).any()
    np.testing.assert_array_equal(made.boxes, BOXES[[0, 1, 2, 3, 5]])
    assert made.labels.tolist() == [0, 1, 2, 3, 5]


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "boxes that are not sanitized": (lambda v2: v2.RandomIoUCrop(), "RandomIoUCrop without SanitizeBoundingBox"),
    "a clamp alone": (lambda v2: v2.ClampBoundingBoxes(), "ClampBoundingBoxes without SanitizeBoundingBoxes after it"),
    "a crop at the end": (
        lambda v2: v2.Compose([v2.SanitizeBoundingBoxes(), v2.CenterCrop(5)]), "CenterCrop without SanitizeBoundingB",
    ),
    "a choice that clamps": (
        lambda v2: v2.Compose([v2.RandomApply([v2.Pad(5)]), v2.SanitizeBoundingBoxes()]), "RandomApply of wha",
    ),
    "a choice of boxes": (lambda v2: v2.RandomApply([v2.SanitizeBoundingBoxes()]), "RandomApply of what takes "),
    "labels that stay": (lambda v2: v2.SanitizeBoundingBoxes(labels_getter=None), r"\(labels_getter=None\); leave it"),
    "mixing among others": (lambda v2: v2.Compose([v2.RGB(), v2.MixUp(num_classes=3)]), "MixUp among others;"),
    "two kinds of mixing": (
        lambda v2: v2.RandomChoice([v2.MixUp(num_classes=3), v2.MixUp(num_classes=3)]), "RandomChoice of MixUp a",
    ),
    "noise of integers": (
        lambda v2: v2.Compose([v2.ToImage(), v2.GaussianNoise(clip=False)]), r"GaussianNoise\(clip=False\) of integ",
    ),
    "noise of Pillow": (lambda v2: v2.GaussianNoise(), "GaussianNoise of an image that is no tensor"),
    "floats in JPEG": (
        lambda v2: v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.JPEG(50)]), "JPEG of floats",
    ),
    "gray by Pillow": (lambda v2: v2.Grayscale(), "Grayscale of an image that is no tensor; put ToImage"),
    "video among others": (
        lambda v2: v2.Compose([v2.ToImage(), presets().VideoClassification(crop_size=(9, 9), resize_size=(9,))]),
        "VideoClassification among others",
    ),
    "two images": (lambda v2: presets().OpticalFlow(), "equals OpticalFlow; call the ops"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_op_equals_is_refused_by_name(name: str) -> None:
    make, text = REFUSED[name]

    with pytest.raises(gp.PlanError, match=text):
        ops.from_torchvision(make(torchvision().v2))
