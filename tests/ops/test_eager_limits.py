"""Ops called inside ordinary Python keep the limits of the chain that the Python belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import DataError, DecodeError
from gpupipe.ops._shared.samples import noise
from tests.ops.value_chains import png

PIXELS = 30 * 40


FILE = png(noise(30, 40))


def test_it_ends_with_the_element() -> None:
    with pytest.raises(DecodeError):
        list(UNUSUAL["any channels"](Dataset.from_tensors(FILE)).with_options(Options(max_pixels=1)))

    assert ops.decode_png(FILE, channels=3).shape == (30, 40, 3)


def _inner(data: Any) -> Dataset:
    return Dataset.from_tensors(len(ops.decode_png(bytes(data), channels=3)))


def _tall(data: Any) -> bool:
    return bool(len(ops.decode_png(bytes(data), channels=3)) > 1)


IMAGE = TensorSpec((None, None, None), "uint8")

UNUSUAL: dict[str, Callable[[Dataset], Dataset]] = {
    "in Python": lambda s: s.map(lambda data: ops.decode_png(data, channels=3), traced=False),
    "in threads": lambda s: s.map(lambda data: ops.decode_image(data, 3), traced=False, num_parallel_calls=2),
    "a JPEG's decoder": lambda s: s.map(lambda data: ops.decode_jpeg(data, 3), traced=False),
    "any channels": lambda s: s.map(lambda data: ops.decode_png(data), traced=False),
    "any format": lambda s: s.map(lambda data: ops.decode_image(data), traced=False),
    "with a spec": lambda s: s.map(lambda data: ops.decode_png(data, channels=3), spec=IMAGE),
    "filter": lambda s: s.filter(_tall),
    "traced, any channels": lambda s: s.map(lambda data: ops.decode_png(data)),
    "py_function": lambda s: s.map(
        lambda data: ops.py_function(lambda x: ops.decode_png(x, channels=3), (data,), IMAGE)
    ),
    "flat_map": lambda s: s.flat_map(_inner),
    "generator": lambda s: Dataset.from_generator(lambda: (ops.decode_png(bytes(d), channels=3) for d in list(s))),
    "prefetched": lambda s: s.map(lambda data: ops.decode_png(data), traced=False).prefetch(1),
}


@pytest.mark.parametrize("make", UNUSUAL.values(), ids=UNUSUAL)
def test_max_pixels_holds_wherever_something_is_decoded(make: Callable[[Dataset], Dataset]) -> None:
    chain = make(Dataset.from_tensors(FILE))

    assert len(list(chain.with_options(Options(max_pixels=PIXELS)))) == 1
    with pytest.raises(DataError, match=rf"{PIXELS - 1} pixels \(Options.max_pixels\), got 30x40"):
        list(chain.with_options(Options(max_pixels=PIXELS - 1, device="cpu", backend="numpy")))
