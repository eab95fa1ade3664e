"""thumbnails: a contact sheet of encoded images, small and upright."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpupipe.comparison.sheet import contact_sheet, save_png
from gpupipe.errors import DecodeError, GpupipeError, io_reason
from gpupipe.extract.images.decode import decode

__all__ = ["SIDE", "write_thumbnails"]

SIDE = 160
"""Pixels of a side of a thumbnail; images are fitted into the square."""


_WHITE, _GREY = 255, 192  # around an image; in place of one that cannot be decoded


def write_thumbnails(path: Path, images: Sequence[bytes]) -> int:
    """Write a contact sheet as a PNG; an image that cannot be decoded is a grey square.

    Args:
        path: of the PNG.
        images: encoded, at least one.

    Returns:
        How many images were decoded.

    Raises:
        GpupipeError: `path` cannot be written; nothing is left of it, and an older one is unchanged.
    """
    small = [_thumbnail(image) for image in images]
    grey = np.full((SIDE, SIDE, 3), _GREY, np.uint8)
    try:
        save_png(path, contact_sheet(np.stack([grey if one is None else one for one in small])))
    except OSError as error:
        raise GpupipeError(f"the contact sheet {str(path)!r} cannot be written: {io_reason(error)}") from error
    return sum(one is not None for one in small)


def _thumbnail(data: bytes) -> npt.NDArray[np.uint8] | None:
    """Decode an image and fit it into a white square; None if it is damaged."""
    from PIL import Image

    try:
        image = Image.fromarray(decode(data, 3, exif_orientation=True))
    except DecodeError:
        return None
    image.thumbnail((SIDE, SIDE))
    square = np.full((SIDE, SIDE, 3), _WHITE, np.uint8)
    top, left = (SIDE - image.height) // 2, (SIDE - image.width) // 2
    square[top : top + image.height, left : left + image.width] = np.asarray(image)
    return square
