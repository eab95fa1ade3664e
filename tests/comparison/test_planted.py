"""What is planted in an executor is found: the step, its size, and what it looks like; and nothing else is."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.comparison import Comparison
from gpupipe.comparison.photographs import write_shards
from gpupipe.comparison.result import Step, StepGap
from gpupipe.comparison.rounds import Runner
from gpupipe.comparison.source import find_source
from gpupipe.comparison.steps.compare_steps import compare_steps
from gpupipe.comparison.steps.material import calls_of
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.crop_mirror_normalize import CropMirrorNormalize
from gpupipe.ops._shared.decode_crop import DecodeCrop
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops._shared.resize_flip import ResizeFlip
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.normalize import Normalize
from gpupipe.ops.resize import Resize
from gpupipe.transform.machine import has_dali

pytestmark = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")

IMAGES = 12
DECODE_CROP, RESIZE_FLIP = "decode_crop (decode_jpeg, crop)", "resize_flip (resize, flip)"
NORMALIZE = "crop_mirror_normalize (normalize)"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("photographs")
    write_shards(folder, IMAGES, 2)
    return training_chain(find_source(str(folder), IMAGES), IMAGES, 4, 96)


def compared(chain: Dataset) -> Comparison:
    return gp.compare(chain, ("dali-cpu", "numpy"), images=IMAGES, compared=IMAGES)


def wrong(found: Comparison) -> dict[str, tuple[Step, StepGap]]:
    """The steps beyond their tolerance."""
    return {step.name: (step, gap) for step in found.steps for gap in step.gaps if gap.beyond}


def test_equal_executors_differ_nowhere_beyond_the_stated_tolerances(chain: Dataset) -> None:
    found = compared(chain)

    assert found.equal, found.verdict
    names = [step.name for step in found.steps]
    assert names == ["decode_jpeg", "crop", "resize", "flip", "normalize", DECODE_CROP, RESIZE_FLIP, NORMALIZE]
    resize, decoded = found.steps[2], found.steps[0].gaps[0].own
    assert (resize.gaps[0].allowed, resize.gaps[0].ring_allowed) == (1, 18)
    assert "DALI repeats edge pixels" in resize.tolerance_from
    assert decoded is not None and decoded.psnr is None  # ordinary JPEGs are equal, bit by bit


def test_a_comparison_of_the_sizes_of_images_is_no_step() -> None:
    images = [np.full((20 + n % 2, 30, 3), n, np.uint8) for n in range(IMAGES)]
    spec = gp.TensorSpec((None, None, 3), "uint8")
    pairs = Dataset.from_generator(lambda: zip(images, images, strict=True), output_signature=(spec, spec))

    found = compared(pairs.map(lambda x, y: ops.flip_left_right((x, y)), traced=True))

    assert {step.name for step in found.steps} == {"reverse"}


def test_the_steps_see_the_draws_of_the_whole_chain(chain: Dataset) -> None:
    """Step by step, the reference arrives at the very images that the chain delivers: the same windows and flips."""
    reference = Runner.on(chain, "cpu", "numpy", IMAGES)

    (material,) = compare_steps(reference, {}, IMAGES).materials

    last = material.rows[calls_of(material.program)[-1]]
    delivered = reference.first(IMAGES).images
    assert len(last) == len(delivered) == IMAGES
    assert all(np.array_equal(a, b) for a, b in zip(last, delivered, strict=True))


def test_a_decoder_a_resize_and_a_mean_that_are_wrong_are_found_each_at_its_step(
    chain: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, resize, mirrored, off = DecodeJpeg.dali, Resize.dali, Resize.mirrored_dali, 5.0

    def exchanged(self: DecodeJpeg, d: Any, data: Any) -> Any:
        image = decode(self, d, data)
        return d.fn.color_space_conversion(image, image_type=d.types.RGB, output_type=d.types.BGR)

    def fused(self: DecodeCrop, d: Any, data: Any, start: Any, shape: Any) -> Any:
        return self.crop.dali(d, exchanged(DecodeJpeg(channels=3), d, data), start, shape)

    monkeypatch.setattr(DecodeJpeg, "dali", exchanged)
    monkeypatch.setattr(DecodeCrop, "dali", fused)
    monkeypatch.setattr(Resize, "dali", lambda self, *args: resize(_with(self, antialias=False), *args))
    monkeypatch.setattr(Resize, "mirrored_dali", lambda self, *args: mirrored(_with(self, antialias=False), *args))
    other = tuple(mean + off for mean in ops.IMAGENET_MEAN)
    for op in (Normalize, CropMirrorNormalize):
        original = op.dali
        monkeypatch.setattr(op, "dali", lambda self, d, *xs, run=original: run(_with(self, mean=other), d, *xs))
    result = compared(chain)

    found = wrong(result)
    assert set(found) == {"decode_jpeg", DECODE_CROP, "resize", RESIZE_FLIP, "normalize", NORMALIZE}
    decoded, resized, normalized = (found[name][1] for name in ("decode_jpeg", "resize", "normalize"))
    assert decoded.own and resized.own and normalized.own
    assert "DALI CPU differs from NumPy at decode_jpeg" in result.verdict
    assert decoded.looks_like == "red and blue exchanged"
    assert (decoded.own.mean > 2, decoded.allowed) == (True, 0)
    pair = result.pairs[decoded.pair or 0]
    assert decoded.pair is not None and (pair.other[:, :, ::-1] == pair.reference).all()
    assert resized.own.maximum > 5 * resized.allowed
    assert resized.looks_like == "more fine detail, as a resize without antialiasing leaves"
    assert normalized.own.mean == pytest.approx(off, rel=1e-3)
    assert normalized.own.unit == "levels of 0..255"
    assert normalized.looks_like == "offset by -5: another mean"


def test_a_shift_by_one_pixel_and_a_flip_that_is_missing_are_found_each_at_its_step(
    chain: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shifted(self: Crop, d: Any, x: Any, start: Any, shape: Any) -> Any:
        right = d.fn.cat(start[0:1], start[1:2] + 1, axis=0)
        return d.fn.slice(x, right, shape, axis_names="HW", out_of_bounds_policy="pad")

    def fused(self: DecodeCrop, d: Any, data: Any, start: Any, shape: Any) -> Any:
        return shifted(self.crop, d, self.decoder.dali(d, data), start, shape)

    monkeypatch.setattr(Crop, "dali", shifted)
    monkeypatch.setattr(DecodeCrop, "dali", fused)
    monkeypatch.setattr(Flip, "dali", lambda self, d, x, mirror: x)
    monkeypatch.setattr(ResizeFlip, "dali", lambda self, d, x, size, mirror: self.resize.dali(d, x, size))
    result = compared(chain)

    found = wrong(result)
    flips = {"flip", RESIZE_FLIP}
    assert set(found) == {"crop", DECODE_CROP, *flips}
    gap = found["crop"][1]
    assert gap.looks_like == "shifted by 1 pixel to the left"
    assert gap.own is not None and gap.own.mean > 1
    assert all(found[name][1].looks_like.startswith("mirrored left-right") for name in flips)
    assert not result.equal
    assert "costs are not compared: DALI CPU did other work than NumPy" in result.verdict


def _with(op: Any, **changes: Any) -> Any:
    """A copy of an op with other settings; `dataclasses.replace` would check them."""
    copy = object.__new__(type(op))
    for field in fields(op):
        object.__setattr__(copy, field.name, changes.get(field.name, getattr(op, field.name)))
    return copy
