"""dali_function: any DALI operator inside a traced function, on the DALI executors only."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import GpupipeError, PlanError, PlanTypeError, SpecError
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.transform import choose
from tests.ops.refusals import refused

fn = pytest.importorskip("nvidia.dali.fn")

CPU = gp.Options(device="cpu", backend="dali")
HWC = gp.TensorSpec((None, None, 3), "uint8", "HWC")
X = np.random.default_rng(0).integers(0, 256, (6, 12, 16, 3), dtype=np.uint8)
IMAGES = gp.Dataset.from_tensor_slices(X)


def inverted(x: Any) -> Any:
    return 255 - x


def called(function: Any = fn.flip, spec: Any = HWC) -> gp.Dataset:
    return IMAGES.map(lambda x: ops.dali_function(function, x, spec=spec))


def photographs() -> list[bytes]:
    return [encoded(picture(20 + n, 30)) for n in range(6)]


def images_of(ds: Any, options: Any = CPU) -> list[Any]:
    return list(ds.with_options(options))


def test_an_operator_runs_between_ops_of_the_catalogue() -> None:
    def chain(image: Any) -> Any:
        image = ops.dali_function(lambda x: fn.cast(255 - x, dtype=_uint8()), ops.flip_left_right(image), spec=HWC)
        return ops.flip_up_down(image)

    got = images_of(IMAGES.map(chain))

    np.testing.assert_array_equal(np.stack(got), 255 - X[:, ::-1, ::-1])


def test_an_operator_itself_and_a_partial_of_it_are_functions() -> None:
    blur = functools.partial(fn.gaussian_blur, window_size=3, sigma=1.0)

    blurred = np.stack(images_of(called(blur)))
    np.testing.assert_allclose(blurred, ops.gaussian_blur(X, 3, 1.0), rtol=0, atol=1)  # rounded to uint8
    np.testing.assert_array_equal(np.stack(images_of(called(fn.flip))), X[:, :, ::-1])


def _uint8() -> Any:
    import nvidia.dali.types as types

    uint8: Any = types.DALIDataType.UINT8
    return uint8


def test_host_values_arrive_as_nodes_that_arguments_can_be() -> None:
    top = np.arange(6, dtype=np.float32)

    def chain(image: Any, y: Any) -> Any:
        cut = gp.TensorSpec((4, 16, 3), "uint8", "HWC")
        return ops.dali_function(
            lambda x, n: fn.slice(x, n, 4.0, axes=[0], normalized_anchor=False, normalized_shape=False),
            image,
            y * 1.0,
            spec=cut,
        )

    got = images_of(gp.Dataset.from_tensor_slices((X, top)).map(chain).batch(6))

    np.testing.assert_array_equal(got[0], [image[n : n + 4] for n, image in enumerate(X)])


def test_results_can_be_a_structure() -> None:
    spec = {"image": HWC, "sum": gp.TensorSpec((), "uint64")}

    def chain(image: Any) -> Any:
        result = ops.dali_function(lambda x: {"image": fn.flip(x), "sum": fn.reductions.sum(x)}, image, spec=spec)
        return ops.flip_left_right(result["image"]), result["sum"]

    got = images_of(IMAGES.map(chain))

    for (image, total), source in zip(got, X, strict=True):
        np.testing.assert_array_equal(image, source)
        assert total == source.sum()


def test_numpy_refuses_the_chain_and_explain_says_so() -> None:
    ds = called(inverted)
    numpy = ds.with_options(gp.Options(device="cpu", backend="numpy"))

    with pytest.raises(PlanError, match=r"dali_function cannot run as NumPy on CPU.*backend='dali'"):
        next(iter(numpy))
    assert "stage 1: NumPy on CPU, but dali_function cannot run as NumPy on CPU" in str(numpy.explain())
    text = str(ds.with_options(CPU).explain())
    assert "runs   dali_function(fn=inverted()) -> uint8[?,?,3]{HWC}, on DALI only" in text


def test_auto_takes_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "gpu_count", lambda: 0)
    ds = called()

    np.testing.assert_array_equal(np.stack(images_of(ds, gp.Options())), X[:, :, ::-1])


def test_geometry_goes_by_the_size_that_the_result_has() -> None:
    def twice(image: Any, **more: Any) -> Any:
        large = ops.dali_function(lambda x: fn.resize(x, resize_x=60, resize_y=44), image, spec=HWC, **more)
        return ops.center_crop(large, (40, 50))

    data = gp.Dataset.from_tensor_slices(photographs())
    ds = data.map(lambda b: twice(ops.decode_jpeg(b, 3))).batch(3)
    whole = data.map(
        lambda b: ops.dali_function(lambda x: fn.resize(x, resize_x=60, resize_y=44), ops.decode_jpeg(b, 3), spec=HWC)
    )

    got, meant = np.concatenate(images_of(ds)), np.stack(images_of(whole))

    np.testing.assert_array_equal(got, meant[:, 2:42, 5:55])
    assert str(ds.with_options(CPU).explain()).count("(transform)") == 2


def test_with_the_size_of_its_input_the_chain_is_one_stage() -> None:
    def chain(data: Any) -> Any:
        image = ops.dali_function(fn.flip, ops.decode_jpeg(data, 3), spec=HWC, same_size=True)
        return ops.center_crop(image, (9, 9))

    ds = gp.Dataset.from_tensor_slices(photographs()).map(chain).batch(3)

    assert str(ds.with_options(CPU).explain()).count("(transform)") == 1
    for image, data in zip(np.concatenate(images_of(ds)), photographs(), strict=True):
        np.testing.assert_array_equal(image, ops.center_crop(ops.decode_jpeg(data, 3)[:, ::-1], (9, 9)))


def _raises(x: Any) -> Any:
    raise ValueError("what is this")


LINE = r"test_dali_function.py:\d+"
UNLIKE = rf"dali_function \(.*{LINE}\) was declared as .*DALI gave"

test_a_result_unlike_its_spec_is_an_error_of_the_users_line = refused(
    (SpecError, UNLIKE, lambda: images_of(called(spec=gp.TensorSpec((None, None, 3), "float32", "HWC")))),
    (SpecError, UNLIKE, lambda: images_of(called(spec=gp.TensorSpec((12, 17, 3), "uint8", "HWC")))),
    (GpupipeError, rf"{LINE}.*needs to return nodes in the structure", lambda: images_of(called(lambda n: (n, n)))),
    (GpupipeError, "needs DALI nodes as results, got int", lambda: images_of(called(lambda n: 3))),
    (GpupipeError, r"cannot be built as DALI nodes.*what is this", lambda: images_of(called(_raises))),
)


def test_two_calls_that_look_the_same_are_two() -> None:
    spec = gp.TensorSpec((4,), "float32")

    def noise(image: Any) -> Any:
        return ops.dali_function(lambda x: fn.random.uniform(shape=[4]), image, spec=spec)

    def chain(image: Any) -> Any:
        return noise(image), noise(image)

    (batch,) = images_of(IMAGES.map(chain).batch(6))

    assert not np.array_equal(*batch)


def test_functions_are_told_apart_by_what_they_do() -> None:
    def chain(amount: int) -> Any:
        return called(lambda x: fn.cast(x // 2 + amount, dtype=_uint8()))

    assert chain(1).fingerprint() == chain(1).fingerprint()
    assert chain(1).fingerprint() != chain(2).fingerprint()
    for amount in (1, 2, 1):
        np.testing.assert_array_equal(np.stack(images_of(chain(amount))), X // 2 + amount)


test_mistakes_are_plan_errors = refused(
    (PlanError, "dali_function has no NumPy form and cannot take", lambda: ops.dali_function(fn.flip, X[0], spec=HWC)),
    (SpecError, "a numeric dtype and a rank", lambda: called(spec=gp.TensorSpec(None, "uint8"))),
    (PlanTypeError, "a TensorSpec for each result", lambda: called(spec="uint8")),
    (PlanTypeError, "needs a function", lambda: called(3)),
    (PlanError, "at least one argument", lambda: IMAGES.map(lambda x: ops.dali_function(fn.flip, spec=HWC))),
)


@pytest.mark.parametrize("hidden", [True, False], ids=["in-the-middle", "delivered"])
def test_a_wrong_promise_about_the_size_is_an_error(hidden: bool) -> None:
    def chain(image: Any) -> Any:
        small = ops.dali_function(lambda x: fn.resize(x, size=[4, 4]), image, spec=HWC, same_size=True)
        return ops.resize_with_crop_or_pad(small, 6, 6) if hidden else small

    with pytest.raises(SpecError, match=r"\(.*test_dali_function.py:\d+\) was declared as .*12,16,3.*4, 4, 3"):
        images_of(IMAGES.map(chain).batch(3))


def test_every_batch_is_checked() -> None:
    """An operator that keeps the size of most images: the first batch says nothing about the third."""
    rows = np.array([12, 12, 12, 12, 12, 7], np.float32)

    def chain(image: Any, n: Any) -> Any:
        cut = ops.dali_function(
            lambda x, n: fn.slice(x, 0.0, n, axes=[0], normalized_anchor=False, normalized_shape=False),
            image,
            n * 1.0,
            spec=HWC,
            same_size=True,
        )
        return ops.resize_with_crop_or_pad(cut, 6, 6)

    ds = gp.Dataset.from_tensor_slices((X, rows)).map(chain).batch(2).with_options(CPU)

    with iter(ds) as items:
        next(items)
        next(items)
        with pytest.raises(SpecError, match=r"DALI gave one of shape \[7, 16, 3\]"):
            next(items)


def test_a_promise_that_is_kept_costs_no_element() -> None:
    def chain(image: Any) -> Any:
        both = (HWC, gp.TensorSpec((2, None, 3), "uint8"))
        made, top = ops.dali_function(
            lambda x: (fn.cast(255 - x, dtype=_uint8()), x[0:2]), image, spec=both, same_size=True
        )
        return ops.resize_with_crop_or_pad(made, 6, 6), top

    got = images_of(IMAGES.map(chain).batch(4))

    assert [len(images) for images, _ in got] == [4, 2]
    np.testing.assert_array_equal(np.concatenate([images for images, _ in got]), 255 - X[:, 3:9, 5:11])
    np.testing.assert_array_equal(np.concatenate([top for _, top in got]), X[:, :2])
