"""from_hf: the settings of a Hugging Face image processor as a function of ops."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpupipe.errors import PlanTypeError
from gpupipe.ops._shared.recipe import Recipe, Transform, method_of, refuse, resize_to
from gpupipe.ops.resize_shorter import resize_shorter
from gpupipe.ops.resize_with_crop_or_pad import resize_with_crop_or_pad

__all__ = ["from_hf"]

WHO = "from_hf"
KNOWN = {
    "do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize",
    "image_mean", "image_std", "do_convert_rgb",
}  # fmt: skip
ABOUT = {
    "image_processor_type", "feature_extractor_type", "processor_class", "auto_map", "data_format", "input_data_format",
    "default_to_square", "return_tensors", "device", "disable_grouping", "model_input_names", "size_divisor",
    "_name_or_path", "_processor_class", "_valid_processor_keys", "transformers_version", "use_fast", "backend",
}  # fmt: skip
"""Settings that change no pixel of the kinds of processors that are taken."""

SWITCHES = {
    "do_resize": ("size", "resample"),
    "do_center_crop": ("crop_size",),
    "do_rescale": ("rescale_factor", "do_normalize"),
    "do_normalize": ("image_mean", "image_std"),
}
"""Switches, and the settings that say nothing without; where an old file leaves a switch out, the class has it."""


def from_hf(processor: Any) -> Transform:
    """Make a function of ops from a Hugging Face image processor, or from the dict in its preprocessor_config.json.

    Takes processors that resize, crop the centre, rescale and normalise, in this order, as those of ViT, DeiT, CLIP,
    SigLIP and ResNet: ``do_resize, size, resample, do_center_crop, crop_size, do_rescale, rescale_factor, do_normalize,
    image_mean, image_std, do_convert_rgb``.

    Args:
        processor: the processor, or a dict of its settings; transformers is not imported.

    Returns:
        A function of an encoded image (bytes, decoded to RGB) or of uint8[H,W,3]{HWC}, which returns the processor's
        pixel_values of one image, {CHW}; `print` shows its steps.

    Raises:
        PlanError: a setting that no op equals, such as `do_pad` or `crop_pct`; names it.
        PlanTypeError: neither a processor nor a dict.

    Example:
        >>> fn = from_hf({"do_resize": True, "size": {"height": 224, "width": 224}, "resample": 2,
        ...               "do_rescale": True, "rescale_factor": 1 / 255,
        ...               "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    """
    to_dict = getattr(processor, "to_dict", None)
    given = to_dict() if callable(to_dict) else processor
    if not isinstance(given, Mapping):
        raise PlanTypeError(f"{WHO} needs an image processor or its dict of settings, got {type(processor).__name__}")
    if not given.keys() & KNOWN:
        raise PlanTypeError(
            f"{WHO} needs the settings of an image processor, got {', '.join(map(str, given)) or 'none'}"
        )
    for name, value in given.items():
        if name not in KNOWN | ABOUT and value is not None and value is not False:
            refuse(WHO, f"{name}={value!r}", "set it to None if the model does without, or call ops in its place")
    for name, its in SWITCHES.items():
        if name not in given and any(given.get(one) is not None for one in its):
            refuse(WHO, f"settings without {name}", f"add {name}=True or False, as the class of the processor has it")
    recipe = Recipe(WHO)
    if given.get("do_resize"):
        _resize(recipe, given.get("size"), given.get("resample"))
    if given.get("do_center_crop"):
        height, width = _height_and_width("crop_size", given.get("crop_size"))
        _check_crop(given.get("do_resize") and given.get("size"), height, width)
        recipe.add(resize_with_crop_or_pad, target_height=height, target_width=width)
    recipe.tensor = True
    if given.get("do_rescale"):
        recipe.to_float(1 / _number("rescale_factor", given.get("rescale_factor", 1 / 255)))
    if given.get("do_normalize"):
        recipe.normalize(*(_per_channel(name, given.get(name)) for name in ("image_mean", "image_std")))
    return recipe.done()


def _resize(recipe: Recipe, size: Any, resample: Any) -> None:
    method = method_of(WHO, resample)
    size = {name: side for name, side in dict(size).items() if side is not None} if hasattr(size, "keys") else size
    if isinstance(size, Mapping) and set(size) == {"shortest_edge"}:
        side = int(_number("shortest_edge", size["shortest_edge"], 1))
        recipe.add(resize_shorter, size=side, interpolation=method)
    else:
        recipe.add(resize_to, size=_height_and_width("size", size), interpolation=method)


def _height_and_width(name: str, size: Any) -> tuple[int, int]:
    size = {key: side for key, side in dict(size).items() if side is not None} if hasattr(size, "keys") else size
    if not isinstance(size, Mapping) or set(size) != {"height", "width"}:
        kinds = {"size": "{'shortest_edge': n} or {'height': h, 'width': w}"}.get(name, "{'height': h, 'width': w}")
        refuse(WHO, f"{name}={size!r}", f"write it as {kinds}")
    height, width = (int(_number(f"{name}[{side!r}]", size[side], 1)) for side in ("height", "width"))
    return height, width


def _number(name: str, value: Any, least: float = 1e-9) -> Any:
    """A setting that is a number of at least `least`, and finite.

    Raises:
        PlanError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not least <= float(value) < math.inf:
        refuse(WHO, f"{name}={value!r}", "set it to a finite number" + (" above 0" if least > 0 else ""))
    return value


def _per_channel(name: str, value: Any) -> Any:
    """A setting that is a number or one for each channel."""
    values = value.tolist() if isinstance(value, np.ndarray) else value
    for one in values if isinstance(values, (list, tuple)) and values else [values]:
        _number(name, one, -math.inf)
    return values


def _check_crop(size: Any, *crop: int) -> None:
    """Refuse padding by an odd number of pixels: the classes of transformers put the odd one on different sides.

    Raises:
        PlanError: a crop is larger than images are after they are resized, by an odd number or an unknown one.
    """
    sides = dict(size or {})
    for name, wanted in zip(("height", "width"), crop, strict=True):
        side = sides.get(name) or sides.get("shortest_edge") or wanted
        if wanted > side and ((wanted - side) % 2 or sides.get("shortest_edge")):
            refuse(WHO, f"crop_size={wanted} of a {name} of {side}", "crop no more than there is, or pad evenly")
