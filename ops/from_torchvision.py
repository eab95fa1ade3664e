"""from_torchvision: the transforms of torchvision as a function of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpupipe.errors import PlanError, PlanTypeError
from gpupipe.ops._shared.recipe import Recipe, Transform, method_of, pair_of, refuse, resize_to
from gpupipe.ops.aug_mix import aug_mix
from gpupipe.ops.auto_augment import auto_augment
from gpupipe.ops.cast import cast
from gpupipe.ops.center_crop import center_crop
from gpupipe.ops.color_jitter import color_jitter
from gpupipe.ops.elastic import elastic
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
from gpupipe.ops.random_order import random_order
from gpupipe.ops.random_perspective import random_perspective
from gpupipe.ops.random_posterize import random_posterize
from gpupipe.ops.random_resized_crop import random_resized_crop
from gpupipe.ops.random_rotation import random_rotation
from gpupipe.ops.random_shortest_size import random_shortest_size
from gpupipe.ops.random_solarize import random_solarize
from gpupipe.ops.resize_shorter import resize_shorter
from gpupipe.ops.scale_jitter import scale_jitter
from gpupipe.ops.trivial_augment_wide import trivial_augment_wide

__all__ = ["from_torchvision"]

WHO = "from_torchvision"
WAY = "call the ops that you want in its place, or wrap it in ops.py_function, and convert the transforms around it"
LIBRARIES = ("torchvision", "timm")


def from_torchvision(transform: Any) -> Transform:
    """Make a function of ops from a transform of torchvision, mostly a `Compose`, of v1 or v2.

    Takes `Compose` and `Sequential`, `Resize`, `CenterCrop`, `RandomCrop`, `RandomResizedCrop`, `RandomHorizontalFlip`,
    `RandomVerticalFlip`, `ColorJitter`, `RandomErasing`, `RandomApply`, `RandomChoice`, `RandomOrder`, `Pad`,
    `RandomShortestSize`, `ScaleJitter`, `ElasticTransform`, `GaussianBlur`, `RandomInvert`, `RandomPosterize`,
    `RandomSolarize`, `RandomChannelPermutation`, `AugMix`; of tensors also `RandomGrayscale`, `RandomAdjustSharpness`,
    `RandomAutocontrast`, `RandomEqualize`, `RandomRotation`, `RandomAffine`, `RandomPerspective`, `RandAugment`,
    `TrivialAugmentWide`, `AutoAugment`; `Normalize`, `ToTensor`, `PILToTensor`, `ToImage`, `ToPureTensor`, `ToDtype`,
    `ConvertImageDtype`, `RGB`, `Identity`, what comes with the weights of a classifier, and timm's `create_transform`
    of these. Random ops draw from the same distributions, not the same numbers. Where "bilinear" rotations,
    affine maps, perspectives and elastic deformations end between two pixels, a fill is mixed in by its share;
    torchvision makes these pixels darker.

    Args:
        transform: the object; torchvision itself is not imported.

    Returns:
        A function of an encoded image (bytes, decoded to RGB) or of uint8[H,W,3]{HWC}. Where the transforms make a
        tensor, it returns {CHW}; `print` shows its steps.

    Raises:
        PlanError: a transform, or a setting of one, that no op equals or takes; names it.
        PlanTypeError: an object that is no transform of torchvision.

    Example:
        >>> transform = from_torchvision(weights.transforms())  # doctest: +SKIP
    """
    recipe = Recipe(WHO)
    try:
        for one in _flat(transform):
            _add(recipe, one)
    except RecursionError:
        raise PlanError(f"{WHO} needs transforms that do not hold themselves, got {type(transform).__name__}") from None
    return recipe.done()


def _flat(transform: Any) -> Iterable[Any]:
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


def _resampling(recipe: Recipe, transform: Any) -> dict[str, Any]:
    """Interpolation and antialias: Pillow always stretches the kernel; tensors differ in other ways."""
    name = type(transform).__name__
    given = getattr(transform.interpolation, "value", transform.interpolation)
    method = method_of(WHO, given)
    tensor = recipe.tensor
    antialias = not tensor or getattr(transform, "antialias", True)
    if not isinstance(antialias, bool):
        refuse(WHO, f"{name}(antialias={antialias!r})", "use antialias=True")
    if tensor and (given in ("nearest", 0) or (method == "bicubic" and not antialias)):
        refuse(
            WHO,
            f"{name}(interpolation={given!r}, antialias={antialias}) of a tensor",
            "use NEAREST_EXACT, or antialias=True, or resize before the image becomes a tensor",
        )
    return {"interpolation": method, "antialias": antialias}


def _resize(recipe: Recipe, transform: Any) -> None:
    _check(transform, max_size=None)
    how = _resampling(recipe, transform)
    size = transform.size
    if size is None:
        refuse(WHO, "Resize(size=None)", "use a size")
    if isinstance(size, int) or len(size) == 1:
        recipe.add(resize_shorter, size=pair_of(size)[0], **how)
    else:
        recipe.add(resize_to, size=pair_of(size), **how)


def _random_resized_crop(recipe: Recipe, transform: Any) -> None:
    if isinstance(transform.interpolation, (list, tuple)):
        refuse(WHO, f"{type(transform).__name__} with several interpolations", "use one interpolation")
    how = _resampling(recipe, transform)
    size, scale, ratio = pair_of(transform.size), tuple(transform.scale), tuple(transform.ratio)
    recipe.add(random_resized_crop, size=size, scale=scale, ratio=ratio, **how)


def _random_shortest_size(recipe: Recipe, transform: Any) -> None:
    lengths = tuple(transform.min_size)
    recipe.add(random_shortest_size, min_size=lengths, max_size=transform.max_size, **_resampling(recipe, transform))


def _scale_jitter(recipe: Recipe, transform: Any) -> None:
    size, scale = tuple(transform.target_size), tuple(transform.scale_range)
    recipe.add(scale_jitter, target_size=size, scale_range=scale, **_resampling(recipe, transform))


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


def _classification(recipe: Recipe, transform: Any) -> None:
    """The transforms that come with torchvision's weights for classification."""
    recipe.add(resize_shorter, size=pair_of(transform.resize_size)[0], **_resampling(recipe, transform))
    recipe.add(center_crop, size=pair_of(transform.crop_size))
    _to_tensor(recipe, transform)
    recipe.normalize(transform.mean, transform.std)


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
    if (part.floats, part.tensor, part.divisor) != (recipe.floats, recipe.tensor, 1):
        refuse(WHO, f"{type(transform).__name__} of what makes a tensor or floats", "put that before or after it")
    return part.steps


