"""Parameters that are wrong: an error of the user's line where that is known, else of the element they belong to."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, PlanTypeError, ShapeError, SpecError
from gpupipe.ops.adjust_brightness import AdjustBrightness
from gpupipe.transform import machine
from tests.ops.refusals import refused
from tests.ops.test_box_crops import BACKENDS
from tests.ops.test_result_dtypes import CALLS

X = np.random.default_rng(0).integers(0, 256, (6, 9, 8, 3), dtype=np.uint8)
NAN = float("nan")


def outcomes(dataset: gp.Dataset, backend: Any) -> list[Any]:
    """Every element, or the error in its place."""
    found: list[Any] = []
    with iter(dataset.with_options(gp.Options(device="cpu", backend=backend))) as items:
        while True:
            try:
                found.append(next(items))
            except StopIteration:
                return found
            except DataError as error:
                found.append(error)


def told(found: list[Any]) -> dict[int | None, str]:
    """What is said about each element that failed."""
    return {error.offset: error.reason for error in found if isinstance(error, DataError)}


Chain = Callable[[gp.Dataset, Callable[..., Any]], gp.Dataset]
CHAINS: dict[str, Chain] = {
    "map": lambda ds, fn: ds.map(fn),
    "map-batch": lambda ds, fn: ds.map(fn).batch(3),
    "batch-map": lambda ds, fn: ds.batch(6).map(fn),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_every_row_is_told_its_own_number(chain: Chain, backend: Any) -> None:
    deltas = np.array([0.1, 0.2, NAN, 0.4, 5, 0.6], np.float32)

    found = outcomes(chain(gp.Dataset.from_tensor_slices((X, deltas)), ops.adjust_hue), backend)

    needs = "adjust_hue needs delta from -1 to 1, got "
    assert told(found) == {2: f"{needs}nan", 4: f"{needs}5"}


def adjust_brightness(image: Any, delta: Any) -> Any:
    """The op on an element of two parts."""
    return ops.adjust_brightness(image, delta=delta)


SLICED = [[1, 2, 0, 3, -1, -1], [1, 2, 1, 3, -1, -1], [1, 2, 0, 3, -1, 2], [1, 2, 0, 3, -1, 3]]

ROWS: dict[str, tuple[Callable[..., Any], list[Any], dict[int, str]]] = {
    "padding": (lambda x, n: ops.pad_to_bounding_box(x, n, 0, 12, 8), [0, 4, 3], {1: "9x8 at (4, 0) in 12x8"}),
    "random_crop": (lambda x, n: ops.random_crop(x, (n, 2)), [9, 10, 3], {1: "its window of 10x2, got 9x8"}),
    "resize": (lambda x, n: ops.resize(x, (n, 4)), [1, 0, 3, 1 << 40], {1: "to 16777216, got 0", 3: "1099511"}),
    "resize_shorter": (ops.resize_shorter, [4, 0, 3, -5], {1: "length from 1 to 16777216, got 0", 3: "got -5"}),
    "center_crop": (lambda x, n: ops.center_crop(x, (n, 4)), [1, 0, -5], {1: "height from 1 to 1677", 2: "got -5"}),
    "contrast": (lambda x, n: ops.random_contrast(x, n, 2.0), [1.0, 2.0, 7.0], {1: "got 2 and 2", 2: "got 7 and 2"}),
    "turns": (ops.rot90, [1.0, 1.5, 2.0, NAN], {1: "an integer for k", 3: "got nan"}),
    "erasing": (ops.random_erasing, [0.5, NAN, 1.0, 5.0, -1.0], {1: "p from 0 to 1, got nan", 3: "got 5", 4: "got -1"}),
    "flip": (
        lambda x, n: ops.random_flip_left_right(x, p=n),
        [0.5, NAN, 5.0, -1.0],
        {1: "got nan", 2: "got 5", 3: "got -1"},
    ),
    "scale": (lambda x, n: ops.random_resized_crop(x, 4, scale=(n, 1.0)), [0.5, 0.0, 1.0], {1: "scale from 1e-06"}),
    "boxes": (
        lambda x, b: ops.crop_and_resize(x, b, crop_size=2),
        [[0, 0, 1, 1], [0, NAN, 1, 1]],
        {1: "needs boxes from"},
    ),
    "channels": (lambda x, n: ops.slice(x, n[:3], n[3:]), SLICED, {1: "got 1 and -1", 2: "got 0 and 2"}),
    "bits": (ops.posterize, [3, 9], {1: "bits from 0 to 8"}),
    "a mirror": (lambda x, n: ops.pad(x, (0, n, 0, 0), padding_mode="reflect"), [8, 9], {1: "[9, 0, 0, 0] for 9x8"}),
    "length": (ops.random_shortest_size, [4, 0], {1: "an integer for min_size from 1 to"}),
    "gamma": (ops.adjust_gamma, [0.5, -0.5, -1.0], {1: "gamma from 0 to inf, got -0.5", 2: "got -1"}),
    "brightness": (adjust_brightness, [0.5, NAN, np.inf], {1: "delta from -1 to 1, got nan", 2: "got inf"}),
    "quality": (ops.adjust_jpeg_quality, [50, 50.5, 0.1], {1: "an integer for jpeg_quality from 0 to 100", 2: "0.1"}),
    "a hue": (ops.random_hue, [0.5, 0.6, -0.1], {1: "max_delta from 0 to 0.5, got 0.6", 2: "got -0.1"}),
    "a brightness": (ops.random_brightness, [0.5, -0.1, -0.2], {1: "max_delta from 0 to 1, got -0.1", 2: "-0.2"}),
    "a saturation": (lambda x, n: ops.random_saturation(x, 0.5, n), [0.6, 0.5], {1: "lower below upper, got 0.5 and"}),
    "a quality": (lambda x, n: ops.random_jpeg_quality(x, n, 60), [50, 60], {1: "min_jpeg_quality below max"}),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("function", "numbers", "expected"), ROWS.values(), ids=ROWS)
def test_bounds_hold_at_run_time_for_each_element(
    function: Callable[..., Any], numbers: list[Any], expected: dict[int, str], backend: Any
) -> None:
    found = outcomes(gp.Dataset.from_tensor_slices((X[: len(numbers)], np.array(numbers))).map(function), backend)

    said = told(found)
    assert list(said) == list(expected)
    for row, text in expected.items():
        assert text in said[row]
    assert len(found) == len(numbers)


def test_what_is_a_size_is_a_shape_error_and_the_rest_is_not() -> None:
    sizes = gp.Dataset.from_tensor_slices((X, np.zeros(6, np.int64)))

    assert isinstance(outcomes(sizes.map(lambda x, n: ops.resize(x, (n, 4))), "numpy")[0], ShapeError)
    assert not isinstance(outcomes(sizes.map(lambda x, n: ops.adjust_hue(x, n + 2)), "numpy")[0], ShapeError)


@pytest.mark.parametrize("values", [[b"a"] * 6, np.zeros((6, 2))], ids=["bytes", "vectors"])
@pytest.mark.parametrize("op", [ops.rot90, adjust_brightness, ops.random_erasing, ops.resize_shorter])
def test_a_traced_value_that_is_no_number_is_refused_on_the_line(op: Any, values: Any) -> None:
    with pytest.raises(PlanTypeError, match=rf"{op.__name__} needs an? (number|integer) for .*, got"):
        gp.Dataset.from_tensor_slices((X, values)).map(op)


@pytest.mark.parametrize(
    ("values", "text"),
    [([b"a", b"b"], "a number for delta, got b'b'"), ([np.zeros(1), np.zeros(2)], r"got an array of shape \[2\]")],
    ids=["bytes", "vectors"],
)
def test_one_that_no_spec_tells_is_the_error_of_each_element(values: list[Any], text: str) -> None:
    column = np.empty(2, object)
    column[:] = values

    with pytest.raises(DataError) as caught:
        AdjustBrightness(column)

    assert caught.value.rows == (0, 1)
    with pytest.raises(DataError, match=text):
        raise caught.value.of_row(1)


COLOURS = """
    adjust_brightness adjust_contrast adjust_gamma adjust_hue color_jitter adjust_jpeg_quality random_contrast
    adjust_saturation per_image_standardization
