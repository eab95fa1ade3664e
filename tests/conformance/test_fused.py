"""Forms of ops that only the optimizer or an executor takes, fused and for a stack of elements, against their parts."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.comparison.steps.tolerance import GPU_DECODING
from gpupipe.errors import SpecError
from gpupipe.graph.arithmetic import Arithmetic
from gpupipe.graph.host_values import is_image
from gpupipe.graph.op import Array, Case, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.decode_resize_crop import DecodeResizeCrop
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import encoded, noise, picture
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD
from gpupipe.ops.resize import Resize
from gpupipe.spec import TensorSpec, as_leaf
from gpupipe.transform.numpy import NumpyExecutor
from tests.conformance.harness import EXECUTORS, ROWS, Batch, decomposed, given, host, make_executor

pytestmark = pytest.mark.conformance

IMAGE = picture(45, 60)
STARTS = np.array([[0, 0], [21, 29], [7, 0], [20, 1]], np.int32)  # the first and the last place, and others
SHAPES = np.array([[24, 31]] * 4, np.int32)
MIRRORS = np.array([1, 0, 1, 0], np.int32)

OPS = [
    CropMirrorNormalize(IMAGENET_MEAN, IMAGENET_STD, layout, mirrored, crop)
    for layout in ("HWC", "CHW")
    for mirrored in (False, True)
    for crop in (None, Crop(24, 31), Crop())
    if mirrored or crop is not None
]


def name_of(op: CropMirrorNormalize) -> str:
    """A short name of an op for the test's id."""
    crop = "" if op.crop is None else "-crop" if op.crop.height is None else "-crop24x31"
    return f"{op.layout}{'-mirror' * op.mirrored}{crop}"


def parameters(op: CropMirrorNormalize) -> list[Array]:
    """The arrays[B, ...] that such an op takes."""
    return [*([STARTS, SHAPES] if op.crop else []), *([MIRRORS] if op.mirrored else [])]


def run(op: Op, first: TensorSpec, rows: list[Any], params: list[Array], kind: str) -> list[Array]:
    """The op on an executor, with parameters that are given."""
    program, feed = given(op, first, rows, params)
    executor = make_executor(kind, program, len(rows))
    try:
        executor.submit(feed)
        (result,) = executor.collect()
    finally:
        executor.close()
    return [host(row) for row in result]


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_one_pass_gives_what_the_parts_give(op: CropMirrorNormalize, kind: str) -> None:
    params = parameters(op)

    rows = run(op, TensorSpec((None, None, 3), "uint8", "HWC"), [IMAGE] * 4, params, kind)

    for row, result in enumerate(rows):
        expected = decomposed(op, [IMAGE, *(p[row] for p in params)])
        assert result.dtype == np.float32
        # on the GPU one fused multiply-add may take the place of a product and a sum
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 if kind == "dali-gpu" else 0)


@pytest.mark.parametrize("op", OPS, ids=name_of)
def test_the_result_can_be_written_into_the_batch(op: CropMirrorNormalize) -> None:
    arguments = [IMAGE, *(p[1] for p in parameters(op))]
    expected = decomposed(op, arguments)
    batch = np.full((2, *expected.shape), 7, np.float32)

    result = op.reference(*arguments, out=batch[1])

    assert result is not None
    assert np.shares_memory(result, batch)
    np.testing.assert_array_equal(batch[1], expected)
    assert (batch[0] == 7).all()


def test_sizes_follow_the_crop() -> None:
    hw = np.array([[45, 60]] * 4, np.int32)

    np.testing.assert_array_equal(CropMirrorNormalize(mirrored=True).size(hw, MIRRORS), hw)
    np.testing.assert_array_equal(CropMirrorNormalize(crop=Crop()).size(hw, STARTS, SHAPES), SHAPES)