def _random_apply(recipe: Recipe, transform: Any) -> None:
    recipe.add(random_apply, _part(recipe, transform, transform.transforms), p=transform.p)


def _random_choice(recipe: Recipe, transform: Any) -> None:
    parts = [_part(recipe, transform, [one]) for one in transform.transforms]
    recipe.add(random_choice, parts, p=transform.p)


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
    "ColorJitter": _color_jitter,
    "ConvertImageDtype": _to_dtype,
    "ElasticTransform": _of_any(elastic, "alpha", "sigma", *_WARPING),
    "GaussianBlur": _of_any(random_gaussian_blur, "kernel_size", "sigma"),
    "Identity": _nothing,
    "ImageClassification": _classification,
    "MaybeToTensor": _to_tensor,
    "Normalize": _normalize,
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
    "RandomInvert": _of_any(random_invert, "p"),
    "RandomOrder": _random_order,
    "RandomPerspective": _of_tensor(random_perspective, "distortion_scale", "p", *_WARPING),
    "RandomPosterize": _random_posterize,
    "RandomResizedCrop": _random_resized_crop,
    "RandomResizedCropAndInterpolation": _random_resized_crop,
    "RandomRotation": _of_tensor(random_rotation, "degrees", "expand", "center", *_WARPING),
    "RandomShortestSize": _random_shortest_size,
    "RandomSolarize": _random_solarize,
    "RandomVerticalFlip": lambda recipe, t: recipe.add(random_flip_up_down, p=t.p),
    "Resize": _resize,
    "ScaleJitter": _scale_jitter,
    "ToDtype": _to_dtype,
    "ToImage": _to_image,
    "ToPureTensor": _nothing,
    "ToTensor": _to_tensor,
    "TrivialAugmentWide": _of_tensor(trivial_augment_wide, "num_magnitude_bins", *_WARPING),
}
"""The transforms that ops equal, by the names of their classes."""
