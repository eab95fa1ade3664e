"""One draw for image and mask: their sizes have to agree, on every executor, before there are pixels."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import ShapeError, SpecError
from gpupipe.ops._shared.samples import noise
from gpupipe.transform.machine import has_dali

OPS: dict[str, Callable[[Any], Any]] = {
    "random_resized_crop": lambda pair: ops.random_resized_crop(pair, (9, 9), scale=(0.2, 0.5)),
    "random_crop": lambda pair: ops.random_crop(pair, (9, 9)),
    "center_crop": lambda pair: ops.center_crop(pair, (9, 9)),
    "random_flip_left_right": lambda pair: tuple(ops.resize(x, (9, 9)) for x in ops.random_flip_left_right(pair)),
}


def _png(height: int, width: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(noise(height, width)).save(out, "PNG")
    return out.getvalue()


def _pairs(*sizes: tuple[int, int]) -> Dataset:
    """Encoded images of 30 x 40 with encoded masks of these sizes."""
    return Dataset.from_tensor_slices(([_png(30, 40)] * len(sizes), [_png(*size) for size in sizes]))


def _decoded(op: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, y: op((ops.decode_png(x, channels=3), ops.decode_png(y, channels=3)))


def _on(backend: Any, **options: Any) -> Options:
    if backend == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    return Options(device="cpu", backend=backend, **options)


# Smaller, and so large that the window of the image lies inside of it: DALI itself would not notice.
SIZES = [(20, 25), (60, 80), (40, 30)]


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("op", [OPS[name] for name in ("random_resized_crop", "random_crop", "center_crop")])
def test_an_image_and_a_mask_of_another_size(op: Callable[[Any], Any], size: tuple[int, int], backend: str) -> None:
    chain = _pairs((30, 40), size).map(_decoded(op)).batch(1).with_options(_on(backend))
    items = iter(chain)

    assert [x.shape for x in next(items)] == [(1, 9, 9, 3)] * 2
    with pytest.raises(ShapeError) as caught:
        next(items)

    text = str(caught.value)
    assert "images of one size" in text
    assert str([30, 40]) in text and str([*size]) in text
    assert caught.value.offset == 1
    assert list(items) == []


@pytest.mark.parametrize("backend", ["numpy", "dali"])
@pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
def test_equal_images_are_cut_alike(op: Callable[[Any], Any], backend: str) -> None:
    data = _png(30, 40)
    chain = Dataset.from_tensors((data, data)).repeat(5).map(_decoded(op)).batch(5).with_options(_on(backend))

    ((images, masks),) = chain

    np.testing.assert_array_equal(images, masks)


def test_images_with_channels_first_are_told_so() -> None:
    arrays = np.zeros((40, 60, 3), np.uint8), np.zeros((40, 60, 1), np.uint8)
    spec = gp.TensorSpec((None, None, 3), "uint8"), gp.TensorSpec((None, None, 1), "uint8")
    sources = [Dataset.from_tensors(arrays), Dataset.from_generator(lambda: iter([arrays]), output_signature=spec)]

    for chain in sources:
        for which in (lambda x, y: (ops.transpose(x), ops.transpose(y)), lambda x, y: (x, ops.transpose(y))):
            with pytest.raises(
                SpecError, match=r"needs an image \{HWC\}, got .*; move the channels with ops\.transpose"
            ):
                chain.map(lambda x, y, which=which: ops.flip_left_right(which(x, y)), traced=True)


@pytest.mark.parametrize(
    ("size", "hint"),
    [((5, 40), True), ((60, 40), False), ((40, 40), False), ((5, 60), False)],
    ids=["of 5 objects", "on its side", "square", "of another height"],
)
def test_only_what_looks_like_masks_of_objects_is_told_so(size: tuple[int, int], hint: bool) -> None:
    with pytest.raises(gp.errors.GpupipeError, match="images of one size") as raised:
        ops.flip_left_right((np.zeros((40, 60, 3), np.uint8), np.zeros((*size, 60), np.uint8)))

    assert ("ops.transpose(masks, 'HWC')" in str(raised.value)) == hint


def test_masks_beside_a_square_image_are_not_told_so() -> None:
    with pytest.raises(gp.errors.GpupipeError, match=r"got \[40, 40\] and \[60, 40\]; resize them first$"):
        ops.flip_left_right((np.zeros((40, 40, 3), np.uint8), np.zeros((60, 40, 1), np.uint8)))
