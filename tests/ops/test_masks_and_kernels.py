"""Numbers of classes are not blended: certain mistakes are refused, probable ones logged once and found by check()."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError
from gpupipe.ops._shared.samples import encoded, picture

MASK = np.where(np.add.outer(np.arange(20), np.arange(24)) % 7 < 3, 20, 0).astype(np.uint8)
PHOTO, GRAY = encoded(picture(20, 24), "PNG"), encoded(MASK[:, :, None], "PNG")
PALETTE = encoded(MASK[:, :, None], "PNG", mode="P")
JPEG = encoded(picture(20, 24, 1))
BOTH = ("bilinear", "nearest")

Fn = Callable[[Any, Any], Any]
KERNELS: dict[str, Fn] = {
    "random_resized_crop": lambda a, b: ops.random_resized_crop((a, b), (9, 9)),
    "resize_shorter": lambda a, b: ops.resize_shorter((a, b), 9),
    "random_perspective": lambda a, b: ops.random_perspective((a, b)),
    "elastic": lambda a, b: ops.elastic((a, b)),
    "scale_jitter": lambda a, b: ops.scale_jitter((a, b), (20, 20)),
    "random_shortest_size": lambda a, b: ops.random_shortest_size((a, b), 12),
    "random_affine": lambda a, b: ops.random_affine((a, b), 10, interpolation="bilinear"),
    "cropped before": lambda a, b: ops.resize_shorter(ops.random_crop((a, b), (12, 12)), 9),
    "as floats": lambda a, b: ops.resize_shorter((ops.cast(a, "float32"), ops.cast(b, "float32")), 9),
}
RIGHT: dict[str, Fn] = {
    "nearest": lambda a, b: ops.random_resized_crop((a, b), (9, 9), interpolation=BOTH),
    "a sample": lambda a, b: ops.random_resized_crop(ops.Sample(a, masks=b), (9, 9)).masks,
    "moved": lambda a, b: ops.random_flip_left_right(ops.random_crop((a, b), (9, 9))),
    "turned": lambda a, b: ops.random_rotation((a, b), 30),
    "resized alone": lambda a, b: ops.resize(b, (9, 9), "nearest"),
}


def chain(fn: Fn, mask: bytes, decode: Callable[[Any], Any]) -> gp.Dataset:
    pairs = gp.Dataset.from_tensor_slices(([PHOTO] * 3, [mask] * 3))
    mapped = pairs.map(lambda a, b: fn(ops.decode_png(a, channels=3), decode(b)), traced=True)
    return mapped.prefetch(1).with_options(gp.Options(device="cpu", backend="numpy", seed=1))


def indices(data: Any) -> Any:
    return ops.decode_png(data, palette="indices")


def gray(data: Any) -> Any:
    return ops.decode_png(data, channels=1)


def found(ds: gp.Dataset) -> list[str]:
    return [finding.rule for finding in ds.check() if finding.rule == "classes_blended"]


@pytest.mark.parametrize("fn", KERNELS.values(), ids=KERNELS)
def test_indices_of_a_palette_are_not_blended(fn: Fn) -> None:
    with pytest.raises(PlanError, match=r"blends image 2 of 2, the indices of a palette, by 'bilinear'.*'nearest'\)"):
        chain(fn, PALETTE, indices)


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "area"])
def test_neither_are_those_of_one_image(method: Any) -> None:
    with pytest.raises(
        PlanError, match=rf'by \'{method}\': numbers of classes would become others; write method="near'
    ):
        chain(lambda a, b: ops.resize(b, (9, 9), method), PALETTE, indices)


@pytest.mark.parametrize("decode", [indices, gray])
@pytest.mark.parametrize("fn", RIGHT.values(), ids=RIGHT)
def test_what_keeps_the_numbers_is_right(fn: Fn, decode: Any, caplog: pytest.LogCaptureFixture) -> None:
    ds = chain(fn, PALETTE if decode is indices else GRAY, decode)

    masks = [np.unique(element[1] if isinstance(element, tuple) else element) for element in ds]

    assert found(ds) == []
    assert "blends" not in caplog.text
    numbers = set(np.concatenate(masks).tolist())
    assert numbers <= {int(n) for n in np.unique(next(iter(chain(lambda a, b: b, *how(decode)))))} | {0}


def how(decode: Any) -> tuple[bytes, Any]:
    return (PALETTE, indices) if decode is indices else (GRAY, gray)


@pytest.mark.parametrize("fn", KERNELS.values(), ids=KERNELS)
def test_one_channel_beside_three_may_be_a_mask_which_is_said(fn: Fn, caplog: pytest.LogCaptureFixture) -> None:
    ds = chain(fn, GRAY, gray)

    assert found(ds) == ["classes_blended"]
    with caplog.at_level(logging.WARNING, "gpupipe"):
        list(ds)
        list(ds)
    lines = [line for line in caplog.messages if "blends image 2 of 2, of one channel" in line]
    assert len(lines) == 1
    assert lines[0].endswith("'nearest'), if it is a mask")


@pytest.mark.parametrize(
    ("fn", "mask", "decode"),
    [
        (lambda a, b: ops.resize_shorter((a, b), 9), JPEG, lambda b: ops.decode_jpeg(b, channels=1)),
        (lambda a, b: ops.resize(b, (9, 9)), GRAY, gray),
        (lambda a, b: ops.resize_shorter((b, b), 9), GRAY, gray),
        (lambda a, b: ops.resize_shorter((a, ops.resize(b, (20, 24)) / 255), 9), GRAY, gray),
    ],
    ids=["a gray JPEG", "alone", "two gray ones", "scaled"],
)
def test_a_gray_image_is_no_mask(fn: Fn, mask: bytes, decode: Any) -> None:
    assert found(chain(fn, mask, decode)) == []


def test_the_advice_for_a_mask_that_is_moved_apart_says_how_to_interpolate_it() -> None:
    ds = chain(lambda a, b: (ops.random_resized_crop(a, (9, 9)), ops.random_resized_crop(b, (9, 9))), GRAY, gray)

    (text,) = (finding.text for finding in ds.check() if finding.rule == "images_moved_apart")

    assert 'ops.random_resized_crop((image, mask), ..., interpolation=("bilinear", "nearest"))' in text
