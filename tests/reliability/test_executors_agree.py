"""Which damaged images are bad depends neither on the executor nor on a fused crop; a look for places ends in time."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.headers import check_complete, read_header
from gpupipe.graph.values import Apply
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.machine import has_dali
from gpupipe.transform.program import BatchFailed, Feed, Program
from tests.chains.data import on
from tests.selection import FULL
from tests.transform.tiny import ENCODED

Array = npt.NDArray[np.uint8]

needs_dali = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("quiet")]


def encoded(number: int, kind: str, mode: str = "RGB", **how: Any) -> bytes:
    """A small image, another for every number."""
    pixels = np.random.default_rng(number).integers(0, 256, (4 + number % 3, 5, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).resize((20, 16 + number % 9)).convert(mode).save(stream, kind, **how)
    return stream.getvalue()


def changed(data: bytes, at: int, new: bytes | int) -> bytes:
    """The same with other bytes at a place; negative numbers count from the end."""
    at %= len(data)
    new = bytes([new]) if isinstance(new, int) else new
    return data[:at] + new + data[at + len(new) :]


def summed(png: bytes) -> bytes:
    """A PNG with the right checksums."""
    out, at = bytearray(png), 8
    while at + 12 <= len(out):
        length = int.from_bytes(out[at : at + 4], "big")
        out[at + 8 + length : at + 12 + length] = struct.pack(">I", zlib.crc32(out[at + 4 : at + 8 + length]))
        at += 12 + length
    return bytes(out)


def tag(data: bytes, number: int, field: int, value: int) -> bytes:
    """A TIFF with another number (field 0), type (2), count (4) or value (8) of one of its tags."""
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    places = range(at + 2, at + 2 + 12 * count, 12)
    place = next(place for place in places if struct.unpack_from("<H", data, place) == (number,))
    return changed(data, place + field, struct.pack("<H" if field <= 2 else "<I", value))


def whole(x: Any) -> Any:
    return ops.decode_image(x["data"], channels=3), x["number"]


def cropped(x: Any) -> Any:
    return ops.random_resized_crop(ops.decode_image(x["data"], channels=3), (8, 8)), x["number"]


def delivered(files: Sequence[bytes], function: Callable[[Any], Any], executor: str, batch: int) -> dict[int, Array]:
    """The images that are not bad, by their numbers."""
    ds = gp.Dataset.from_tensor_slices({"data": list(files), "number": np.arange(len(files))}).map(function)
    with ds.batch(batch).with_options(on(executor, on_error="skip")).iterator(0) as items:
        return {
            int(number): np.asarray(image)
            for images, numbers in items
            for image, number in zip(images, numbers, strict=True)
        }


def agreed(files: Sequence[bytes], most: int = 0) -> dict[int, Array]:
    """What all executors deliver of these; they must agree on which, and on the pixels within `most`."""
    numpy, dali = (delivered(files, whole, executor, 1) for executor in ("numpy", "dali"))
    for executor, batch in (("numpy", 5), ("dali", 7)):
        assert sorted(delivered(files, cropped, executor, batch)) == sorted(numpy)
    assert sorted(dali) == sorted(numpy)
    for number, image in numpy.items():
        assert image.shape == dali[number].shape
        assert np.abs(image.astype(int) - dali[number]).max() <= most, number
    return numpy


JPEG, CMYK = encoded(1, "JPEG"), encoded(1, "JPEG", "CMYK", subsampling=0)
PNG, BMP, TIFF = encoded(1, "PNG"), encoded(1, "BMP"), encoded(1, "TIFF")
EXIF = Image.Exif()
EXIF[274] = 1
PNG_EXIF = encoded(1, "PNG", exif=EXIF)
WEBP, WEBP_EXIF = encoded(1, "WEBP"), encoded(1, "WEBP", exif=EXIF)
ADOBE = CMYK.index(b"Adobe") + 11

# What libjpeg only warns of, or simplejpeg has no name for: an image like the undamaged one beside it.
APP14 = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x09"


def inserted(data: bytes, more: bytes, marker: bytes) -> bytes:
    """A JPEG with more bytes in front of its first segment of a kind."""
    at = data.index(marker)
    return data[:at] + more + data[at:]


HARMLESS: dict[str, tuple[bytes, bytes]] = {
    "JFIF 9.01": (changed(JPEG, 11, 9), JPEG),
    "JFIF 2.01": (changed(JPEG, 11, 2), JPEG),
    "JFIF 0.01": (changed(JPEG, 11, 0), JPEG),
    "Adobe 1 of four channels": (changed(CMYK, ADOBE, 1), changed(CMYK, ADOBE, 2)),
    "Adobe 77 of four channels": (changed(CMYK, ADOBE, 77), changed(CMYK, ADOBE, 2)),
    "Adobe 9 of three channels": (JPEG[:2] + APP14 + JPEG[20:], JPEG),
    "JFIF and Adobe": (JPEG[:2] + changed(JPEG[2:20], 9, 5) + APP14 + JPEG[20:], JPEG),
    "bytes between segments": (inserted(JPEG, b"nothing\xff\0", b"\xff\xda"), JPEG),
    "a restart between segments": (inserted(JPEG, b"\xff\xd3nothing", b"\xff\xda"), JPEG),
    "PNG eXIf": (changed(PNG_EXIF, PNG_EXIF.index(b"eXIf") + 5, 0x99), PNG_EXIF),
}
REFUSED: dict[str, tuple[bytes, str]] = {
    "PNG IDAT length": (changed(PNG, PNG.index(b"IDAT") - 4, 1), "truncated PNG"),
    "PNG IDAT length + 1": (changed(PNG, PNG.index(b"IDAT") - 1, PNG[PNG.index(b"IDAT") - 1] ^ 1), "PNG"),
    "PNG IDAT checksum": (
        changed(PNG, PNG.index(b"IDAT") + 30, PNG[PNG.index(b"IDAT") + 30] ^ 1),
        "checksum of its IDAT",
    ),
    "PNG unknown chunk": (summed(changed(PNG, PNG.index(b"IDAT"), b"IDAX")), "unknown chunk b'IDAX'"),
    "PNG without IDAT": (PNG[:33] + PNG[-12:], "0 bytes of pixels"),
    "PNG interlace": (summed(changed(PNG, 28, 7)), "valid IHDR"),
    "PNG bits": (summed(changed(PNG, 24, 4)), "valid IHDR"),
}
ODD: dict[str, bytes] = {  # formats that the host alone decodes
    "BMP data offset": changed(BMP, 11, 1),
    "BMP data in the header": changed(BMP, 10, 20),
    "BMP header size": changed(BMP, 14, 41),
    "BMP 16 bits": changed(BMP, 28, 16),
    "BMP compression": changed(BMP, 30, 1),
    "BMP masks": changed(changed(encoded(1, "BMP", "RGBA"), 28, b"\x20\0\3"), 54, 9),
    "BMP palette": changed(encoded(1, "BMP", "P"), 46, b"\1\2"),
    "TIFF order of tags": tag(TIFF, 278, 0, 5),
    "TIFF type of the bits": tag(TIFF, 258, 2, 4),
    "TIFF planes": tag(TIFF, 284, 8, 2),
    "TIFF compression": tag(TIFF, 259, 8, 34925),
    "TIFF strip beyond the end": tag(TIFF, 273, 8, 1 << 20),
    "TIFF strip length": tag(TIFF, 279, 8, 5),
    "TIFF rows of a strip": tag(TIFF, 278, 8, 1),
    "TIFF channels": tag(TIFF, 277, 8, 2),
    "WebP chunk beyond the end": changed(WEBP, 17, 0xFF),
    "WebP chunk too short": changed(WEBP, 16, WEBP[16] ^ 4 if WEBP[16] & 4 else WEBP[16] - 4),
    "WebP frame": changed(WEBP, 20, WEBP[20] | 1),
    "WebP flags": changed(WEBP_EXIF, 20, 9),
    "WebP canvas": changed(WEBP_EXIF, 24, 40),
}


@needs_dali
def test_what_is_harmless_is_delivered_with_the_same_pixels() -> None:
    damaged, whole_ones = zip(*HARMLESS.values(), strict=True)

    images, plain = agreed(damaged, 2), agreed(whole_ones, 2)

    assert sorted(images) == list(range(len(HARMLESS)))
    for number, name in enumerate(HARMLESS):
        np.testing.assert_array_equal(images[number], plain[number], err_msg=name)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_decoded_without_dali(name: str) -> None:
    damaged, like = HARMLESS[name]

    assert damaged != like
    np.testing.assert_array_equal(decode(damaged), decode(like))


@needs_dali
def test_sampling_without_a_name_is_decoded() -> None:
    assert len(agreed([encoded(n, "JPEG", "CMYK", subsampling=2) for n in range(6)], 2)) == 6


@pytest.mark.parametrize("name", REFUSED)
def test_a_broken_structure_is_refused_with_its_reason(name: str) -> None:
    data, reason = REFUSED[name]

    with pytest.raises(DecodeError) as error:
        decode(data)

    assert reason in str(error.value)


def test_a_png_of_endless_chunks_is_refused() -> None:
    chunks = PNG[:33] + summed(PNG[:8] + b"\0\0\0\0tEXt\0\0\0\0")[8:] * 100_001 + PNG[33:]

    with pytest.raises(DecodeError, match="first 100000 chunks"):
        decode(chunks)


@needs_dali
def test_a_broken_structure_is_refused_before_any_executor() -> None:
    assert agreed([data for data, _ in REFUSED.values()]) == {}


@needs_dali
def test_one_decoder_judges_an_odd_structure() -> None:
    pytest.importorskip("tifffile")  # one of them is a TIFF that Pillow does not read
    assert 0 < len(agreed(list(ODD.values()))) < len(ODD)


# ---- pixels that no checksum covers: the host's decoder judges


def chunked(png: bytes, pixels: bytes, interlaced: bool = False) -> bytes:
    """A PNG with another zlib stream in its only IDAT, and the right checksums."""
    at = png.index(b"IDAT") - 4
    length = int.from_bytes(png[at : at + 4], "big")
    out = png[:at] + struct.pack(">I", len(pixels)) + b"IDAT" + pixels + bytes(4) + png[at + 12 + length :]
    return summed(changed(out, 28, 1) if interlaced else out)


def adam7(rows: Array) -> list[bytes]:
    """The passes of an interlaced PNG of gray, each with its filter bytes."""
    places = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    parts = (rows[y::down, x::right] for y, x, down, right in places)
    return [b"".join(b"\0" + row.tobytes() for row in part) if part.size else b"" for part in parts]


GRAY: Array = np.arange(1, 8 * 9 + 1, dtype=np.uint8).reshape(9, 8)
GRAY_PNG = io.BytesIO()
Image.fromarray(GRAY).save(GRAY_PNG, "PNG")
ROWS = b"".join(b"\0" + row.tobytes() for row in GRAY)
PASSES = adam7(GRAY)


def gray(pixels: bytes, interlaced: bool = False) -> bytes:
    return chunked(GRAY_PNG.getvalue(), pixels, interlaced)


WITHOUT_ROWS = {
    "no row": gray(zlib.compress(b"")),
    "2 of 9 rows": gray(zlib.compress(ROWS[:18])),
    "all but the last": gray(zlib.compress(ROWS[:-9])),
    "all but its last pixel": gray(zlib.compress(ROWS[:-1])),
    "interlaced, without its last pass": gray(zlib.compress(b"".join(PASSES[:6])), True),
    "interlaced, without its last row": gray(zlib.compress(b"".join(PASSES)[:-9]), True),
    "interlaced, and cut": gray(zlib.compress(b"".join(PASSES))[:-20], True),
}
WITH_ROWS = {
    "as they are": gray(zlib.compress(ROWS)),
    "interlaced": gray(zlib.compress(b"".join(PASSES)), True),
    "more than there should be": gray(zlib.compress(ROWS + bytes(100))),
    "a zlib stream without its checksum": gray(zlib.compress(ROWS)[:-2]),
    "the same, not compressed": gray(zlib.compress(ROWS, 0)[:-4]),
}


@pytest.mark.parametrize("name", WITHOUT_ROWS)
def test_a_png_without_some_of_its_rows_is_bad(name: str) -> None:
    with pytest.raises(DecodeError):
        decode(WITHOUT_ROWS[name])


@pytest.mark.parametrize("name", WITH_ROWS)
def test_a_png_with_all_of_its_rows_is_good(name: str) -> None:
    np.testing.assert_array_equal(decode(WITH_ROWS[name], 1)[:, :, 0], GRAY)


def test_a_png_that_ends_in_black_is_good() -> None:
    rows = np.zeros((3000, 700), np.uint8)
    rows[0] = 9
    stream = io.BytesIO()
    Image.fromarray(rows).save(stream, "PNG")

    np.testing.assert_array_equal(decode(stream.getvalue(), 1)[:, :, 0], rows)


@needs_dali
def test_the_executors_agree_on_pngs_without_rows() -> None:
    assert agreed(list(WITHOUT_ROWS.values())) == {}
    assert len(agreed(list(WITH_ROWS.values()))) == len(WITH_ROWS)


@needs_dali
def test_what_dali_refuses_is_decoded_by_the_host() -> None:
    refused = gray(zlib.compress(ROWS)[:-2])
    files = [JPEG, refused, PNG, WITHOUT_ROWS["2 of 9 rows"], BMP, refused, TIFF, WEBP, PNG_EXIF] * 4

    for function, batch in ((whole, 1), (cropped, 1), (cropped, 7), (cropped, 36)):
        images = delivered(files, function, "dali", batch)
        expected = delivered(files, function, "numpy", batch)

        assert sorted(images) == sorted(expected) == [n for n in range(36) if n % 9 != 3]
        if function is whole:
            for number, image in expected.items():
                np.testing.assert_array_equal(image, images[number])


@needs_dali
@pytest.mark.parametrize("looks", [False, True], ids=["", "every image verified"])
def test_a_batch_that_is_judged_costs_none_of_those_behind_it(looks: bool) -> None:
    program = Program((Apply(DecodeImage(1), (ENCODED,)),))
    refused = gray(zlib.compress(ROWS)[:-2])
    batches = [
        [refused, GRAY_PNG.getvalue()],
        [refused] * 3,
        [GRAY_PNG.getvalue(), WITHOUT_ROWS["2 of 9 rows"]],
        [refused],
    ]
    executor = DaliExecutor(program, 3, 1, verifies=looks, proves=looks)
    for batch in batches:
        executor.submit(Feed(len(batch), (batch,), tuple(range(len(batch))) if looks else ()))

    for batch in batches:
        if WITHOUT_ROWS["2 of 9 rows"] in batch:
            with pytest.raises(BatchFailed) as failure:
                executor.collect()
            assert list(failure.value.causes) == [1]
            assert "its last rows are missing" in str(failure.value.causes[1])
        else:
            (images,) = executor.collect()
            np.testing.assert_array_equal(images[:, :, :, 0], np.stack([GRAY] * len(batch)))
    executor.close()


COMPRESSIONS = ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd")


@needs_dali
@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_compressed_tiff_has_the_same_pixels_everywhere(channels: int, upright: bool) -> None:
    exif = Image.Exif()
    exif[274] = 6
    files = [encoded(1, "TIFF", mode, compression=how) for how in COMPRESSIONS for mode in ("RGB", "L")]
    files += [encoded(1, "TIFF", "1", compression=how) for how in ("group3", "group4")]
    files += [encoded(1, "TIFF", "RGBA", compression="tiff_lzw"), encoded(1, "TIFF", exif=exif, compression="packbits")]
    files += [encoded(1, "TIFF", exif=exif)]
    files += [encoded(1, "WEBP", lossless=True, exif=exif), encoded(2, "WEBP", lossless=True, exif=EXIF)]

    def function(x: Any) -> Any:
        return ops.decode_image(x["data"], channels=channels, exif_orientation=upright), x["number"]

    numpy, dali = (delivered(files, function, executor, 1) for executor in ("numpy", "dali"))

    assert len(numpy) == len(files)
    assert (numpy[13].shape != numpy[12].shape) is upright
    for number, image in numpy.items():
        np.testing.assert_array_equal(image, dali[number])


@needs_dali
def test_the_extra_channel_of_a_tiff_is_judged_by_the_host() -> None:
    image = encoded(1, "TIFF", "RGBA")

    assert list(agreed([tag(image, 338, 8, value) for value in (0, 1, 2, 9)] + [tag(image, 338, 2, 1)])) == [0, 1, 2]


@needs_dali
def test_gray_and_colours_of_a_tiff_keep_their_channels() -> None:
    files = [encoded(1, "TIFF", mode, compression="tiff_lzw") for mode in ("RGB", "L", "RGBA", "P")]

    def function(x: Any) -> Any:
        return ops.decode_jpeg(x["data"]), x["number"]

    for executor in ("numpy", "dali"):
        assert [image.shape[2] for image in delivered(files, function, executor, 1).values()] == [3, 1, 3, 3]


@pytest.mark.filterwarnings("ignore:Image size")
def test_a_tiff_that_is_a_bomb_is_refused() -> None:
    stream = io.BytesIO()
    Image.new("L", (64, 4000)).save(stream, "TIFF", compression="tiff_lzw", tiffinfo={278: 4000})
    few = stream.getvalue()
    assert decode(few).shape == (4000, 64, 3)
    bomb = few
    for number, value in ((256, 12_000), (257, 12_000), (278, 12_000)):
        bomb = tag(bomb, number, 8, value)

    with pytest.raises(DecodeError, match="damaged TIFF: decoder error"):
        decode(bomb)


@pytest.mark.parametrize("shape", [(1, 1_000_001), (1_000_001, 1)])
def test_a_side_of_more_than_a_million_pixels_is_refused(shape: tuple[int, int]) -> None:
    stream = io.BytesIO()
    Image.new("L", shape).save(stream, "PNG")

    with pytest.raises(DecodeError, match="may have 1000000 pixels a side"):
        decode(stream.getvalue())


@needs_dali
def test_what_follows_the_frame_of_a_webp_is_not_taken_for_pixels() -> None:
    files = []
    for number in range(40):
        image = encoded(number, "WEBP", exif=EXIF)
        at = image.index(b"VP8 ") + 8
        length = int.from_bytes(image[at - 4 : at], "little")
        rng = np.random.default_rng(number)
        files += [changed(image, at + length * 3 // 4 + k, bytes(rng.integers(0, 256, 4, np.uint8))) for k in range(9)]

    images = agreed(files)

    assert 0 < len(images) < len(files)


# ---- scans without end


def with_scans(image: bytes, more: int) -> bytes:
    """A JPEG with its last scan, without data, again and again."""
    at = image.rindex(b"\xff\xda")
    return image[:-2] + image[at : at + 2 + int.from_bytes(image[at + 2 : at + 4], "big")] * more + b"\xff\xd9"


@cache
def large(progressive: bool, colours: bool = False) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB" if colours else "L", (8000, 8000)).save(stream, "JPEG", progressive=progressive)
    return stream.getvalue()


def in_three(image: bytes, scans: int) -> bytes:
    """A baseline JPEG of colours whose scans have one channel each, without data."""
    at = image.rindex(b"\xff\xda")
    one = [b"\xff\xda\0\x08\x01" + bytes((k + 1, 0x11 if k else 0, 0, 63, 0)) for k in range(3)]
    return image[:at] + b"".join(one[k % 3] + bytes(4) for k in range(scans)) + b"\xff\xd9"


ENDLESS = {
    "progressive": with_scans(large(True), 4000),
    "progressive, just too many": with_scans(large(True), 64),
    "baseline": in_three(large(False, True), 3000),
    "more than bytes follow the end": with_scans(large(True), 4000) + b"more",
    "behind fill bytes": inserted(with_scans(large(True), 4000), b"\xff" * 100_001, b"\xff\xc4"),
    "behind bytes that are nothing": inserted(with_scans(large(True), 4000), b"nothing", b"\xff\xc4"),
}


@pytest.mark.parametrize("view", [bytes, memoryview, bytearray])
@pytest.mark.parametrize("name", ENDLESS)
def test_a_jpeg_of_scans_without_end_is_refused(name: str, view: Callable[[bytes], Any]) -> None:
    with pytest.raises(DecodeError, match=r"a JPEG of 64000000 pixels may have 67 scans"):
        decode(view(ENDLESS[name]))


@needs_dali
def test_scans_without_end_are_refused_before_any_executor() -> None:
    assert agreed(list(ENDLESS.values())) == {}


ENOUGH = {
    "as many as may be": with_scans(large(True), 67 - large(True).count(b"\xff\xda")),
    "one scan, and thumbnails": large(False)[:2] + b"\xff\xe1\x0f\xa2" + b"\xff\xda" * 2000 + large(False)[2:],
    "progressive, and thumbnails": large(True)[:2] + b"\xff\xe1\x0f\xa2" + b"\xff\xda" * 2000 + large(True)[2:],
    "three scans, and another image behind": in_three(large(False, True), 3) + with_scans(large(True), 100),
}


@pytest.mark.parametrize("name", ENOUGH)
def test_scans_that_an_encoder_may_have_made_are_allowed(name: str) -> None:
    header = read_header(ENOUGH[name])

    check_complete(ENOUGH[name], header)


def test_a_small_jpeg_may_have_many_scans() -> None:
    assert decode(with_scans(encoded(1, "JPEG", progressive=True), 300)).shape == decode(JPEG).shape


KINDS: dict[str, tuple[list[dict[str, Any]], int, int]] = {  # how they are written, bytes of headers, tolerance
    "JPEG": ([{}, {"subsampling": 0}, {"mode": "L"}, {"mode": "CMYK"}, {"progressive": True}], 200, 2),
    "PNG": ([{"mode": mode} for mode in ("RGB", "P", "L", "RGBA", "1")], 60, 0),
    "BMP": ([{"mode": mode} for mode in ("RGB", "L", "RGBA", "1")], 60, 0),
    "TIFF": ([{"mode": mode} for mode in ("RGB", "L", "RGBA", "P")], 240, 0),
    "compressed TIFF": ([{"compression": how} for how in COMPRESSIONS], 240, 0),
    "WEBP": ([{}, {"exif": EXIF}, {"mode": "RGBA"}, {"mode": "RGBA", "lossless": True}], 60, 0),
}


def flipped(kind: str, number: int) -> bytes:
    """An image with one odd byte in its headers, or with a few flipped bits anywhere."""
    ways, headers, _ = KINDS[kind]
    rng = np.random.default_rng([5, number])
    data = bytearray(encoded(number, kind.removeprefix("compressed "), **ways[number % len(ways)]))
    if number % 4:
        data[int(rng.integers(2, headers))] = int(rng.integers(256))
    else:
        for _ in range(int(rng.integers(1, 5))):
            data[int(rng.integers(2, len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


@needs_dali
@pytest.mark.parametrize("kind", KINDS)
def test_the_executors_agree_on_a_sample_of_damage(kind: str) -> None:
    files = [flipped(kind, number) for number in range(240 if FULL else 120)]

    images = agreed(files, KINDS[kind][2])

    assert len(images) < len(files)
    assert images or kind == "PNG"  # whose checksums find all


# ---- a file that stalls while places are looked for
