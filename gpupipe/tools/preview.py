"""preview: a contact sheet of augmented images, each row one image in several epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.comparison.sheet import contact_sheet, save_png
from gpupipe.comparison.source import Source, find_source
from gpupipe.errors import PlanError
from gpupipe.extract.storage.output import check_output
from gpupipe.tools.augmented import Draw, augmentations
from gpupipe.tools.first_images import first_images
from gpupipe.tools.users_file import find_dataset, names_a_dataset, stdout_on_stderr

from ..classes import dataclass

__all__ = ["Preview", "save_preview"]

Image = npt.NDArray[np.uint8]

# Of Okabe and Ito, which people tell apart however they see colours.
COLOURS = ((213, 94, 0), (0, 114, 178), (0, 158, 115), (204, 121, 167), (230, 159, 0), (86, 180, 233), (240, 228, 66))
PAPER = 235
"""Grey of what an image leaves free in its cell, 0..255."""
MOST_CELLS = 400


@dataclass(frozen=True, slots=True)
class Preview:
    """What a contact sheet shows.

    Attributes:
        rows: images shown.
        columns: cells of a row.
        lines: sentences about them, for people.
        details: the windows of each row, where they are known; plain data.
    """

    rows: int
    columns: int
    lines: Sequence[str]
    details: Sequence[Any]


def save_preview(
    what: str, out: Path, rows: int, draws: int, size: int, progress: Callable[[int, int], None]
) -> Preview:
    """Save a contact sheet.

    Args:
        what: data as `find_source` takes it, or a dataset as `find_dataset` takes it.
        out: the PNG to write.
        rows: images to show at most, >= 1.
        draws: epochs of each, >= 1.
        size: pixels per side of a cell, 32 to 1024.
        progress: called with the number of images made, and of all.

    Raises:
        PlanError: an argument is wrong.
        OSError: `out` cannot be written.
    """
    _check(out, rows, draws, size)
    source = None if names_a_dataset(what) else find_source(what, rows)
    if source is not None:
        check_output("--out", out, "PNG", source.paths)
        cells, preview = _of_data(source, rows, draws, size, progress)
    else:
        cells, preview = _of_dataset(what, rows, draws, size, progress)
    save_png(out, contact_sheet(np.stack(cells), preview.columns))
    return preview


def _check(out: Path, rows: int, draws: int, size: int) -> None:
    for name, value in (("--rows", rows), ("--draws", draws)):
        if value < 1:
            raise PlanError(f"{name} needs 1 or more, got {value}")
    if rows * (draws + 1) > MOST_CELLS:
        raise PlanError(f"--rows times --draws needs a sheet of at most {MOST_CELLS} images, got {rows} x {draws}")
    if not 32 <= size <= 1024:
        raise PlanError(f"--size needs 32 to 1024 pixels, got {size}")
    check_output("--out", out, "PNG")


def _of_data(
    source: Source, rows: int, draws: int, size: int, progress: Callable[[int, int], None]
) -> tuple[list[Image], Preview]:
    examples = augmentations(source, rows, draws, size, progress)
    cells = []
    for example in examples:
        cells.append(_marked(example.original, example.draws, size))
        cells += [_framed(draw.image, COLOURS[draw.epoch % len(COLOURS)]) for draw in example.draws]
    details = [
        {"label": e.label, "original": list(e.original.shape[:2]), "windows": [asdict(d.window) for d in e.draws]}
        for e in examples
    ]
    lines = [
        "each row: the original, then random_resized_crop and random_flip_left_right of it "
        f"in epochs 0 to {draws - 1}; a frame on the original is the window of the crop with that frame",
        *([source.left_out] if source.left_out else []),
    ]
    return cells, Preview(len(examples), 1 + draws, lines, details)


def _of_dataset(
    what: str, rows: int, draws: int, size: int, progress: Callable[[int, int], None]
) -> tuple[list[Image], Preview]:
    with stdout_on_stderr():
        leaves = first_images(find_dataset(what), rows, draws, progress)
    count = max(len(epoch) for leaf in leaves for epoch in leaf.epochs)
    cells = [
        _boxed(epoch[row], size)[0] if row < len(epoch) else np.full((size, size, 3), PAPER, np.uint8)
        for row in range(count)
        for leaf in leaves
        for epoch in leaf.epochs
    ]
    each = "each row: the element at one place" + (f", of {len(leaves)} leaves" if len(leaves) > 1 else "")
    lines = [f"{each}, in epochs 0 to {draws - 1}; a shuffle puts another element there in each epoch"]
    lines += [f"{leaf.name or 'images'}: {leaf.shown}" for leaf in leaves]
    details = [{"leaf": leaf.name, "shown": leaf.shown} for leaf in leaves]
    return cells, Preview(count, len(leaves) * draws, lines, details)


def _boxed(image: Image, size: int) -> tuple[Image, float, tuple[int, int]]:
    """Fit an image into a square; return it, the scale, and where its corner is (row, column)."""
    from PIL import Image as Pillow

    height, width = image.shape[:2]
    scale = min(size / height, size / width)
    inside = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = (size - inside[0]) // 2, (size - inside[1]) // 2
    cell = np.full((size, size, 3), PAPER, np.uint8)
    small = Pillow.fromarray(image).resize((inside[1], inside[0]), Pillow.Resampling.BILINEAR)
    cell[top : top + inside[0], left : left + inside[1]] = np.asarray(small)
    return cell, scale, (top, left)


def _marked(original: Image, draws: Sequence[Draw], size: int) -> Image:
    """The original in a square, with the window of each draw as a frame in its colour."""
    cell, scale, (top, left) = _boxed(original, size)
    for draw in draws:
        window = draw.window
        first = top + round(window.top * scale), left + round(window.left * scale)
        last = top + round((window.top + window.height) * scale), left + round((window.left + window.width) * scale)
        _frame(cell, first, last, COLOURS[draw.epoch % len(COLOURS)], 2)
    return cell


def _framed(image: Image, colour: tuple[int, int, int]) -> Image:
    image = image.copy()
    _frame(image, (0, 0), image.shape[:2], colour, 3)
    return image


def _frame(
    image: Image, first: tuple[int, int], last: tuple[int, ...], colour: tuple[int, int, int], wide: int
) -> None:
    """Draw the outline of a rectangle, inwards."""
    part = image[first[0] : last[0], first[1] : last[1]]
    for line in (part[:wide], part[-wide:], part[:, :wide], part[:, -wide:]):
        line[...] = colour
