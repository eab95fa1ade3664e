"""TIFFs of many channels, of several 16-bit channels and of floats, as remote sensing has them."""

from __future__ import annotations

import contextlib
import io
import struct
import sys
import zlib
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError, MissingDependencyError
from gpupipe.extract.images import decode
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS
from tests.ops.refusals import refused

tifffile: Any = pytest.importorskip("tifffile")

Array = np.ndarray[Any, Any]


def bands(channels: int, dtype: str, height: int = 19, width: int = 26) -> Array:
    rng = np.random.default_rng(channels)
    if dtype == "float32":
        return rng.normal(0, 1e4, (height, width, channels)).astype(np.float32)
    return rng.integers(0, np.iinfo(dtype).max + 1, (height, width, channels)).astype(dtype)


def written(image: Array, *, planar: Any = False, **options: Any) -> bytes:
    """Let tifffile write an image."""
    out, colours = io.BytesIO(), image.shape[2] in (3, 4)
    options = {"photometric": "rgb" if colours else "minisblack", **options}
    if image.shape[2] == 4:
        options |= {"extrasamples": ["unassalpha"]}
    pixels = image.transpose(2, 0, 1) if planar else image
    tifffile.imwrite(out, pixels, planarconfig="separate" if planar else "contig", metadata=None, **options)
    return out.getvalue()


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 6, 13])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_channels_and_samples_are_those_of_the_file(dtype: str, channels: int, planar: bool, compression: Any) -> None:
    image = bands(channels, dtype)
    data = written(image, planar=planar, compression=compression)

    got = ops.decode_image(data, dtype=dtype)

    assert got.dtype == dtype
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, image)


@pytest.mark.parametrize("options", [
    {"byteorder": ">"}, {"byteorder": ">", "planar": True}, {"tile": (16, 16)}, {"tile": (16, 32), "planar": True},
    {"rowsperstrip": 4, "compression": "zlib"}, {"tile": (16, 16), "compression": "zlib"},
], ids=str)  # fmt: skip
def test_strips_tiles_and_byte_orders_do_not_matter(options: dict[str, Any]) -> None:
    image = bands(7, "uint16")

    np.testing.assert_array_equal(ops.decode_image(written(image, **options), dtype="uint16"), image)


@pytest.mark.parametrize("options", [
    {"compression": "lzw"}, {"compression": "zstd"}, {"compression": "lzw", "predictor": True},
    {"compression": "zlib", "predictor": True}, {"compression": "lzw", "tile": (16, 16), "planar": True},
], ids=str)  # fmt: skip
def test_imagecodecs_reads_other_compressions(options: dict[str, Any]) -> None:
    pytest.importorskip("imagecodecs")
    image = bands(6, "uint16")

    np.testing.assert_array_equal(ops.decode_image(written(image, **options), dtype="uint16"), image)


def test_16_bits_are_scaled_to_the_dtype_that_is_asked_for() -> None:
    image = bands(6, "uint16")
    data = written(image)

    np.testing.assert_array_equal(ops.decode_image(data), (image >> 8).astype(np.uint8))
    np.testing.assert_array_equal(ops.decode_image(data, dtype="float32"), image * np.float32(1 / 65535))
    np.testing.assert_array_equal(
        ops.decode_image(written(bands(6, "uint8")), dtype="uint16"), bands(6, "uint8").astype(np.uint16) * 256
    )


@pytest.mark.parametrize("planar", [False, True])
def test_rgb_of_16_bits_is_converted_to_other_channels(planar: bool) -> None:
    image = bands(3, "uint16")
    data = written(image, planar=planar)

    np.testing.assert_array_equal(ops.decode_image(data, 3, "uint16"), image)
    np.testing.assert_array_equal(ops.decode_image(data, 3), (image >> 8).astype(np.uint8))
    clear = ops.decode_image(data, 4, "uint16")
    np.testing.assert_array_equal(clear[:, :, :3], image)
    assert (clear[:, :, 3] == 65535).all()
    gray = ops.decode_image(data, 1, "uint16")[:, :, 0] / (image @ [0.299, 0.587, 0.114])
    assert abs(gray - 1).max() < 1e-3  # Pillow's weights are those of three decimals within 65536ths


