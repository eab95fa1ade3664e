"""catalogue: every op, as the class that implements it.

The conformance suite runs every case of every op listed here on every executor.
"""

from __future__ import annotations

from gpupipe.graph.gather import Gather
from gpupipe.graph.op import Op
from gpupipe.graph.shapes import Subscript
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.decode_smaller import ResizeWindow
from gpupipe.ops._shared.decoding import NativeDecoding
from gpupipe.ops._shared.fitting import Fit
from gpupipe.ops._shared.resize_flip import ResizeFlip
from gpupipe.ops.adjust_brightness import AdjustBrightness
from gpupipe.ops.adjust_contrast import AdjustContrast
from gpupipe.ops.adjust_gamma import AdjustGamma
from gpupipe.ops.adjust_hue import AdjustHue
from gpupipe.ops.adjust_jpeg_quality import AdjustJpegQuality
from gpupipe.ops.adjust_saturation import AdjustSaturation
from gpupipe.ops.adjust_sharpness import AdjustSharpness
from gpupipe.ops.affine import Affine
from gpupipe.ops.aug_mix import AugMix
from gpupipe.ops.auto_augment import AutoAugment
from gpupipe.ops.autocontrast import Autocontrast
from gpupipe.ops.cast import Cast
from gpupipe.ops.center_crop import CenterCrop
from gpupipe.ops.central_crop import CentralCrop
from gpupipe.ops.clahe import Clahe
from gpupipe.ops.clip_boxes import ClipBoxes
from gpupipe.ops.color_jitter import ColorJitter
from gpupipe.ops.concat import Concat
from gpupipe.ops.convert_boxes import ConvertBoxes
from gpupipe.ops.convert_image_dtype import ConvertImageDtype
from gpupipe.ops.crop_and_resize import CropAndResize, CropAndResizeAll
from gpupipe.ops.crop_to_bounding_box import CropToBoundingBox
from gpupipe.ops.cutmix import Cutmix
from gpupipe.ops.dali_function import DaliFunction
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.ops.decode_jpeg import DecodeJpeg, DecodeSmallerJpeg
from gpupipe.ops.decode_png import DecodePng
from gpupipe.ops.elastic import Elastic
from gpupipe.ops.equalize import Equalize
from gpupipe.ops.expand_dims import ExpandDims
from gpupipe.ops.extract_jpeg_shape import ExtractJpegShape
from gpupipe.ops.extract_patches import ExtractPatches
from gpupipe.ops.five_crop import CornerCrop
from gpupipe.ops.flip_left_right import FlipLeftRight
from gpupipe.ops.flip_up_down import FlipUpDown
from gpupipe.ops.gather import LookUp
from gpupipe.ops.gaussian_blur import GaussianBlur
from gpupipe.ops.gaussian_noise import GaussianNoise
from gpupipe.ops.grayscale_to_rgb import GrayscaleToRgb
from gpupipe.ops.hsv_to_rgb import HsvToRgb
from gpupipe.ops.invert import Invert
from gpupipe.ops.mixup import Mixup
from gpupipe.ops.mixup_or_cutmix import MixupOrCutmix
from gpupipe.ops.normalize import Normalize
from gpupipe.ops.one_hot import OneHot
from gpupipe.ops.pad import Pad
from gpupipe.ops.pad_to_bounding_box import PadToBoundingBox
from gpupipe.ops.per_image_standardization import PerImageStandardization
from gpupipe.ops.permute_channels import PermuteChannels
from gpupipe.ops.perspective import Perspective
from gpupipe.ops.posterize import Posterize
from gpupipe.ops.py_function import PyFunction
from gpupipe.ops.rand_augment import RandAugment
from gpupipe.ops.random_adjust_sharpness import RandomAdjustSharpness
from gpupipe.ops.random_affine import RandomAffine
from gpupipe.ops.random_apply import RandomApply
from gpupipe.ops.random_autocontrast import RandomAutocontrast
from gpupipe.ops.random_brightness import RandomBrightness
from gpupipe.ops.random_channel_permutation import RandomChannelPermutation
from gpupipe.ops.random_channel_shift import RandomChannelShift
from gpupipe.ops.random_choice import RandomChoice
from gpupipe.ops.random_clahe import RandomClahe
from gpupipe.ops.random_contrast import RandomContrast
from gpupipe.ops.random_crop import RandomCrop
from gpupipe.ops.random_equalize import RandomEqualize
from gpupipe.ops.random_erasing import RandomErasing
from gpupipe.ops.random_flip_left_right import RandomFlipLeftRight
from gpupipe.ops.random_flip_up_down import RandomFlipUpDown
from gpupipe.ops.random_gaussian_blur import RandomGaussianBlur
from gpupipe.ops.random_grayscale import RandomGrayscale
from gpupipe.ops.random_hue import RandomHue
from gpupipe.ops.random_invert import RandomInvert
from gpupipe.ops.random_iou_crop import RandomIouCrop
from gpupipe.ops.random_jpeg_quality import RandomJpegQuality
from gpupipe.ops.random_order import RandomOrder
from gpupipe.ops.random_perspective import RandomPerspective
from gpupipe.ops.random_posterize import RandomPosterize
from gpupipe.ops.random_resized_crop import RandomResizedCrop
from gpupipe.ops.random_rotation import RandomRotation
from gpupipe.ops.random_saturation import RandomSaturation
from gpupipe.ops.random_shortest_size import RandomShortestSize
from gpupipe.ops.random_size_crop import RandomSizeCrop
from gpupipe.ops.random_solarize import RandomSolarize
from gpupipe.ops.random_transform import RandomTransform
from gpupipe.ops.random_uniform import RandomUniform
from gpupipe.ops.random_zoom_out import RandomZoomOut
from gpupipe.ops.reshape import Reshape
from gpupipe.ops.resize import Resize, ResizeArea
from gpupipe.ops.resize_shorter import ResizeShorter
from gpupipe.ops.resize_with_crop_or_pad import ResizeWithCropOrPad
from gpupipe.ops.resize_with_pad import ResizeWithPad
from gpupipe.ops.rgb_to_grayscale import RgbToGrayscale
from gpupipe.ops.rgb_to_hsv import RgbToHsv
from gpupipe.ops.rot90 import Rot90
from gpupipe.ops.rotate import Rotate
from gpupipe.ops.salt_and_pepper import SaltAndPepper
from gpupipe.ops.sample_distorted_bounding_box import SampleDistortedBoundingBox
from gpupipe.ops.scale_jitter import ScaleJitter
from gpupipe.ops.slice import Slice
from gpupipe.ops.solarize import Solarize
from gpupipe.ops.squeeze import Squeeze
from gpupipe.ops.stack import Stack
from gpupipe.ops.transpose import Transpose
from gpupipe.ops.trivial_augment_wide import TrivialAugmentWide
from gpupipe.ops.where import Where

