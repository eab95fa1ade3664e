"""What the demo shows: pixel differences, the table, the contact sheet, and runs that crash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpupipe.comparison import contestants
from gpupipe.comparison.contestants import EXECUTORS, run_alone
from gpupipe.comparison.measure import Figures, Job
from gpupipe.comparison.pixels import compare_pixels
from gpupipe.comparison.report import Row, table
from gpupipe.comparison.sheet import contact_sheet, to_uint8
from gpupipe.comparison.source import Source
from gpupipe.errors import GpupipeError

GPU, DALI, NUMPY = EXECUTORS
FIGURES = Figures(
    images=64, passes=3, cpu_ms=1.234, images_per_second=800.4, first_batch_s=0.256, peak_bytes=300 * 2**20
)


def test_pixel_differences_are_in_levels_and_tell_the_ring_from_the_inside() -> None:
    reference = np.zeros((2, 4, 4, 3), np.float32)
    images = reference.copy()
    images[0, 0, 2, 1] = 0.5  # on the ring: 0.5 * 20 = 10 levels
    images[1, 1, 2, 2] = -0.1  # inside: 0.1 * 30 = 3 levels

    gap = compare_pixels(images, reference, (10, 20, 30))

    assert gap.ring == pytest.approx(10)
    assert gap.inside == pytest.approx(3)
    assert gap.mean == pytest.approx(13 / images.size)
    assert gap.worst_image == pytest.approx(10 / images[0].size)
    assert gap.same_crops


def test_one_mirrored_image_among_many_is_noticed() -> None:
    reference = np.random.default_rng(0).normal(size=(64, 8, 8, 3)).astype(np.float32)
    images = reference.copy()
    images[17] = images[17, :, ::-1]

    assert not compare_pixels(images, reference, (58, 57, 57)).same_crops


def test_the_table_has_reasons_where_it_has_no_figures() -> None:
    gap = compare_pixels(np.full((1, 3, 3, 3), 0.5), np.zeros((1, 3, 3, 3)), (2, 2, 2))
    rows = [Row(GPU, reason="no GPU"), Row(DALI, FIGURES, difference=gap), Row(NUMPY, FIGURES)]

    lines = table(rows, "NumPy").splitlines()

    assert lines[0].endswith("difference to NumPy (0..255)")
    assert lines[3] == "DALI GPU  not measured: no GPU"
    assert lines[4].split() == "DALI CPU 1.23 800 0.26 s 300 MiB 1.000 1.0 1.0".split()
    assert lines[5].split() == "NumPy 1.23 800 0.26 s 300 MiB - - -".split()


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
    job = Job(Source("nothing"), "cpu", "numpy", images=2, batch=2, size=8, keep=1, kept=str(tmp_path / "kept.npz"))

    with pytest.raises(GpupipeError, match=r"status 1; the end of its log:\nthe graph fell over"):
        run_alone(job, tmp_path, progress=lambda _: None)
