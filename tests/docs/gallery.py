"""gallery: what each op does to a photograph, drawn from the cases of its conformance suite.

A case says which settings an op is tested with, and on what kind of array. Here a photograph that gpupipe draws takes
the place of the case's noise: in its dtype and with its channels, enlarged with all lengths among the settings, so that
something can be seen. The pictures are those of the op's reference, with parameters drawn as a chain draws them. Ops
that move positions are shown with two boxes. Functions that are made of several ops are called.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from gpupipe import ops
from gpupipe.comparison.photographs import photograph
from gpupipe.graph.op import Array, Case, Op
from gpupipe.ops._shared.samples import encoded
from gpupipe.ops._shared.travel import Moved, has_motion
from gpupipe.ops.catalogue import CATALOGUE
from gpupipe.random import BatchRng
from tests.conformance.harness import Batch

__all__ = ["WITHOUT", "Shown", "document", "shown"]

HEIGHT = 110
"""Pixels that photographs have at least; cases are enlarged by whole numbers."""

SETTINGS, ROWS = 3, 3
"""Of an op: settings that are shown, and draws of a random op."""

BOXES = np.array([[0.15, 0.2, 0.5, 0.65], [0.55, 0.45, 0.9, 0.9]])
"""Left, top, right, bottom as shares of the photograph, drawn where an op moves positions."""

COLOURS = ("red", "yellow")

GAP = 4
"""Pixels between images that stand beside one another."""

LENGTHS = {
    "height", "width", "length", "top", "left", "offset_height", "offset_width", "target_height", "target_width",
    "min_size", "max_size",
}  # fmt: skip
"""Settings that count pixels, of all ops."""

_WHY_WITHOUT = {
    "it is what ops take": "Sample",
    "its results are equal to the eye": "cast convert_image_dtype",
    "it is minimum and maximum": "clip",
    "it changes boxes, not the image": "clip_boxes convert_boxes",
    "its result has more channels, rows or columns": "concat",
    "it runs any operator of DALI": "dali_function",
    "it is decode_jpeg and crop_to_bounding_box": "decode_and_crop_jpeg",
    "its result is no image": "expand_dims reshape squeeze stack",
    "its result is a shape": "extract_jpeg_shape",
    "it makes a function of other ops": "from_hf from_timm from_torchvision",
    "it looks numbers up in a table": "gather",
    "it compares numbers": "maximum minimum",
    "its result is a vector": "one_hot",
    "it runs any Python function": "py_function",
    "its result is a number": "random_uniform",
    "its result is a box": "sample_distorted_bounding_box",
    "it chooses between numbers": "where",
}
WITHOUT = {name: why for why, names in _WHY_WITHOUT.items() for name in names.split()}
"""Functions that have no picture, and why."""


@dataclass(frozen=True)
class Shown:
    """A photograph before and after an op.

    Attributes:
        call: the op, with its settings.
        before: uint8[h,w,c].
        after: one picture for each draw.
    """

    call: str
    before: Array
    after: list[Array]


@cache
def shown(name: str) -> list[Shown]:
    """What is shown of an op: up to `SETTINGS` of its settings, if possible such that change something."""
    if calls := [call for call in CALLED if call.startswith(f"{name}(")]:
        return list(map(_called, calls))
    (kind,) = (kind for kind in CATALOGUE if kind.__name__.lower() == name.replace("_", ""))
    found: dict[str, Shown] = {}
    for case in kind.cases():
        if len(found) < 4 * SETTINGS and str(case.op) not in found and (pictured := _picture(case)) is not None:
            found[str(case.op)] = pictured
    return ([one for one in found.values() if _tells(one)] or list(found.values()))[:SETTINGS]


def _tells(one: Shown) -> bool:
    """Whether a result is neither the photograph itself, nor of one colour, nor too small to be seen."""
    after = one.after[0]
    return min(after.shape[:2]) >= 16 and after.std() > 5 and not np.array_equal(after, one.before)


def _picture(case: Case) -> Shown | None:
    first = case.inputs[0]
    if isinstance(first, bytes):
        before = _photograph(0, 2 * HEIGHT, 3 * HEIGHT, 3)
        form = "PNG" if first[:4] == b"\x89PNG" else "JPEG"
        inputs: tuple[Any, ...] = (encoded(before, form), *case.inputs[1:])
        return _made(replace(case, inputs=inputs), before)
    layout = case.layouts[0] if case.layouts else None
    if first.dtype not in (np.uint8, np.float32) or (layout, first.ndim) not in (("HWC", 3), (None, 3), ("NHWC", 4)):
        return None
    height, width, channels = first.shape[-3:]
    if channels not in (1, 3) or not 3 <= min(height, width) <= max(height, width) < 4 * min(height, width):
        return None
    by = -(-HEIGHT // height)
    photographs = [
        _like(_photograph(number, height * by, width * by, channels), array)
        for number, array in enumerate(case.inputs[: getattr(case.op, "images", 1)])
    ]
    if first.ndim == 4:
        stack = np.stack([_photograph(n, height * by, width * by, channels) for n in range(len(first))])
        photographs = [stack.astype(first.dtype)]
    enlarged = replace(case, op=_enlarged(case.op, by), inputs=(*photographs, *case.inputs[len(photographs) :]))
    return _made(enlarged, photographs[0] if first.ndim == 3 else photographs[0][0])


def _made(case: Case, before: Array) -> Shown:
    if case.op.rows == "batch":
        return Shown(str(case.op), _seen(before), [_seen(image) for image in _of_batches(case)])
    batch = Batch.of(case, rows=ROWS if case.op.random else 1)
    after = [_seen(row[0]) for row in batch.references()]
    if not has_motion(case.op) or before.shape[-1] != 3:
        return Shown(str(case.op), _seen(before), after)
    height, width = before.shape[:2]
    boxes = np.rint(BOXES * (width, height, width, height)).astype(np.float32)
    size = np.array([height, width], np.int32)
    for row, image in enumerate(after):
        params = batch.arguments(row)[len(case.inputs) :]
        after[row] = _boxed(image, Moved(case.op).reference(boxes, *params, size))
    return Shown(str(case.op), _boxed(_seen(before), boxes), after)


def _boxed(image: Array, boxes: Array, colours: Sequence[str] = COLOURS) -> Array:
    """The picture with the outlines of boxes."""
    picture = Image.fromarray(image)
    for (left, top, right, bottom), colour in zip(np.rint(boxes).astype(int).tolist(), colours, strict=True):
        last = max(right - 1, left), max(bottom - 1, top)  # the pixels inside
        ImageDraw.Draw(picture).rectangle((left, top, *last), outline=colour, width=2)
    return np.asarray(picture)


def _beside(images: Array) -> Array:
    """Images of one size in a row, or in rows, white between them: [n,h,w,c] or [rows,columns,h,w,c]."""
    images = images if images.ndim == 5 else images[None]
    around = np.pad(images, ((0, 0), (0, 0), (0, GAP), (0, GAP), (0, 0)), constant_values=255)
    rows, columns, height, width, channels = around.shape
    return around.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)


def _of_boxes(image: Array, seed: int) -> Array:
    """What random_iou_crop gives of the image with its boxes."""
    boxes = BOXES * np.tile(image.shape[1::-1], 2)
    made = ops.random_iou_crop(ops.Sample(image, boxes, np.arange(len(boxes))), seed=seed)
    return _boxed(made.image, made.boxes, [COLOURS[number] for number in made.labels])


STEPS: list[Callable[[Any], Any]] = [ops.flip_left_right, lambda x: ops.solarize(x, 100), ops.autocontrast]
_STEPS = "[flip_left_right, lambda x: solarize(x, 100), autocontrast]"

CALLED: dict[str, Callable[[Array, int], Array]] = {
    "extract_patches(image, 44)": lambda x, _: _beside(
        ops.extract_patches(x, 44).reshape(-1, x.shape[1] // 44, 44, 44, 3)
    ),
    "five_crop(image, (60, 90))": lambda x, _: _beside(ops.five_crop(x, (60, 90))),
    "random_apply(invert, image, p=0.5)": lambda x, seed: ops.random_apply(ops.invert, x, 0.5, seed=seed),
    f"random_choice({_STEPS}, image)": lambda x, seed: ops.random_choice(STEPS, x, seed=seed),
    "random_iou_crop(Sample(image, boxes, labels))": _of_boxes,
    f"random_order({_STEPS}, image)": lambda x, seed: ops.random_order(STEPS, x, seed=seed),
    "ten_crop(image, (60, 90))": lambda x, _: _beside(ops.ten_crop(x, (60, 90))),
}
"""Functions that are no op of their own: the call, and its result of a photograph and a seed."""


def _called(call: str) -> Shown:
    before = _photograph(0, 2 * HEIGHT, 3 * HEIGHT, 3)
    after = [CALLED[call](before, seed) for seed in range(ROWS if call.startswith("random") else 1)]
    if call.startswith("random_iou_crop"):
        before = _boxed(before, BOXES * np.tile(before.shape[1::-1], 2))
    return Shown(call, before, after)


def _of_batches(case: Case) -> Iterator[Array]:
    """The first image of a batch after an op that mixes its rows, for some draws."""
    images, labels = case.inputs
    for key in range(1, ROWS + 1):
        numbers = BatchRng(1, 0, np.array([key << 20], np.uint64))
        params = case.op.draw(numbers, np.array([images.shape[1:3]], np.int32))
        yield case.op.array(np, images, labels, *(param[0] for param in params))[0][0]


@cache
def _photograph(number: int, height: int, width: int, channels: int) -> Array:
    drawn = Image.fromarray(photograph(np.random.default_rng((0, number)), 240, 320))
    drawn = drawn.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(drawn.convert("L"))[..., None] if channels == 1 else np.asarray(drawn)


def _like(image: Array, array: Array) -> Array:
    """The photograph in the dtype and the range of a case's array."""
    return image if array.dtype == np.uint8 else image.astype(array.dtype) / np.float32(255 if array.max() <= 2 else 1)


