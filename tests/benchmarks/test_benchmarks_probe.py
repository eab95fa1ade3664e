"""The probes: crops, flips, filter and normalisation are read off finished images."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from benchmarks.contestants.torch_chain import window
from benchmarks.job import IMAGENET_MEAN, IMAGENET_STD, SIZE
from benchmarks.probe import audit_images, audit_records, measure, probe_jpeg, write_damaged, write_probes
from benchmarks.tfrecord import entries, frames

Window = tuple[int, int, int, int]
BILINEAR = Image.Resampling.BILINEAR


def finished(
    box: Window, hw: tuple[int, int] = (375, 500), mirror: bool = False, antialias: bool = True
) -> npt.NDArray[np.float32]:
    """What a pipeline with this window makes of a probe."""
    x, y, w, h = box
    image = Image.open(io.BytesIO(probe_jpeg(*hw))).crop((x, y, x + w, y + h))
    if antialias:
        pixels = np.asarray(image.resize((SIZE, SIZE), BILINEAR), np.float64)
    else:
        scale = (w / SIZE, 0, 0, 0, h / SIZE, 0)
        pixels = np.asarray(image.transform((SIZE, SIZE), Image.Transform.AFFINE, scale, BILINEAR), np.float64)
    pixels = pixels[:, ::-1] if mirror else pixels
    return ((pixels - IMAGENET_MEAN) / IMAGENET_STD).astype(np.float32)


@pytest.mark.parametrize("hw", [(375, 500), (500, 375)], ids=["lying", "upright"])
@pytest.mark.parametrize("box", [(0, 0, 375, 375), (13, 40, 120, 160), (200, 10, 90, 70)], ids=str)
def test_the_share_of_the_window_is_read_off_the_slopes(box: Window, hw: tuple[int, int]) -> None:
    share, _, flipped, level = measure(finished(box, hw)[None])

    assert share[0] == pytest.approx(box[2] * box[3] / (hw[0] * hw[1]), rel=0.01)
    assert not flipped[0]
    assert level[0] == pytest.approx(128, abs=2)


def test_a_mirrored_image_is_seen() -> None:
    _, _, flipped, _ = measure(np.stack([finished((0, 0, 400, 300), mirror=mirror) for mirror in (True, False)]))

    assert flipped.tolist() == [True, False]


def test_the_stripes_tell_whether_the_resize_antialiases() -> None:
    box = (0, 0, 480, 370)
    contrast = measure(np.stack([finished(box, antialias=antialias) for antialias in (True, False)]))[1]

    assert contrast[1] > 2 * contrast[0]


def test_stripes_are_read_only_where_the_image_shrinks() -> None:
    contrast = measure(np.stack([finished((0, 0, 500, 375)), finished((0, 0, 100, 75))]))[1]

    assert np.isnan(contrast).tolist() == [False, True]


def test_a_normalisation_that_was_forgotten_shows_in_the_level() -> None:
    pixels = finished((0, 0, 400, 300)) * np.array(IMAGENET_STD) + IMAGENET_MEAN

    assert abs(measure(pixels[None])[3][0] - 128) > 100


def law_share(draw: Callable[[int, int], Window], count: int = 20_000) -> float:
    windows = (draw(375, 500) for _ in range(count))
    return sum(w * h for _, _, w, h in windows) / count / (375 * 500)


def test_torchvisions_law_keeps_43_percent_of_a_lying_photograph() -> None:
    random.seed(0)

    assert law_share(window) == pytest.approx(0.43, abs=0.01)


def test_windows_stay_inside_even_for_a_ribbon() -> None:
    random.seed(0)
    for height, width in [(4, 900), (900, 4), (1, 1)]:
        for _ in range(100):
            x, y, w, h = window(height, width)
            assert 0 <= x <= width - w and 0 <= y <= height - h and w > 0 and h > 0


def test_an_audit_counts_every_label(tmp_path: Path) -> None:
    labels = [entry.label for path in write_probes(tmp_path, 64, 8) for entry in entries(path)]
    image = finished((0, 0, 400, 300))
    batches = [(np.stack([image] * 8), np.array(labels[i : i + 8])) for i in range(0, 64, 8)]

    audit = audit_images("me", [*batches, batches[0]])

    assert audit.shape == (8, SIZE, SIZE, 3)
    assert (audit.layout, audit.dtype) == ("NHWC", "float32")
    assert audit.counts == {"1": 56, "2": 8}
    assert audit.figures["share"] == pytest.approx(400 * 300 / 375 / 500, rel=0.01)


def test_an_audit_takes_channels_first_and_says_so() -> None:
    images = finished((0, 0, 400, 300))[None].transpose(0, 3, 1, 2)

    assert audit_images("me", [(images, np.array([0]))]).layout == "NCHW"


def test_an_audit_refuses_other_sizes_and_no_batches() -> None:
    with pytest.raises(ValueError, match=r"audit of me needs images .*got \(1, 10, 10, 3\)"):
        audit_images("me", [(np.zeros((1, 10, 10, 3)), np.array([0]))])
    with pytest.raises(ValueError, match="audit of me needs batches, got none"):
        audit_images("me", [])


def test_the_digest_of_records_does_not_depend_on_their_order() -> None:
    rows = np.array([b"one", b"two\0", b"three"], object)
    labels = np.arange(3)

    one = audit_records("me", [(rows, labels)])
    other = audit_records("me", [(rows[::-1], labels[::-1])])
    changed = audit_records("me", [(np.array([b"one", b"two", b"three"], object), labels)])

    assert one.figures == other.figures
    assert one.figures["bytes"] == 12
    assert changed.figures != one.figures


def test_probe_shards_hold_what_they_should(tmp_path: Path) -> None:
    paths = write_probes(tmp_path, 64, 8)
    found = [entry for path in paths for entry in entries(path)]

    assert sorted(entry.label for entry in found) == list(range(64))
    sizes = []
    for entry in found:
        raw = Path(entry.file).read_bytes()[entry.offset : entry.offset + entry.length]
        sizes.append(Image.open(io.BytesIO(raw)).size)
    assert sizes.count((500, 375)) == 48
    assert sizes.count((375, 500)) == 16


def test_gpupipe_reads_the_probes_and_notices_the_damaged_one(tmp_path: Path) -> None:
    reader = pytest.importorskip("gpupipe").TFRecordDataset
    whole, damaged = write_probes(tmp_path, 64, 8), write_damaged(tmp_path, 16)

    assert sum(1 for _ in reader([str(path) for path in whole])) == 64
    with pytest.raises(Exception, match="damaged-00000-of-00001"):
        list(reader(str(damaged)))


def test_a_shard_that_ends_inside_a_record_is_refused(tmp_path: Path) -> None:
    path = write_probes(tmp_path, 8, 1)[0]
    path.write_bytes(path.read_bytes()[:-5])

    with pytest.raises(ValueError, match=r"needs whole shards, got probe-00000-of-00001\.tfrecord truncated"):
        list(frames(path))