""".split()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [np.inf, np.nan, 3e38], ids=str)
@pytest.mark.parametrize("name", COLOURS)
def test_floats_that_are_not_finite_make_no_noise_and_stay_in_their_image(name: str, bad: float, backend: Any) -> None:
    good = X.astype(np.float32) / 255
    images = good.copy()
    images[1, 2, 3, 0] = images[4] = bad

    found = outcomes(gp.Dataset.from_tensor_slices(images).map(CALLS[name]), backend)
    meant = outcomes(gp.Dataset.from_tensor_slices(good).map(CALLS[name]), backend)

    assert told(found) == {}  # a warning would be an error here
    for row in (0, 2, 3, 5):
        np.testing.assert_array_equal(found[row], meant[row])


SOME = np.random.default_rng(0).integers(0, 256, (3, 9, 11, 3), np.uint8)
BACKENDS = ["numpy", *(["dali"] if machine.has_dali() else []), *(["fast"] if machine.has_fast() else [])]


class InterpolationMode(enum.Enum):
    """As torchvision's."""

    BILINEAR = "bilinear"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_clip_that_is_rotated_may_become_larger(backend: str) -> None:
    ds = gp.Dataset.from_tensor_slices(SOME[None]).map(lambda clip: ops.rotate(clip, 20, expand=True))
    (found,) = ds.with_options(gp.Options(device="cpu", backend=backend))  # type: ignore[arg-type]

    np.testing.assert_array_equal(found, np.stack([ops.rotate(frame, 20, expand=True) for frame in SOME]))


