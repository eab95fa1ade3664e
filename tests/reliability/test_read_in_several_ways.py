"""Images that are not damaged and that decoders read in several ways: every executor gives the same pixels."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError
from gpupipe.extract.exif import is_plain, segment_of
from gpupipe.extract.headers import check_scans, read_header, with_plain_orientation
from gpupipe.transform.choose import has_dali
from tests.chains.data import on

pytestmark = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")

PIXELS = np.random.default_rng(1).integers(0, 256, (16, 12, 3), dtype=np.uint8)


def encoded(kind: str, image: Any = None, **how: Any) -> bytes:
    stream = io.BytesIO()
    (Image.fromarray(PIXELS) if image is None else image).save(stream, kind, **how)
    return stream.getvalue()


def delivered(data: bytes, executor: str, channels: int, upright: bool) -> npt.NDArray[Any] | None:
    def decoded(x: Any) -> Any:
        return ops.decode_image(x, channels=channels, exif_orientation=upright)

    ds = gp.Dataset.from_tensors(data).map(decoded).batch(1)
    with ds.with_options(on(executor, on_error="skip")).iterator(0) as items:
        return next((np.asarray(images)[0] for images in items), None)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*chunks: bytes) -> bytes:
    plain = encoded("PNG")
    return plain[:33] + b"".join(chunks) + plain[33:]


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def extended(flags: int) -> tuple[bytes, bytes]:
    return b"VP8X", bytes([flags, 0, 0, 0, 11, 0, 0, 15, 0, 0])


def in_runs(body: bytes) -> bytes:
    """A BMP of 8x8 pixels, run-length encoded."""
    begin = 14 + 40 + 1024
    palette = b"".join(bytes([i, 255 - i, i // 2, 0]) for i in range(256))
    info = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 8, 1, len(body), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", begin + len(body), 0, 0, begin) + info + palette + body


LOSSLESS = encoded("WEBP", lossless=True)
FRAME = b"VP8L", LOSSLESS[20 : 20 + struct.unpack("<I", LOSSLESS[16:20])[0]]
PART = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 12, 16, 0, 0, 1, 10, 0, 1))
ANIMATED = chunk(b"acTL", struct.pack(">II", 2, 0)) + PART
JPEG = encoded("JPEG", quality=95)
SCAN = JPEG.index(b"\xff\xda")

FILES: dict[str, bytes] = {
    "PNG with a profile of its colours": png(chunk(b"sRGB", b"\0")),
    "PNG with a gamma": png(chunk(b"gAMA", struct.pack(">I", 10_000))),
    "animated PNG": png(ANIMATED),
    "WebP of two frames": riff(extended(0), FRAME, FRAME),
    "WebP whose transparency is twice there": riff(extended(16), (b"ALPH", b"\0\1"), FRAME),
    "WebP of one part": LOSSLESS,
    "BMP in runs": in_runs(b"\x08\x50\0\0" * 8 + b"\0\1"),
    "BMP whose runs end early": in_runs(b"\x08\x50\0\0\0\1"),
    "BMP with short rows": in_runs(b"\0\0".join([b"\3\7"] * 8) + b"\0\1"),
    "BMP with a run beyond its row": in_runs(b"\x0f\x50\0\0" * 8 + b"\0\1"),
    "JPEG upright": JPEG[:2] + segment_of(6) + JPEG[2:],
    "JPEG with two orientations": JPEG[:2] + segment_of(6) + segment_of(3) + JPEG[2:],
    "JPEG with an orientation that there is not": JPEG[:2] + segment_of(9) + segment_of(6) + JPEG[2:],
    "JPEG whose first EXIF is damaged": JPEG[:2] + b"\xff\xe1\0\x0aExif\0\0MM" + segment_of(6) + JPEG[2:],
    "JPEG with its orientation behind fill bytes": JPEG[:SCAN] + b"\xff" * 100_001 + segment_of(6) + JPEG[SCAN:],
    "JPEG with markers that are nothing": JPEG[:SCAN] + b"\xff\x01" * 100_001 + segment_of(8) + JPEG[SCAN:],
}


@pytest.mark.parametrize(("channels", "upright"), [(3, False), (3, True), (1, False)])
@pytest.mark.parametrize("name", FILES)
def test_every_executor_gives_the_same_pixels(name: str, channels: int, upright: bool) -> None:
    numpy, dali = (delivered(FILES[name], executor, channels, upright) for executor in ("numpy", "dali"))

    assert (numpy is None) == (dali is None)
    if numpy is not None and dali is not None:
        assert numpy.shape == dali.shape
        # Gray of a PNG is computed from its colours, which the decoders round in two ways.
        assert np.abs(numpy.astype(int) - dali).max() <= (1 if channels == 1 else 0)


@pytest.mark.parametrize(
    ("name", "turned"),
    [
        ("JPEG upright", 6),
        ("JPEG with two orientations", 6),
        ("JPEG with an orientation that there is not", 1),
        ("JPEG whose first EXIF is damaged", 1),
        ("JPEG with its orientation behind fill bytes", 6),
        ("JPEG with markers that are nothing", 8),
    ],
)
def test_the_first_exif_block_says_how_an_image_is_turned(name: str, turned: int) -> None:
    data = FILES[name]
    plain = with_plain_orientation(data)

    assert read_header(data, orientation=True).orientation == turned
    assert read_header(plain or data, orientation=True).orientation == turned
    assert with_plain_orientation(plain or data) is None
    assert (plain is None) == (data.count(b"Exif") == 1)


def test_what_leaves_doubt_about_an_orientation_is_not_plain() -> None:
    block = segment_of(3)[10:]
    two = block[:8] + struct.pack(">H", 2) + block[10:22] * 2 + block[22:]

    assert is_plain(block) and not is_plain(two)
    assert not is_plain(block[:20]) and not is_plain(b"XX" + block[2:]) and not is_plain(b"")
    assert not is_plain(block[:12] + b"\0\4" + block[14:])  # a number of another type


def test_segments_without_end_are_refused_where_scans_are_counted() -> None:
    data = JPEG[:SCAN] + b"\xff\xfe\0\2" * 100_001 + JPEG[SCAN:]

    with pytest.raises(DecodeError, match="no scan within its first 100000 segments"):
        check_scans(data, 1 << 30, 3, progressive=True)
