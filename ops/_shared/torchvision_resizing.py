"""torchvision_resizing: resizes of torchvision and the transforms that come with its weights, as steps of a recipe."""

from __future__ import annotations

from typing import Any

from gpupipe.ops._shared.recipe import Recipe, method_of, pair_of, refuse, resize_to
from gpupipe.ops.center_crop import center_crop
from gpupipe.ops.random_resized_crop import random_resized_crop
from gpupipe.ops.random_shortest_size import random_shortest_size
from gpupipe.ops.resize_shorter import resize_shorter
from gpupipe.ops.scale_jitter import scale_jitter
from gpupipe.ops.stack import stack

__all__ = ["WHO", "classification", "cropped", "detection", "jittered", "resized", "segmentation", "shortest", "video"]

WHO = "from_torchvision"


def resampling(recipe: Recipe, transform: Any, antialias: Any = True) -> dict[str, Any]:
    """Interpolation and antialias: Pillow always stretches the kernel; tensors differ in other ways.

    Args:
        recipe: the steps so far.
        transform: with `interpolation`, and `antialias` where it has a choice.
        antialias: what it does without a choice, of tensors.
    """
    name = type(transform).__name__
    given = getattr(transform.interpolation, "value", transform.interpolation)
    method = method_of(WHO, given)
    antialias = not recipe.tensor or getattr(transform, "antialias", antialias)
    if not isinstance(antialias, bool):
        refuse(WHO, f"{name}(antialias={antialias!r})", "use antialias=True")
    if recipe.tensor and (given in ("nearest", 0) or (method == "bicubic" and not antialias)):
        refuse(
            WHO,
            f"{name}(interpolation={given!r}, antialias={antialias}) of a tensor",
            "use NEAREST_EXACT, or antialias=True, or resize before the image becomes a tensor",
        )
    return {"interpolation": method, "antialias": antialias}


def resized(recipe: Recipe, transform: Any) -> None:
    _resize(recipe, transform, transform.size, getattr(transform, "max_size", None))


def _resize(recipe: Recipe, transform: Any, size: Any, most: Any = None, antialias: bool = True) -> None:
    """Resize to a shorter side, a longer side or both."""
    how = resampling(recipe, transform, antialias)
    if size is None or isinstance(size, int) or len(size) == 1:
        length = None if size is None else pair_of(size)[0]
        recipe.add(resize_shorter, size=length, **how, **({} if most is None else {"max_size": most}))
    else:
        recipe.add(resize_to, size=pair_of(size), **how)


def cropped(recipe: Recipe, transform: Any) -> None:
    """RandomResizedCrop."""
    if isinstance(transform.interpolation, (list, tuple)):
        refuse(WHO, f"{type(transform).__name__} with several interpolations", "use one interpolation")
    how = resampling(recipe, transform)
    size, scale, ratio = pair_of(transform.size), tuple(transform.scale), tuple(transform.ratio)
    recipe.add(random_resized_crop, size=size, scale=scale, ratio=ratio, **how)


def shortest(recipe: Recipe, transform: Any) -> None:
    """RandomShortestSize."""
    lengths = tuple(transform.min_size)
    recipe.add(random_shortest_size, min_size=lengths, max_size=transform.max_size, **resampling(recipe, transform))


def jittered(recipe: Recipe, transform: Any) -> None:
    """ScaleJitter."""
    size, scale = tuple(transform.target_size), tuple(transform.scale_range)
    recipe.add(scale_jitter, target_size=size, scale_range=scale, **resampling(recipe, transform))


def classification(recipe: Recipe, transform: Any) -> None:
    _resize(recipe, transform, transform.resize_size)
    recipe.add(center_crop, size=pair_of(transform.crop_size))
    segmentation(recipe, transform, resizes=False)


def segmentation(recipe: Recipe, transform: Any, resizes: bool = True) -> None:
    if resizes and transform.resize_size is not None:
        _resize(recipe, transform, transform.resize_size)
    detection(recipe, transform)
    recipe.normalize(transform.mean, transform.std)


def detection(recipe: Recipe, transform: Any) -> None:
    recipe.tensor = True
    if not recipe.floats:
        recipe.to_float()


def video(recipe: Recipe, transform: Any) -> None:
    """Frames, which are tensors, to {CTHW}."""
    if recipe.steps or recipe.floats:
        refuse(WHO, f"{type(transform).__name__} after other transforms", "convert it alone")
    recipe.takes, recipe.tensor = "clip", True
    _resize(recipe, transform, transform.resize_size, antialias=False)
    recipe.add(center_crop, size=pair_of(transform.crop_size))
    segmentation(recipe, transform, resizes=False)
    recipe.tensor = False  # the channels move here
    recipe.add(channels_before_frames)


def channels_before_frames(clip: Any) -> Any:
    """{THWC} to {CTHW}, of three channels."""
    return stack([clip[..., channel] for channel in range(3)], 0)
