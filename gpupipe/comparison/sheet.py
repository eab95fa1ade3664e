"""sheet: a contact sheet, many small images in one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.extract.storage.output import MARK
from gpupipe.extract.storage.replacing import named_errors, replacing

__all__ = ["contact_sheet", "save_png", "to_uint8"]

GAP = 4  # pixels of white around each image


def to_uint8(images: npt.NDArray[Any], mean: Any, std: Any) -> npt.NDArray[np.uint8]:
    """Undo `ops.normalize`, to make the images viewable.

    Shapes: ``float32[N,H,W,3]{NHWC} -> uint8[N,H,W,3]{NHWC}``, rounded and clipped to 0..255.
    """
    pixels = images.astype(np.float32) * np.asarray(std, np.float32) + np.asarray(mean, np.float32)
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def contact_sheet(images: npt.NDArray[np.uint8], columns: int = 8) -> npt.NDArray[np.uint8]:
    """Arrange images of equal size in rows.

    Shapes: ``uint8[N,H,W,3]{NHWC} -> uint8[rows * (H + 4) + 4, columns * (W + 4) + 4, 3]{HWC}``
    """
    count, height, width, _ = images.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    sheet = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), 255, np.uint8)
    for index, image in enumerate(images):
        top, left = (
            GAP + cell * (side + GAP) for cell, side in zip(divmod(index, columns), (height, width), strict=True)
        )
        sheet[top : top + height, left : left + width] = image
    return sheet


def save_png(path: Path, image: npt.NDArray[np.uint8]) -> None:
    """Write uint8[H,W,3]{HWC} as a PNG, whatever the suffix of `path`.

    Raises:
        OSError: `path` cannot be written; an older file is unchanged.
    """
    from PIL import Image, PngImagePlugin

    written_by = PngImagePlugin.PngInfo()
    written_by.add_text("Software", MARK)
    with named_errors(path), replacing(path) as file:
        Image.fromarray(image).save(file, "PNG", pnginfo=written_by)
