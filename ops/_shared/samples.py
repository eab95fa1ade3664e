"""samples: small synthetic images for the cases of ops."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpupipe.graph.op import Array

__all__ = ["encoded", "noise", "picture", "tones"]


def noise(height: int, width: int, channels: int = 3, dtype: Any = np.uint8) -> Array:
    """Random values 0..255: the hardest image to resize."""
    values: Array = np.random.default_rng((height, width, channels)).integers(0, 256, (height, width, channels))
    return values.astype(np.dtype(dtype))


def picture(height: int, width: int, channels: int = 3) -> Array:
    """Smooth waves with an edge, uint8: an image that suits JPEG."""
    y, x, c = np.ogrid[0.0:height, 0.0:width, 0.0:channels]
    waves = 127 + 70 * np.sin(0.21 * x + c) + 50 * np.cos(0.17 * y - 0.8 * c)
    image: Array = np.clip(waves + 40 * ((x + y) % 24 > 12), 0, 255)
    return image.astype(np.uint8)


def tones(gray: bool = True) -> Iterator[Array]:
    """Images for ops on colours: every dtype they take, black, white, gray and pure colours, and a single pixel.

    Args:
        gray: whether to include images of one channel.
    """
    image = noise(9, 8)
    image[0] = [
        [0, 0, 0],
        [255, 255, 255],
        [255, 0, 0],
        [255, 255, 0],
        [0, 0, 255],
        [77, 77, 77],
        [9, 9, 10],
        [0, 9, 9],
    ]
    yield image
    yield image[4:5, 4:5]
    yield image.astype(np.uint16) * np.uint16(257)
    yield image.astype(np.float32) / np.float32(255)
    yield (image[:7].astype(np.float32) - 60) / 128  # some values below 0, one pixel in all channels, and some above 1
    yield image.astype(np.float16) / np.float16(255)
    if gray:
        yield image[:, 1:, 1:2]


def encoded(image: Array, format: str = "JPEG", mode: str = "", orientation: int = 1, **options: Any) -> bytes:
    """Encode an image in this format, with Pillow's options for it."""
    from PIL import Image

    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    if mode:
        picture = picture.convert(mode)
    if orientation != 1:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    out = io.BytesIO()
    picture.save(out, format, **options)
    return out.getvalue()
