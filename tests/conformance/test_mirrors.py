"""Images that are mirrored after a resize: on a CPU DALI's resize mirrors them itself, with the result of the parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe.graph.op import Array, Op
from gpupipe.graph.values import Apply, Const, Input, Value
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.decode_smaller import ResizeWindow
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops._shared.samples import picture
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD
from gpupipe.ops.resize import Resize
from gpupipe.spec import TensorSpec
from gpupipe.transform.dali.mirrors import mirrored_resizes
from gpupipe.transform.program import Feed, Program
from tests.conformance.harness import EXECUTORS, host, make_executor

pytestmark = pytest.mark.conformance

IMAGES = [picture(45, 60), picture(24, 31), picture(20, 90), picture(70, 25)]  # smaller, as large, wider, narrower
SIZE = np.array([[24, 31]] * 4, np.int32)
BOXES = np.array([[0.5, 3.25, 40, 60], [0, 0, 24, 31], [2, 10.5, 19.5, 80], [0, 0, 70, 25]], np.float32)
MIRRORS = np.array([1, 1, 0, 1], np.int32)
IMAGE = Input(0, TensorSpec((None, None, 3), "uint8", "HWC"))
HOW = {"keep": {"keep_dtype": True}, "float": {}}


def resized(how: dict[str, Any], antialias: bool, part: bool = False) -> Apply:
    """A resize of the image, or of a part of it, by what is fed."""
    op = Resize(None, None, antialias=antialias, **how)
    size, box = Input(2, TensorSpec((2,), "int32")), Input(3, TensorSpec((4,), "float32"))
    return Apply(ResizeWindow(op), (IMAGE, box), (size,)) if part else Apply(op, (IMAGE,), (size,))


def mirror(op: Op, image: Value) -> Apply:
    """The op on an image, with the parameter that says whether it is mirrored."""
    return Apply(op, (image,), (Input(1, TensorSpec((), "int32")),))


def run(value: Apply, kind: str) -> list[Array]:
    """The value of each of the four images."""
    program = Program((value,))
    columns: list[Any] = [IMAGES, MIRRORS, SIZE, BOXES]
    executor = make_executor(kind, program, 4)
    try:
        executor.submit(Feed(4, tuple(columns[leaf.index] for leaf in program.inputs if isinstance(leaf, Input))))
        (result,) = executor.collect()
    finally:
        executor.close()
    return [host(row) for row in result]


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize("antialias", [False, True], ids=["plain", "aa"])
@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_a_mirrored_resize_gives_what_a_resize_and_a_flip_give(
    how: dict[str, Any], antialias: bool, part: bool, kind: str
) -> None:
    apart = run(resized(how, antialias, part), kind)

    together = run(mirror(Flip("left_right"), resized(how, antialias, part)), kind)

    for one, other, flip in zip(apart, together, MIRRORS, strict=True):
        assert other.shape == (24, 31, 3)
        # sums in another order, in float32: 0.0003 of 255, next to n + 0.5 another integer
        atol = (1 if how else 0.001) if flip and kind.startswith("dali") else 0
        expected = one[:, ::-1] if flip else one
        np.testing.assert_allclose(other.astype(float), expected.astype(float), rtol=0, atol=atol)
        assert np.abs(other.astype(float) - expected.astype(float)).mean() < 0.01
        assert not flip or np.abs(other.astype(float) - one).mean() > 5  # not the image as it was


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_a_normalised_image_is_mirrored_by_its_resize(layout: Any, kind: str) -> None:
    resize = resized({"keep_dtype": True}, True)
    flip = mirror(Flip("left_right"), resize)
    fused = CropMirrorNormalize(IMAGENET_MEAN, IMAGENET_STD, layout, mirrored=True)

    rows = run(mirror(fused, resize), kind)

    for row, image in zip(rows, run(flip, kind), strict=True):
        expected = CropMirrorNormalize(IMAGENET_MEAN, IMAGENET_STD, layout).reference(image)
        # on the GPU one fused multiply-add may take the place of a product and a sum
        np.testing.assert_allclose(row, expected, rtol=0, atol=1e-6 if kind == "dali-gpu" else 0)


def test_which_resizes_mirror() -> None:
    resize = resized({"keep_dtype": True}, True)
    flip = Flip("left_right")
    normalize = CropMirrorNormalize(mirrored=True)

    def found(*outputs: Value) -> list[Value]:
        return list(mirrored_resizes(Program(outputs)))

    by = mirror(flip, resize)
    assert found(by) == found(mirror(normalize, resize)) == [resize]
    part = resized({}, False, part=True)
    assert found(mirror(flip, part)) == [part]
    # what is used twice, or delivered
    assert not found(by, mirror(normalize, resize))
    assert not found(by, resize)
    # what mirrors up-down, crops first, or always
    assert not found(mirror(Flip("up_down"), resize))
    cropped = CropMirrorNormalize(mirrored=True, crop=Crop(3, 3))
    window = (Input(4, TensorSpec((2,), "int32")), Input(5, TensorSpec((2,), "int32")))
    assert not found(Apply(cropped, (resize,), (*window, by.params[0])))
    assert not found(Apply(flip, (resize,), (Const(np.int32(1)),)))
    # other methods, and images of channels that are not known
    assert not found(mirror(flip, Apply(Resize(24, 31, "bicubic"), (IMAGE,), resize.params)))
    assert not found(mirror(flip, IMAGE))
    unknown = Input(0, TensorSpec((None, None, None), "uint8", "HWC"))
    assert not found(mirror(flip, Apply(resize.op, (unknown,), resize.params)))
