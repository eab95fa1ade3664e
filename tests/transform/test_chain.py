"""The training chain through both CPU executors: decode, random crop and resize, flip, normalise."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import ops
from gpupipe.graph.host_values import HostValues
from gpupipe.graph.op import Array
from gpupipe.graph.trace import trace
from gpupipe.graph.values import Draw, Item
from gpupipe.spec import LEAF, TensorSpec
from gpupipe.transform.choose import Choice, make_executor
from gpupipe.transform.program import Feed, Program
from tests.transform.tiny import jpeg

SIZE = 48
FILES = [jpeg(n, *((90, 120), (120, 80), (61, 200))[n % 3]) for n in range(24)]


def training(data: Any) -> Any:
    image = ops.decode_jpeg(data, channels=3)
    image = ops.random_resized_crop(image, (SIZE, SIZE))
    image = ops.random_flip_left_right(image)
    return ops.normalize(image, ops.IMAGENET_MEAN, ops.IMAGENET_STD)


def program_of(fn: Any) -> Program:
    traced = trace(fn, LEAF, [TensorSpec((), bytes)], force=True)
    assert traced is not None
    return Program(traced.outputs)


def host_side(files: list[bytes], first: int) -> HostValues:
    keys = np.arange(first, first + len(files), dtype=np.uint64)
    return HostValues(len(files), lambda column: files, lambda column: keys, 7, 0)


def by_hand(files: list[bytes], batch: HostValues, program: Program) -> Array:
    """The chain with Pillow, in the order of the words of its definition."""
    parameters = {
        (v.value.op.name, v.value.op.parameters[v.index]): np.asarray(batch.rows(v))
        for v in program.inputs
        if isinstance(v, Item) and isinstance(v.value, Draw)
    }
    out = []
    for row, file in enumerate(files):
        image: Image.Image = Image.open(io.BytesIO(file))
        (y, x), (h, w) = (parameters["random_resized_crop", name][row].tolist() for name in ("start", "shape"))
        image = image.crop((x, y, x + w, y + h)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if parameters["random_flip_left_right", "mirror"][row]:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        out.append((np.asarray(image, np.float64) - ops.IMAGENET_MEAN) / ops.IMAGENET_STD)
    return np.stack(out)


@pytest.mark.parametrize("kind", ["dali-cpu", "numpy"])
def test_pixels_are_pillows_inside_and_near_them_on_the_ring(kind: Any) -> None:
    program = program_of(training)
    executor = make_executor(Choice(kind, None, "test"), program, 8, 2)
    for start in (0, 8, 16):
        batch = host_side(FILES[start : start + 8], start)
        executor.submit(Feed.of(program, batch))

        (images,) = executor.collect()

        assert (images.dtype, images.shape) == (np.float32, (8, SIZE, SIZE, 3))
        error = np.abs(images - by_hand(FILES[start : start + 8], batch, program))
        level = 1 / min(ops.IMAGENET_STD)  # one of 255
        assert error[:, 1:-1, 1:-1].max() <= 1.01 * level  # resizing rounds to either side; Pillow twice
        assert error.max() <= 18 * level  # DALI repeats edge pixels, Pillow leaves out what lies outside
    executor.close()
