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
    "center_crop": lambda x: ops.center_crop(x, (20, 24)),
    "central_crop": lambda x: ops.central_crop(x, 0.5),
    "crop_to_bounding_box": lambda x: ops.crop_to_bounding_box(x, 1, 2, 20, 24),
    "pad_to_bounding_box": lambda x: ops.pad_to_bounding_box(x, 1, 2, 60, 64),
    "resize_with_crop_or_pad": lambda x: ops.resize_with_crop_or_pad(x, 30, 64),
    "random_crop": lambda x: ops.random_crop(x, (20, 24)),
    "flip_left_right": ops.flip_left_right,
    "flip_up_down": ops.flip_up_down,
    "random_flip_left_right": ops.random_flip_left_right,
    "random_flip_up_down": ops.random_flip_up_down,
    "rgb_to_grayscale": ops.rgb_to_grayscale,
    "grayscale_to_rgb": lambda x: ops.grayscale_to_rgb(x[..., :1]),
    "normalize": lambda x: ops.normalize(x, ops.IMAGENET_MEAN, ops.IMAGENET_STD),
    "convert_image_dtype, to float32": lambda x: ops.convert_image_dtype(x, "float32"),
    "cast, to int16": lambda x: ops.cast(x, "int16"),
    "transpose": ops.transpose,
}


def _rows() -> list[tuple[str, str, str, str]]:
    table = README.read_text(encoding="utf-8").split("## The law of results")[1].split("## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0], row[2], row[3], row[4]) for row in rows[2:]]


@pytest.mark.parametrize(("name", "of_uint8", "of_float32", "antialias"), _rows(), ids=lambda value: value)
def test_the_law_of_results(name: str, of_uint8: str, of_float32: str, antialias: str) -> None:
    call = CALLS[name]

    assert call(IMAGE).dtype == np.dtype(of_uint8.split(",")[0])
    assert call(IMAGE.astype(np.float32)).dtype == np.dtype(of_float32)
    parameter = inspect.signature(getattr(ops, re.split(r"\W", name)[0])).parameters.get("antialias")
    assert antialias == ("-" if parameter is None else str(parameter.default))


def test_every_image_op_has_a_row() -> None:
    image_ops = {name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))}
    others = {"apply", "decode_image", "decode_jpeg", "decode_png", "decode_and_crop_jpeg", "extract_jpeg_shape"}
    rows = {re.split(r"\W", name)[0] for name, *_ in _rows()}

    assert image_ops - others - {"one_hot", "py_function"} == rows
