"""from_torchvision: the transforms of torchvision as a function of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any

from gpupipe.errors import PlanError, PlanTypeError
from gpupipe.graph.symbols import Symbol
from gpupipe.ops._shared.recipe import Recipe, Transform, pair_of, refuse
from gpupipe.ops._shared.torchvision_boxes import check_boxes, clamp, iou_crop, sanitize
from gpupipe.ops._shared.torchvision_resizing import (
    WHO,
    classification,
    cropped,
    detection,
    jittered,
    resized,
    segmentation,
    shortest,
    video,
)
from gpupipe.ops.adjust_jpeg_quality import adjust_jpeg_quality
from gpupipe.ops.aug_mix import aug_mix
from gpupipe.ops.auto_augment import auto_augment
from gpupipe.ops.cast import cast
from gpupipe.ops.center_crop import center_crop
from gpupipe.ops.color_jitter import color_jitter
from gpupipe.ops.cutmix import cutmix
from gpupipe.ops.elastic import elastic
from gpupipe.ops.five_crop import five_crop
from gpupipe.ops.gaussian_noise import gaussian_noise
from gpupipe.ops.grayscale_to_rgb import grayscale_to_rgb
from gpupipe.ops.mixup import mixup
from gpupipe.ops.mixup_or_cutmix import mixup_or_cutmix
from gpupipe.ops.pad import pad
from gpupipe.ops.rand_augment import rand_augment
from gpupipe.ops.random_adjust_sharpness import random_adjust_sharpness
from gpupipe.ops.random_affine import random_affine
from gpupipe.ops.random_apply import random_apply
from gpupipe.ops.random_autocontrast import random_autocontrast
from gpupipe.ops.random_channel_permutation import random_channel_permutation
from gpupipe.ops.random_choice import random_choice
from gpupipe.ops.random_crop import random_crop
from gpupipe.ops.random_equalize import random_equalize
from gpupipe.ops.random_erasing import random_erasing
from gpupipe.ops.random_flip_left_right import random_flip_left_right
from gpupipe.ops.random_flip_up_down import random_flip_up_down
from gpupipe.ops.random_gaussian_blur import random_gaussian_blur
from gpupipe.ops.random_grayscale import random_grayscale
from gpupipe.ops.random_invert import random_invert
from gpupipe.ops.random_jpeg_quality import random_jpeg_quality
from gpupipe.ops.random_order import random_order
from gpupipe.ops.random_perspective import random_perspective
from gpupipe.ops.random_posterize import random_posterize
from gpupipe.ops.random_rotation import random_rotation
from gpupipe.ops.random_solarize import random_solarize
from gpupipe.ops.random_zoom_out import random_zoom_out
from gpupipe.ops.rgb_to_grayscale import rgb_to_grayscale
from gpupipe.ops.ten_crop import ten_crop
from gpupipe.ops.trivial_augment_wide import trivial_augment_wide

__all__ = ["from_torchvision"]

WAY = "call the ops that you want in its place, or wrap it in ops.py_function, and convert the transforms around it"
LIBRARIES = ("torchvision", "timm")


def from_torchvision(transform: Any) -> Transform:
    """Make a function of ops from a transform of torchvision, mostly a `Compose`, of v1 or v2.

    Takes `Compose` and `Sequential`, `Resize`, `CenterCrop`, `FiveCrop`, `TenCrop`, `RandomCrop`, `RandomResizedCrop`,
    `RandomHorizontalFlip`, `RandomVerticalFlip`, `ColorJitter`, `RandomErasing`, `RandomApply`, `RandomChoice`,
    `RandomOrder`, `Pad`, `RandomZoomOut`, `RandomShortestSize`, `ScaleJitter`, `ElasticTransform`, `GaussianBlur`,
    `RandomInvert`, `RandomPosterize`, `RandomSolarize`, `RandomChannelPermutation`, `RandomPhotometricDistort`,
    `AugMix`, `JPEG`; of tensors also `Grayscale`, `RandomGrayscale`, `RandomAdjustSharpness`, `RandomAutocontrast`,
    `RandomEqualize`, `RandomRotation`, `RandomAffine`, `RandomPerspective`, `RandAugment`, `TrivialAugmentWide`,
    `AutoAugment`, `GaussianNoise`; `Normalize`, `ToTensor`, `PILToTensor`, `ToImage`, `ToPureTensor`, `ToDtype`,
    `ConvertImageDtype`, `RGB`, `Identity`; what comes with the weights for classification, segmentation, detection and
    video; and timm's `create_transform` of these. Random ops draw from the same distributions, not the same numbers.
    Where "bilinear" rotations, affine maps, perspectives and elastic deformations end between two pixels, a fill is
    mixed in by its share; torchvision makes these pixels darker.

    `RandomIoUCrop`, `ClampBoundingBoxes` and `SanitizeBoundingBoxes` make a function of a `Sample` with boxes, and of
    its labels. What crops or clamps needs `SanitizeBoundingBoxes` after it: until then torchvision keeps boxes of which
    nothing is left, ops do not. `MixUp`, `CutMix` and a `RandomChoice` of both make a function of a batch and its
    labels, for a map after `batch`; the transforms of video weights one of a clip uint8[T,H,W,3]{THWC}.

    Args:
        transform: the object; torchvision itself is not imported.

    Returns:
        A function of an encoded image (bytes, decoded to RGB) or of uint8[H,W,3]{HWC}, or what is said above. Where the
        transforms make a tensor, it returns {CHW}; after `FiveCrop` and `TenCrop` the crops are stacked, {TCHW}, and
        frames of video are {CTHW}. `print` shows its steps.

    Raises:
        PlanError: a transform, or a setting of one, that no op equals or takes; names it.
        PlanTypeError: an object that is no transform of torchvision.

    Example:
        >>> transform = from_torchvision(weights.transforms())  # doctest: +SKIP
    """
    recipe = Recipe(WHO)
    try:
        flat = _flat(transform)
        clips = check_boxes(flat)
        for at, one in enumerate(flat):
            _add(recipe, one)
            if at in clips:
                clamp(recipe)
            if recipe.takes in ("batch", "clip") and len(flat) > 1:
                refuse(WHO, f"{type(one).__name__} among others", "convert it alone, and map one after another")
    except RecursionError:
        raise PlanError(f"{WHO} needs transforms that do not hold themselves, got {type(transform).__name__}") from None
    return recipe.done()


def _flat(transform: Any) -> list[Any]:
    """The transforms inside of compositions, in order."""
    name = type(transform).__name__
    if name in ("Compose", "Sequential", "list", "tuple"):
        parts = transform.transforms if name == "Compose" else transform
        if not isinstance(parts, Iterable):
            raise PlanTypeError(f"{WHO} needs a {name} of transforms, got one of {parts!r}")
        return [one for part in parts for one in _flat(part)]
    return [transform]


def _add(recipe: Recipe, transform: Any) -> None:
    name = type(transform).__name__
    if type(transform).__module__.partition(".")[0] not in LIBRARIES:
        if callable(transform):
            refuse(WHO, f"{name}, which is not torchvision's", WAY)
        raise PlanTypeError(f"{WHO} needs transforms of torchvision, got {name}")
    library = type(transform).__module__.partition(".")[0]
    if library == "timm" and name in _OTHER_IN_TIMM:
        refuse(WHO, f"timm's {name}", WAY)
    step = _STEPS.get(name)
    if step is None:
        refuse(WHO, name, WAY)
    try:
        step(recipe, transform)
    except PlanError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise PlanTypeError(f"{WHO} cannot take the settings of {name}: {error}") from error


def _check(transform: Any, **needed: Any) -> None:
    """Check settings that the ops have no parameters for."""
    for name, wanted in needed.items():
        given = getattr(transform, name, wanted)
        if given != wanted:
            refuse(WHO, f"{type(transform).__name__}({name}={given!r})", f"use {name}={wanted!r}, or {WAY}")


def _random_crop(recipe: Recipe, transform: Any) -> None:
    _check(transform, pad_if_needed=False)
    if transform.padding is not None:
        _of_any(pad, "padding", "fill", "padding_mode")(recipe, transform)
    recipe.add(random_crop, size=pair_of(transform.size))


def _color_jitter(recipe: Recipe, transform: Any) -> None:
    names = ("brightness", "contrast", "saturation", "hue")
    given = {name: getattr(transform, name) for name in names}
    recipe.add(color_jitter, **{name: tuple(bounds) for name, bounds in given.items() if bounds is not None})


def _random_erasing(recipe: Recipe, transform: Any) -> None:
    value = transform.value
    if value is None or isinstance(value, str):  # v2 keeps "random" as None
        refuse(WHO, "RandomErasing(value='random')", "use a number, or one per channel")
    if not recipe.tensor:
        refuse(WHO, "RandomErasing of an image that is no tensor", "put it after ToTensor or ToImage")
    if isinstance(value, (list, tuple)):
        value = value[0] if len(value) == 1 else tuple(value)
    recipe.add(random_erasing, p=transform.p, scale=tuple(transform.scale), ratio=tuple(transform.ratio), value=value)


def _normalize(recipe: Recipe, transform: Any) -> None:
    if not (recipe.tensor and recipe.floats):
        refuse(
            WHO, "Normalize of integers", "put ToTensor, or ToImage and ToDtype(torch.float32, scale=True), before it"
        )
    mean, std = (getattr(value, "tolist", lambda value=value: value)() for value in (transform.mean, transform.std))
    recipe.normalize(mean, std)


def _to_tensor(recipe: Recipe, transform: Any) -> None:
    if not recipe.tensor:
        recipe.tensor = True
        recipe.to_float()
    elif type(transform).__name__ == "ToTensor":
        refuse(WHO, "ToTensor of a tensor", "leave it out")


def _to_image(recipe: Recipe, transform: Any) -> None:
    recipe.tensor = True


def _to_dtype(recipe: Recipe, transform: Any) -> None:
    name, dtype = type(transform).__name__, str(transform.dtype)
    scale = getattr(transform, "scale", True)
    kind = "float32" if recipe.floats else "uint8"
    if dtype not in ("torch.float32", "torch.uint8") or (kind == "float32" and dtype == "torch.uint8"):
        refuse(WHO, f"{name}({dtype}) of {kind}", "use torch.float32, and as_torch(dtype=...) for other floats")
    if not recipe.tensor:
        refuse(WHO, f"{name} of an image that is no tensor", "put ToImage before it")
    if dtype == f"torch.{kind}":
        return
    if scale:
        recipe.to_float()
    else:
        recipe.add(cast, dtype="float32")
        recipe.floats = True


def _nothing(recipe: Recipe, transform: Any) -> None:
    """A transform that changes nothing of an RGB image."""


def _part(recipe: Recipe, transform: Any, among: Any) -> list[Any]:
    """The steps of transforms that only some images get, so that all results have one type."""
    part = Recipe(WHO, floats=recipe.floats, tensor=recipe.tensor)
    for one in _flat(list(among)):
        _add(part, one)
    if part.takes != "image":
        refuse(WHO, f"{type(transform).__name__} of what takes a {part.takes}", "leave the choice out")
    if (part.floats, part.tensor, part.divisor) != (recipe.floats, recipe.tensor, 1):
        refuse(WHO, f"{type(transform).__name__} of what makes a tensor or floats", "put that before or after it")
    return part.steps


def _grayscale(recipe: Recipe, transform: Any) -> None:
    _of_tensor(rgb_to_grayscale)(recipe, transform)
    if transform.num_output_channels == 3:
        recipe.add(grayscale_to_rgb)


def _gaussian_noise(recipe: Recipe, transform: Any) -> None:
    if recipe.floats or not recipe.tensor:
        return _of_tensor(gaussian_noise, "mean", "sigma", "clip")(recipe, transform)
    if not transform.clip:
        refuse(WHO, "GaussianNoise(clip=False) of integers, where levels wrap around", "use clip=True")
    return recipe.add(gaussian_noise, mean=transform.mean, sigma=transform.sigma, toward_zero=True)


def _photometric_distort(recipe: Recipe, transform: Any) -> None:
    names = ("brightness", "contrast", "saturation", "hue")
    bounds: list[dict[str, Any]] = [{name: tuple(getattr(transform, name))} for name in names]
    brightness, *rest = (partial(color_jitter, **one) for one in bounds)
    contrast, *others = (partial(random_apply, step, p=transform.p) for step in rest)
    recipe.add(random_apply, brightness, p=transform.p)
    recipe.add(random_choice, [[contrast, *others], [*others, contrast]])
    recipe.add(random_apply, partial(random_channel_permutation), p=transform.p)


def _jpeg(recipe: Recipe, transform: Any) -> None:
    low, high = transform.quality
    if recipe.floats:
        refuse(WHO, "JPEG of floats, where it fails", "put it before ToDtype")
    if low == high:
        recipe.add(adjust_jpeg_quality, jpeg_quality=low)
    else:
        recipe.add(random_jpeg_quality, min_jpeg_quality=low, max_jpeg_quality=high + 1)


def _mixed(recipe: Recipe, transform: Any) -> None:
    op = {"MixUp": mixup, "CutMix": cutmix}[type(transform).__name__]
    _mixing(recipe, op, alpha=transform.alpha, num_classes=transform.num_classes)


def _mixing(recipe: Recipe, op: Callable[..., Any], **settings: Any) -> None:
    """A step on a batch and its labels; the batch is {NCHW}, as torchvision's, where nothing else is known."""

    @wraps(op)
    def mix(images: Any, labels: Any, **settings: Any) -> Any:
        known = isinstance(images, Symbol) and images._value.spec.layout
        return op(images, labels, **settings, layout=None if known else "CHW")

    recipe.takes = "batch"
    recipe.add(mix, **settings)


