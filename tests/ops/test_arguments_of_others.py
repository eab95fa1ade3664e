"""What a call means in tf.image, torchvision, albumentations or Keras, it means here, or it is refused.

Each call is written as in another library, or has a percent, a number of pixels or a size where a share or a factor
belongs. It is an error that names the argument, or says what to write.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanError

X = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
BOXES = np.array([[0, 0, 1, 1]], np.float32)
OPS: Any = ops  # mypy would refuse most of the calls

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    # further arguments by position
    "albumentations' size of a crop": (
        lambda: OPS.random_resized_crop(X, 22, 22),
        r"one, \(height, width\)",
    ),
    "of a random crop": (lambda: OPS.random_crop(X, 22, 22), r"one, \(height, width\)"),
    "of a centre crop": (lambda: OPS.center_crop(X, 22, 22), r"one, \(height, width\)"),
    "of five crops": (lambda: OPS.five_crop(X, 22, 22), r"one, \(height, width\)"),
    "of ten crops": (lambda: OPS.ten_crop(X, 22, 22), r"one, \(height, width\)"),
    "tf.image's seed of a flip": (lambda: OPS.random_flip_left_right(X, 1), "write p= .* or seed="),
    "of a vertical flip": (lambda: OPS.random_flip_up_down(X, 0), "write p= .* or seed="),
    "of a distorted box": (lambda: OPS.sample_distorted_bounding_box((40, 50, 3), BOXES, 1), "write seed="),
    "tf.image's box_indices": (lambda: OPS.crop_and_resize(X[None], BOXES, [0], (14, 14)), "write crop_size="),
    "torchvision's brightness": (lambda: OPS.adjust_brightness(X, 1.5), r"color_jitter\(image, \(factor, factor\)\)"),
    "the shape of tf.random.uniform": (lambda: OPS.random_uniform((3,), 0, 1), "shape is the third argument"),
    # a number for a pair
    "torchvision's shorter side": (lambda: OPS.resize(X, 22), r"resize_shorter\(image, 22\)"),
    "one scale": (lambda: OPS.random_resized_crop(X, 22, scale=1), "scale as two numbers"),
    "one ratio": (lambda: OPS.random_resized_crop(X, 22, ratio=1), "ratio as two numbers"),
    "one scale of erasing": (lambda: OPS.random_erasing(X, 0.5, 1), "scale as two numbers"),
    "one factor of a zoom": (lambda: OPS.random_zoom_out(X, 0, 4), "side_range as two numbers"),
    "one multiple": (lambda: OPS.scale_jitter(X, 22, 22), "scale_range as two numbers"),
    # a number for a flag
    "max_size of a resize": (
        lambda: OPS.resize(X, (22, 22), "bilinear", 512),
        "preserve_aspect_ratio as True or False",
    ),
    "center of a rotation": (lambda: OPS.rotate(X, 10, "nearest", 22), "expand as True or False"),
    # percent, pixels and levels
    "percent of the area": (lambda: OPS.random_resized_crop(X, 22, scale=(8, 100)), "scale from 1e-06 to 1, got 8"),
    "percent of a box": (
        lambda: OPS.sample_distorted_bounding_box((40, 50, 3), BOXES, min_object_covered=10),
        "min_object_covered from 0 to 1, got 10",
    ),
    "percent of a size": (lambda: OPS.random_affine(X, 10, scale=(80, 120)), "scale from 0.001 to 50, got 80"),
    "percent of a zoom": (lambda: OPS.random_zoom_out(X, 0, (100, 400)), "side_range from 1 to 50, got 100"),
    "percent of a multiple": (
        lambda: OPS.scale_jitter(X, (22, 22), (10, 200)),
        "scale_range from 1e-06 to 50, got 200",
    ),
    "percent of brightness": (lambda: OPS.color_jitter(X, (80, 120)), "brightness from 0.0 to 50, got 80"),
    "levels of brightness": (lambda: OPS.color_jitter(X, 63), "brightness from 0 to 50, got 63"),
    "percent of contrast": (lambda: OPS.random_contrast(X, 80, 120), "lower from 0 to 50, got 80"),
    "percent of saturation": (lambda: OPS.random_saturation(X, 0, 120), "upper from -inf to 50, got 120"),
    "levels of a sum": (lambda: OPS.adjust_brightness(X, delta=30), "delta from -1 to 1, got 30"),
    "levels of a random sum": (lambda: OPS.random_brightness(X, 32), "max_delta from 0 to 1, got 32"),
    "levels of noise": (lambda: OPS.gaussian_noise(X, 0, 25), "sigma from 0 to 1, got 25"),
    "levels of the mean of noise": (lambda: OPS.gaussian_noise(X, 25), "mean from -1 to 1, got 25"),
    "a share of the levels": (lambda: OPS.solarize(X, 0.5), "0.5 of that is 127.5"),
    "a random one": (lambda: OPS.random_solarize(X, 0.5), "0.5 of that is 127.5"),
    "degrees of quarter turns": (lambda: OPS.rot90(X, 90), "for degrees, 1"),
}


@pytest.mark.parametrize(("call", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_call_that_means_something_else_elsewhere_is_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(PlanError, match=text):
        call()


def test_a_label_is_not_taken_for_a_probability() -> None:
    """A map unpacks (image, label): the label stood where the probability did, and flipped the images of class 1."""
    with pytest.raises(PlanError, match=r"random_flip_left_right.* too many positional arguments"):
        gp.Dataset.from_tensor_slices((X[None], np.array([1]))).map(OPS.random_flip_left_right)


def test_floats_have_units_of_their_own() -> None:
    """Where integers are scaled by their range, floats are not: any sum is one that somebody may want."""
    floats = X.astype(np.float32)

    np.testing.assert_array_equal(ops.adjust_brightness(floats, delta=30), floats + 30)


def jpeg() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(X).save(stream, "JPEG")
    return stream.getvalue()


def resized(contents: Any) -> Any:
    """Floats of 0..255."""
    return ops.resize(ops.decode_jpeg(contents, 3), (22, 22))


def normalized(contents: Any) -> Any:
    image = ops.convert_image_dtype(ops.decode_jpeg(contents, 3), "float32")
    return ops.normalize(image, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def unit(contents: Any) -> Any:
    return ops.convert_image_dtype(ops.decode_jpeg(contents, 3), "float32")


SPOILS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "color_jitter": (lambda b: ops.color_jitter(resized(b), 0.4), "got values of 0..255; write ops.cast"),
    "gaussian_noise": (lambda b: ops.gaussian_noise(resized(b)), "got values of 0..255"),
    "random_equalize": (lambda b: ops.random_equalize(resized(b)), "got values of 0..255"),
    "random_clahe": (lambda b: ops.random_clahe(resized(b)), "got values of 0..255"),
    "random_jpeg_quality": (lambda b: ops.random_jpeg_quality(resized(b), 50, 90), "got values of 0..255"),
    "random_posterize": (lambda b: ops.random_posterize(resized(b), 4), "got values of 0..255"),
    "adjust_sharpness": (lambda b: ops.adjust_sharpness(resized(b), 2.0), "got values of 0..255"),
    "random_invert": (lambda b: ops.random_invert(resized(b)), "got values of 0..255"),
    "random_solarize": (lambda b: ops.random_solarize(resized(b), 0.5), "got values of 0..255"),
    "salt_and_pepper": (lambda b: ops.salt_and_pepper(resized(b)), "got values of 0..255"),
    "adjust_gamma": (lambda b: ops.adjust_gamma(resized(b), 2.2), "got values of 0..255"),
    "to integers": (lambda b: ops.convert_image_dtype(resized(b), "uint8"), "write ops.cast"),
    "after a cast": (lambda b: ops.invert(ops.cast(ops.decode_jpeg(b, 3), "float32")), "got values of 0..255"),
    "after normalize": (lambda b: ops.color_jitter(normalized(b), 0.4), "got values of -2.118..2.64; write it before"),
    "after standardization": (
        lambda b: ops.invert(ops.per_image_standardization(ops.decode_jpeg(b, 3))),
        "got values of -2..2",
    ),
    "around zero": (lambda b: ops.color_jitter(resized(b) / 127.5 - 1, 0.4), "got values of -1..1"),
    "around zero to integers": (
        lambda b: ops.convert_image_dtype(resized(b) / 127.5 - 1, "uint8"),
        "needs floats of 0..1, got values of -1..1",
    ),
    "normalized to integers": (lambda b: ops.convert_image_dtype(normalized(b), "uint8"), "got values of -2.118..2.64"),
    "integers of 0..1": (lambda b: ops.cast(resized(b) / 255, "uint8"), "loses the image; write ops.convert"),
    "normalized {CHW}": (
        lambda b: ops.normalize(ops.transpose(resized(b)) * 1, 0.5, 0.5, layout="CHW"),
        "write mean=127.5",
    ),
    "normalize": (lambda b: ops.normalize(resized(b), 0.5, 0.5), "write mean=127.5, std=127.5"),
    "normalize of 0..1": (
        lambda b: ops.normalize(ops.convert_image_dtype(ops.decode_jpeg(b, 3), "float32"), 127.5, 127.5),
        "write mean=0.5, std=0.5",
    ),
}


@pytest.mark.parametrize(("function", "text"), SPOILS.values(), ids=SPOILS)
def test_a_map_that_spoils_photographs_is_refused_on_its_line(function: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(PlanError, match=rf"at \S*test_arguments_of_others.py:\d+ .*{text}"):
        gp.Dataset.from_list([jpeg()]).map(function)


def inverted(*element: Any) -> Any:
    return ops.invert(element[-1])


FILES = gp.Dataset.from_list([jpeg()])
"""Of bytes; where they stand for paths, nothing is read."""

STEPS: dict[str, Callable[[], gp.Dataset]] = {
    "batches": lambda: FILES.map(resized).batch(1).unbatch().prefetch(1),
    "zip": lambda: gp.Dataset.zip((gp.Dataset.zip((FILES, FILES.map(unit))), FILES.map(resized))),
    "enumerate": lambda: FILES.map(resized).enumerate(),
    "concatenate": lambda: FILES.map(resized).concatenate(FILES.map(resized)),
    "several, one of 0..255 each": lambda: gp.Dataset.sample_from_datasets([FILES.map(resized)] * 3),
    "flat_map": lambda: FILES.flat_map(lambda path: gp.TFRecordDataset(path).map(resized)),
    "interleave of pairs": lambda: FILES.interleave(lambda path: gp.TFRecordDataset(path).map(resized).enumerate()),
}


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_the_range_is_known_across_steps(make: Callable[[], gp.Dataset]) -> None:
    with pytest.raises(PlanError, match=r"at \S*test_arguments_of_others.py:\d+ .*got values of 0\.\.255"):
        make().map(inverted)


def test_the_range_of_a_chain_that_holds_itself_many_times_is_found_at_once() -> None:
    images = FILES.map(resized)
    for _ in range(60):
        images = images.concatenate(images)

    with pytest.raises(PlanError, match=r"got values of 0\.\.255"):
        images.map(ops.invert)


def test_an_op_that_is_handed_to_map_itself_is_at_the_line_of_the_map() -> None:
    with pytest.raises(PlanError, match=rf"^invert at {__file__}:\d+ needs floats of 0\.\.1") as caught:
        FILES.map(resized).map(ops.invert)
    assert [entry.name for entry in caught.traceback] == [inspect.currentframe().f_code.co_name, "map"]  # type: ignore[union-attr]


def rules_of(dataset: gp.Dataset) -> list[str]:
    """What `check` finds, but for copies from a GPU to the host, which tell nothing of values."""
    return [finding.rule for finding in dataset.prefetch(1).check() if finding.rule != "copied_to_host"]


def test_of_several_inputs_the_range_is_that_of_all_and_not_certain() -> None:
    images = FILES.map(resized).concatenate(FILES.map(unit))

    assert rules_of(images.map(inverted)) == ["values_of_another_range"]
    assert not rules_of(gp.Dataset.zip((FILES.map(resized), FILES.map(unit))).map(inverted))
    assert not rules_of(FILES.map(unit).concatenate(FILES.map(unit)).map(inverted))


RIGHT: dict[str, Callable[[Any], Any]] = {
    "a part of several": lambda b: ops.invert(ops.stack([resized(b), resized(b) / 255])[1]),
    "more noise on floats of any range": lambda b: ops.gaussian_noise(resized(b), sigma=10.0, clip=False),
    "stretched from any range": lambda b: ops.autocontrast(resized(b)),
    "brightened and saturated": lambda b: ops.convert_image_dtype(unit(b) * 2.0, "uint8"),
    "brightened": lambda b: ops.invert(unit(b) * 1.6),
    "booleans": lambda b: ops.invert(ops.cast(ops.cast(ops.decode_jpeg(b, 3), "bool"), "float32")),
    "of a PNG, which may be a mask": lambda b: ops.invert(ops.cast(ops.decode_png(b, 3), "float32")),
    "a factor": lambda b: ops.normalize(resized(b), (0, 0, 0), (0.5, 0.5, 0.5)),
    "very deep": lambda b: ops.invert(reduce(lambda x, _: x + 0.0, range(150), unit(b))),
    "of integers": lambda b: ops.color_jitter(ops.decode_jpeg(b, 3), 0.4),
    "of floats of 0..1": lambda b: ops.color_jitter(resized(b) / 255, 0.4),
    "cast again": lambda b: ops.color_jitter(ops.cast(resized(b), "uint8"), 0.4),
    "before normalize": lambda b: ops.normalize(ops.invert(ops.convert_image_dtype(ops.decode_jpeg(b, 3), "float32"))),
    "with noise that is not clipped": lambda b: ops.gaussian_noise(resized(b), sigma=1.0, clip=False),
    "with values that a mask may have": lambda b: ops.invert(ops.cast(ops.decode_jpeg(b, 1), "float32")),
    "as many channels as the image has": lambda b: ops.invert(ops.cast(ops.decode_image(b), "float32")),
    "of a JPEG": lambda b: ops.invert(ops.cast(ops.decode_jpeg(b), "float32")),
    "a mask of 0 and 255": lambda b: ops.cast(ops.decode_image(b) / 255, "uint8"),
    "a mask in the first channel": lambda b: ops.cast(ops.decode_jpeg(b, 3)[..., :1] / 255, "uint8"),
    "a mask in a plane": lambda b: ops.normalize(ops.expand_dims(ops.decode_jpeg(b, 3)[..., 0], 2), 0.5, 0.5),
    "a few levels": lambda b: ops.cast(ops.decode_jpeg(b, 3) / 64, "uint8"),
    "a threshold": lambda b: ops.cast(ops.decode_jpeg(b, 3) / 255 + 0.5, "uint8"),
    "two levels": lambda b: ops.cast(ops.posterize(unit(b), 1), "uint8"),
    "numbers from 1": lambda b: ops.normalize(ops.decode_jpeg(b, 3), 1.0, 1.0),
    "a shift": lambda b: ops.normalize(ops.decode_jpeg(b, 3), 0.5, 1.0),
    "darker by a half": lambda b: ops.color_jitter(unit(b) - 0.5, 0.4),
    "of a bicubic resize": lambda b: ops.invert(ops.resize(ops.decode_jpeg(b, 3), (9, 9), "bicubic") / 255),
}


@pytest.mark.parametrize("function", RIGHT.values(), ids=RIGHT)
def test_a_map_that_may_be_meant_is_not_refused(function: Callable[[Any], Any]) -> None:
    assert len(list(gp.Dataset.from_list([jpeg()]).map(function))) == 1


def test_a_chain_that_is_very_deep_is_not_followed() -> None:
    """Whether it can run, running it says."""
    dataset = gp.Dataset.from_list([jpeg()]).map(unit)
    for _ in range(600):
        dataset = dataset.map(lambda x: x + 0.0)

    dataset.map(lambda x: reduce(lambda y, _: y + 0.0001, range(1500), x)).map(ops.invert)


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (RIGHT["as many channels as the image has"], "values_of_another_range"),
        (RIGHT["of a JPEG"], "values_of_another_range"),
        (RIGHT["darker by a half"], "values_of_another_range"),
        (lambda b: ops.convert_image_dtype(unit(b) - 0.5, "uint8"), "values_of_another_range"),
        (RIGHT["a mask in a plane"], "normalize_of_another_range"),
        (RIGHT["a few levels"], "scales_of_values"),
        (RIGHT["two levels"], "scales_of_values"),
    ],
)
def test_what_may_be_meant_is_found_by_check(function: Callable[[Any], Any], rule: str) -> None:
    assert rules_of(FILES.map(function)) == [rule]


def test_what_is_probably_wrong_is_logged_once_at_the_first_element(caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that no decoder made may be a mask of zeros and ones."""
    dataset = gp.Dataset.from_tensor_slices(X[None]).map(lambda x: ops.invert(ops.cast(x, "float32")))
    assert "values_of_another_range" in [finding.rule for finding in dataset.check()]

    for _ in range(2):
        list(dataset)

    assert [record.message.count("needs floats of 0..1, got values of 0..255") for record in caplog.records] == [1]


