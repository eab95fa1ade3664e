"""The fused ops that only the optimizer makes, with parameters, against their parts on every executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.comparison.steps.tolerance import GPU_DECODING
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Op
from gpupipe.graph.values import Apply, Input, Value
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD
from gpupipe.spec import TensorSpec
from gpupipe.transform.program import Feed, Program
from tests.conformance.harness import EXECUTORS, decomposed, host, make_executor

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
    specs = [first, *(TensorSpec(p.shape[1:], p.dtype) for p in params)]
    inputs: list[Value] = [Input(i, spec) for i, spec in enumerate(specs)]
    program = Program((Apply(op, (inputs[0],), tuple(inputs[1:])),))
    columns: list[Any] = [rows, *params]
    executor = make_executor(kind, program, len(rows))
    try:
        executor.submit(Feed(len(rows), tuple(columns[inputs.index(value)] for value in program.inputs)))
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
