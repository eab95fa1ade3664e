"""pictures: images as addresses that hold them, small enough for a page."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SIDE", "address_of", "shrunk"]

SIDE = 400
"""Pixels of the longer side on the page, at most."""

Pixels = npt.NDArray[np.uint8]


def shrunk(image: Pixels, brightest: bool = False) -> Pixels:
    """Shrink an image by a whole number, so that no side is longer than `SIDE`.

    Args:
        image: uint8[H,W,C]{HWC}.
        brightest: take the largest value of each block, so that no single pixel of a difference is lost; else the mean.
    """
    height, width, channels = image.shape
    factor = -(-max(height, width) // SIDE)
    if factor <= 1:
        return image
    # Blocks at the right and lower edge are filled up with copies of the last row and column.
    filled = np.pad(image, ((0, -height % factor), (0, -width % factor), (0, 0)), mode="edge")
    blocks = filled.reshape(filled.shape[0] // factor, factor, filled.shape[1] // factor, factor, channels)
    if brightest:
        return np.asarray(blocks.max(axis=(1, 3)))
    return np.asarray(np.rint(blocks.mean(axis=(1, 3), dtype=np.float32)).astype(np.uint8))


def address_of(image: Pixels) -> str:
    """A ``data:`` address of an image as JPEG or PNG, whichever is shorter.

    Args:
        image: uint8[H,W,C]{HWC}; of 2 or more than 3 channels the first 1 or 3 are shown.
    """
    from PIL import Image

    shown = Image.fromarray(image[..., :3] if image.shape[2] >= 3 else image[..., 0])
    options: tuple[tuple[str, dict[str, Any]], ...] = (("png", {}), ("jpeg", {"quality": 90, "subsampling": 0}))
    encoded = []
    for kind, settings in options:
        stream = io.BytesIO()
        shown.save(stream, kind.upper(), **settings)
        encoded.append((kind, stream.getvalue()))
    kind, content = min(encoded, key=lambda one: len(one[1]))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