PAIRS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "two calls": (lambda x, m: (ops.random_rotation(x, 30), ops.random_rotation(m, 30)), True),
    "two flips": (lambda x, m: (ops.random_flip_up_down(x), ops.random_flip_up_down(m)), True),
    "another interpolation": (
        lambda x, m: (ops.random_rotation(x, 30, "bilinear"), ops.random_rotation(m, 30, fill=255)),
        True,
    ),
    "one call": (lambda x, m: ops.random_rotation((x, m), 30), False),
    "one seed": (lambda x, m: (ops.random_rotation(x, 30, seed=1), ops.random_rotation(m, 30, seed=1)), False),
    "two views of an image": (lambda x, m: (ops.random_rotation(x, 30), ops.random_rotation(x, 30), m), False),
    "colours": (lambda x, m: (ops.random_brightness(x, 0.1), ops.random_brightness(m, 0.1)), False),
    "other settings": (lambda x, m: (ops.random_rotation(x, 30), ops.random_rotation(m, 20)), False),
}


@pytest.mark.parametrize(("function", "found"), PAIRS.values(), ids=PAIRS)
def test_an_image_and_its_mask_that_two_calls_move_are_found(function: Callable[[Any, Any], Any], found: bool) -> None:
    dataset = gp.Dataset.from_tensor_slices((X[None], X[None, :, :, :1])).map(function)

    assert ("images_moved_apart" in [finding.rule for finding in dataset.check()]) is found
