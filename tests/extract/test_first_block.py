"""The mean of a JPEG's first block, read from its bytes, is that of the decoded image, for one file and for many."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe.errors import DecodeError
from gpupipe.extract.images import first_blocks
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.first_block import mean_of_first_block
from gpupipe.extract.images.first_blocks import facts_of_jpegs
from gpupipe.extract.images.jpeg import jpeg_segments, jpeg_size
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded, noise, picture

WEIGHTS = np.array([0.299, 0.587, 0.114])
KINDS: list[dict[str, Any]] = [
    {"quality": 30},
    {"quality": 75, "subsampling": 2},
    {"quality": 99, "subsampling": 1},
    {"quality": 90, "optimize": True},
    {"quality": 90, "progressive": True},
    {"quality": 60, "progressive": True, "subsampling": 2},
    {"quality": 90, "mode": "L"},
    {"quality": 90, "restart_marker_blocks": 1},
    {"quality": 90, "orientation": 6},
]


def images() -> list[Array]:
    """Blocks of every brightness."""
    levels = [np.full((16, 24, 3), level, np.uint8) for level in (0, 1, 7, 100, 127, 128, 129, 200, 254, 255)]
    return [*levels, picture(29, 37), picture(64, 48) // 3, 100 + picture(20, 20) // 3, 60 + noise(24, 24) // 4]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_is_the_mean_of_the_decoded_pixels(kind: dict[str, Any]) -> None:
    for image in images():
        data = encoded(image, **kind)
        block = decode(data, 3)[:8, :8]

        mean = mean_of_first_block(data)

        assert mean is not None
        array: Any = np.frombuffer(data, np.uint8)
        others: list[Any] = [array.astype(np.int8), np.repeat(array, 2)[::2], memoryview(array), bytearray(data)]
        for other in others:
            assert mean_of_first_block(other) == mean
        assert np.clip(mean, 0, 255) == pytest.approx((block @ WEIGHTS).mean(), abs=2)


@pytest.mark.parametrize("data", [encoded(picture(16, 16), form) for form in ("PNG", "BMP", "WEBP")] + [b"", b"\xff"])
def test_of_what_is_no_jpeg_nothing_is_known(data: bytes) -> None:
    assert mean_of_first_block(data) is None


def test_colours_by_adobes_segment_are_not_read() -> None:
    assert mean_of_first_block(encoded(picture(16, 16), mode="CMYK")) is None


@pytest.mark.parametrize("quality", [5, 10, 20])
def test_where_the_first_scan_drops_too_much_nothing_is_known(quality: int) -> None:
    assert mean_of_first_block(encoded(picture(16, 16), quality=quality, progressive=True)) is None
    assert mean_of_first_block(encoded(picture(16, 16), quality=quality)) is not None


def test_components_called_r_g_b_are_no_gray() -> None:
    data = encoded(picture(16, 16))
    frame = data.index(b"\xff\xc0")
    renamed = bytearray(data)
    for place, letter in zip((frame + 10, frame + 13, frame + 16), b"RGB", strict=True):
        renamed[place] = letter
    scan = data.index(b"\xff\xda")
    for place, letter in zip((scan + 5, scan + 7, scan + 9), b"RGB", strict=True):
        renamed[place] = letter

    assert mean_of_first_block(data) is not None
    assert mean_of_first_block(bytes(renamed)) is None


def test_segments_full_of_tables_are_not_walked_to_their_end() -> None:
    data = encoded(picture(16, 16))
    tables = data.index(b"\xff\xc4")
    many = b"\xff\xc4" + (2 + 17 * 3000).to_bytes(2, "big") + bytes(17 * 3000)

    scan = data.index(b"\xff\xda")

    assert mean_of_first_block(data[:scan] + many + data[scan:]) is None
    # Of several tables the last count, so these are not looked at.
    assert mean_of_first_block(data[:tables] + many + data[tables:]) == mean_of_first_block(data)


# ---- many files together


MORE: list[dict[str, Any]] = [
    {"quality": 5},
    {"quality": 90, "mode": "CMYK"},
    {"quality": 90, "icc_profile": bytes(5000)},
]
FILES = [
    encoded(image, **kind)
    for kind in [*KINDS, *MORE]
    for image in (picture(29, 37), noise(24, 40), np.full((16, 8, 3), 255, np.uint8), picture(7, 30), picture(9, 5))
]


def one_by_one(files: list[Any]) -> list[tuple[int, int, float | None]]:
    facts: list[tuple[int, int, float | None]] = []
    for file in files:
        try:
            height, width, *_ = jpeg_size(file)
        except DecodeError:
            facts.append((0, 0, None))
        else:
            facts.append((height, width, mean_of_first_block(file) if min(height, width) >= 8 else None))
    return facts


def together(files: list[Any]) -> list[tuple[int, int, float | None]]:
    sizes, means = facts_of_jpegs(files)
    known = [None if np.isnan(mean) else mean for mean in means.tolist()]
    return [(*size, mean) for size, mean in zip(sizes.tolist(), known, strict=True)]


def scan_of(file: bytes) -> int:
    """Where the data of the first scan begins."""
    return jpeg_segments(file)[-1][2]


@pytest.mark.parametrize("count", [0, 1, 49, 300, 600])
def test_a_batch_of_any_size_has_the_facts_of_its_files(count: int) -> None:
    files = [FILES[n % len(FILES)] for n in range(count)]

    assert together(files) == one_by_one(files)


@pytest.mark.parametrize("kind", [memoryview, bytearray, lambda data: np.frombuffer(data, np.uint8)])
def test_files_may_lie_in_any_kind_of_memory(kind: Any) -> None:
    assert together([kind(file) for file in FILES * 2]) == one_by_one(FILES * 2)


def test_damage_changes_neither_the_other_files_nor_what_is_known() -> None:
    rng = np.random.default_rng(5)
    files = []
    for n in range(2000):
        damaged = bytearray(FILES[n % len(FILES)])
        for place in rng.integers(0, min(len(damaged), 700), int(rng.integers(0, 4))).tolist():
            damaged[place] = int(rng.integers(0, 256))
        files.append(bytes(damaged[: int(rng.integers(0, 700))] if n % 7 == 0 else damaged))

    assert together(files) == one_by_one(files)


@pytest.mark.parametrize("start", [b"\xff\x00\xff\x00\xff\x00", b"\xf9\xff\x00\x12", b"\xef\xff\x00\x12", bytes(5)])
def test_a_scan_may_start_with_stuffed_bytes(start: bytes) -> None:
    files = [file[: scan_of(file)] + start + file[scan_of(file) :] for file in FILES]

    assert together(files * 2) == one_by_one(files * 2)


def test_usual_files_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(file: Any) -> Any:
        raise AssertionError("read alone")

    monkeypatch.setattr(first_blocks, "_one", never)
    usual = [encoded(picture(29, 37), quality=quality, mode=mode) for quality in (50, 80) for mode in ("RGB", "L")]

    assert None not in [mean for _, _, mean in together(usual * 20)]


def test_of_several_tables_with_one_id_the_last_before_the_scan_counts() -> None:
    stream = io.BytesIO()
    Image.fromarray(np.full((16, 16, 3), 222, np.uint8)).save(stream, "JPEG", quality=90)
    good = stream.getvalue()
    coarse = b"\xff\xdb\x00\x43\x00" + bytes([99]) * 64  # of id 0, and replaced by the file's own

    files = [good, good[:2] + coarse + good[2:]] * 32

    assert np.abs(facts_of_jpegs(files)[1] - 222).max() < 2
    assert together(files) == one_by_one(files)
