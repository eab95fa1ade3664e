"""Images that are rare, and valid or nearly so: they have the pixels that their format says, or errors of their own."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

import gpupipe as gp
from gpupipe import ops
from gpupipe.cli import main
from gpupipe.errors import DecodeError, MissingDependencyError
from gpupipe.extract.images import decode as decoding
from gpupipe.extract.images.decode import decode
from gpupipe.transform import machine

PHOTO = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
BACKENDS: list[Any] = ["numpy", *(["fast"] if machine.has_fast() else []), *(["dali"] if machine.has_dali() else [])]


def saved(kind: str, image: npt.NDArray[Any] = PHOTO, **settings: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **settings)
    return stream.getvalue()


def decoded(data: bytes, backend: Any, **settings: Any) -> npt.NDArray[Any]:
    dataset = gp.Dataset.from_list([data]).map(lambda b: ops.decode_image(b, **settings))
    (image,) = dataset.with_options(gp.Options(device="cpu", backend=backend))
    return np.asarray(image)


def tiff(samples: Sequence[Sequence[int]], bits: int, photometric: int, sample_format: int = 1) -> bytes:
    """A gray TIFF of one strip, whose lines begin at whole bytes."""
    lines = ["".join(format(sample, f"0{bits}b") for sample in line) for line in samples]
    data = b"".join(int(line + "0" * (-len(line) % 8), 2).to_bytes(-(-len(line) // 8), "big") for line in lines)
    data = np.frombuffer(data, ">u2").astype("<u2").tobytes() if bits == 16 else data
    height, width = len(samples), len(samples[0])
    words = {258: bits, 259: 1, 262: photometric, 277: 1, 339: sample_format}
    longs = {256: width, 257: height, 273: 8, 278: height, 279: len(data)}
    tags = {tag: struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in words.items()}
    tags |= {tag: struct.pack("<HHII", tag, 4, 1, value) for tag, value in longs.items()}
    entries = b"".join(tags[tag] for tag in sorted(tags))
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("white_is_zero", [False, True], ids=["black-is-zero", "white-is-zero"])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_a_gray_tiff_has_the_levels_that_its_tags_say(bits: int, white_is_zero: bool, backend: Any) -> None:
    most = (1 << bits) - 1
    samples = np.array([[0, 1, most // 2, most]])
    data = tiff(samples.tolist(), bits, 0 if white_is_zero else 1)
    levels = most - samples if white_is_zero else samples

    wide = decoded(data, backend, dtype="uint16")[:, :, 0]
    indices = decoded(data, backend, dtype="uint16", palette="indices")[:, :, 0]

    np.testing.assert_array_equal(wide, levels if bits == 16 else levels * (255 // most) * 256)
    np.testing.assert_array_equal(decoded(data, backend)[:, :, 0], wide >> 8)
    np.testing.assert_array_equal(indices, samples)


@pytest.mark.parametrize(("bits", "sample_format"), [(12, 1), (8, 2)], ids=["12-bits", "signed"])
def test_a_tiff_that_pillow_reads_as_another_is_refused(bits: int, sample_format: int) -> None:
    for settings in ({}, {"dtype": "uint16"}, {"palette": "indices"}):
        with pytest.raises(DecodeError, match=rf"got u?int{bits}; read it in an ops.py_function"):
            decoded(tiff([[0, 1, 2, 3]], bits, 1, sample_format), "numpy", **settings)


def png(depth: int, colour: int, line: bytes, width: int, *more: tuple[bytes, bytes]) -> bytes:
    head = struct.pack(">IIBBBBB", width, 1, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", head), *more, (b"IDAT", zlib.compress(b"\0" + line)), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_png_without_its_palette_is_damaged(backend: Any) -> None:
    with pytest.raises(DecodeError, match="it has no PLTE"):
        decoded(png(8, 3, b"\0\3\5", 3), backend, channels=3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_transparent_colour_of_16_bits_is_compared_as_a_whole(backend: Any) -> None:
    clear = struct.pack(">3H", 0x1234, 0x5678, 0x9ABC)
    line = clear + struct.pack(">3H", 0x12FF, 0x56FF, 0x9AFF)

    image = decoded(png(16, 2, line, 2, (b"tRNS", clear)), backend, channels=4)

    assert image.tolist() == [[[0x12, 0x56, 0x9A, 0], [0x12, 0x56, 0x9A, 255]]]


def with_segments(*segments: bytes) -> bytes:
    """A JPEG with more segments of applications."""
    made = b"".join(b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment for segment in segments)
    whole = saved("JPEG")
    return whole[:2] + made + whole[2:]


def exif(kind: int, value: bytes) -> bytes:
    return b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHI", 0x112, kind, 1) + value + bytes(4)


XMP = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>'
TURNED = {
    "short": [exif(3, struct.pack("<HH", 6, 0))],
    "long": [exif(4, struct.pack("<I", 6))],
    "signed short": [exif(8, struct.pack("<hH", 6, 0))],
    "signed long": [exif(9, struct.pack("<i", 6))],
    "after an empty block": [b"Exif\0\0", exif(3, struct.pack("<HH", 6, 0))],
    "xmp": [XMP],
    "xmp beside exif without it": [b"Exif\0\0II*\0\x08\0\0\0\0\0" + bytes(4), XMP],
}
UPRIGHT = {
    "xmp in other quotes": [XMP.replace(b'"', b"'")],
    "none": [],
    "a fraction": [exif(5, struct.pack("<I", 6))],
    "out of range": [exif(4, struct.pack("<I", 9))],
    "negative": [exif(9, struct.pack("<i", -6))],
    "exif says upright, xmp does not": [exif(3, struct.pack("<HH", 1, 0)), XMP],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("segments", (TURNED | UPRIGHT).values(), ids=TURNED | UPRIGHT)
def test_an_orientation_is_found_where_pillow_finds_it(segments: list[bytes], backend: Any) -> None:
    data = with_segments(*segments)
    plain = Image.open(io.BytesIO(data))
    upright = np.asarray(ImageOps.exif_transpose(plain))

    assert (upright.shape == (80, 60, 3)) is (segments in TURNED.values())
    np.testing.assert_array_equal(decoded(data, backend, channels=3, exif_orientation=True), upright)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stray", [b"\0\0\0", b"\xff\0", b"ab"], ids=["zeros", "a zero behind ff", "text"])
def test_stray_bytes_between_the_segments_of_a_jpeg_are_skipped(stray: bytes, backend: Any) -> None:
    whole = saved("JPEG")
    at = whole.index(b"\xff\xdb")

    image = decoded(whole[:at] + stray + whole[at:], backend, channels=3)

    np.testing.assert_array_equal(image, decoded(whole, backend, channels=3))


@pytest.mark.parametrize("subsampling", [0, 1, 2], ids=["444", "422", "420"])
@pytest.mark.parametrize("width", [1, 2, 3, 16, 17, 18, 64])
def test_a_column_has_the_colours_of_the_whole_image(width: int, subsampling: int) -> None:
    data = saved("JPEG", PHOTO[:, :width] if width <= 60 else PHOTO[:, :64], quality=90, subsampling=subsampling)
    whole = decode(data, 3)

    for left in {0, width // 2, width - 1}:
        window = decoding.Window(0, left, 60, 1)
        np.testing.assert_array_equal(decode(data, 3, window=window), whole[:, left : left + 1])


NAMED = {
    "AVIF": b"\0\0\0\x20ftypavif",
    "HEIC": b"\0\0\0\x20ftypheic",
    "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n",
    "JPEG XL": b"\0\0\0\x0cJXL \r\n\x87\n",
    "BigTIFF": b"II+\0\x08\0\0\0",
    "PPM": b"P6\n4 4\n255\n",
}


@pytest.mark.parametrize(("name", "start"), NAMED.items(), ids=NAMED)
def test_a_format_that_no_decoder_reads_is_named(name: str, start: bytes) -> None:
    with pytest.raises(DecodeError, match=rf"got {name}.*; convert it"):
        decoded(start + bytes(64), "numpy")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_missing_package_is_no_bad_record(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one it would be left out, and all others of its kind with it."""

    def missing(*args: Any, **settings: Any) -> Any:
        raise MissingDependencyError("this TIFF needs imagecodecs")

    monkeypatch.setattr(decoding, "_deep", missing)
    dataset = gp.Dataset.from_list([saved("TIFF")]).map(lambda b: ops.decode_image(b, channels=3))

    with pytest.raises(MissingDependencyError, match="needs imagecodecs"):
        list(dataset.with_options(gp.Options(device="cpu", backend=backend, on_error="skip")))