__all__ = ["CATALOGUE"]

CATALOGUE: tuple[type[Op], ...] = (
    AdjustBrightness,
    AdjustContrast,
    AdjustGamma,
    AdjustHue,
    AdjustJpegQuality,
    AdjustSaturation,
    AdjustSharpness,
    Affine,
    AugMix,
    AutoAugment,
    Autocontrast,
    Cast,
    CenterCrop,
    CentralCrop,
    Clahe,
    ClipBoxes,
    ColorJitter,
    Concat,
    ConvertBoxes,
    ConvertImageDtype,
    CornerCrop,
    CropAndResize,
    CropAndResizeAll,
    CropMirrorNormalize,
    CropToBoundingBox,
    Cutmix,
    DaliFunction,
    DecodeImage,
    DecodeJpeg,
    DecodePng,
    DecodeSmallerJpeg,
    Elastic,
    Equalize,
    ExpandDims,
    ExtractJpegShape,
    ExtractPatches,
    Fit,
    FlipLeftRight,
    FlipUpDown,
    Gather,
    GaussianBlur,
    GaussianNoise,
    GrayscaleToRgb,
    HsvToRgb,
    Invert,
    LookUp,
    Mixup,
    MixupOrCutmix,
    NativeDecoding,
    Normalize,
    OneHot,
    Pad,
    PadToBoundingBox,
    PerImageStandardization,
    PermuteChannels,
    Perspective,
    Posterize,
    PyFunction,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomBrightness,
    RandomChannelPermutation,
    RandomChannelShift,
    RandomChoice,
    RandomClahe,
    RandomContrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomFlipLeftRight,
    RandomFlipUpDown,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHue,
    RandomInvert,
    RandomIouCrop,
    RandomJpegQuality,
    RandomOrder,
    RandomPerspective,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    RandomShortestSize,
    RandomSizeCrop,
    RandomSolarize,
    RandomTransform,
    RandomUniform,
    RandomZoomOut,
    Reshape,
    Resize,
    ResizeArea,
    ResizeFlip,
    ResizeShorter,
    ResizeWindow,
    ResizeWithCropOrPad,
    ResizeWithPad,
    RgbToGrayscale,
    RgbToHsv,
    Rot90,
    Rotate,
    SaltAndPepper,
    SampleDistortedBoundingBox,
    ScaleJitter,
    Slice,
    Solarize,
    Squeeze,
    Stack,
    Subscript,
    Transpose,
    TrivialAugmentWide,
    Where,
)
"""Every op that a function of this package applies, and those that the optimizer derives from them."""