def _random_apply(recipe: Recipe, transform: Any) -> None:
    recipe.add(random_apply, _part(recipe, transform, transform.transforms), p=transform.p)


def _random_choice(recipe: Recipe, transform: Any) -> None:
    among = {type(one).__name__: one for one in transform.transforms}
    if {"MixUp", "CutMix"} & set(among):
        return _mixup_or_cutmix(recipe, transform, among)
    parts = [_part(recipe, transform, [one]) for one in transform.transforms]
    return recipe.add(random_choice, parts, p=transform.p)


def _mixup_or_cutmix(recipe: Recipe, transform: Any, among: dict[str, Any]) -> None:
    names = [type(one).__name__ for one in transform.transforms]
    if sorted(names) != ["CutMix", "MixUp"] or len({one.num_classes for one in transform.transforms}) > 1:
        refuse(WHO, f"RandomChoice of {' and '.join(names)}", "choose from one MixUp and one CutMix of as many classes")
    weights = [0.5, 0.5] if transform.p is None else transform.p
    share = float(weights[names.index("CutMix")] / sum(weights))
    alphas = {"mixup_alpha": among["MixUp"].alpha, "cutmix_alpha": among["CutMix"].alpha}
    _mixing(recipe, mixup_or_cutmix, **alphas, switch_prob=share, num_classes=among["MixUp"].num_classes)


