"""from_tensor_slices over encoded images: their bytes are contents, not names."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import noise
from tests.behaviour.model import run


def _encoded(height: int, kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(noise(height, 40)).save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_errors_name_them_by_index(kind: str) -> None:
    data = [_encoded(30, kind), _encoded(31, kind)]

    with pytest.raises(gp.errors.ShapeError) as caught:
        next(iter(Dataset.from_tensor_slices(data).map(lambda x: ops.decode_image(x)).batch(2)))

    assert (caught.value.file, caught.value.offset) == ("from_tensor_slices", 1)
    text = str(caught.value)
    assert text.startswith("from_tensor_slices at index 1: batch:")
    assert len(text) < 300
    assert text.isprintable()


@pytest.mark.parametrize(
    "data",
    [b"GIF89a\x01\x00", b"junk\x7f", b"line\nline", b"x" * 5000],
    ids=["NUL", "delete", "line break", "long"],
)
def test_what_cannot_be_a_path_is_not_shown_as_one(data: bytes) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("x")

    with pytest.raises(gp.DataError) as caught:
        next(iter(Dataset.from_tensor_slices([data]).map(fail)))

    assert caught.value.file == "from_tensor_slices"


def test_paths_are() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("x")

    for path in ("some/a.jpg", "с пробелом/ü.jpg"):
        with pytest.raises(gp.DataError) as caught:
            next(iter(Dataset.from_tensor_slices([path]).map(fail)))
        assert caught.value.file == path


def test_crops_do_not_depend_on_the_contents_before() -> None:
    """Each image is identified by its index."""
    data = [_encoded(30, "PNG"), _encoded(31, "PNG"), _encoded(32, "PNG")]

    def crops(images: list[bytes]) -> Any:
        chain = Dataset.from_tensor_slices(images).map(lambda x: ops.random_crop(ops.decode_png(x, channels=3), (9, 9)))
        return run(chain.batch(3).with_options(Options(device="cpu", backend="numpy")).iterator(epoch=0))[0]

    expected = crops(data)
    other = crops([_encoded(40, "PNG"), *data[1:]])

    assert np.array_equal(other[1:], expected[1:])
    twice = crops([data[0], data[0], data[0]])
    assert not np.array_equal(twice[0], twice[1])
