"""The photographs of the demo: the same for a seed, and as much work for a decoder as real ones."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe.comparison.photographs import Shot, encode, take, write_shards
from gpupipe.comparison.scene import KINDS, photograph
from tests.tools.packing import packed_records

SMALL = 30  # photographs; by their numbers they hold every size and every kind of JPEG


def test_a_number_gives_the_same_photograph_whatever_was_drawn_before() -> None:
    _, alone = take(7, seed=3)
    *_, (_, in_a_row) = (take(number, seed=3) for number in range(8))
    _, other_seed = take(7, seed=4)

    assert np.array_equal(alone, in_a_row)
    assert alone.shape == other_seed.shape
    assert not np.array_equal(alone, other_seed)


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[name for name, _ in KINDS])
def test_every_kind_shows_which_way_up_and_which_way_round_it_is(kind: int) -> None:
    pixels = photograph(np.random.default_rng(1), 240, 320, kind).astype(np.float32)

    assert np.abs(pixels - pixels[:, ::-1]).mean() > 15
    assert np.abs(pixels - pixels[::-1]).mean() > 15


@pytest.mark.parametrize("side", [15, 1025])
def test_a_size_without_noise_to_fill_it_is_refused(side: int) -> None:
    with pytest.raises(ValueError, match=r"16\.\.1024"):
        photograph(np.random.default_rng(0), side, 100)
    with pytest.raises(ValueError, match="kind of 0"):
        photograph(np.random.default_rng(0), 100, 100, len(KINDS))


def test_sizes_and_kinds_follow_the_real_sample() -> None:
    shots = [Shot.of(number) for number in range(400)]

    assert np.median([shot.width for shot in shots]) == 500
    assert np.median([shot.height for shot in shots]) == 375
    assert 0.15 < np.mean([shot.height > shot.width for shot in shots]) < 0.30
    assert 0.20 < np.mean([shot.subsampling == "4:2:0" for shot in shots]) < 0.35
    assert 0.01 < np.mean([shot.gray for shot in shots]) < 0.05
    assert 0.01 < np.mean([shot.progressive for shot in shots]) < 0.05


def test_files_have_the_bytes_of_real_ones_and_are_what_their_shot_says() -> None:
    files = [encode(pixels, s.quality, s.subsampling, s.progressive) for s, pixels in map(take, range(SMALL))]

    assert 90e3 < np.mean([len(file) for file in files]) < 130e3
    shots = list(map(Shot.of, range(SMALL)))
    for shot, file in zip(shots, files, strict=True):
        with Image.open(io.BytesIO(file)) as image:
            assert (image.height, image.width) == (shot.height, shot.width)
            assert image.mode == ("L" if shot.gray else "RGB")
            assert ("progressive" in image.info) == shot.progressive
            sampling = image.layer[0][1:3]  # type: ignore[attr-defined]
            assert shot.gray or sampling == ((2, 2) if shot.subsampling == "4:2:0" else (1, 1))
    assert {shot.subsampling for shot in shots if not shot.gray} == {"4:4:4", "4:2:0"}
    for seen in ([x.gray for x in shots], [x.progressive for x in shots], [x.height > x.width for x in shots]):
        assert any(seen) and not all(seen)


def test_shards_hold_the_photographs_in_order_with_the_features_of_imagenet(tmp_path: Path) -> None:
    progress: list[int] = []

    paths = write_shards(tmp_path, count=11, shards=4, seed=2, progress=progress.append)

    assert [path.name for path in paths] == [f"photos-{shard:05d}-of-00004.tfrecord" for shard in range(4)]
    assert progress == list(range(1, 12))
    assert [len(list(gp.TFRecordDataset(str(path)))) for path in paths] == [2, 3, 3, 3]
    for number, x in enumerate(packed_records(tmp_path)):
        shot, pixels = take(number, seed=2)
        assert x["image/encoded"] == encode(pixels, shot.quality, shot.subsampling, shot.progressive)
        assert (x["image/format"], x["image/filename"]) == (b"JPEG", b"photo-%05d.jpg" % number)
        assert bytes(x["image/class/text"]).decode() == KINDS[shot.label][0]
        numbers = [int(x[f"image/{name}"]) for name in ("class/label", "height", "width")]
        assert numbers == [shot.label, shot.height, shot.width]


@pytest.mark.parametrize(("count", "shards"), [(0, 1), (4, 5), (4, 0)])
def test_more_shards_than_photographs_are_refused(tmp_path: Path, count: int, shards: int) -> None:
    with pytest.raises(ValueError, match="write_shards needs"):
        write_shards(tmp_path, count, shards)