def test_a_crop_that_pads_is_no_part_of_it() -> None:
    with pytest.raises(SpecError, match="inside the image"):
        CropMirrorNormalize(crop=Crop(pad=True))


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("crop", [Crop(), Crop(24, 31)], ids=["varying", "static"])
@pytest.mark.parametrize("upright", [False, True], ids=["as-stored", "upright"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_decoded_window_is_the_window_of_the_decoded_image(
    channels: int, upright: bool, crop: Crop, kind: str
) -> None:
    files = [encoded(IMAGE, quality=90, subsampling=2, orientation=n) for n in (1, 3)]
    files += [encoded(IMAGE[:, :, :1], quality=90), encoded(IMAGE, quality=90, progressive=True)]
    decode = DecodeJpeg(channels, upright)

    rows = run(DecodeCrop(decode, crop), TensorSpec((), bytes), files, [STARTS, SHAPES], kind)

    for file, start, shape, result in zip(files, STARTS, SHAPES, rows, strict=True):
        expected = crop.reference(decode.reference(file), start, shape)
        assert result.dtype == np.uint8
        np.testing.assert_allclose(
            result.astype(int), expected.astype(int), rtol=0, atol=GPU_DECODING if kind == "dali-gpu" else 0
        )


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("keep", [False, True])
def test_a_window_of_a_resized_image_is_that_of_its_parts(keep: bool, kind: str) -> None:
    op = DecodeResizeCrop(DecodeJpeg(3), Resize(antialias=True, keep_dtype=keep), Crop(20, 30))
    files = [encoded(picture(90 + n, 120), quality=90) for n in range(2)]
    params = [np.array([value] * 2, np.int32) for value in ((45, 50), (12, 9), (20, 30))]

    results = run(op, TensorSpec((), bytes), files, params, kind)

    for file, result in zip(files, results, strict=True):
        expected = op.reference(file, *(p[0] for p in params))
        assert result.dtype == expected.dtype
        # integers are rounded; DALI's kernels are tables, and a GPU decodes by up to 3 levels otherwise
        atol = 4 if kind == "dali-gpu" else 1 if keep else 0.4
        np.testing.assert_allclose(result.astype(float), expected, rtol=0, atol=atol)


def test_what_is_drawn_behind_a_fused_op_is_drawn_for_its_size() -> None:
    """Arrays do not say their layout, and the op's `layout` is that of its result."""

    def train(x: Any) -> Any:
        x = ops.normalize(ops.random_flip_left_right(x), mean=0.0, std=1.0)
        return ops.random_erasing(ops.transpose(x, "CHW"), p=1.0)

    ds = Dataset.from_tensor_slices(np.full((40, 32, 32, 3), 100, np.uint8)).map(train).batch(40)
    fused, apart = (
        next(ds.with_options(Options(device="cpu", seed=1, disabled_rules=rules)).iterator(epoch=0))
        for rules in ((), ("fuse_crop_mirror_normalize",))
    )

    np.testing.assert_array_equal(fused, apart)
    assert (fused == 0).any(axis=(0, 1, 2)).all()  # windows are anywhere in the image


CLASSES: tuple[type[Op], ...] = (*CATALOGUE, Arithmetic)

Work = tuple[Op, list[Array], list[Array]]
"""An op, stacks of its inputs, and its parameters."""


def column(value: Any) -> Array:
    """A stack of rows that differ."""
    return np.stack([np.roll(value, n) for n in range(ROWS)])


def of_cases() -> Iterator[Any]:
    """The cases of the catalogue, each as one op, or as its parts, one after another."""
    for case in (case for cls in CLASSES for case in cls.cases()):
        parts = case.op.decompose() or ((case.op, tuple(range(len(case.op.parameters)))),)
        if not all(part.supports("stacked") for part, _ in parts):
            continue
        batch = Batch.of(case)
        drawn = [np.asarray(batch.values.rows(param)) for param in batch.call.params]
        xs = [column(as_leaf(x)) for x in case.inputs]
        for n, (part, taken) in enumerate(parts):
            params = [drawn[i] for i in taken]
            made = references((part, xs, params))
            if len({row.shape for row in made}) > 1:
                break  # sizes that are drawn for each element: they are no stack
            yield pytest.param((part, xs, params), id=f"{case}-{n}" if len(parts) > 1 else str(case))
            xs = [np.stack(made)]


def of_windows() -> Iterator[Any]:
    """Crops, flips and what the optimizer makes of them."""
    photo, real = column(noise(9, 8)), column(noise(9, 8, 1, dtype=np.float32))
    inside = np.array([[0, 0], [4, 3], [2, 0], [4, 1], [1, 3]], np.int32)
    far = np.array([[-3, 5], [-40, 2], [7, 90], [0, 0], [2, -4]], np.int32)
    shape, flags = np.array([[5, 5]] * ROWS, np.int32), np.array([0, 1, 1, 0, 1], np.int32)
    for x in (photo, real):
        name = x.dtype.name
        yield pytest.param((Crop(5, 5), [x], [inside, shape]), id=f"crop-{name}")
        yield pytest.param((Crop(5, 5, pad=True), [x], [far, shape]), id=f"crop-beyond-{name}")
        yield pytest.param((Crop(5, 5, pad=True), [x], [inside, shape]), id=f"crop-padding-nothing-{name}")
        yield pytest.param((Crop(9, 8), [x], [inside * 0, shape * 0 + (9, 8)]), id=f"crop-whole-{name}")
        for direction in ("left_right", "up_down"):
            yield pytest.param((Flip(direction), [x], [flags]), id=f"flip-{direction}-{name}")
        for columns, lines in ((True, True), (False, True), (True, False)):
            yield pytest.param((Reverse(columns, lines), [x], []), id=f"reverse-{columns}-{lines}-{name}")
    turned = photo.transpose(0, 2, 1, 3)
    yield pytest.param((Crop(5, 5), [turned], [inside[:, ::-1], shape]), id="crop-of-a-view")
    for layout in ("HWC", "CHW"):
        for mirrored in (False, True):
            for crop in (None, Crop(5, 5)):
                op = CropMirrorNormalize(IMAGENET_MEAN, IMAGENET_STD, layout, mirrored, crop)
                params = [*([inside, shape] if crop else []), *([flags] if mirrored else [])]
                yield pytest.param((op, [photo], params), id=f"fused-{layout}-{mirrored}-{crop is not None}")


def references(work: Work) -> list[Array]:
    """The reference, row by row."""
    op, xs, params = work
    return [np.asarray(op.reference(*row)) for row in zip(*xs, *params, strict=True)]


WORKS = [*of_cases(), *of_windows()]


@pytest.mark.parametrize("work", WORKS)
def test_a_stack_gives_exactly_what_the_reference_gives_row_by_row(work: Work) -> None:
    op, xs, params = work
    expected, before = np.stack(references(work)), [x.copy() for x in xs]

    got = op.stacked(*xs, *params)

    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes()
    assert all(x.tobytes() == old.tobytes() for x, old in zip(xs, before, strict=True))
    if "out" in signature(op.stacked).parameters:
        out = np.empty_like(expected)
        keyword: Any = {"out": out}
        assert op.stacked(*xs, *params, **keyword) is out
        assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "case",
    [case for cls in CLASSES for case in cls.cases() if case.op.supports("stacked") and is_image(Batch.of(case).call)],
    ids=str,
)
def test_the_executor_makes_no_call_for_each_row(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch.of(case)
    monkeypatch.delattr(NumpyExecutor, "_row")

    rows = batch.run("numpy")

    for (got,), (expected,) in zip(rows, batch.references(), strict=True):
        assert got.tobytes() == expected.tobytes()


def test_windows_of_two_sizes_and_beyond_the_image_are_refused() -> None:
    x, two = np.zeros((2, 9, 8, 3), np.uint8), np.array([[5, 5], [5, 4]], np.int32)
    with pytest.raises(ValueError, match="windows of one size"):
        Crop(5, 5).stacked(x, two * 0, two)
    shape = np.array([[5, 5]] * 2, np.int32)
    for start in ([[0, 0], [-1, 0]], [[0, 0], [5, 0]], [[0, 0], [0, 4]]):
        with pytest.raises(IndexError, match=r"inside the images|out of bounds"):
            Crop(5, 5).stacked(x, np.array(start, np.int32), shape)


def test_every_op_of_a_chain_for_small_images_has_such_a_form() -> None:
    covered = {type(work.values[0][0]).__name__ for work in WORKS}

    assert covered >= {"Arithmetic", "Cast", "ConvertImageDtype", "Crop", "CropMirrorNormalize", "Flip", "Normalize",
                       "Reverse", "Transpose"}  # fmt: skip
