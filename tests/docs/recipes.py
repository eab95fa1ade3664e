"""recipes: pictures of what the chains of the page of recipes give, of photographs that gpupipe draws."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.comparison.photographs import encode, take
from gpupipe.graph.op import Array
from gpupipe.structure import flatten

__all__ = ["BLOCK", "COUNT", "made", "picture", "with_pictures", "write_photographs"]

BLOCK = re.compile(r"^```python\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)
"""Python in a page of Markdown."""

NOISE = re.compile(r"np\.random\.default_rng\(\d+\)\.integers\(0, 256, (\([\d, ]+\)), dtype=np\.uint8\)")
"""An array of noise on the page; its shape."""

COUNT = 24
"""Photographs of three classes."""

SOURCES = {"photos", "coco"}
"""Chains whose elements are single photographs, not what a recipe makes of them."""

SHOWN, HEIGHT, GAP = 6, 112, 4
"""Images in a row of a picture, pixels of its height, and between two images."""


def with_pictures(text: str, folder: Path) -> str:
    """The page with a picture behind each block that makes a chain; pictures are written into a folder."""
    folder.mkdir(parents=True)
    parts, names, at = [], dict[str, Any](), 0
    with _photographs():
        for block in BLOCK.finditer(text):
            parts.append(text[at : block.end()])
            at = block.end()
            for name in made(block[1], names):
                Image.fromarray(picture(name, names[name])).save(folder / f"{name}.png")
                parts.append(f"\n![what {name} gives]({folder.name}/{name}.png)\n")
    return "".join([*parts, text[at:]])


def made(code: str, names: dict[str, Any]) -> list[str]:
    """Run a block, and return the names of the chains that it makes; `names` are those of the blocks before it.

    Where the page has an array of noise in the place of images, there are photographs.
    """
    names["drawn"] = drawn
    before = set(names)
    exec(NOISE.sub(r"drawn(\1)", code), names)
    return [name for name in names if name not in before | SOURCES and isinstance(names[name], gp.Dataset)]


def drawn(shape: tuple[int, int, int, int]) -> Array:
    """Photographs of one size: uint8 of this shape."""
    count, height, width, _ = shape
    images = [Image.fromarray(take(number)[1]).convert("RGB") for number in range(min(count, COUNT))]
    sized = [np.asarray(image.resize((width, height), Image.Resampling.BICUBIC)) for image in images]
    return np.stack([sized[number % len(sized)] for number in range(count)])


def write_photographs(folder: Path) -> None:
    """Write the photographs that the page reads, by classes."""
    for number in range(COUNT):
        place = folder / "photos" / "abc"[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:03}.jpg").write_bytes(encode(take(number)[1]))


@contextmanager
def _photographs() -> Iterator[None]:
    """Inside, the current folder has the photographs that the page reads."""
    here = Path.cwd()
    with TemporaryDirectory() as folder:
        write_photographs(Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def picture(name: str, chain: Any) -> Array:
    """The first images of a batch in a row, one row for each leaf that has images: uint8[h,w,3]."""
    leaves = [leaf for leaf in flatten(next(chain.iterator(epoch=0)))[0] if isinstance(leaf, np.ndarray)]
    rows = [_row(_images(leaf)) for leaf in leaves if _is_seen(leaf)]
    if name == "masked":
        rows.append(_row(_seen_by_the_encoder(*leaves)))
    width = max(row.shape[1] for row in rows)
    wide = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    return np.concatenate(wide)


def _is_seen(leaf: Array) -> bool:
    """Whether a leaf is a batch of images, of clips or of masks."""
    return (leaf.ndim in (4, 5) and leaf.shape[-1] in (1, 3)) or (leaf.ndim == 3 and min(leaf.shape[1:]) > 16)


def _images(leaf: Array) -> list[Array]:
    """Some images of a leaf: of a batch, of the first clip of a batch, or of a batch of masks."""
    if leaf.ndim == 5:
        leaf = leaf[0]
    if leaf.ndim == 3:
        leaf = np.repeat(leaf[..., None] * (255 // max(int(leaf.max()), 1)), 3, axis=3)
    return [_visible(image) for image in leaf[:SHOWN]]


def _visible(image: Array) -> Array:
    """uint8[H,W,3] of an image that was normalised, or is of 0 to 1."""
    pixels = image.astype(np.float64)
    if image.dtype.kind == "f":
        ranged = pixels.min() >= 0 and pixels.max() <= 1
        pixels = pixels * 255 if ranged else pixels * ops.IMAGENET_STD + ops.IMAGENET_MEAN
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def _seen_by_the_encoder(images: Array, noise: Array) -> list[Array]:
    """Images of which the patches that are not among the first quarter of an order are gray."""
    shown = []
    for image, numbers in zip(images[:SHOWN], noise, strict=False):
        side = int(numbers.size**0.5)
        keep = (numbers.argsort().argsort() < numbers.size // 4).reshape(side, side)
        patches = np.kron(keep, np.ones((image.shape[0] // side,) * 2, bool))
        shown.append(np.where(patches[..., None], _visible(image), np.uint8(128)))
    return shown


def _row(images: list[Array]) -> Array:
    """Images side by side, all of one height."""
    parts = []
    for image in images:
        width = round(image.shape[1] * HEIGHT / image.shape[0])
        small = np.asarray(Image.fromarray(image).resize((width, HEIGHT), Image.Resampling.BICUBIC))
        parts.append(np.pad(small, ((0, GAP), (0, GAP), (0, 0)), constant_values=255))
    return np.concatenate(parts, axis=1)