def _enlarged(op: Op, by: int) -> Op:
    lengths = {f.name: getattr(op, f.name) for f in fields(op) if f.name in LENGTHS}
    scaled: dict[str, Any] = {
        name: value * by for name, value in lengths.items() if isinstance(value, int) and value > 0
    }
    scaled |= {name: tuple(n * by for n in value) for name, value in lengths.items() if isinstance(value, tuple)}
    return replace(op, **scaled)


def _seen(image: Array) -> Array:
    """A result as a picture: floats of 0 to 1 or 0 to 255 as they are, any others from least to most."""
    if image.ndim == 3 and image.shape[0] in (1, 3) and image.shape[2] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.dtype == np.uint8:
        return image
    pixels = image.astype(np.float64)
    least, most = pixels.min(), pixels.max()
    if least >= -0.01 and most <= 1.01:
        pixels = pixels * 255
    elif least < -1 or most > 256:
        pixels = (pixels - least) / max(most - least, 1e-9) * 255
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def document(folder: Path) -> str:
    """Write the pictures into a folder, and return the page as HTML."""
    folder.mkdir(parents=True)
    return "\n".join(_entries(folder))


def _entries(folder: Path) -> Iterator[str]:
    yield "<h1>What the ops do</h1>"
    yield "<p>Each op on a photograph that gpupipe draws, with settings of its conformance cases.</p>"
    yield "<p>Boxes are where the op moves them.</p>"
    for name in sorted(set(ops.__all__) - {"IMAGENET_MEAN", "IMAGENET_STD"}):
        says = html.escape((getattr(ops, name).__doc__ or "").splitlines()[0])
        yield f'<h2 id="{name}"><a href="gpupipe/ops.html#{name}">{name}</a></h2><p>{says}</p>'
        if name in WITHOUT:
            yield f"<p>No picture: {WITHOUT[name]}.</p>"
            continue
        for number, one in enumerate(shown(name)):
            files = [f"{name}-{number}-{part}.png" for part in range(len(one.after) + 1)]
            for file, image in zip(files, [one.before, *one.after], strict=True):
                Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(folder / file)
            pictures = "".join(f'<img src="{folder.name}/{file}" alt="">' for file in files)
            yield f"<p><code>{html.escape(one.call)}</code></p><p>{pictures}</p>"
