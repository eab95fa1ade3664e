"""The form of an op for a stack of elements: bit-identical to the reference of each, and what the executor computes."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest

from gpupipe.graph.arithmetic import Arithmetic
from gpupipe.graph.host_values import is_image
from gpupipe.graph.op import Array, Case, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops._shared.reverse import Reverse
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.ops.normalize import IMAGENET_MEAN, IMAGENET_STD
from gpupipe.spec import as_leaf
from gpupipe.transform.numpy import NumpyExecutor
from tests.conformance.harness import ROWS, Batch

pytestmark = pytest.mark.conformance

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