def test_the_orientation_of_a_tag_is_applied_when_asked_for() -> None:
    image = bands(6, "uint16")
    data = written(image, extratags=[(274, 3, 1, 6, True)])

    np.testing.assert_array_equal(ops.decode_image(data, dtype="uint16"), image)
    np.testing.assert_array_equal(ops.decode_image(data, dtype="uint16", exif_orientation=True), np.rot90(image, -1))


def test_without_tifffile_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(bands(6, "uint16"))
    monkeypatch.setitem(sys.modules, "tifffile", None)

    with pytest.raises(MissingDependencyError, match=r"6 channels of uint16 needs tifffile.*pip install tifffile"):
        ops.decode_image(data)


def test_without_imagecodecs_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(written(bands(6, "uint8")))
    at = data.index(struct.pack("<HHII", 259, 3, 1, 1))
    data[at + 8] = 5
    monkeypatch.setitem(sys.modules, "imagecodecs", None)

    with pytest.raises(MissingDependencyError, match=r"needs imagecodecs .* pip install imagecodecs"):
        ops.decode_image(bytes(data))


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": (16, 16)}], ids=str)
def test_a_cut_file_is_a_data_error_or_complete(options: dict[str, Any]) -> None:
    image = bands(6, "uint16")
    data = written(image, **options)
    for cut in range(0, len(data), 61):
        with pytest.raises(DecodeError):
            ops.decode_image(data[:cut], dtype="uint16")


def test_damage_is_a_data_error_or_another_image() -> None:
    image = bands(5, "uint8", 8, 9)
    for options in ({}, {"compression": "zlib"}, {"tile": (16, 16), "planar": True}):
        data = written(image, **options)
        kinds = set()
        for at in range(0, len(data), 3):
            bad = bytearray(data)
            bad[at] ^= 0xFF
            try:
                kinds.add(ops.decode_image(bytes(bad)).dtype.name)
            except (DecodeError, MissingDependencyError) as error:
                kinds.add(type(error).__name__)
        assert kinds <= {"uint8", "DecodeError", "MissingDependencyError"}
        assert "DecodeError" in kinds


def strip_of(inflated: bytes, height: int, width: int, channels: int) -> bytes:
    """A TIFF of one deflated strip that may expand to more than its pixels."""
    pixels = zlib.compress(inflated, 9)
    tags = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (273, 4, 1, 8),
        (277, 3, 1, channels), (278, 4, 1, height), (279, 4, 1, len(pixels)),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", len(tags)) + entries + bytes(4)


def test_a_strip_that_expands_beyond_its_pixels_is_refused() -> None:
    assert ops.decode_image(strip_of(bytes(4 * 5 * 6), 4, 5, 6)).shape == (4, 5, 6)
    with pytest.raises(DecodeError, match="expands to more than its 120 bytes"):
        ops.decode_image(strip_of(bytes(1 << 22), 4, 5, 6))


@pytest.mark.parametrize("tile", [None, (16, 16)])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_strips_or_tiles_that_share_bytes_are_refused(compression: Any, tile: Any) -> None:
    """A few bytes would stand for any number of channels otherwise."""
    data = written(bands(40, "float32"), planar=True, compression=compression, tile=tile)
    parts = "Tile" if tile else "Strip"
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        tags = [file.pages[0].tags[f"{parts}{what}"] for what in ("Offsets", "ByteCounts")]
    shared = bytearray(data)
    for tag in tags:
        start, size = tag.valueoffset, {3: 2, 4: 4}[tag.dtype]
        shared[start : start + size * tag.count] = data[start : start + size] * tag.count

    assert ops.decode_image(data, dtype="float32").shape == (19, 26, 40)
    with pytest.raises(DecodeError, match="its strips or tiles overlap"):
        ops.decode_image(bytes(shared), dtype="float32")


