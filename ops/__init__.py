"""ops: the catalogue. One op is one file, and this is the only list of them.

A new op is a file here, a line of import and a line in `CATALOGUE`; the conformance suite then runs every case of it on
every executor.
"""

from __future__ import annotations

if __name__ == "ops":
    raise ImportError("this folder is the package gpupipe.ops: write 'from gpupipe import ops'")

from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpupipe.graph.op import Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.decoding import NativeDecoding
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.turn import Turn
from gpupipe.ops.adjust_brightness import AdjustBrightness, adjust_brightness
from gpupipe.ops.adjust_contrast import AdjustContrast, adjust_contrast
from gpupipe.ops.adjust_gamma import AdjustGamma, adjust_gamma
from gpupipe.ops.adjust_hue import AdjustHue, adjust_hue
from gpupipe.ops.adjust_jpeg_quality import AdjustJpegQuality, adjust_jpeg_quality
from gpupipe.ops.adjust_saturation import AdjustSaturation, adjust_saturation
from gpupipe.ops.cast import Cast, cast
from gpupipe.ops.center_crop import CenterCrop, center_crop
from gpupipe.ops.central_crop import CentralCrop, central_crop
from gpupipe.ops.color_jitter import ColorJitter, color_jitter
from gpupipe.ops.convert_image_dtype import ConvertImageDtype, convert_image_dtype
from gpupipe.ops.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox, crop_to_bounding_box
from gpupipe.ops.cutmix import Cutmix, cutmix
from gpupipe.ops.dali_function import DaliFunction, dali_function
from gpupipe.ops.decode_and_crop_jpeg import decode_and_crop_jpeg
from gpupipe.ops.decode_image import DecodeImage, decode_image
from gpupipe.ops.decode_jpeg import DecodeJpeg, decode_jpeg
from gpupipe.ops.decode_png import DecodePng, decode_png
from gpupipe.ops.extract_jpeg_shape import ExtractJpegShape, extract_jpeg_shape
from gpupipe.ops.flip_left_right import FlipLeftRight, flip_left_right
from gpupipe.ops.flip_up_down import FlipUpDown, flip_up_down
from gpupipe.ops.grayscale_to_rgb import GrayscaleToRgb, grayscale_to_rgb
from gpupipe.ops.hsv_to_rgb import HsvToRgb, hsv_to_rgb
from gpupipe.ops.mixup import Mixup, mixup
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize, normalize
from gpupipe.ops.one_hot import OneHot, one_hot
from gpupipe.ops.pad_to_bounding_box import PadToBoundingBox, pad_to_bounding_box
from gpupipe.ops.per_image_standardization import PerImageStandardization, per_image_standardization
from gpupipe.ops.py_function import PyFunction, py_function
from gpupipe.ops.random_brightness import RandomBrightness, random_brightness
from gpupipe.ops.random_contrast import RandomContrast, random_contrast
from gpupipe.ops.random_crop import RandomCrop, random_crop
from gpupipe.ops.random_erasing import RandomErasing, random_erasing
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight, random_flip_left_right
from gpupipe.ops.random_flip_up_down import RandomFlipUpDown, random_flip_up_down
from gpupipe.ops.random_hue import RandomHue, random_hue
from gpupipe.ops.random_jpeg_quality import RandomJpegQuality, random_jpeg_quality
from gpupipe.ops.random_resized_crop import RandomResizedCrop, random_resized_crop
from gpupipe.ops.random_saturation import RandomSaturation, random_saturation
from gpupipe.ops.resize import Resize, ResizeArea, resize
from gpupipe.ops.resize_shorter import ResizeShorter, resize_shorter
from gpupipe.ops.resize_with_crop_or_pad import ResizeWithCropOrPad, resize_with_crop_or_pad
from gpupipe.ops.rgb_to_grayscale import RgbToGrayscale, rgb_to_grayscale
from gpupipe.ops.rgb_to_hsv import RgbToHsv, rgb_to_hsv
from gpupipe.ops.rot90 import Rot90, rot90
from gpupipe.ops.sample_distorted_bounding_box import SampleDistortedBoundingBox, sample_distorted_bounding_box
from gpupipe.ops.slice import Slice, slice
from gpupipe.ops.transpose import Transpose, transpose

