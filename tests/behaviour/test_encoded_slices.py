"""from_tensor_slices over encoded images: their bytes are contents, not names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.ops._shared.samples import encoded, noise
from tests.behaviour.model import run

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
    data = [encoded(noise(height, 40), "PNG") for height in (30, 31, 32)]

    def crops(images: list[bytes]) -> Any:
        chain = Dataset.from_tensor_slices(images).map(lambda x: ops.random_crop(ops.decode_png(x, channels=3), (9, 9)))
        return run(chain.batch(3).with_options(Options(device="cpu", backend="numpy")).iterator(epoch=0))[0]

    expected = crops(data)
    other = crops([encoded(noise(40, 40), "PNG"), *data[1:]])

    assert np.array_equal(other[1:], expected[1:])
    twice = crops([data[0], data[0], data[0]])
    assert not np.array_equal(twice[0], twice[1])
