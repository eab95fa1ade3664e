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


NO_PATHS = {"NUL": b"GIF89a\x01\x00", "delete": b"junk\x7f", "line break": b"line\nline", "long": b"x" * 5000}
NAMES: dict[str, tuple[Any, str]] = {
    **{name: (data, "from_tensor_slices") for name, data in NO_PATHS.items()},
    "a path": ("some/a.jpg", "some/a.jpg"),
    "a path in other letters": ("с пробелом/ü.jpg", "с пробелом/ü.jpg"),
}


@pytest.mark.parametrize(("data", "file"), NAMES.values(), ids=NAMES)
def test_what_cannot_be_a_path_is_not_shown_as_one(data: Any, file: str) -> None:
    def fail(x: Any) -> Any:
        raise KeyError("x")

    with pytest.raises(gp.DataError) as caught:
        next(iter(Dataset.from_tensor_slices([data]).map(fail)))

    assert caught.value.file == file


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
