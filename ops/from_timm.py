"""from_timm: a data configuration of timm as a function of ops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpupipe.errors import PlanTypeError
from gpupipe.ops._shared.recipe import Recipe, Transform, method_of, pair_of, refuse, resize_to
from gpupipe.ops.center_crop import center_crop
from gpupipe.ops.color_jitter import color_jitter
from gpupipe.ops.random_flip_left_right import random_flip_left_right
from gpupipe.ops.random_flip_up_down import random_flip_up_down
from gpupipe.ops.random_resized_crop import random_resized_crop
from gpupipe.ops.resize_shorter import resize_shorter

__all__ = ["from_timm"]

WHO = "from_timm"
CROP_PCT = 0.875
"""timm's default."""

BOTH = {"input_size", "interpolation", "mean", "std"}
EVALUATION = {"crop_pct", "crop_mode"}
TRAINING = {"scale", "ratio", "hflip", "vflip", "color_jitter"}
FIXED = {"normalize": True, "train_crop_mode": "rrc"}
"""Arguments of `create_transform` that need this value; all others that are not known need to be None, 0 or False."""


def from_timm(config: Mapping[str, Any], *, is_training: bool = False) -> Transform:
    """Make a function of ops from timm's data configuration: what `timm.data.create_transform(**config)` does.

    Args:
        config: what `timm.data.resolve_data_config` returns, and other arguments of `create_transform`: ``input_size,
            interpolation, mean, std, crop_pct, crop_mode`` ("center" with a square input, or "squash"), and for
            training ``scale, ratio, hflip, vflip, color_jitter``. What is of the other mode is ignored, as by timm.
        is_training: make the transforms of training. They draw from the same distributions, not the same numbers.

    Returns:
        A function of an encoded image (bytes, decoded to RGB) or of uint8[H,W,3]{HWC}, which returns
        float32[3,h,w]{CHW}; `print` shows its steps.

    Raises:
        PlanError: an argument that no op equals, such as `auto_augment` or `re_prob`; names it.
        PlanTypeError: no dict.

    Example:
        >>> fn = from_timm({"input_size": (3, 224, 224), "interpolation": "bicubic",
        ...                 "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9})
    """
    if not isinstance(config, Mapping):
        raise PlanTypeError(f"{WHO} needs a dict, as timm.data.resolve_data_config returns it, got {config!r}")
    given = dict(config)
    training = given.pop("is_training", is_training)
    for name, value in given.items():
        other = value != FIXED[name] if name in FIXED else bool(value) and name not in BOTH | EVALUATION | TRAINING
        if other and value is not None:
            refuse(WHO, f"{name}={value!r}", "leave it out, and call ops in its place")
    if "input_size" not in given:
        raise PlanTypeError(f"{WHO} needs input_size, got {', '.join(given) or 'an empty dict'}")
    shape = given["input_size"]
    recipe = Recipe(WHO)
    (_train if training else _evaluate)(recipe, given, pair_of(shape if isinstance(shape, int) else shape[-2:]))
    recipe.tensor = True
    recipe.to_float()
    recipe.normalize(given.get("mean", (0.485, 0.456, 0.406)), given.get("std", (0.229, 0.224, 0.225)))
    return recipe.done()


def _train(recipe: Recipe, given: dict[str, Any], size: tuple[int, int]) -> None:
    scale, ratio = given.get("scale") or (0.08, 1.0), given.get("ratio") or (3 / 4, 4 / 3)
    method = method_of(WHO, given.get("interpolation", "bilinear"))
    recipe.add(random_resized_crop, size=size, scale=tuple(scale), ratio=tuple(ratio), interpolation=method)
    if given.get("hflip", 0.5):
        recipe.add(random_flip_left_right, p=given.get("hflip", 0.5))
    if given.get("vflip"):
        recipe.add(random_flip_up_down, p=given["vflip"])
    jitter = given.get("color_jitter", 0.4)
    if jitter is not None:
        strengths = tuple(jitter) if isinstance(jitter, (list, tuple)) else (float(jitter),) * 3
        recipe.add(color_jitter, **dict(zip(("brightness", "contrast", "saturation", "hue"), strengths, strict=False)))


def _evaluate(recipe: Recipe, given: dict[str, Any], size: tuple[int, int]) -> None:
    mode = given.get("crop_mode") or "center"
    method = method_of(WHO, given.get("interpolation", "bilinear"))
    height, width = (math.floor(side / (given.get("crop_pct") or CROP_PCT)) for side in size)
    if mode == "squash":
        recipe.add(resize_to, size=(height, width), interpolation=method)
    elif mode == "center" and height == width:
        recipe.add(resize_shorter, size=height, interpolation=method)
    else:
        refuse(WHO, f"crop_mode={mode!r} with a size of {size[0]}x{size[1]}", "use 'squash', or 'center' with a square")
    recipe.add(center_crop, size=size)
