"""Which damaged images are bad depends neither on the executor nor on a fused crop; a look for places ends in time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError
from gpupipe.extract.images.decode import decode
from gpupipe.extract.images.headers import check_complete, read_header
from gpupipe.extract.images.jpeg import check_scans
from gpupipe.graph.op import Array
from gpupipe.graph.values import Apply
from gpupipe.ops.decode_image import DecodeImage
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.host_decode import HostDecoder
from gpupipe.transform.machine import has_dali
from gpupipe.transform.program import BatchFailed, Feed, Program
from tests.chains.data import on, records, sample_folder
from tests.reliability.image_files import ADAM7, changed, chunk, tag, written
from tests.transform.tiny import ENCODED

needs_dali = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")
pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("quiet")]


def encoded(number: int, kind: str, mode: str = "RGB", **how: Any) -> bytes:
    """A small image, another for every number."""
    pixels = np.random.default_rng(number).integers(0, 256, (4 + number % 3, 5, 3), dtype=np.uint8)
    return written(Image.fromarray(pixels).resize((20, 16 + number % 9)).convert(mode), kind, **how)


def summed(png: bytes) -> bytes:
    """A PNG with the right checksums."""
    out, at = png[:8], 8
    while at + 12 <= len(png):
        end = at + 8 + int.from_bytes(png[at : at + 4], "big")
        out += chunk(png[at + 4 : at + 8], png[at + 8 : end])
        at = end + 4
    return out


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
}
ODD: dict[str, bytes] = {  # formats that the host alone decodes
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


GRAY: Array = np.arange(1, 8 * 9 + 1, dtype=np.uint8).reshape(9, 8)
GRAY_PNG = written(Image.fromarray(GRAY), "PNG")
ROWS = b"".join(b"\0" + row.tobytes() for row in GRAY)
PASSES = [b"".join(b"\0" + row.tobytes() for row in GRAY[y::down, x::right]) for y, x, down, right in ADAM7]


def gray(pixels: bytes, interlaced: bool = False) -> bytes:
    """The same with another zlib stream, and the right checksums."""
    return summed(changed(GRAY_PNG[:33], 28, interlaced)) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


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


@needs_dali
def test_a_png_without_some_of_its_rows_is_bad() -> None:
    assert agreed(list(WITHOUT_ROWS.values())) == {}


@needs_dali
def test_a_png_with_all_of_its_rows_is_good() -> None:
    images = agreed(list(WITH_ROWS.values()))

    assert len(images) == len(WITH_ROWS)
    for image in images.values():
        np.testing.assert_array_equal(image[:, :, 0], GRAY)


def test_a_png_that_ends_in_black_is_good() -> None:
    rows = np.zeros((3000, 700), np.uint8)
    rows[0] = 9

    np.testing.assert_array_equal(decode(written(Image.fromarray(rows), "PNG"), 1)[:, :, 0], rows)


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
    batches = [[refused, GRAY_PNG], [refused] * 3, [GRAY_PNG, WITHOUT_ROWS["2 of 9 rows"]], [refused]]
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
    bomb = written(Image.new("L", (64, 4000)), "TIFF", compression="tiff_lzw", tiffinfo={278: 4000})
    assert decode(bomb).shape == (4000, 64, 3)
    for number in (256, 257, 278):
        bomb = tag(bomb, number, 8, 12_000)

    with pytest.raises(DecodeError, match="damaged TIFF: decoder error"):
        decode(bomb)


@pytest.mark.parametrize("shape", [(1, 1_000_001), (1_000_001, 1)])
def test_a_side_of_more_than_a_million_pixels_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(DecodeError, match="may have 1000000 pixels a side"):
        decode(written(Image.new("L", shape), "PNG"))


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
    return written(Image.new("RGB" if colours else "L", (8000, 8000)), "JPEG", progressive=progressive)


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
    check_complete(ENOUGH[name], read_header(ENOUGH[name]))


def test_a_small_jpeg_may_have_many_scans() -> None:
    assert decode(with_scans(encoded(1, "JPEG", progressive=True), 300)).shape == decode(JPEG).shape


def test_the_largest_image_may_have_the_scans_of_an_encoder_and_few_more() -> None:
    """Ten are usual, 18 those of libjpeg for four colours."""
    one = encoded(1, "JPEG", progressive=True)
    enough = with_scans(one, 20 - one.count(b"\xff\xda"))

    check_scans(enough, 1 << 30, 3, progressive=True)
    with pytest.raises(DecodeError, match="a JPEG of 1073741824 pixels may have 20 scans, this one has more"):
        check_scans(with_scans(enough, 1), 1 << 30, 3, progressive=True)


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
    files = [flipped(kind, number) for number in range(120)]

    images = agreed(files, KINDS[kind][2])

    assert len(images) < len(files)
    assert images or kind == "PNG"  # whose checksums find all


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
    exif[271], exif[306], exif[274], exif[282] = "Maker", "2020:02:03 04:05:06", int(rng.integers(1, 9)), 72.0
    exif.get_ifd(0x8769).update({33434: 0.008, 36864: b"0232", 37500: rng.bytes(int(rng.integers(1, 4000)))})
    exif.get_ifd(0x8825).update({1: "N", 2: (52.0, 31.0, 12.5)})
    return exif.tobytes() + written(drawn(rng), "JPEG") * int(rng.integers(2))


def some(rng: np.random.Generator, chance: float, **how: Any) -> dict[str, Any]:
    """These settings, or none."""
    return how if rng.random() < chance else {}


def jpeg(rng: np.random.Generator) -> bytes:
    """A JPEG as a camera, a phone or a program for pictures writes it."""
    gray = rng.random() < 0.2
    how = {
        "quality": int(rng.integers(1, 101)),
        **some(rng, 0.3, progressive=True),
        **some(rng, 0.3, optimize=True),
        **({} if gray else {"subsampling": int(rng.integers(3))}),
        **some(rng, 0.5, exif=of_a_camera(rng)),
        **some(rng, 0.2, icc_profile=PROFILE),
        **some(rng, 0.2, icc_profile=PROFILE + rng.bytes(150_000), progressive=False),  # of several segments
        **some(rng, 0.2, comment=rng.bytes(40)),
        **some(rng, 0.2, restart_marker_blocks=int(rng.integers(1, 9))),
    }
    data = written(drawn(rng, "L" if gray else "RGB"), "JPEG", **how)
    if rng.random() < 0.1 and not gray:  # of a sampling that Pillow does not write
        data = encode_jpeg(np.asarray(drawn(rng)), int(rng.integers(1, 101)), "RGB", ("440", "411")[rng.integers(2)])
    if rng.random() < 0.1 and not gray:  # as Photoshop writes it
        data = data[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x01" + data[2:]
    return data + (b"a film follows" if rng.random() < 0.05 else b"")


def plain_png(rng: np.random.Generator) -> bytes:
    """A PNG of up to 8 bits, with the chunks that programs write beside the pixels."""
    mode = ("1", "L", "LA", "P", "RGB", "RGBA")[rng.integers(6)]
    text = PngInfo()
    text.add_itxt("Title", "a picture", zip=True)
    how = {
        "compress_level": int(rng.integers(10)),
        **some(rng, 0.3, dpi=(72, 72)),
        **some(rng, 0.3, icc_profile=PROFILE),
        **some(rng, 0.3, pnginfo=text),
        **some(rng, 0.2 * (mode in ("P", "L", "RGB")), transparency=(1, 2, 3) if mode == "RGB" else 3),
    }
    data = written(drawn(rng, mode), "PNG", **how)
    if "icc_profile" not in how and rng.random() < 0.3:
        more = ((b"gAMA", struct.pack(">I", 45455)), (b"sRGB", b"\0"), (b"pHYs", bytes(9)), (b"iDOT", bytes(28)))
        data = data[:33] + chunk(*more[rng.integers(4)]) + data[33:]
    return data


def plain_bmp(rng: np.random.Generator) -> bytes:
    """A BMP of colours or of gray."""
    return written(drawn(rng, ("L", "RGB")[rng.integers(2)]), "BMP")


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
        rows = host.ready(0, Feed(len(files), (files,)), causes)
    finally:
        host.close()
    assert not causes
    kept = [row is data or (data[0] == 0xFF and row[-64:] == data[-64:]) for row, data in zip(rows, files, strict=True)]
    return sum(kept)


def photographs() -> list[bytes]:
    folder = sample_folder()
    if folder is None:
        pytest.skip("no sample of photographs at hand (GPUPIPE_SAMPLE)")
    return [data for data, _ in records(sorted(folder.glob("*.tfrecord")))]


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("make", [ordinary, photographs])
def test_of_ordinary_images_nearly_all_stay_with_the_executor(make: Callable[[], list[bytes]], upright: bool) -> None:
    files = make()

    assert left_to_the_executor(files, upright) >= 0.99 * len(files)


@needs_dali
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
