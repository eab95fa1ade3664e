"""random_apply, random_choice and return_params: what is chosen and drawn for each image, on every executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, ops
from gpupipe.errors import PlanTypeError, ShapeError, SpecError
from gpupipe.ops._shared.samples import noise
from tests.ops.refusals import refused
from tests.ops.value_chains import (
    BACKENDS,
    assert_equal,
    assert_same_by_place_and_resumed,
    dataset,
    mask_of,
    on,
    photo,
    rows,
)

X = noise(6, 5)


def applied(image: Any, mask: Any, label: Any) -> Any:
    return ops.random_apply(ops.flip_left_right, photo(image), 0.5), photo(image), label


def chosen(image: Any, mask: Any, label: Any) -> Any:
    x = photo(image)
    return (
        ops.random_choice([ops.flip_left_right, lambda y: ops.adjust_brightness(y, delta=0.2), lambda y: y], x),
        x,
        label,
    )


STEPS: list[Any] = [ops.flip_left_right, lambda y: ops.adjust_brightness(y, delta=0.3), ops.invert]
"""The last two give another result the other way round."""


def ordered(image: Any, mask: Any, label: Any) -> Any:
    return ops.random_order(STEPS, photo(image)), photo(image), label


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [applied, chosen, ordered])
def test_every_executor_and_batch_size_chooses_the_same(fn: Any, backend: str) -> None:
    got = rows(fn, backend, 3, threads=2)

    assert_equal(got, rows(fn, "numpy", 8, threads=1))


def in_order(image: Any, order: Any) -> Any:
    for step in order:
        image = step(image)
    return image


def test_a_batch_outside_of_a_chain_has_an_order_for_each_image() -> None:
    x = np.full((64, 3, 3, 1), 5, np.uint8)
    steps = [lambda z: z + np.uint8(1), lambda z: z * np.uint8(2)]

    made = ops.random_order(steps, x)
    first, second = ops.random_order([lambda both: tuple(z + np.uint8(1) for z in both)], (x, x))

    assert set(np.unique(made)) == {11, 12} and made.shape == x.shape
    np.testing.assert_array_equal(first, x + 1)
    np.testing.assert_array_equal(second, x + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clips_are_taken_frame_by_frame_with_one_draw(backend: str) -> None:
    clips = np.stack([noise(6, 5)[None].repeat(3, axis=0) for _ in range(8)])
    chain = Dataset.from_tensor_slices(clips).with_options(on(backend))
    steps = [ops.invert, lambda y: ops.adjust_brightness(y, delta=0.3)]

    for call in (ops.random_order, ops.random_choice):
        found = list(chain.map(lambda x, call=call: call(steps, x)))

        assert all(x.shape == (3, 6, 5, 3) and (x == x[:1]).all() for x in found)
        assert len({x.tobytes() for x in found}) == 2


def test_p_0_and_1_are_never_and_always() -> None:
    for p, meant in ((0, X), (1, X[:, ::-1])):
        np.testing.assert_array_equal(ops.random_apply(ops.flip_left_right, X, p), meant)
        both = [ops.flip_up_down, ops.flip_left_right]
        np.testing.assert_array_equal(ops.random_choice(both, X, [1 - p, p]), (X[::-1], X[:, ::-1])[p])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_image_and_its_mask_are_changed_together(backend: str) -> None:
    def pair(image: Any, mask: Any, label: Any) -> Any:
        x, m = photo(image), mask_of(mask)
        made = ops.random_apply(lambda both: tuple(map(ops.flip_left_right, both)), (x, m), seed=1)
        flips = [lambda both: both, lambda both: tuple(ops.random_flip_up_down(both, p=1))]
        return *made, *ops.random_choice(flips, (x, m)), x, m

    got = rows(pair, backend)
    assert_equal(got, rows(pair, "numpy", 8))
    for a, am, c, cm, x, m in got:
        np.testing.assert_array_equal(am, m if np.array_equal(a, x) else m[:, ::-1])
        np.testing.assert_array_equal(cm, m if np.array_equal(c, x) else m[::-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_access_and_a_resumed_run_choose_the_same(backend: str) -> None:
    assert_same_by_place_and_resumed(dataset().map(chosen).with_options(on(backend)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_results_of_another_size_at_run_time_are_errors_of_their_elements(backend: str) -> None:
    def turned(image: Any, mask: Any, label: Any) -> Any:
        return ops.center_crop(ops.random_apply(ops.rot90, ops.decode_png(image, channels=3)), (9, 9)), label

    chain = dataset().map(turned).batch(2).with_options(on(backend))
    with pytest.raises(ShapeError, match=r"random_apply: needs images of one size, got \[30, 20\] and \[20, 30\]"):
        next(iter(chain))
    square = chain.with_options(on(backend, on_error="skip"))
    assert [int(y) for _, y in square.unbatch()] == [5]  # 25 x 25


def applied_to_photos(function: Any) -> Any:
    return dataset().map(lambda image, mask, label: ops.random_apply(function, photo(image)))


test_mistakes_name_what_is_needed = refused(
    (SpecError, r"one type.*uint8\[12,12,1\].*uint8\[12,12,3\]", lambda: applied_to_photos(ops.rgb_to_grayscale)),
    (SpecError, r"one type.*float64.*uint8.*ops\.cast", lambda: ops.random_choice([lambda x: x / 2, lambda x: x], X)),
    (SpecError, "results of one type", lambda: ops.random_choice([lambda x: x[:3], lambda x: x], X)),
    (SpecError, "random_apply needs p from 0 to 1, got 2", lambda: ops.random_apply(ops.flip_up_down, X, 2)),
    (PlanTypeError, "functions that return what they are given, got None", lambda: applied_to_photos(lambda x: None)),
    (PlanTypeError, "random_apply needs functions of an image, got float", lambda: ops.random_apply(0.5, X)),  # type: ignore[arg-type]
    (PlanTypeError, "random_choice needs a list of functions", lambda: ops.random_choice(ops.flip_up_down, X)),  # type: ignore[arg-type]
    (SpecError, "p as 1 numbers, not all of them 0", lambda: ops.random_choice([ops.flip_up_down], X, (0,))),
    (PlanTypeError, "p as a number for each function, got 'ab'", lambda: ops.random_choice([ops.invert], X, "ab")),  # type: ignore[arg-type]
    (PlanTypeError, "a list of 1 to 6 functions of an image, got 7", lambda: ops.random_order([ops.invert] * 7, X)),
    (PlanTypeError, "functions of an image, got ndarray", lambda: ops.random_order(X, [ops.invert])),  # type: ignore[arg-type]
    (PlanTypeError, "functions that return one image for each", lambda: ops.random_order([lambda y: (y, y)], X)),
    (SpecError, "random_order needs results of one type", lambda: ops.random_order([lambda x: x / 2, lambda x: x], X)),
    (SpecError, "needs images, got int64", lambda: Dataset.range(2).map(lambda x: ops.random_apply(lambda y: y, x))),
)


# ---- return_params


def windows(image: Any, mask: Any, label: Any) -> Any:
    x = ops.decode_png(image, channels=3)
    crop, a = ops.random_crop(x, (9, 8), return_params=True)
    resized, b = ops.random_resized_crop(x, (9, 9), return_params=True)
    (left, m), c = ops.random_flip_left_right((photo(image), mask_of(mask)), return_params=True)
    up, d = ops.random_flip_up_down(photo(image), return_params=True)
    again = ops.slice(x, (a[0], a[1], 0), (9, 8, -1))
    return crop, a, again, resized, b, left, m, c, up, d, photo(image), mask_of(mask)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_drawn_is_what_was_done(backend: str) -> None:
    flips = set()
    for number, row in enumerate(rows(windows, backend)):
        crop, a, again, _, b, left, m, c, up, d, whole, mask = row
        np.testing.assert_array_equal(crop, again)
        assert a.dtype == b.dtype == np.int32 and a.tolist()[2:] == [9, 8]
        height, width = 20 + number, 30 - number
        assert 0 <= b[0] <= b[0] + b[2] <= height and 0 <= b[1] <= b[1] + b[3] <= width
        assert c.dtype == d.dtype == np.bool_
        np.testing.assert_array_equal(left, whole[:, ::-1] if c else whole)
        np.testing.assert_array_equal(m, mask[:, ::-1] if c else mask)
        np.testing.assert_array_equal(up, whole[::-1] if d else whole)
        flips |= {(bool(c), bool(d))}
    assert len(flips) > 1


def test_eager_calls_return_them_too() -> None:
    crop, (y, x, h, w) = ops.random_crop(X, (3, 2), return_params=True)
    np.testing.assert_array_equal(crop, X[y : y + h, x : x + w])

    flipped, was = ops.random_flip_up_down(X, p=1, return_params=True)
    assert was.dtype == np.bool_ and bool(was)
    np.testing.assert_array_equal(flipped, X[::-1])

    batch = np.stack([X] * 4)
    crops, four = ops.random_crop(batch, (3, 2), return_params=True)
    assert crops.shape == (4, 3, 2, 3) and four.shape == (4, 4)
    (one, two), window = ops.random_resized_crop((X, X[..., :1]), 4, return_params=True, interpolation="nearest")
    assert one.shape == (4, 4, 3) and two.shape == (4, 4, 1) and window.shape == (4,)
