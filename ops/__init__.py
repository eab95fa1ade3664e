"""ops: the functions that a map applies to images, numbers and labels. One op, one file."""

from __future__ import annotations

if __name__ == "ops":
    raise ImportError("this folder is the package gpupipe.ops: write 'from gpupipe import ops'")

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpupipe.missing import names_missing

if TYPE_CHECKING:
    from gpupipe.ops.adjust_brightness import adjust_brightness
    from gpupipe.ops.adjust_contrast import adjust_contrast
    from gpupipe.ops.adjust_gamma import adjust_gamma
    from gpupipe.ops.adjust_hue import adjust_hue
    from gpupipe.ops.adjust_jpeg_quality import adjust_jpeg_quality
    from gpupipe.ops.adjust_saturation import adjust_saturation
    from gpupipe.ops.adjust_sharpness import adjust_sharpness
    from gpupipe.ops.affine import affine
    from gpupipe.ops.aug_mix import aug_mix
    from gpupipe.ops.auto_augment import auto_augment
    from gpupipe.ops.autocontrast import autocontrast
    from gpupipe.ops.cast import cast
    from gpupipe.ops.center_crop import center_crop
    from gpupipe.ops.central_crop import central_crop
    from gpupipe.ops.clahe import clahe
    from gpupipe.ops.clip import clip
    from gpupipe.ops.clip_boxes import clip_boxes
    from gpupipe.ops.color_jitter import color_jitter
    from gpupipe.ops.concat import concat
    from gpupipe.ops.convert_boxes import convert_boxes
    from gpupipe.ops.convert_image_dtype import convert_image_dtype
    from gpupipe.ops.crop_and_resize import crop_and_resize
    from gpupipe.ops.crop_to_bounding_box import crop_to_bounding_box
    from gpupipe.ops.cutmix import cutmix
    from gpupipe.ops.dali_function import dali_function
    from gpupipe.ops.decode_and_crop_jpeg import decode_and_crop_jpeg
    from gpupipe.ops.decode_image import decode_image
    from gpupipe.ops.decode_jpeg import decode_jpeg
    from gpupipe.ops.decode_png import decode_png
    from gpupipe.ops.elastic import elastic
    from gpupipe.ops.equalize import equalize
    from gpupipe.ops.expand_dims import expand_dims
    from gpupipe.ops.extract_jpeg_shape import extract_jpeg_shape
    from gpupipe.ops.extract_patches import extract_patches
    from gpupipe.ops.five_crop import five_crop
    from gpupipe.ops.flip_left_right import flip_left_right
    from gpupipe.ops.flip_up_down import flip_up_down
    from gpupipe.ops.from_hf import from_hf
    from gpupipe.ops.from_timm import from_timm
    from gpupipe.ops.from_torchvision import from_torchvision
    from gpupipe.ops.gather import gather
    from gpupipe.ops.gaussian_blur import gaussian_blur
    from gpupipe.ops.gaussian_noise import gaussian_noise
    from gpupipe.ops.grayscale_to_rgb import grayscale_to_rgb
    from gpupipe.ops.hsv_to_rgb import hsv_to_rgb
    from gpupipe.ops.invert import invert
    from gpupipe.ops.maximum import maximum
    from gpupipe.ops.minimum import minimum
    from gpupipe.ops.mixup import mixup
    from gpupipe.ops.mixup_or_cutmix import mixup_or_cutmix
    from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD, normalize
    from gpupipe.ops.one_hot import one_hot
    from gpupipe.ops.pad import pad
    from gpupipe.ops.pad_to_bounding_box import pad_to_bounding_box
    from gpupipe.ops.per_image_standardization import per_image_standardization
    from gpupipe.ops.permute_channels import permute_channels
    from gpupipe.ops.perspective import perspective
    from gpupipe.ops.posterize import posterize
    from gpupipe.ops.py_function import py_function
    from gpupipe.ops.rand_augment import rand_augment
    from gpupipe.ops.random_adjust_sharpness import random_adjust_sharpness
    from gpupipe.ops.random_affine import random_affine
    from gpupipe.ops.random_apply import random_apply
    from gpupipe.ops.random_autocontrast import random_autocontrast
    from gpupipe.ops.random_brightness import random_brightness
    from gpupipe.ops.random_channel_permutation import random_channel_permutation
    from gpupipe.ops.random_channel_shift import random_channel_shift
    from gpupipe.ops.random_choice import random_choice
    from gpupipe.ops.random_clahe import random_clahe
    from gpupipe.ops.random_contrast import random_contrast
    from gpupipe.ops.random_crop import random_crop
    from gpupipe.ops.random_equalize import random_equalize
    from gpupipe.ops.random_erasing import random_erasing
    from gpupipe.ops.random_flip_left_right import random_flip_left_right
    from gpupipe.ops.random_flip_up_down import random_flip_up_down
    from gpupipe.ops.random_gaussian_blur import random_gaussian_blur
    from gpupipe.ops.random_grayscale import random_grayscale
    from gpupipe.ops.random_hue import random_hue
    from gpupipe.ops.random_invert import random_invert
    from gpupipe.ops.random_iou_crop import random_iou_crop
    from gpupipe.ops.random_jpeg_quality import random_jpeg_quality
    from gpupipe.ops.random_order import random_order
    from gpupipe.ops.random_perspective import random_perspective
    from gpupipe.ops.random_posterize import random_posterize
    from gpupipe.ops.random_resized_crop import random_resized_crop
    from gpupipe.ops.random_rotation import random_rotation
    from gpupipe.ops.random_saturation import random_saturation
    from gpupipe.ops.random_shortest_size import random_shortest_size
    from gpupipe.ops.random_size_crop import random_size_crop
    from gpupipe.ops.random_solarize import random_solarize
    from gpupipe.ops.random_transform import random_transform
    from gpupipe.ops.random_uniform import random_uniform
    from gpupipe.ops.random_zoom_out import random_zoom_out
    from gpupipe.ops.reshape import reshape
    from gpupipe.ops.resize import resize
    from gpupipe.ops.resize_shorter import resize_shorter
    from gpupipe.ops.resize_with_crop_or_pad import resize_with_crop_or_pad
    from gpupipe.ops.resize_with_pad import resize_with_pad
    from gpupipe.ops.rgb_to_grayscale import rgb_to_grayscale
    from gpupipe.ops.rgb_to_hsv import rgb_to_hsv
    from gpupipe.ops.rot90 import rot90
    from gpupipe.ops.rotate import rotate
    from gpupipe.ops.salt_and_pepper import salt_and_pepper
    from gpupipe.ops.sample import Sample
    from gpupipe.ops.sample_distorted_bounding_box import sample_distorted_bounding_box
    from gpupipe.ops.scale_jitter import scale_jitter
    from gpupipe.ops.slice import slice
    from gpupipe.ops.solarize import solarize
    from gpupipe.ops.squeeze import squeeze
    from gpupipe.ops.stack import stack
    from gpupipe.ops.ten_crop import ten_crop
    from gpupipe.ops.transpose import transpose
    from gpupipe.ops.trivial_augment_wide import trivial_augment_wide
    from gpupipe.ops.where import where

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Sample",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_jpeg_quality",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "aug_mix",
    "auto_augment",
    "autocontrast",
    "cast",
    "center_crop",
    "central_crop",
    "clahe",
    "clip",
    "clip_boxes",
    "color_jitter",
    "concat",
    "convert_boxes",
    "convert_image_dtype",
    "crop_and_resize",
    "crop_to_bounding_box",
    "cutmix",
    "dali_function",
    "decode_and_crop_jpeg",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "elastic",
    "equalize",
    "expand_dims",
    "extract_jpeg_shape",
    "extract_patches",
    "five_crop",
    "flip_left_right",
    "flip_up_down",
    "from_hf",
    "from_timm",
    "from_torchvision",
    "gather",
    "gaussian_blur",
    "gaussian_noise",
    "grayscale_to_rgb",
    "hsv_to_rgb",
    "invert",
    "maximum",
    "minimum",
    "mixup",
    "mixup_or_cutmix",
    "normalize",
    "one_hot",
    "pad",
    "pad_to_bounding_box",
    "per_image_standardization",
    "permute_channels",
    "perspective",
    "posterize",
    "py_function",
    "rand_augment",
    "random_adjust_sharpness",
    "random_affine",
    "random_apply",
    "random_autocontrast",
    "random_brightness",
    "random_channel_permutation",
    "random_channel_shift",
    "random_choice",
    "random_clahe",
    "random_contrast",
    "random_crop",
    "random_equalize",
    "random_erasing",
    "random_flip_left_right",
    "random_flip_up_down",
    "random_gaussian_blur",
    "random_grayscale",
    "random_hue",
    "random_invert",
    "random_iou_crop",
    "random_jpeg_quality",
    "random_order",
    "random_perspective",
    "random_posterize",
    "random_resized_crop",
    "random_rotation",
    "random_saturation",
    "random_shortest_size",
    "random_size_crop",
    "random_solarize",
    "random_transform",
    "random_uniform",
    "random_zoom_out",
    "reshape",
    "resize",
    "resize_shorter",
    "resize_with_crop_or_pad",
    "resize_with_pad",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "rot90",
    "rotate",
    "salt_and_pepper",
    "sample_distorted_bounding_box",
    "scale_jitter",
    "slice",
    "solarize",
    "squeeze",
    "stack",
    "ten_crop",
    "transpose",
    "trivial_augment_wide",
    "where",
]