def _random_order(recipe: Recipe, transform: Any) -> None:
    recipe.add(random_order, [_part(recipe, transform, [one]) for one in transform.transforms])


def _of_tensor(op: Callable[..., Any], *names: str) -> Callable[[Recipe, Any], None]:
    """A step that calls an op whose parameters are attributes of the transform, with the pixels of a tensor."""

    def step(recipe: Recipe, transform: Any) -> None:
        if not recipe.tensor:
            name = type(transform).__name__
            refuse(WHO, f"{name} of an image that is no tensor", "put ToImage before it: Pillow gives other pixels")
        _of_any(op, *names)(recipe, transform)

    return step


def _of_any(op: Callable[..., Any], *names: str) -> Callable[[Recipe, Any], None]:
    """The same for a transform that gives the same pixels for an image of Pillow."""

    def step(recipe: Recipe, transform: Any) -> None:
        recipe.add(op, **{name: _setting(transform, name) for name in names})

    return step


def _setting(transform: Any, name: str) -> Any:
    """A setting in the form that ops take: enumerations as their value, and a fill as one number if it is one."""
    value = getattr(transform, name)
    value = getattr(value, "value", value)
    if isinstance(value, (list, tuple)):
        value = tuple(value)
        if name == "fill" and len(set(value)) == 1:
            value = value[0]
    if name == "fill" and isinstance(value, float) and value.is_integer():
        return int(value)
    if name == "fill" and isinstance(value, dict):
        refuse(WHO, f"{type(transform).__name__}(fill={value!r})", "use one fill for images")
    return 0 if name == "fill" and value is None else value


