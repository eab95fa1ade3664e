"""What cameras and the web make, JPEGs, plain PNGs and BMPs, stays with the executor, which gives the host's pixels."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

import gpupipe as gp
from gpupipe import ops
from gpupipe.graph.values import Apply
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.transform.host_decode import HostDecoder
from gpupipe.transform.machine import has_dali
from gpupipe.transform.program import Program
from tests.chains.data import on, records, sample_folder
from tests.reliability.image_files import png
from tests.transform.tiny import ENCODED

encode_jpeg: Any = pytest.importorskip("simplejpeg").encode_jpeg

COUNT = 1000
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def drawn(rng: np.random.Generator, mode: str = "RGB") -> Image.Image:
    """Blocks of colours, of an odd size."""
    height, width = (int(n) for n in rng.integers(8, 60, 2))
    blocks = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((width, height))
    if mode in ("LA", "RGBA"):
        blocks.putalpha(Image.fromarray(rng.integers(0, 256, (height, width), dtype=np.uint8)))
    return blocks.convert(mode)


def of_a_camera(rng: np.random.Generator) -> bytes:
    """An EXIF block with a maker, times, a place, a maker's note and a thumbnail."""
    exif = Image.Exif()
    exif[271], exif[272], exif[305], exif[306] = "Maker", "Camera 7", "1.0.2", "2020:02:03 04:05:06"
    exif[274], exif[282], exif[283], exif[296] = int(rng.integers(1, 9)), 72.0, 72.0, 2
    inside = exif.get_ifd(0x8769)
    inside[33434], inside[33437], inside[34855] = 0.008, 2.8, 100
    inside[36864], inside[36867], inside[37500] = b"0232", "2020:02:03 04:05:06", rng.bytes(int(rng.integers(1, 4000)))
    place = exif.get_ifd(0x8825)
    place[1], place[2] = "N", (52.0, 31.0, 12.5)
    block = exif.tobytes()
    thumbnail = io.BytesIO()
    drawn(rng).save(thumbnail, "JPEG")
    return block + thumbnail.getvalue() if rng.random() < 0.5 else block


