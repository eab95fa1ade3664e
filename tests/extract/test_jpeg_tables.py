"""The header of a JPEG is whole if libjpeg can start on its scan; whatever libjpeg refuses there is found before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe.errors import DecodeError
from gpupipe.extract.images import jpeg_tables
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.headers import check_complete, check_decodable, read_header
from gpupipe.extract.images.jpeg import has_whole_header, is_ordinary
from gpupipe.ops._shared.samples import encoded, picture
from tests.chains.damage import bad_scan, bad_tables, segments
from tests.reliability.bad_records import without

KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "optimised": {"optimize": True},
    "restarts": {"restart_marker_blocks": 2},
    "progressive": {"progressive": True},
    "profile": {"icc_profile": bytes(1000)},
    "low quality": {"quality": 3},
}


def jpeg(mode: str = "RGB", size: tuple[int, int] = (48, 40), **how: Any) -> bytes:
    return encoded(picture(size[1], size[0]), mode=mode, **how)


def at(data: bytes, marker: int, offset: int = 0) -> int:
    """Where the contents of the first segment of a kind start, and so many bytes further."""
    return next(start + 4 + offset for start, kind, _ in segments(data) if kind == marker)


def changed(marker: int, offset: int, value: int) -> Callable[[bytes], bytes]:
    """A function that changes one byte of the first segment of a kind."""

    def change(data: bytes) -> bytes:
        place = at(data, marker, offset)
        return data[:place] + bytes([value]) + data[place + 1 :]

    return change


TABLES = b"\xff\xc4" + (2 + 18 * 99).to_bytes(2, "big") + (b"\x00\x01" + bytes(15) + b"\x00") * 99
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no Huffman tables": lambda data: without(data, 0xC4),
    "no quantisation tables": lambda data: without(data, 0xDB),
    "more codes than bits allow": bad_tables,
    "a DC symbol above 15": changed(0xC4, 17, 16),
    "a Huffman table of number 4": changed(0xC4, 0, 4),
    "a scan of an absent component": bad_scan,
    "a scan of one component twice": changed(0xDA, 3, 1),
    "a scan of five components": changed(0xDA, 0, 5),
    "a band that ends at 64": changed(0xDA, 8, 64),
    "bits of a refinement": changed(0xDA, 9, 0x10),
    "a component without sampling": changed(0xC0, 7, 0),
    "a component sampled five times": changed(0xC0, 7, 0x51),
    "a missing quantisation table": changed(0xC0, 8, 3),
    "a missing Huffman table": changed(0xDA, 2, 0x33),
    "two components of one name": changed(0xC0, 9, 1),
    "more than 10 blocks together": changed(0xC0, 7, 0x44),
    "a sampling that does not divide the largest": changed(0xC0, 10, 0x13),
    "an unknown marker": lambda data: data[:2] + b"\xff\x02\x00\x04ab" + data[2:],
    "many tables in a segment": lambda data: data[: at(data, 0xC4) - 4] + TABLES + data[at(data, 0xC4) - 4 :],
    "thousands of segments": lambda data: data[:2] + b"\xff\xfe\x00\x02" * 2000 + data[2:],
    "a second frame": lambda data: data[:2] + data[at(data, 0xC0) - 4 : at(data, 0xC0) + 15] + data[2:],
    "a quantisation table of 24 bits": changed(0xDB, 0, 0x20),
    "bytes between segments": lambda data: data[: at(data, 0xDA) - 4] + b"ab" + data[at(data, 0xDA) - 4 :],
    "fill bytes": lambda data: data[: at(data, 0xDA) - 4] + b"\xff\xff" + data[at(data, 0xDA) - 4 :],
    "an end inside the scan's header": lambda data: data[: at(data, 0xDA) + 3],
}


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_encoders_write_is_whole(kind: str, mode: str) -> None:
    how = KINDS[kind] if mode == "RGB" or "subsampling" not in KINDS[kind] else {}

    assert has_whole_header(jpeg(mode, **how))


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_header_is_not_whole(kind: str) -> None:
    good = jpeg()
    damaged = DAMAGES[kind](good)
    assert damaged != good

    assert has_whole_header(good)
    assert not has_whole_header(damaged)
    assert not has_whole_header(memoryview(bytearray(damaged)))


@pytest.mark.parametrize("kind", ["4:2:0", "progressive"])
def test_what_libjpeg_refuses_because_of_any_byte_of_the_header_is_not_whole(kind: str) -> None:
    """Each byte up to the first scan becomes others, in frame and scan all others, but for Huffman tables and the
    interval of restarts: another code or interval is as good as any, and only a decoder can tell that it is wrong."""
    good = jpeg(**KINDS[kind])
    rng = np.random.default_rng(5)
    refused = 0
    inside = {
        marker: {place for start, kind, length in segments(good) if kind == marker
                 for place in range(start + (4 if marker in (0xC4, 0xDD) else 1), start + 2 + length)}
        for marker in (0xC4, 0xDD, 0xC0, 0xC2, 0xDA)
    }  # fmt: skip
    for place in sorted({*range(2, at(good, 0xDA, 10))} - inside[0xC4] - inside[0xDD]):
        thorough = any(place in inside[marker] for marker in (0xC0, 0xC2, 0xDA)) or good[place - 1] == 0xFF
        values = set(range(256)) if thorough else {0, 255, good[place] ^ 1, int(rng.integers(256))}
        for value in values - {good[place]}:
            data = good[:place] + bytes([value]) + good[place + 1 :]
            try:
                header = read_header(data)
                check_complete(data, header)
                check_decodable(header.format, header.bits)
            except DecodeError:
                continue  # found by the checks before this one
            if header.height * header.width > 100_000 or not is_ordinary(data):
                continue
            try:
                decode(data)
            except DecodeError:
                refused += 1
                assert not has_whole_header(data), (place, value)
    assert refused


def test_files_of_other_sizes_share_an_answer_and_files_of_other_tables_do_not() -> None:
    """Files that differ in size and notes are looked at once; a changed table is found in each of them."""
    jpeg_tables._agree.cache_clear()
    small, large = jpeg(size=(40, 24)), jpeg(size=(48, 64))
    noted = large[:2] + b"\xff\xfe\x00\x05abc" + large[2:]

    assert all(map(has_whole_header, (small, large, noted)))
    assert jpeg_tables._agree.cache_info().misses == 1
    for kind in DAMAGES:
        assert not has_whole_header(DAMAGES[kind](large))
        assert has_whole_header(large)