def _random_posterize(recipe: Recipe, transform: Any) -> None:
    if transform.bits == 0 and not recipe.tensor:
        refuse(WHO, "RandomPosterize(bits=0) of an image that is no tensor, where it fails", "use 1 to 8 bits")
    _of_any(random_posterize, "bits", "p")(recipe, transform)


def _random_solarize(recipe: Recipe, transform: Any) -> None:
    if transform.threshold < 0 and recipe.tensor:
        name = f"RandomSolarize(threshold={transform.threshold}) of a tensor, whose levels are compared without a sign"
        refuse(WHO, name, "use 0")
    _of_any(random_solarize, "threshold", "p")(recipe, transform)


_OTHER_IN_TIMM = ("AugMixAugment", "AutoAugment", "RandAugment", "RandomErasing")
"""timm's classes of these names follow other laws."""
_WARPING = ("interpolation", "fill")

_STEPS: dict[str, Callable[[Recipe, Any], None]] = {
    "AugMix": _of_any(aug_mix, "severity", "mixture_width", "chain_depth", "alpha", "all_ops", *_WARPING),
    "AutoAugment": _of_tensor(auto_augment, "policy", *_WARPING),
    "CenterCrop": lambda recipe, t: recipe.add(center_crop, size=pair_of(t.size)),
    "ClampBoundingBoxes": clamp,
    "ColorJitter": _color_jitter,
    "ConvertImageDtype": _to_dtype,
    "CutMix": _mixed,
    "ElasticTransform": _of_any(elastic, "alpha", "sigma", *_WARPING),
    "GaussianBlur": _of_any(random_gaussian_blur, "kernel_size", "sigma"),
    "Identity": _nothing,
    "FiveCrop": _of_any(five_crop, "size"),
    "GaussianNoise": _gaussian_noise,
    "Grayscale": _grayscale,
    "ImageClassification": classification,
    "JPEG": _jpeg,
    "MaybeToTensor": _to_tensor,
    "MixUp": _mixed,
    "Normalize": _normalize,
    "ObjectDetection": detection,
    "PILToTensor": _to_image,
    "Pad": _of_any(pad, "padding", "fill", "padding_mode"),
    "RGB": _nothing,
    "RandAugment": _of_tensor(rand_augment, "num_ops", "magnitude", "num_magnitude_bins", *_WARPING),
    "RandomAdjustSharpness": _of_tensor(random_adjust_sharpness, "sharpness_factor", "p"),
    "RandomAffine": _of_tensor(random_affine, "degrees", "translate", "scale", "shear", "center", *_WARPING),
    "RandomApply": _random_apply,
    "RandomAutocontrast": _of_tensor(random_autocontrast, "p"),
    "RandomChannelPermutation": _of_any(random_channel_permutation),
    "RandomChoice": _random_choice,
    "RandomCrop": _random_crop,
    "RandomEqualize": _of_tensor(random_equalize, "p"),
    "RandomErasing": _random_erasing,
    "RandomGrayscale": _of_tensor(random_grayscale, "p"),
    "RandomHorizontalFlip": lambda recipe, t: recipe.add(random_flip_left_right, p=t.p),
    "RandomIoUCrop": iou_crop,
    "RandomInvert": _of_any(random_invert, "p"),
    "RandomOrder": _random_order,
    "RandomPerspective": _of_tensor(random_perspective, "distortion_scale", "p", *_WARPING),
    "RandomPhotometricDistort": _photometric_distort,
    "RandomPosterize": _random_posterize,
    "RandomResizedCrop": cropped,
    "RandomResizedCropAndInterpolation": cropped,
    "RandomRotation": _of_tensor(random_rotation, "degrees", "expand", "center", *_WARPING),
    "RandomShortestSize": shortest,
    "RandomSolarize": _random_solarize,
    "RandomVerticalFlip": lambda recipe, t: recipe.add(random_flip_up_down, p=t.p),
    "RandomZoomOut": _of_any(random_zoom_out, "fill", "side_range", "p"),
    "Resize": resized,
    "SanitizeBoundingBoxes": sanitize,
    "ScaleJitter": jittered,
    "SemanticSegmentation": segmentation,
    "TenCrop": _of_any(ten_crop, "size", "vertical_flip"),
    "ToDtype": _to_dtype,
    "ToImage": _to_image,
    "ToPureTensor": _nothing,
    "ToTensor": _to_tensor,
    "TrivialAugmentWide": _of_tensor(trivial_augment_wide, "num_magnitude_bins", *_WARPING),
    "VideoClassification": video,
}
"""The transforms that ops equal, by the names of their classes."""