NONE, NUMBERS = np.zeros((0, 2), np.float32), np.array([0.1, 0.2, 0.3], np.float32)
AN_ARRAY = r"needs a number for (delta|scale), got an array of shape \[3\]"
OTHER: Any = InterpolationMode.BILINEAR
SLICES = gp.Dataset.from_tensor_slices((SOME, NUMBERS))

test_what_is_wrong_is_named = refused(
    (PlanTypeError, "rotate needs a name for", lambda: ops.rotate(SOME[0], 10, OTHER)),
    (PlanTypeError, "affine needs a name for interpolation", lambda: ops.affine(SOME[0], interpolation=cast(Any, 2))),
    (PlanTypeError, "pad needs a name", lambda: ops.resize_with_pad(SOME[0], 10, 10, cast(Any, None))),
    (SpecError, "rotate needs one interpolation, or one per", lambda: ops.rotate(SOME[0], 10, ("nearest", "nearest"))),
    (SpecError, "posterize needs bits from 0 to 8", lambda: ops.posterize(SOME[0], 2**70)),
    (SpecError, "random_invert needs p from 0 to 1", lambda: ops.random_invert(SOME[0], 2**70)),
    (PlanTypeError, "amount as one number or two, got a traced value", lambda: SLICES.map(ops.salt_and_pepper)),
    (SpecError, "random_erasing needs a number for value, or .*, got none", lambda: ops.random_erasing(X[0], value=())),
    (SpecError, "mixup needs a batch of at least one row, got none", lambda: ops.mixup(X[:0], NONE)),
    (SpecError, "cutmix needs a batch of at least one row, got none", lambda: ops.cutmix(X[:0], NONE)),
    (SpecError, "rot90 needs a batch of at least one row, got none", lambda: ops.rot90(X[:0])),
    (PlanTypeError, AN_ARRAY, lambda: ops.adjust_brightness(X[0], delta=NUMBERS)),
    (PlanTypeError, AN_ARRAY, lambda: SLICES.map(lambda x, _: ops.adjust_brightness(x, delta=NUMBERS))),
    (PlanTypeError, AN_ARRAY, lambda: ops.random_resized_crop(X[0], (4, 4), scale=(NUMBERS, 1.0))),
)
