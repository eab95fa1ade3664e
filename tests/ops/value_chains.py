"""A dataset of encoded images, masks and labels, and its elements after a function, for tests of small ops."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import noise
from gpupipe.transform.machine import has_dali

BACKENDS = ["numpy", "dali"]
COUNT = 8


@cache
def dataset() -> Dataset:
    """Images of several sizes, masks of the same, and labels 0 to 7."""
    sizes = [(20 + i, 30 - i) for i in range(COUNT)]
    images = [png(noise(*size)) for size in sizes]
    masks = [png(noise(*size, 1)[..., 0]) for size in sizes]
    return Dataset.from_tensor_slices((images, masks, np.arange(COUNT)))


def png(image: Any) -> bytes:
    """An image as PNG."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def photo(data: Any, size: int = 12) -> Any:
    """The middle of an image, uint8[size,size,3]."""
    return ops.center_crop(ops.decode_png(data, channels=3), (size, size))


def mask_of(data: Any, size: int = 12) -> Any:
    """The middle of a mask, uint8[size,size,1]."""
    return ops.center_crop(ops.decode_png(data, channels=1), (size, size))


def on(backend: Any, **options: Any) -> Options:
    """Options for an executor; the test is skipped where DALI is not installed."""
    if backend == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    return Options(device="cpu", backend=backend, **options)


def rows(fn: Callable[..., Any], backend: str, batch: int = 3, **options: Any) -> list[tuple[Any, ...]]:
    """The elements of the dataset after a function of image, mask and label, which returns a tuple."""
    chain = dataset().map(fn, traced=True).batch(batch).with_options(on(backend, **options))
    return [row for columns in chain.iterator(epoch=0) for row in zip(*columns, strict=True)]


def assert_equal(got: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """The same rows: values, dtypes and shapes."""
    assert len(got) == len(expected) > 0
    for row, meant in zip(got, expected, strict=True):
        for one, other in zip(row, meant, strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_array_equal(one, other)


def assert_same_by_place_and_resumed(chain: Dataset) -> None:
    """Elements by their places, and those behind a state, are those of one run."""
    whole = list(chain.iterator(epoch=0))
    assert_equal([chain[i] for i in range(len(whole))], whole)
    items = chain.iterator(epoch=0)
    next(items)
    state = json.loads(json.dumps(items.state_dict()))
    items.close()
    again = iter(chain)
    again.load_state_dict(state)
    assert_equal(list(again), whole[1:])
