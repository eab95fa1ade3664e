"""`pack`: every image once, in an order that only the seed decides, and the pixels it says."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.comparison.photographs import encode
from gpupipe.errors import DecodeError, MissingDependencyError
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.exif import segment_of
from gpupipe.ops._shared.samples import encoded
from gpupipe.tools.pack import Skipped, pack
from tests.tools.packing import digests, folder_of, jpeg, packed_records, picture, png

pytest.importorskip("simplejpeg", reason="pack shrinks and decodes with simplejpeg")


def test_every_image_is_there_once_as_it_was(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "photos", 25)

    packed = pack(source, tmp_path / "out", 4)

    records = packed_records(tmp_path / "out")
    assert packed.records == len(records) == 25
    assert packed.bytes == sum(path.stat().st_size for path in packed.files)
    assert [path.name for path in packed.files] == [f"train-0000{k}-of-00004.tfrecord" for k in range(4)]
    assert [len(list(gp.TFRecordDataset(str(path)))) for path in packed.files] == [6, 6, 6, 7]
    assert len({bytes(record["image/filename"]) for record in records}) == 25
    for record in records:
        name = bytes(record["image/filename"]).decode()
        assert bytes(record["image/encoded"]) == (source / name).read_bytes()
        assert bytes(record["image/format"]) == b"JPEG"
        assert (record["image/height"], record["image/width"]) == (48, 64)
        assert bytes(record["image/class/text"]).decode() == name.split("/")[0]
        assert record["image/class/label"] == int(name[5])


WAYS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "shrunk": {"resize_shorter": 16},
    "decoded": {"decoded": True},
    "shrunk and decoded": {"resize_shorter": 16, "decoded": True},
    "decoded within a budget": {"resize_shorter": 30, "decoded": True, "budget": 60_000},
}
ways = pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)


@ways
def test_the_bytes_do_not_depend_on_workers_and_repetition_but_on_the_seed(tmp_path: Path, how: dict[str, Any]) -> None:
    source = folder_of(tmp_path / "photos", 30)

    for name, workers, seed in (("1", 1, 7), ("2", 2, 7), ("3", 3, 7), ("again", None, 7), ("other", 2, 8)):
        pack(source, tmp_path / name, 3, **how, workers=workers, seed=seed)

    assert digests(tmp_path / "1") == digests(tmp_path / "2") == digests(tmp_path / "3") == digests(tmp_path / "again")
    assert set(digests(tmp_path / "1").values()).isdisjoint(digests(tmp_path / "other").values())


def test_images_are_shuffled(tmp_path: Path) -> None:
    pack(folder_of(tmp_path / "photos", 200, 2, (8, 8)), tmp_path / "out", 2)

    labels = [int(record["image/class/label"]) for record in packed_records(tmp_path / "out")]
    assert sum(labels[:100]) in range(30, 71)  # of 100, 50 are expected; the standard deviation is 3.5
    assert sum(a != b for a, b in pairwise(labels)) in range(70, 131)  # 100, and 7


@pytest.fixture
def packed(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The records of one shard of a folder with these files, by their names."""

    def run(files: dict[str, bytes], **how: Any) -> dict[str, Any]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "photos").mkdir()
        for name, data in files.items():
            (folder / "photos" / name).write_bytes(data)
        pack(folder / "photos", folder / "out", 1, **how)
        return {bytes(record["image/filename"]).decode(): record for record in packed_records(folder / "out")}

    return run


def pixels(record: Any, *how: Any, **more: Any) -> Any:
    return decode(bytes(record["image/encoded"]), *how, **more)


def mean_gap(got: Any, expected: Any) -> float:
    return float(np.abs(got.astype(int) - expected).mean())


def size_of(record: Any) -> tuple[int, int]:
    return record["image/height"], record["image/width"]


