"""What the demo shows: pixel differences, the table, the contact sheet, and runs that crash."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gpupipe.comparison import contestants
from gpupipe.comparison.contestants import Alone
from gpupipe.comparison.measure import Job
from gpupipe.comparison.pixels import gap_of, same_images
from gpupipe.comparison.sheet import contact_sheet, save_png, to_uint8
from gpupipe.comparison.source import Source
from gpupipe.errors import GpupipeError


def test_pixel_differences_are_in_levels_and_tell_the_ring_from_the_inside() -> None:
    reference = np.zeros((2, 4, 4, 3), np.float32)
    images = reference.copy()
    images[0, 0, 2, 1] = 0.5  # on the ring: 0.5 * 20 = 10 levels
    images[1, 1, 2, 2] = -0.1  # inside: 0.1 * 30 = 3 levels

    gap = gap_of(list(images), list(reference), (10, 20, 30))

    assert gap.worst == 0 and gap.ring == pytest.approx(10) and gap.maximum == pytest.approx(3)
    assert gap.mean == pytest.approx(13 / images.size)
    assert gap.worst_mean == pytest.approx(10 / images[0].size)
    assert gap.psnr == pytest.approx(10 * np.log10(255**2 / ((10**2 + 3**2) / images.size)))
    assert same_images(gap)
    image = np.full((4, 4, 3), np.nan, np.float32)
    image[0] = np.inf
    gap = gap_of([image], [image.copy()])
    assert (gap.maximum, gap.ring, gap.mean, gap.psnr) == (0, 0, 0, None)
    gap = gap_of([np.zeros((4, 5, 3), np.uint8)], [np.zeros((4, 4, 3), np.uint8)])
    assert gap.maximum == gap.worst_mean == np.inf
    assert not same_images(gap)


@pytest.mark.parametrize("scale", [(58, 57, 57), None], ids=["in levels", "not known to be normalised"])
def test_one_mirrored_image_among_many_is_noticed(scale: tuple[int, ...] | None) -> None:
    reference = np.random.default_rng(0).normal(size=(64, 8, 8, 3)).astype(np.float32)
    images = reference.copy()
    images[17] = images[17, :, ::-1]

    gap = gap_of(list(images), list(reference), scale)

    assert not same_images(gap)
    assert gap.worst == 17


def test_normalised_images_are_seen_again_as_they_were() -> None:
    images = np.arange(256, dtype=np.float32).repeat(3).reshape(1, 16, 16, 3)
    mean, std = np.array((120, 110, 100), np.float32), np.array((60, 50, 40), np.float32)

    assert np.array_equal(to_uint8((images - mean) / std, mean, std), images.astype(np.uint8))
    assert to_uint8(np.full((1, 1, 1, 3), 9.0), mean, std).max() == 255


def test_a_contact_sheet_fills_rows_from_the_left() -> None:
    images = np.stack([np.full((5, 6, 3), number, np.uint8) for number in range(3)])

    sheet = contact_sheet(images, columns=2)

    assert sheet.shape == (2 * 9 + 4, 2 * 10 + 4, 3)
    assert np.array_equal(sheet[4:9, 14:20], images[1])
    assert np.array_equal(sheet[13:18, 4:10], images[2])
    assert (sheet[13:18, 14:20] == 255).all()


def test_a_run_that_crashes_is_an_error_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "_CODE", "import sys; sys.exit('the graph fell over')")
    job = Job("cpu", "numpy", 2, Source("nothing"), batch=2, size=8)

    said = r"status 1; the end of its log:\nthe graph fell over"
    with Alone(job, tmp_path) as alone, pytest.raises(GpupipeError, match=said):
        alone.round()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_full_disk_names_the_file_of_the_sheet() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        save_png(Path("/dev/full"), np.zeros((300, 300, 3), np.uint8))