_INSTEAD = {
    "BoundingBoxes": "use Sample, whose boxes are (x1, y1, x2, y2) in pixels",
    "ClampBoundingBoxes": "use clip_boxes",
    "ConvertBoundingBoxFormat": "use convert_boxes",
    "KeyPoints": "use Sample",
    "Compose": "call one function after another in the function passed to map, or give it to from_torchvision",
    "RandomApply": "use random_apply",
    "RandomChoice": "use random_choice",
    "RandomOrder": "use random_order",
    "RandomHorizontalFlip": "use random_flip_left_right",
    "RandomVerticalFlip": "use random_flip_up_down",
    "random_horizontal_flip": "use random_flip_left_right",
    "random_vertical_flip": "use random_flip_up_down",
    "horizontal_flip": "use flip_left_right",
    "vertical_flip": "use flip_up_down",
    "SanitizeBoundingBoxes": "use clip_boxes",
    "ToTensor": "use normalize, or convert_image_dtype and transpose",
    "clip_by_value": "use clip",
    "concatenate": "use concat",
    "crop": "use crop_to_bounding_box, center_crop or random_crop",
    "crop_mirror_normalize": "write normalize(random_flip_left_right(random_crop(x, (h, w))), mean, std); "
    "the optimizer fuses them into one pass",
    "flip": "use flip_left_right or flip_up_down",
    "random_flip": "use random_flip_left_right or random_flip_up_down",
    "RandomFlip": "use random_flip_left_right or random_flip_up_down",
    "hflip": "use flip_left_right",
    "cutout": "use random_erasing",
    "random_cutout": "use random_erasing",
    "random_crop_and_resize": "use random_resized_crop",
    "read_file": "use gpupipe.io.read_file",
    "imread": "use decode_image(gpupipe.io.read_file(path))",
    "per_image_whitening": "use per_image_standardization",
    "take": "use gather",
    "to_tensor": "use normalize, or convert_image_dtype and transpose",
    "uniform": "use random_uniform",
    "vflip": "use flip_up_down",
}
"""Names from the optimizer and from other libraries, and what to write instead."""


_FILES = {"IMAGENET_MEAN": "normalize", "IMAGENET_STD": "normalize", "Sample": "sample"}
"""Where names are that are not those of their files."""


class _Ops(ModuleType):
    """This module, which users know for its functions alone: a file does not take the name of the function in it."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in __all__):  # an import of a file would bind it here
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, as cloudpickle does with plain modules only."""
        return importlib.import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Ops


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:
    for _name in __all__:
        globals().pop(_name, None)  # of a module that is reloaded

    _missing = names_missing(__name__, __all__, _INSTEAD)

    def __getattr__(name: str) -> object:
        """Import a function when it is first used: all of them are a third of the time of `import gpupipe`."""
        if name not in __all__:
            return _missing(name)
        file = _FILES.get(name, name)
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{file}"), name)
        return value
