"""Masks of classes: the indices of a palette instead of its colours."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DecodeError, SpecError
from gpupipe.ops._shared.samples import encoded, picture
from tests.chains.data import on
from tests.conformance.harness import EXECUTORS
from tests.ops.png_files import Array, packed_gray, png

PALETTE = np.random.default_rng(5).integers(0, 256, 768).astype(np.uint8).tobytes()


def classes(bits: int, height: int = 21, width: int = 35) -> Array:
    """Random classes, uint8[H,W], the highest among them; for 8 bits also 255, which marks borders in VOC."""
    mask = np.random.default_rng(bits).integers(0, 1 << bits, (height, width)).astype(np.uint8)
    mask[0, 0] = (1 << bits) - 1
    return mask


def indexed(mask: Array, format: str = "PNG", **options: Any) -> bytes:
    image, out = Image.fromarray(mask), io.BytesIO()
    image = Image.frombytes("P", image.size, mask.tobytes())
    image.putpalette(PALETTE[: 3 << options.get("bits", 8)])
    image.save(out, format, **options)
    return out.getvalue()


@pytest.mark.parametrize("function", [ops.decode_png, ops.decode_image])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_palette_png_gives_its_indices(bits: int, function: Any) -> None:
    mask = classes(bits)
    data = indexed(mask, bits=bits)
    assert (data[24], data[25]) == (bits, 3)

    got = function(data, palette="indices")

    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, mask[:, :, None])
    np.testing.assert_array_equal(function(data, 1, palette="indices"), got)
    np.testing.assert_array_equal(got[:, :, 0], np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize(("format", "options"), [("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"})])
def test_other_formats_with_a_palette_give_their_indices(format: str, options: dict[str, Any]) -> None:
    mask = classes(8)

    np.testing.assert_array_equal(ops.decode_image(indexed(mask, format, **options), palette="indices")[:, :, 0], mask)


def test_transparent_entries_stay_indices() -> None:
    mask = classes(4)

    np.testing.assert_array_equal(ops.decode_png(indexed(mask, transparency=3), palette="indices")[:, :, 0], mask)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_gray_of_few_bits_is_not_scaled(bits: int) -> None:
    mask = classes(bits)
    data = packed_gray(mask, bits)

    np.testing.assert_array_equal(ops.decode_png(data, palette="indices")[:, :, 0], mask)
    np.testing.assert_array_equal(ops.decode_png(data)[:, :, 0], mask * (255 // ((1 << bits) - 1)))


def test_gray_of_8_and_16_bits_is_as_stored() -> None:
    mask, deep = classes(8), classes(8)[:, :, None].astype(np.uint16) * np.uint16(251)

    np.testing.assert_array_equal(ops.decode_png(encoded(mask[:, :, None], "PNG"), palette="indices")[:, :, 0], mask)
    np.testing.assert_array_equal(ops.decode_png(png(deep), dtype="uint16", palette="indices"), deep)
    with pytest.raises(DecodeError, match=r'indices of 16 bits do not fit uint8; decode them with dtype="uint16"'):
        ops.decode_png(png(deep), palette="indices")


def test_indices_as_uint16_are_not_scaled() -> None:
    got = ops.decode_png(indexed(classes(8)), dtype="uint16", palette="indices")

    assert got.dtype == np.uint16
    np.testing.assert_array_equal(got[:, :, 0], classes(8))


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "BMP"])
def test_an_image_of_colours_has_no_indices(format: str) -> None:
    with pytest.raises(DecodeError, match=f'gray one, is needed for palette="indices", got a {format} of mode RGB'):
        ops.decode_image(encoded(picture(8, 8), format), palette="indices")


def test_indices_need_one_channel_of_integers() -> None:
    data = indexed(classes(8))

    for channels, dtype in ((3, "uint8"), (4, "uint8"), (1, "float32")):
        with pytest.raises(SpecError, match=f"palette='indices', got {channels} and {dtype}"):
            ops.decode_image(data, channels, dtype, palette="indices")
    with pytest.raises(SpecError, match="needs palette from colors, indices, got 'index'"):
        ops.decode_png(data, palette="index")  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", [30, 200, -16])
def test_a_cut_mask_is_a_data_error(cut: int) -> None:
    with pytest.raises(DecodeError):
        ops.decode_png(indexed(classes(8))[:cut], palette="indices")


@pytest.mark.parametrize("kind", EXECUTORS)
def test_an_image_and_its_mask_stay_together(kind: str) -> None:
    mask = classes(8)
    colours = np.stack([mask, 255 - mask, mask], axis=2)

    def both(image: Any, labels: Any) -> Any:
        pair = ops.decode_png(image, channels=3), ops.decode_png(labels, palette="indices")
        return ops.random_flip_left_right(ops.random_crop(pair, (9, 11)))

    ds = gp.Dataset.from_tensor_slices(([encoded(colours, "PNG")] * 6, [indexed(mask)] * 6)).map(both).batch(6)
    ((image, labels),) = ds.with_options(on(kind)).as_numpy_iterator()

    assert labels.shape == (6, 9, 11, 1)
    np.testing.assert_array_equal(image[:, :, :, :1], labels)
    assert len({row.tobytes() for row in labels}) > 1
