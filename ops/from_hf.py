"""from_hf: the settings of a Hugging Face image processor as a function of ops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpupipe.errors import PlanTypeError
from gpupipe.ops._shared.alike import check_alike
from gpupipe.ops._shared.image_processors import KINDS, PLAIN, WHO, Kind, Settings
from gpupipe.ops._shared.recipe import Recipe, Transform, refuse

__all__ = ["from_hf"]

KNOWN = {
    "do_resize", "size", "resample", "do_center_crop", "crop_size", "do_rescale", "rescale_factor", "do_normalize",
    "image_mean", "image_std", "do_convert_rgb", "do_pad", "pad_size",
}  # fmt: skip
ABOUT = {
    "image_processor_type", "feature_extractor_type", "processor_class", "auto_map", "data_format", "input_data_format",
    "default_to_square", "return_tensors", "device", "disable_grouping", "model_input_names",
    "_name_or_path", "_processor_class", "_valid_processor_keys", "transformers_version", "use_fast", "backend",
}  # fmt: skip
"""Settings that change no pixel."""

SWITCHES = {
    "do_resize": ("size", "resample"),
    "do_center_crop": ("crop_size",),
    "do_rescale": ("rescale_factor", "do_normalize"),
    "do_normalize": ("image_mean", "image_std"),
}
"""Switches, and the settings that say nothing without; where an old file leaves a switch out, the class has it."""

NAME = re.compile(r"(?P<kind>\w+?)(ImageProcessor|FeatureExtractor)(?P<form>Fast|Pil|)")


def from_hf(processor: Any) -> Transform:
    """Make a function of ops from a Hugging Face image processor, or from the dict in its preprocessor_config.json.

    Takes the classes that are known to do what ops do, with the settings that they have: those that resize, crop the
    centre, rescale and normalise, as of ViT, DeiT, BEiT, CLIP, SigLIP, BLIP, BiT (ResNet), Segformer, SAM 2 and DINOv3;
    ConvNeXt, PoolFormer, LeViT and EfficientNet with their crops and deviations, MobileViT and LayoutLMv2 in BGR; the
    families of DETR, MaskFormer, ViLT and DPT, whose sizes keep the aspect ratio. A processor of another class is
    taken if it does with its settings what those of ViT do. Whatever the class, a processor is run on four drawn
    images here, and what differs is refused. A dict has no code to run: it is taken at its word if it names a
    known class, and has the meaning of ViT's if it names none.

    Args:
        processor: the processor, or a dict of its settings; transformers is not imported.

    Returns:
        A function of an encoded image (bytes, decoded to RGB) or of uint8[H,W,3]{HWC}, which returns the processor's
        pixel_values of one image, {CHW}, as float32, or as uint8 where it neither rescales nor normalises; `print`
        shows its steps. Padding to the largest image of a batch (`do_pad` without `pad_size`) is `padded_batch`
        after it.

    Raises:
        PlanError: a class, or a setting of one, that no op equals, such as `do_image_splitting`, or a processor that
            gives other pixels; names it.
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
    object_ = given is not processor
    name = type(processor).__name__ if object_ else _name(given)
    kind, rounding = _kind(name, object_)
    _check(given, kind, name)
    recipe = Recipe(WHO)
    kind.carry_out(recipe, Settings(given, rounding))
    recipe.tensor = True
    made = recipe.done()
    if object_ and callable(processor):
        check_alike(processor, made)
    return made


def _name(given: Mapping[str, Any]) -> str:
    """The class that a dict of settings names, or ""."""
    return str(given.get("image_processor_type") or given.get("feature_extractor_type") or "")


def _kind(name: str, known: bool) -> tuple[Kind, str]:
    """What a class does, and where it puts the odd pixel of a crop that pads.

    Args:
        name: of the class; "" if there is none.
        known: whether there is a processor of it, not a name alone, whose code depends on what is installed.

    Raises:
        PlanError: a name that is not in the table.
    """
    parts = NAME.fullmatch(name)
    kind = KINDS.get(parts["kind"]) if parts else None
    if kind is None and name and not known:
        refuse(WHO, name, "hand in the processor, which is compared, or call ops in its place")
    rounding = {"Pil": "front", "Fast": "end"}.get(parts["form"] if parts else "", "end" if known else "")
    return kind or PLAIN, rounding


def _check(given: Mapping[str, Any], kind: Kind, name: str) -> None:
    """Check that each setting is one that the steps of the class read, or that it says nothing.

    Raises:
        PlanError: one is not.
    """
    settings = KNOWN | ABOUT | set(f"{kind.takes} {kind.about}".split())
    for setting, value in given.items():
        if setting not in settings and value is not None and value is not False:
            refuse(WHO, f"{setting}={value!r}", "set it to None if the model does without, or call ops in its place")
    for switch in kind.unused():
        if given.get(switch):
            refuse(WHO, f"{switch}=True of {name or 'a processor'}", "set it to None if the model does without")
    for switch, its in SWITCHES.items():
        if switch not in (*given, *kind.unused()) and any(given.get(one) is not None for one in its):
            refuse(WHO, f"settings without {switch}", f"add {switch}=True or False, as the processor's class has it")
