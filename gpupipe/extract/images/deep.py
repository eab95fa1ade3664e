"""deep: samples of more than 8 bits, conversion to the dtype that is asked for, and the indices of palettes.

Pillow's images hold 8 bits of a colour, but it can be told which: a PNG of 16 bits is decoded twice, once for the upper
and once for the lower bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.errors import DecodeError
from gpupipe.extract.images.headers import ImageHeader
from gpupipe.extract.images.pillow import opened, sample_bits, white_is_zero

__all__ = ["as_dtype", "deep_png", "gray16", "indices_of", "with_channels"]

Array = npt.NDArray[Any]
Encoded = bytes | bytearray | memoryview

_LOWER = {2: "RGBA", 3: "RGB;16L", 4: "RGBA;16L"}
"""How Pillow reads the bytes that it leaves out, by the number of channels; of two channels all four bytes."""


def deep_png(image: Any, data: Encoded, stored: int, channels: int) -> Array:
    """Decode a PNG of 16 bits.

    Args:
        image: opened by Pillow.
        data: the same, encoded.
        stored: the channels that it has.
        channels: as in `decode`.

    Returns:
        uint16[H,W,C].
    """
    clear = image.info.get("transparency")
    if stored == 1:
        out = np.asarray(image).astype(np.uint16)[:, :, None]
    else:
        with opened(data, "png") as other:
            other.tile = [(*other.tile[0][:3], _LOWER[stored])]
            lower = np.array(other)
        if stored == 2:
            out = lower.view(">u2").astype(np.uint16)
        else:
            out = np.array(image).astype(np.uint16)
            out <<= 8
            out |= lower
    return with_channels(out, channels, clear)


def gray16(image: Any) -> Array:
    """The samples of a gray image of 16 bits, opened by Pillow: uint16[H,W]. Where white is zero they are inverted."""
    samples: Array = np.asarray(image).astype(np.uint16)
    return ~samples if white_is_zero(image) else samples


def with_channels(image: Array, channels: int, clear: Any = None) -> Array:
    """Convert an image of 1 to 4 channels (gray or RGB, with or without alpha) to `channels`, 0 for as many as it has.

    Args:
        image: T[H,W,C].
        channels: 1 gray, by Pillow's weights; 3 RGB, 4 RGBA.
        clear: the sample, or the three of them, that are transparent where there is no alpha.

    Raises:
        DecodeError: it has more channels, and they are not asked for as they are.
    """
    stored = image.shape[2]
    if channels in (0, stored):
        return image
    if stored > 4:
        raise DecodeError(f"an image of 1 to 4 channels is needed, got {stored}; decode it with channels=0")
    colours, alpha = image[:, :, : 3 if stored > 2 else 1], image[:, :, -1:]
    if channels == 1:
        return _gray(colours) if stored > 2 else colours
    if colours.shape[2] == 1:
        colours = np.repeat(colours, 3, axis=2)
    if channels == 3:
        return np.ascontiguousarray(colours)
    if stored % 2:
        most = np.iinfo(image.dtype).max if image.dtype.kind == "u" else 1
        alpha = np.full_like(alpha, most)
        if clear is not None:
            alpha[(image == np.asarray(clear, image.dtype)).all(axis=2)] = 0
    return np.concatenate([colours, alpha], axis=2)


def _gray(colours: Array) -> Array:
    """The gray of RGB by Pillow's weights, 19595, 38470 and 7471 of 65536, rounded."""
    if colours.dtype.kind == "f":
        weights = np.array([19595, 38470, 7471], colours.dtype) / 65536
        out: Array = (colours * weights).sum(axis=2, keepdims=True, dtype=colours.dtype)
        return out
    total = np.full((*colours.shape[:2], 1), 1 << 15, np.uint32)  # at most 65535 * 65536 + 32768: it fits
    for channel, weight in enumerate((19595, 38470, 7471)):
        total += colours[:, :, channel : channel + 1] * np.uint32(weight)
    return (total >> 16).astype(colours.dtype)


def as_dtype(image: Array, dtype: str, kind: str) -> Array:
    """Scale an image to the range of `dtype` as TensorFlow's decoders do.

    From 8 bits to 16: a PNG times 257, any other times 256. From 16 bits to 8: the upper ones. To float32: 0..1, a PNG
    by way of 16 bits. Floats stay as they are.

    Raises:
        DecodeError: floats as integers, whose range nothing tells.
    """
    if image.dtype == dtype:
        return image
    if image.dtype.kind == "f":
        raise DecodeError(
            f'samples of 8 or 16 bits are needed, got float32; decode it with dtype="float32", not {dtype}'
        )
    if image.dtype == np.uint8 and (dtype == "uint16" or kind == "png"):
        image = image.astype(np.uint16) * np.uint16(257 if kind == "png" else 256)
    if dtype == "uint8":
        return (image >> 8).astype(np.uint8)
    if dtype == "float32":
        return image.astype(np.float32) * np.float32(1 / np.iinfo(image.dtype).max)
    return image


def indices_of(image: Any, header: ImageHeader) -> Array:
    """The index of every pixel in the palette, or the sample as stored of a gray image, from an image opened by Pillow.

    Returns:
        uint8[H,W,1], uint16 for a gray image of 16 bits.

    Raises:
        DecodeError: it has neither a palette nor only gray.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and header.format == "png"):
        return np.asarray(image).astype(np.uint16)[:, :, None]
    if image.mode not in ("1", "L", "P"):
        raise DecodeError(
            f'an image with a palette, or a gray one, is needed for palette="indices", '
            f"got a {header.format.upper()} of mode {image.mode}"
        )
    index: Array = np.array(image).astype(np.uint8)[:, :, None]
    if image.mode == "P":
        return index
    bits = sample_bits(image) if header.format == "tiff" else header.bits
    most = 1 if image.mode == "1" else (1 << min(bits, 8)) - 1
    if image.mode == "L" and most < 255:
        index //= np.uint8(255 // most)  # Pillow scales gray to 8 bits
    return np.uint8(most) - index if white_is_zero(image) else index