def cut_jpegs() -> dict[str, bytes]:
    whole = saved("JPEG")
    return {
        "an end behind half of it": whole[: len(whole) // 2] + b"\xff\xd9",
        "another image behind half of it": whole[: len(whole) // 2] + whole,
    }


DECODERS: dict[str, Callable[[Any], Any]] = {
    "three channels": lambda b: ops.decode_jpeg(b, channels=3),
    "as stored": ops.decode_image,
    "four channels": lambda b: ops.decode_image(b, channels=4),
    "floats": lambda b: ops.decode_image(b, dtype="float32"),
    "smaller": lambda b: ops.decode_jpeg(b, ratio=2),
    "a fast transform": lambda b: ops.decode_jpeg(b, dct_method="INTEGER_FAST"),
    "a window": lambda b: ops.random_crop(ops.decode_jpeg(b, channels=3), (9, 9)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("data", cut_jpegs().values(), ids=cut_jpegs())
def test_damage_that_libjpeg_only_warns_of_can_be_refused(data: bytes, decoder: Any, backend: Any) -> None:
    dataset = gp.Dataset.from_list([saved("JPEG"), data]).map(decoder).batch(2)
    dataset = dataset.with_options(gp.Options(device="cpu", backend=backend, on_error="skip"))

    (both,) = dataset
    strict = iter(dataset.with_options(gp.Options(strict_images=True)))
    (good,) = strict

    assert (len(both), len(good)) == (2, 1)
    (error,) = strict.errors
    assert "damaged JPEG, and Options.strict_images refuses" in error.reason


def test_damage_that_libjpeg_only_warns_of_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [gp.io.encode_example({"image/encoded": data}) for data in (saved("JPEG"), *cut_jpegs().values())]
    with gp.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for record in records:
            writer.write(record)
    (tmp_path / "a.jpg").write_bytes(records[1][records[1].index(b"\xff\xd8") :])

    assert main(["verify", str(tmp_path / "a.tfrecord"), "--decode"]) == 0
    verified = capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "a.jpg")]) == 0
    inspected = capsys.readouterr().out

    assert "2 images with damaged data" in verified
    assert verified.count(f"{tmp_path / 'a.tfrecord'} at offset") == 2
    assert "Options(strict_images=True)" in inspected
