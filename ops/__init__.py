"""ops: the catalogue. One op is one file, and this is the only list of them.

A new op is a file here, a line of import and a line in `CATALOGUE`; the conformance suite then runs every case of it on
every executor.
"""

from __future__ import annotations

if __name__ == "ops":
    raise ImportError("this folder is the package gpupipe.ops: write 'from gpupipe import ops'")

from gpupipe.op import Case, Op
from gpupipe.ops.cast import Cast, cast
from gpupipe.ops.center_crop import CenterCrop, center_crop
from gpupipe.ops.central_crop import CentralCrop, central_crop
from gpupipe.ops.convert_image_dtype import ConvertImageDtype, convert_image_dtype
from gpupipe.ops.crop import Crop
from gpupipe.ops.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox, crop_to_bounding_box
from gpupipe.ops.decode_and_crop_jpeg import decode_and_crop_jpeg
from gpupipe.ops.decode_crop import DecodeCrop
from gpupipe.ops.decode_image import DecodeImage, decode_image
from gpupipe.ops.decode_jpeg import DecodeJpeg, decode_jpeg
from gpupipe.ops.decode_png import DecodePng, decode_png
from gpupipe.ops.decoding import NativeDecoding
from gpupipe.ops.extract_jpeg_shape import ExtractJpegShape, extract_jpeg_shape
from gpupipe.ops.flip import Flip
from gpupipe.ops.flip_left_right import FlipLeftRight, flip_left_right
from gpupipe.ops.flip_up_down import FlipUpDown, flip_up_down
from gpupipe.ops.grayscale_to_rgb import GrayscaleToRgb, grayscale_to_rgb
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize, normalize
from gpupipe.ops.one_hot import OneHot, one_hot
from gpupipe.ops.pad_to_bounding_box import PadToBoundingBox, pad_to_bounding_box
from gpupipe.ops.py_function import PyFunction, py_function
from gpupipe.ops.random_crop import RandomCrop, random_crop
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight, random_flip_left_right
from gpupipe.ops.random_flip_up_down import RandomFlipUpDown, random_flip_up_down
from gpupipe.ops.random_resized_crop import RandomResizedCrop, random_resized_crop
from gpupipe.ops.resize import Resize, ResizeArea, resize
from gpupipe.ops.resize_shorter import ResizeShorter, resize_shorter
from gpupipe.ops.resize_with_crop_or_pad import ResizeWithCropOrPad, resize_with_crop_or_pad
from gpupipe.ops.reverse import Reverse
from gpupipe.ops.rgb_to_grayscale import RgbToGrayscale, rgb_to_grayscale
from gpupipe.ops.transpose import Transpose, transpose
from gpupipe.trace import apply

__all__ = [
    "CATALOGUE",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "PARTS",
    "Case",
    "Op",
    "apply",
    "cast",
    "center_crop",
    "central_crop",
    "convert_image_dtype",
    "crop_to_bounding_box",
    "decode_and_crop_jpeg",
    "decode_image",
    "decode_jpeg",
    "decode_png",
    "extract_jpeg_shape",
    "flip_left_right",
    "flip_up_down",
    "grayscale_to_rgb",
    "normalize",
    "one_hot",
    "pad_to_bounding_box",
    "py_function",
    "random_crop",
    "random_flip_left_right",
    "random_flip_up_down",
    "random_resized_crop",
    "resize",
    "resize_shorter",
    "resize_with_crop_or_pad",
    "rgb_to_grayscale",
    "transpose",
]

CATALOGUE: tuple[type[Op], ...] = (
    Cast,
    CenterCrop,
    CentralCrop,
    ConvertImageDtype,
    CropMirrorNormalize,
    CropToBoundingBox,
    DecodeImage,
    DecodeJpeg,
    DecodePng,
    ExtractJpegShape,
    FlipLeftRight,
    FlipUpDown,
    GrayscaleToRgb,
    NativeDecoding,
    Normalize,
    OneHot,
    PadToBoundingBox,
    PyFunction,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    RandomResizedCrop,
    Resize,
    ResizeArea,
    ResizeShorter,
    ResizeWithCropOrPad,
    RgbToGrayscale,
    Transpose,
)
"""Every op that a function of this package calls, and those that the optimizer makes of them."""

PARTS: tuple[type[Op], ...] = (Crop, DecodeCrop, Flip, Reverse)
"""Ops without cases of their own: what ops of the catalogue become, with the parameters that those have drawn."""