__all__ = [
    "CATALOGUE",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "PARTS",
    "Case",
    "Op",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_jpeg_quality",
    "adjust_saturation",
    "apply",
    "cast",
    "center_crop",
    "central_crop",
    "color_jitter",
    "convert_image_dtype",
    "crop_to_bounding_box",
    "cutmix",
    "dali_function",
    "decode_and_crop_jpeg",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "extract_jpeg_shape",
    "flip_left_right",
    "flip_up_down",
    "grayscale_to_rgb",
    "hsv_to_rgb",
    "mixup",
    "normalize",
    "one_hot",
    "pad_to_bounding_box",
    "per_image_standardization",
    "py_function",
    "random_brightness",
    "random_contrast",
    "random_crop",
    "random_erasing",
    "random_flip_left_right",
    "random_flip_up_down",
    "random_hue",
    "random_jpeg_quality",
    "random_resized_crop",
    "random_saturation",
    "resize",
    "resize_shorter",
    "resize_with_crop_or_pad",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "rot90",
    "sample_distorted_bounding_box",
    "slice",
    "transpose",
]

CATALOGUE: tuple[type[Op], ...] = (
    AdjustBrightness,
    AdjustContrast,
    AdjustGamma,
    AdjustHue,
    AdjustJpegQuality,
    AdjustSaturation,
    Cast,
    CenterCrop,
    CentralCrop,
    ColorJitter,
    ConvertImageDtype,
    CropMirrorNormalize,
    CropToBoundingBox,
    Cutmix,
    DaliFunction,
    DecodeImage,
    DecodeJpeg,
    DecodePng,
    ExtractJpegShape,
    FlipLeftRight,
    FlipUpDown,
    GrayscaleToRgb,
    HsvToRgb,
    Mixup,
    NativeDecoding,
    Normalize,
    OneHot,
    PadToBoundingBox,
    PerImageStandardization,
    PyFunction,
    RandomBrightness,
    RandomContrast,
    RandomCrop,
    RandomErasing,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    RandomHue,
    RandomJpegQuality,
    RandomResizedCrop,
    RandomSaturation,
    Resize,
    ResizeArea,
    ResizeShorter,
    ResizeWithCropOrPad,
    RgbToGrayscale,
    RgbToHsv,
    Rot90,
    SampleDistortedBoundingBox,
    Slice,
    Transpose,
)
"""Every op that a function of this package calls, and those that the optimizer makes of them."""

for _module in [name for name, value in globals().items() if isinstance(value, ModuleType)]:
    del globals()[_module]  # `gpupipe.ops.crop` would be a module, where its reader looks for a function

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Say what to write instead of a name that is not there."""
        import difflib
        import sys

        near = difflib.get_close_matches(name, __all__, 1)
        way = _INSTEAD.get(name, f"did you mean {near[0]}?" if near else "")
        hidden = name.startswith("_") or not way
        text = f"module 'gpupipe.ops' has no attribute {name!r}" + ("" if hidden else f"; {way}")
        raise AttributeError(text, name=name, obj=sys.modules[__name__])


_INSTEAD = {
    "crop": "use crop_to_bounding_box, center_crop or random_crop",
    "crop_mirror_normalize": "write normalize(random_flip_left_right(random_crop(x, (h, w))), mean, std); "
    "the optimizer makes one pass of them",
    "flip": "use flip_left_right or flip_up_down",
}
"""Names of the optimizer's own ops, and what users write."""

PARTS: tuple[type[Op], ...] = (Crop, DecodeCrop, Flip, Reverse, Turn)
"""Ops without cases of their own: what ops of the catalogue become, with the parameters that those have drawn."""