def test_shrunk_images_are_close_to_those_of_resize_shorter(packed: Callable[..., Any]) -> None:
    kinds = {
        "wide.jpg": jpeg(300, 451),
        "high.jpg": jpeg(451, 300, subsampling="4:2:0"),
        "large.jpg": jpeg(600, 800, progressive=True),  # decoded at a quarter of its size
        "colours.png": png(200, 333),
        "clear.png": png(200, 333, "RGBA"),
    }

    for name, record in packed(kinds, resize_shorter=96, quality=95).items():
        expected, got = ops.resize_shorter(decode(kinds[name]), 96), pixels(record)
        assert bytes(record["image/format"]) == b"JPEG", name
        assert got.shape == expected.shape == (*size_of(record), 3), name
        # JPEG costs about 1 level on average, and decoding at a part of the size less than that.
        assert mean_gap(got, expected) < 2, name
        assert record["image/class/label"] == -1, name  # a folder without directories has no labels


def test_decoded_images_have_the_pixels_that_decoding_gives(packed: Callable[..., Any]) -> None:
    kinds = {
        "wide.jpg": jpeg(31, 53), "gray.jpg": encoded(picture(9, 10), mode="L"), "colours.png": png(20, 33),
        "clear.png": png(20, 33, "RGBA"), "clear gray.png": png(8, 9, "LA"), "deep.png": png(7, 9, "I;16"),
        "palette.png": png(5, 6, "P"),
    }  # fmt: skip

    records = packed(kinds, decoded=True)

    assert records.keys() == kinds.keys()
    for name, record in records.items():
        stored = bytes(record["image/encoded"])
        gray = "gray" in name or "deep" in name
        expected = decode(kinds[name], 1 if gray else 3)
        assert (bytes(record["image/format"]), stored[:2], size_of(record)) == (b"BMP", b"BM", expected.shape[:2])
        np.testing.assert_array_equal(decode(stored, 0), expected, err_msg=name)
        assert len(stored) == 54 + 1024 * gray + len(expected) * -(-expected[0].size // 4) * 4


@pytest.mark.parametrize("orientation", [1, 6])
def test_shrunk_and_decoded_images_are_those_that_would_be_encoded(
    packed: Callable[..., Any], orientation: int
) -> None:
    sizes = [(60, 80), (300, 450), (20, 30)]
    files = {f"{number}.jpg": turned(jpeg(*size, number), orientation) for number, size in enumerate(sizes)}

    encoded, decoded = packed(files, resize_shorter=40, quality=100), packed(files, resize_shorter=40, decoded=True)

    assert list(encoded) == list(decoded)
    for jpg, bmp in zip(encoded.values(), decoded.values(), strict=True):
        expected, got = (pixels(one, exif_orientation=True) for one in (jpg, bmp))
        assert size_of(bmp) == got.shape[:2] == expected.shape[:2]
        assert mean_gap(got, expected) < 1  # JPEG at quality 100, with 4:2:0


def test_an_image_whose_pixels_are_too_many_for_a_record_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpupipe.tools.pack.image._MOST_DECODED", 3 * 48 * 64 - 1)
    source = folder_of(tmp_path / "photos", 2)

    with pytest.raises(DecodeError, match="a decoded image may have 9215 bytes, this one would have 48x64x3"):
        pack(source, tmp_path / "out", 1, decoded=True)
    assert pack(source, tmp_path / "out-2", 1, decoded=True, resize_shorter=47).records == 2


def test_shrinking_averages_over_all_pixels(packed: Callable[..., Any]) -> None:
    board = encoded((np.indices((240, 320, 1)).sum(0) % 2 * 255).astype(np.uint8), "PNG")

    (record,) = packed({"board.png": board}, resize_shorter=77).values()

    assert pixels(record, 1).shape == (77, 102, 1)
    assert np.abs(pixels(record, 1).astype(int) - 127).max() < 20  # the triangle is 3 wide; without antialias it is 127


def test_no_detail_is_lost_to_decoding_at_a_part_of_the_size(packed: Callable[..., Any]) -> None:
    """110 pixels have to be decoded in full for 100: half of them, enlarged, would have no stripes of 5 pixels."""
    stripes = np.broadcast_to(127 + 100 * np.sin(np.arange(150) * 2 * np.pi / 5)[None, :, None], (110, 150, 3))
    data = encode(stripes.astype(np.uint8))

    (record,) = packed({"stripes.jpg": data}, resize_shorter=100, quality=100).values()

    difference = pixels(record).astype(int) - ops.resize_shorter(decode(data), 100)
    assert np.abs(difference).max() <= 4  # JPEG at quality 100


def test_gray_stays_gray_and_cmyk_becomes_colours(packed: Callable[..., Any]) -> None:
    red = encoded(np.full((60, 80, 3), (255, 0, 0), np.uint8), mode="CMYK")
    files = {"red.jpg": red, "gray.jpg": encoded(picture(60, 80), mode="L"), "gray.png": png(60, 80, "LA")}

    images = {name: pixels(record, 0) for name, record in packed(files, resize_shorter=30).items()}

    assert images["gray.jpg"].shape == images["gray.png"].shape == (30, 40, 1)
    assert images["red.jpg"].shape == (30, 40, 3)
    assert np.abs(images["red.jpg"].astype(int) - (254, 0, 0)).max() <= 8  # JPEG, twice


def turned(data: bytes, orientation: int) -> bytes:
    return data[:2] + segment_of(orientation) + data[2:]


@pytest.mark.parametrize("orientation", [1, 2, 6, 8])
def test_shrunk_images_are_upright(packed: Callable[..., Any], orientation: int) -> None:
    data = turned(jpeg(60, 80), orientation)
    upright = decode(data, exif_orientation=True)

    large, small = (packed({"x.jpg": data}, resize_shorter=side)["x.jpg"] for side in (30, 60))

    assert bool(bytes(small["image/encoded"]) == data) == (orientation == 1)  # not larger, and nothing to turn
    for record, expected in ((large, ops.resize_shorter(upright, 30)), (small, upright)):
        assert size_of(record) == expected.shape[:2]
        got = pixels(record, exif_orientation=True)  # which finds none, or one to apply
        assert mean_gap(got, expected) < 2  # JPEG at quality 90, with 4:2:0


@ways
def test_an_image_that_cannot_be_decoded_ends_the_run_or_is_left_out(tmp_path: Path, how: dict[str, Any]) -> None:
    source = folder_of(tmp_path / "photos", 12)
    whole = (source / "class1/004.jpg").read_bytes()
    (source / "class1/004.jpg").write_bytes(whole[: len(whole) // 2])
    Image.new("RGB", (40, 30)).save(source / "class2/x.png", "GIF")
    out = tmp_path / "out"

    with pytest.raises(DecodeError, match=r"(004\.jpg: truncated JPEG|x\.png: .*GIF).*; mend .*--on-error skip"):
        pack(source, out, 2, **how)
    assert not [path for path in out.iterdir() if path.name.endswith(".part")]

    packed = pack(source, out, 2, **how, on_error="skip")  # what was finished before stays
    assert packed.records == len(packed_records(out)) == 11
    assert {Path(one.image).name for one in packed.skipped} == {"004.jpg", "x.png"}
    assert all(isinstance(one, Skipped) and one.reason for one in packed.skipped)
    assert pack(source, out, 2, **how, on_error="skip").skipped == packed.skipped
    with pytest.raises(DecodeError, match="an earlier run left it out"):
        pack(source, out, 2, **how)


def test_without_simplejpeg_images_are_packed_as_they_are_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    source = folder_of(tmp_path / "photos", 3)

    with pytest.raises(MissingDependencyError, match="pack needs simplejpeg to shrink or decode images"):
        pack(source, tmp_path / "small", 1, resize_shorter=32)

    assert not (tmp_path / "small").exists()
    assert pack(source, tmp_path / "same", 1).records == 3
