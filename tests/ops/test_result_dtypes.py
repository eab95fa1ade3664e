"""The table in ops/README.md, run line by line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe import ops

README = Path(__file__).resolve().parents[2] / "ops" / "README.md"
IMAGE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)

CALLS: dict[str, Callable[[Any], Any]] = {
    "resize": lambda x: ops.resize(x, (20, 24)),
    'resize, method="nearest"': lambda x: ops.resize(x, (20, 24), method="nearest"),
    "resize_shorter": lambda x: ops.resize_shorter(x, 20),
    "random_resized_crop": lambda x: ops.random_resized_crop(x, (20, 24)),
    "random_shortest_size": lambda x: ops.random_shortest_size(x, (20, 24), 40),
    "scale_jitter": lambda x: ops.scale_jitter(x, (20, 24)),
    "center_crop": lambda x: ops.center_crop(x, (20, 24)),
    "central_crop": lambda x: ops.central_crop(x, 0.5),
    "crop_to_bounding_box": lambda x: ops.crop_to_bounding_box(x, 1, 2, 20, 24),
    "crop_and_resize": lambda x: ops.crop_and_resize(x, [[0, 0, 0.5, 0.5]], (20, 24)),
    "extract_patches": lambda x: ops.extract_patches(x, 8),
    "pad": lambda x: ops.pad(x, 3),
    "resize_with_pad": lambda x: ops.resize_with_pad(x, 20, 30),
    "five_crop": lambda x: ops.five_crop(x, 20),
    "ten_crop": lambda x: ops.ten_crop(x, 20),
    "pad_to_bounding_box": lambda x: ops.pad_to_bounding_box(x, 1, 2, 60, 64),
    "resize_with_crop_or_pad": lambda x: ops.resize_with_crop_or_pad(x, 30, 64),
    "random_crop": lambda x: ops.random_crop(x, (20, 24)),
    "random_size_crop": lambda x: ops.random_size_crop(x, 10, 20),
    "random_zoom_out": ops.random_zoom_out,
    "flip_left_right": ops.flip_left_right,
    "flip_up_down": ops.flip_up_down,
    "random_flip_left_right": ops.random_flip_left_right,
    "random_flip_up_down": ops.random_flip_up_down,
    "rgb_to_grayscale": ops.rgb_to_grayscale,
    "affine": lambda x: ops.affine(x, 10),
    "random_affine": lambda x: ops.random_affine(x, 10),
    "perspective": lambda x: ops.perspective(x, coefficients=(1, 0, 0, 0, 1, 0, 0, 0.01)),
    "random_perspective": ops.random_perspective,
    "random_transform": lambda x: ops.random_transform(x, 10),
    "random_channel_shift, after cast": lambda x: ops.random_channel_shift(ops.cast(x, "float32"), 10),
    "elastic": ops.elastic,
    "rotate": lambda x: ops.rotate(x, 10),
    "random_rotation": lambda x: ops.random_rotation(x, 10),
    "rot90": ops.rot90,
    "slice": lambda x: ops.slice(x, (1, 2, 0), (20, -1, -1)),
    "color_jitter": lambda x: ops.color_jitter(x, 0.2, 0.2, 0.2, 0.1),
    "random_erasing": lambda x: ops.random_erasing(x, 1),
    "invert": ops.invert,
    "rand_augment": lambda x: ops.rand_augment(ops.cast(x, "uint8")),
    "trivial_augment_wide": lambda x: ops.trivial_augment_wide(ops.cast(x, "uint8")),
    "aug_mix": lambda x: ops.aug_mix(ops.cast(x, "uint8")),
    "auto_augment": lambda x: ops.auto_augment(ops.cast(x, "uint8")),
    "gaussian_noise": ops.gaussian_noise,
    "salt_and_pepper": ops.salt_and_pepper,
    "permute_channels": lambda x: ops.permute_channels(x, (2, 0, 1)),
    "random_channel_permutation": ops.random_channel_permutation,
    "gaussian_blur": lambda x: ops.gaussian_blur(x, 3),
    "random_gaussian_blur": lambda x: ops.random_gaussian_blur(x, 3),
    "adjust_sharpness": lambda x: ops.adjust_sharpness(x, 2),
    "random_adjust_sharpness": lambda x: ops.random_adjust_sharpness(x, 2),
    "autocontrast": ops.autocontrast,
    "equalize": ops.equalize,
    "random_autocontrast": ops.random_autocontrast,
    "random_equalize": ops.random_equalize,
    "clahe": ops.clahe,
    "random_clahe": ops.random_clahe,
    "posterize": lambda x: ops.posterize(x, 4),
    "solarize": lambda x: ops.solarize(x, 1),
    "random_grayscale": ops.random_grayscale,
    "random_invert": ops.random_invert,
    "random_posterize": lambda x: ops.random_posterize(x, 4),
    "random_solarize": lambda x: ops.random_solarize(x, 1),
    "mixup": lambda x: ops.mixup(x[None], np.zeros(1, np.int64), num_classes=2)[0],
    "cutmix": lambda x: ops.cutmix(x[None], np.zeros(1, np.int64), num_classes=2)[0],
    "mixup_or_cutmix": lambda x: ops.mixup_or_cutmix(x[None], np.zeros(1, np.int64), num_classes=2)[0],
    "grayscale_to_rgb": lambda x: ops.grayscale_to_rgb(x[..., :1]),
    "adjust_brightness": lambda x: ops.adjust_brightness(x, 0.1),
    "adjust_contrast": lambda x: ops.adjust_contrast(x, 0.5),
    "adjust_gamma": lambda x: ops.adjust_gamma(x, 2.2),
    "adjust_hue": lambda x: ops.adjust_hue(x, 0.1),
    "adjust_jpeg_quality": lambda x: ops.adjust_jpeg_quality(x, 75),
    "adjust_saturation": lambda x: ops.adjust_saturation(x, 0.5),
    "random_brightness": lambda x: ops.random_brightness(x, 0.1),
    "random_contrast": lambda x: ops.random_contrast(x, 0.5, 1.5),
    "random_hue": lambda x: ops.random_hue(x, 0.1),
    "random_jpeg_quality": lambda x: ops.random_jpeg_quality(x, 50, 90),
    "random_saturation": lambda x: ops.random_saturation(x, 0.5, 1.5),
    "rgb_to_hsv, after convert_image_dtype": lambda x: ops.rgb_to_hsv(ops.convert_image_dtype(x, "float32")),
    "hsv_to_rgb, after convert_image_dtype": lambda x: ops.hsv_to_rgb(ops.convert_image_dtype(x, "float32")),
    "per_image_standardization": ops.per_image_standardization,
    "normalize": lambda x: ops.normalize(x, ops.IMAGENET_MEAN, ops.IMAGENET_STD),
    "convert_image_dtype, to float32": lambda x: ops.convert_image_dtype(x, "float32"),
    "cast, to int16": lambda x: ops.cast(x, "int16"),
    "transpose": ops.transpose,
    "clip": lambda x: ops.clip(x, 3, 200),
    "minimum, with a float": lambda x: ops.minimum(x, 99.5),
    "maximum, with an integer": lambda x: ops.maximum(x, 99),
    "where, with an integer": lambda x: ops.where(x > 99, x, 0),
    "reshape": lambda x: ops.reshape(x, (-1, 3)),
    "expand_dims": lambda x: ops.expand_dims(x, 0),
    "squeeze": lambda x: ops.squeeze(x[..., :1], -1),
    "stack": lambda x: ops.stack([x, x]),
    "concat": lambda x: ops.concat([x, x], -1),
    "gather": lambda x: ops.gather(x, [2, 1, 0], -1),
    "random_apply": lambda x: ops.random_apply(ops.flip_left_right, x),
    "random_choice": lambda x: ops.random_choice([ops.flip_left_right, ops.flip_up_down], x),
    "random_order": lambda x: ops.random_order([ops.flip_left_right, ops.flip_up_down], x),
}


def _rows() -> list[tuple[str, str, str, str]]:
    table = README.read_text(encoding="utf-8").split("## Result dtypes")[1].split("## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0], row[2], row[3], row[4]) for row in rows[2:]]


@pytest.mark.parametrize(("name", "of_uint8", "of_float32", "antialias"), _rows(), ids=lambda value: value)
def test_the_result_dtypes(name: str, of_uint8: str, of_float32: str, antialias: str) -> None:
    call = CALLS[name]

    assert call(IMAGE).dtype == np.dtype(of_uint8.split(",")[0])
    assert call(IMAGE.astype(np.float32)).dtype == np.dtype(of_float32)
    parameter = inspect.signature(getattr(ops, re.split(r"\W", name)[0])).parameters.get("antialias")
    assert antialias == ("-" if parameter is None else str(parameter.default))


def test_every_image_op_has_a_row() -> None:
    image_ops = {name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))}
    others = {"apply", "decode_image", "decode_jpeg", "decode_png", "decode_and_crop_jpeg", "extract_jpeg_shape"}
    rows = {re.split(r"\W", name)[0] for name, *_ in _rows()}
    others |= {"from_hf", "from_timm", "from_torchvision"}  # they make functions of ops
    hosts = {"dali_function", "one_hot", "py_function", "random_uniform", "sample_distorted_bounding_box"}
    hosts |= {"clip_boxes", "convert_boxes", "random_iou_crop"}  # of boxes

    assert image_ops - others - hosts == rows
