"""Ops on clips, [T,H,W,C]: every frame as the op's reference has it, with one draw, on every executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import SpecError
from gpupipe.graph.frames import Frames
from gpupipe.graph.op import Array, Case
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.ops.dali_function import DaliFunction
from gpupipe.ops.resize import ResizeArea
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS, Batch, assert_close, host

pytestmark = pytest.mark.conformance

CLIPS = np.random.default_rng(0).integers(0, 256, (3, 4, 12, 14, 3)).astype(np.uint8)


def frames_of(image: Array) -> Array:
    """A clip of three different frames of one dtype."""
    return np.stack([image, image[::-1, ::-1], np.roll(image, 1, axis=0)])


def cases() -> Iterator[Case]:
    """The first cases of every op on images, each with three frames in place of the image."""
    for cls in CATALOGUE:
        if (
            cls.decodes
            or cls.rows == "batch"
            or cls is DaliFunction
            or (cls.domain != "image" and cls is not ResizeArea)
        ):
            continue
        good = [case for case in cls.cases() if set(case.layouts) == {"HWC"}]
        for case in {id(case): case for case in (*good[:1], *good[-1:])}.values():
            yield replace(
                case,
                op=Frames(case.op),
                inputs=tuple(map(frames_of, case.inputs)),
                layouts=tuple("T" + layout for layout in case.layouts if layout),
                atol=max(case.atol, case.ring or 0),  # the ring of a frame is not that of the clip
                ring=None,
                reason=case.reason,
            )


CASES = list(cases())


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_clip_is_its_frames(case: Case, kind: str) -> None:
    batch = Batch.of(case, varying=True, rows=2)
    op = case.op
    assert isinstance(op, Frames)

    for row, got in enumerate(batch.run(kind)):
        arguments = batch.arguments(row)
        clips, params = arguments[: len(case.inputs)], arguments[len(case.inputs) :]
        frames = [op.op.reference(*(clip[t] for clip in clips), *params) for t in range(3)]
        expected = zip(*frames, strict=True) if isinstance(frames[0], tuple) else [tuple(frames)]
        for result, meant, spec in zip(got, expected, batch.call.specs, strict=True):
            assert_close(result, np.stack(meant), case, None, kind)
            assert spec.layout is not None and spec.layout.startswith("T")


@pytest.mark.parametrize("kind", EXECUTORS)
def test_clips_become_batches_and_batches_are_taken(kind: str) -> None:
    def augmented(x: Any) -> Any:
        x = ops.random_flip_left_right(ops.random_crop(x, (8, 8), seed=3), seed=4)
        return ops.transpose(ops.convert_image_dtype(x, "float32"))

    before = gp.Dataset.from_tensor_slices(CLIPS).map(augmented).batch(3)
    after = gp.Dataset.from_tensor_slices(CLIPS).batch(3).map(augmented)

    assert str(before.element_spec) == "float32[?,4,3,8,8]{NTCHW}"
    (first,) = before.with_options(on(kind)).iterator(epoch=0)
    (second,) = after.with_options(on(kind)).iterator(epoch=0)
    assert first.shape == (3, 4, 3, 8, 8)
    np.testing.assert_array_equal(host(first), host(second))


@pytest.mark.parametrize("kind", EXECUTORS)
def test_what_a_clip_drew_is_one_window_for_its_masks_too(kind: str) -> None:
    ds = gp.Dataset.from_tensor_slices((CLIPS, CLIPS[..., :1])).map(
        lambda x, m: (x, *ops.random_crop((x, m), (5, 6), return_params=True))
    )

    for clip, (crop, mask), (y, left, height, width) in ds.with_options(on(kind)):
        np.testing.assert_array_equal(crop, clip[:, y : y + height, left : left + width])
        np.testing.assert_array_equal(crop[..., :1], mask)


@pytest.mark.parametrize("kind", EXECUTORS)
def test_clips_may_have_any_number_of_frames(kind: str) -> None:
    clips = [CLIPS[0, :2], CLIPS[1], CLIPS[2, :1]]
    spec = gp.TensorSpec((None, None, None, 3), "uint8", "THWC")
    ds = gp.Dataset.from_generator(lambda: iter(clips), output_signature=spec).map(ops.flip_left_right)

    for got, clip in zip(ds.with_options(on(kind)), clips, strict=True):
        np.testing.assert_array_equal(got, clip[:, :, ::-1])


def test_an_array_of_rank_5_is_a_batch_of_clips() -> None:
    got = ops.random_crop(CLIPS, (5, 6), seed=1)
    still = ops.random_crop(np.repeat(CLIPS[:, :1], 4, axis=1), (5, 6), seed=1)

    assert got.shape == (3, 4, 5, 6, 3)
    np.testing.assert_array_equal(still, np.repeat(still[:, :1], 4, axis=1))
    np.testing.assert_array_equal(ops.flip_up_down(CLIPS), CLIPS[:, :, ::-1])
    np.testing.assert_array_equal(ops.adjust_contrast(CLIPS, 1.5)[1, 2], ops.adjust_contrast(CLIPS[1, 2], 1.5))


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("op", [lambda x: ops.random_crop(x, (5, 6)), ops.random_flip_up_down, ops.invert])
def test_a_clip_without_frames_is_a_bad_element(op: Any, kind: str) -> None:
    spec = gp.TensorSpec((None, None, None, 3), "uint8", "THWC")
    ds = gp.Dataset.from_generator(lambda: iter([CLIPS[0], CLIPS[1, :0]]), output_signature=spec).map(op)

    with pytest.raises(gp.DataError, match=r"index 1: .* frames.*, got .*\[0, 12, 14, 3\]"):
        list(ds.with_options(on(kind)))
    assert len(list(ds.with_options(on(kind, on_error="skip")))) == 1


@pytest.mark.parametrize("kind", EXECUTORS[2:])
def test_an_image_without_channels_does_not_end_the_process(kind: str) -> None:
    """DALI's flip writes beyond its memory for one."""
    spec = gp.TensorSpec((None, None, None), "uint8", "HWC")
    images = [CLIPS[0, 0], CLIPS[0, 0, :, :, :0]]
    ds = gp.Dataset.from_generator(lambda: iter(images), output_signature=spec).map(ops.flip_left_right)

    with pytest.raises(gp.DataError, match=r"index 1: .*need images with channels .*, got uint8\[12, 14, 0\]"):
        list(ds.with_options(on(kind)))


def test_clips_without_frames_are_refused() -> None:
    with pytest.raises(SpecError, match="flip_left_right needs clips of equally many frames"):
        gp.Dataset.from_tensor_slices(CLIPS[:, :0]).map(ops.flip_left_right)
    with pytest.raises(SpecError, match="random_crop needs clips of equally many frames"):
        gp.Dataset.from_tensor_slices((CLIPS, CLIPS[:, :2])).map(lambda x, y: ops.random_crop((x, y), (5, 6)))