@pytest.mark.parametrize(("channels", "dtype", "each"), [(40, "float32", 160), (3, "uint16", 6), (3, "float32", 12)])
def test_the_budget_counts_all_samples(channels: int, dtype: str, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def decoding(size: int) -> contextlib.AbstractContextManager[None]:
        held.append(size)
        return contextlib.nullcontext()

    monkeypatch.setattr(decode, "decoding", decoding)

    image = ops.decode_image(written(bands(channels, dtype)), dtype=dtype)

    assert image.nbytes == 19 * 26 * each
    assert held == [3 * image.nbytes]


def with_large_tiles() -> bytes:
    data = written(bands(6, "uint8"), tile=(16, 16))
    for tag in (322, 323):
        at = min(data.find(struct.pack("<HHI", tag, kind, 1)) % len(data) for kind in (3, 4))
        data = data[: at + 8] + struct.pack("<H", 65520) + data[at + 10 :]
    return data


def of_dtype(dtype: str) -> Any:
    return ops.decode_image(written(np.zeros((4, 5, 6), dtype)), dtype="float32")


def as_channels(channels: int) -> Any:
    return ops.decode_image(written(bands(6, "uint8")), channels)


SIX = "an image of 1 to 4 channels is needed, got 6; decode it with channels=0"
SAMPLES = "float32, uint16, uint8 is needed, .* got 6 of {} .*py_function"
LIMIT = r"4 for each of Options\.max_pixels, got 10000x10000x60000"

test_what_is_not_decoded_is_refused_by_name = refused(
    (DecodeError, SIX, lambda: as_channels(1)),
    (DecodeError, SIX, lambda: as_channels(3)),
    (DecodeError, SIX, lambda: as_channels(4)),
    (DecodeError, SAMPLES.format("int16"), lambda: of_dtype("int16")),
    (DecodeError, SAMPLES.format("uint32"), lambda: of_dtype("uint32")),
    (DecodeError, SAMPLES.format("float64"), lambda: of_dtype("float64")),
    (DecodeError, LIMIT, lambda: ops.decode_image(strip_of(b"", 10_000, 10_000, 60_000))),
    (DecodeError, r"may have \d+ pixels", lambda: ops.decode_image(strip_of(b"", 900_000, 900_000, 6))),
    (DecodeError, "tiles of 65520x65520 for 19x26 pixels", lambda: ops.decode_image(with_large_tiles())),
)


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_chain_takes_all_bands_to_a_batch(kind: str) -> None:
    images = [bands(6, "uint16"), bands(6, "uint16", 24, 30)]

    def scaled(data: Any) -> Any:
        image = ops.decode_image(data, dtype="uint16")
        return ops.normalize(ops.crop_to_bounding_box(image, 1, 2, 16, 16), [0.0] * 6, [65535.0] * 6)

    ds = gp.Dataset.from_tensor_slices([written(image) for image in images]).map(scaled).batch(2)
    (batch,) = ds.with_options(on(kind)).as_numpy_iterator()

    expected = np.stack([image[1:17, 2:18] for image in images]).astype(np.float32) / 65535
    np.testing.assert_allclose(batch, expected, rtol=1e-6)  # a product with 1 / std instead of a quotient


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_chain_without_tifffile_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = gp.Dataset.from_tensor_slices([written(bands(3, "uint8")), written(bands(6, "uint16"))])
    ds = ds.map(lambda x: ops.resize(ops.decode_image(x), (8, 8)))
    monkeypatch.setitem(sys.modules, "tifffile", None)

    with pytest.raises(gp.DataError, match=r"index 1: .*needs tifffile.*pip install tifffile"):
        list(ds.with_options(on(kind)))


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_colours_that_are_products_with_alpha_are_divided(dtype: str) -> None:
    """51 of 255 is a fifth; of what is transparent no colour is known."""
    scale = 257 if dtype == "uint16" else 1
    rows = np.array([[[10, 20, 30, 255], [10, 20, 30, 51], [0, 0, 0, 0]]]) * scale
    file = io.BytesIO()
    tifffile.imwrite(file, rows.astype(dtype), photometric="rgb", extrasamples=["assocalpha"])

    image = ops.decode_image(file.getvalue(), channels=4, dtype=dtype)

    assert (image // scale).tolist() == [[[10, 20, 30, 255], [50, 100, 150, 51], [0, 0, 0, 0]]]
    assert image.dtype == dtype
