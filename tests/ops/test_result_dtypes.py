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

Call = Callable[[Any], Any]

PLAIN = """
    random_zoom_out flip_left_right flip_up_down random_flip_left_right random_flip_up_down rgb_to_grayscale
    random_perspective elastic rot90 invert gaussian_noise salt_and_pepper random_channel_permutation autocontrast
    equalize random_autocontrast random_equalize clahe random_clahe random_grayscale random_invert
    per_image_standardization transpose
""".split()
"""Ops that need nothing but an image."""

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "resize": ((20, 24),), "resize_shorter": (20,), "random_resized_crop": ((20, 24),),
    "random_shortest_size": ((20, 24), 40), "scale_jitter": ((20, 24),), "center_crop": ((20, 24),),
    "central_crop": (0.5,), "crop_to_bounding_box": (1, 2, 20, 24),
    "extract_patches": (8,), "pad": (3,), "resize_with_pad": (20, 30), "five_crop": (20,), "ten_crop": (20,),
    "pad_to_bounding_box": (1, 2, 60, 64), "resize_with_crop_or_pad": (30, 64), "random_crop": ((20, 24),),
    "random_size_crop": (10, 20), "affine": (10,), "random_affine": (10,), "random_transform": (10,), "rotate": (10,),
    "random_rotation": (10,), "slice": ((1, 2, 0), (20, -1, -1)), "color_jitter": (0.2, 0.2, 0.2, 0.1),
    "random_erasing": (1,), "permute_channels": ((2, 0, 1),), "gaussian_blur": (3,), "random_gaussian_blur": (3,),
    "adjust_sharpness": (2,), "random_adjust_sharpness": (2,), "posterize": (4,), "solarize": (1,),
    "random_posterize": (4,), "random_solarize": (1,), "adjust_contrast": (0.5,),
    "adjust_gamma": (2.2,), "adjust_hue": (0.1,), "adjust_jpeg_quality": (75,), "adjust_saturation": (0.5,),
    "random_brightness": (0.1,), "random_contrast": (0.5, 1.5), "random_hue": (0.1,), "random_jpeg_quality": (50, 90),
    "random_saturation": (0.5, 1.5), "normalize": (ops.IMAGENET_MEAN, ops.IMAGENET_STD), "clip": (3, 200),
    "reshape": ((-1, 3),), "expand_dims": (0,), "gather": ([2, 1, 0], -1),
}  # fmt: skip


def _with(name: str, *arguments: Any) -> Call:
    return lambda x: getattr(ops, name)(x, *arguments)


def _after(change: Call, call: Call) -> Call:
    return lambda x: call(change(x))


def _mixing(name: str) -> Call:
    return lambda x: getattr(ops, name)(x[None], np.zeros(1, np.int64), num_classes=2)[0]


def _real(x: Any) -> Any:
    return ops.convert_image_dtype(x, "float32")


CALLS: dict[str, Call] = {
    **{name: getattr(ops, name) for name in PLAIN},
    **{name: _with(name, *arguments) for name, arguments in ARGUMENTS.items()},
    **{
        name: _after(_with("cast", "uint8"), getattr(ops, name))
        for name in ("rand_augment", "trivial_augment_wide", "aug_mix", "auto_augment")
    },
    **{name: _mixing(name) for name in ("mixup", "cutmix", "mixup_or_cutmix")},
    **{f"{name}, after convert_image_dtype": _after(_real, _with(name)) for name in ("rgb_to_hsv", "hsv_to_rgb")},
    "adjust_brightness": lambda x: ops.adjust_brightness(x, delta=0.1),
    "crop_and_resize": lambda x: ops.crop_and_resize(x, [[0, 0, 0.5, 0.5]], crop_size=(20, 24)),
    'resize, method="nearest"': _with("resize", (20, 24), "nearest"),
    "perspective": lambda x: ops.perspective(x, coefficients=(1, 0, 0, 0, 1, 0, 0, 0.01)),
    "random_channel_shift, after cast": _after(_with("cast", "float32"), _with("random_channel_shift", 10)),
    "grayscale_to_rgb": lambda x: ops.grayscale_to_rgb(x[..., :1]),
    "convert_image_dtype, to float32": _real,
    "cast, to int16": _with("cast", "int16"),
    "minimum, with a float": _with("minimum", 99.5),
    "maximum, with an integer": _with("maximum", 99),
    "where, with an integer": lambda x: ops.where(x > 99, x, 0),
    "squeeze": lambda x: ops.squeeze(x[..., :1], -1),
    "stack": lambda x: ops.stack([x, x]),
    "concat": lambda x: ops.concat([x, x], -1),
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