def jpeg(rng: np.random.Generator) -> bytes:
    """A JPEG as a camera, a phone or a program for pictures writes it."""
    how: dict[str, Any] = {
        "quality": int(rng.integers(1, 101)),
        "progressive": bool(rng.random() < 0.3),
        "optimize": bool(rng.random() < 0.3),
    }
    gray = rng.random() < 0.2
    if not gray:
        how["subsampling"] = int(rng.integers(3))
    if rng.random() < 0.5:
        how["exif"] = of_a_camera(rng)
    if rng.random() < 0.3:
        how["icc_profile"] = PROFILE + rng.bytes(0 if how["progressive"] else 150_000)  # of several segments
    if rng.random() < 0.2:
        how["comment"] = rng.bytes(40)
    if rng.random() < 0.2:
        how["restart_marker_blocks"] = int(rng.integers(1, 9))
    stream = io.BytesIO()
    drawn(rng, "L" if gray else "RGB").save(stream, "JPEG", **how)
    data = stream.getvalue()
    if rng.random() < 0.1 and not gray:  # of a sampling that Pillow does not write
        sampling = ("440", "411")[int(rng.integers(2))]
        data = encode_jpeg(np.asarray(drawn(rng)), int(rng.integers(1, 101)), "RGB", sampling)
    if rng.random() < 0.1 and not gray:  # as Photoshop writes it
        data = data[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x01" + data[2:]
    return data + (b"a film follows" if rng.random() < 0.05 else b"")


def plain_png(rng: np.random.Generator) -> bytes:
    """A PNG of up to 8 bits, with the chunks that programs write beside the pixels."""
    if rng.random() < 0.3:
        colour, bits = ((0, 1), (0, 2), (0, 4), (0, 8), (2, 8), (3, 1), (3, 2), (3, 4), (3, 8), (4, 8), (6, 8))[
            int(rng.integers(11))
        ]
        return png(colour, bits, interlaced=bool(rng.random() < 0.3))
    mode = ("1", "L", "LA", "P", "RGB", "RGBA")[int(rng.integers(6))]
    how: dict[str, Any] = {"optimize": bool(rng.random() < 0.2), "compress_level": int(rng.integers(10))}
    if rng.random() < 0.3:
        how["dpi"] = (72, 72)
    if rng.random() < 0.3:
        how["icc_profile"] = PROFILE
    if rng.random() < 0.3:
        text = PngInfo()
        text.add_text("Software", "a program")
        text.add_itxt("Title", "a picture", zip=True)
        how["pnginfo"] = text
    if mode in ("P", "L", "RGB") and rng.random() < 0.2:
        how["transparency"] = (1, 2, 3) if mode == "RGB" else 3
    stream = io.BytesIO()
    drawn(rng, mode).save(stream, "PNG", **how)
    data = stream.getvalue()
    if "icc_profile" not in how and rng.random() < 0.3:
        chunks = ((b"gAMA", struct.pack(">I", 45455)), (b"sRGB", b"\0"), (b"pHYs", bytes(9)), (b"iDOT", bytes(28)))
        kind, inside = chunks[int(rng.integers(4))]
        body = kind + inside
        data = data[:33] + struct.pack(">I", len(inside)) + body + struct.pack(">I", zlib.crc32(body)) + data[33:]
    return data


def plain_bmp(rng: np.random.Generator) -> bytes:
    """A BMP of colours or of gray."""
    stream = io.BytesIO()
    drawn(rng, ("L", "RGB")[int(rng.integers(2))]).save(stream, "BMP")
    return stream.getvalue()


@cache
def ordinary() -> list[bytes]:
    rngs = (np.random.default_rng([8, n]) for n in range(COUNT))
    makers = [jpeg] * 7 + [plain_png] * 2 + [plain_bmp]
    return [makers[n % 10](rng) for n, rng in enumerate(rngs)]


def left_to_the_executor(files: Sequence[bytes], upright: bool) -> int:
    """How many of some files DALI decodes itself, with all of an EXIF block but its orientation taken away."""
    host = HostDecoder(Program((Apply(DecodeImage(3, upright), (ENCODED,)),)), 1)
    causes: dict[int, Any] = {}
    try:
        rows = host.ready(0, files, causes)
    finally:
        host.close()
    assert not causes
    kept = [row is data or (data[0] == 0xFF and row[-64:] == data[-64:]) for row, data in zip(rows, files, strict=True)]
    return sum(kept)


@pytest.mark.parametrize("upright", [False, True])
def test_of_a_thousand_ordinary_images_nearly_all_stay_with_the_executor(upright: bool) -> None:
    assert left_to_the_executor(ordinary(), upright) >= 0.99 * COUNT


@pytest.mark.skipif(sample_folder() is None, reason="no sample of photographs at hand (GPUPIPE_SAMPLE)")
@pytest.mark.parametrize("upright", [False, True])
def test_photographs_stay_with_the_executor(upright: bool) -> None:
    folder = sample_folder()
    assert folder is not None
    files = [data for data, _ in records(sorted(folder.glob("*.tfrecord")))]

    assert left_to_the_executor(files, upright) >= 0.99 * len(files)


@pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("upright", [False, True])
def test_ordinary_images_have_the_same_pixels_on_every_executor(upright: bool, channels: int) -> None:
    files = ordinary()

    def decoded(x: Any) -> Any:
        return ops.decode_image(x, channels=channels, exif_orientation=upright)

    numpy, dali = (
        [np.asarray(image) for image in gp.Dataset.from_tensor_slices(files).map(decoded).with_options(on(executor))]
        for executor in ("numpy", "dali")
    )

    assert len(numpy) == len(dali) == COUNT
    for data, mine, theirs in zip(files, numpy, dali, strict=True):
        assert mine.shape == theirs.shape
        most = int(channels == 1 and data[0] != 0xFF)  # gray of colours is rounded in two ways
        assert np.abs(mine.astype(int) - theirs).max() <= most
