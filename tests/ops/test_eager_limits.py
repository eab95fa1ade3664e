"""Ops called inside ordinary Python keep the limits of the chain that the Python belongs to."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from gpupipe import Dataset, Options, TensorSpec, ops
from gpupipe.errors import DataError, DecodeError
from gpupipe.ops._shared.samples import noise

PIXELS = 30 * 40


def _encoded(kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(noise(30, 40)).save(out, kind)
    return out.getvalue()


def _decoders() -> list[tuple[str, Any]]:
    return [("JPEG", ops.decode_jpeg), ("PNG", ops.decode_png), ("PNG", ops.decode_image)]


def _chain(kind: str, decode: Any, **how: Any) -> Dataset:
    return Dataset.from_tensors(_encoded(kind)).map(lambda data: decode(data, channels=3), **how)


@pytest.mark.parametrize("calls", [None, 2])
@pytest.mark.parametrize(("kind", "decode"), _decoders())
def test_max_pixels_holds_in_a_python_map(kind: str, decode: Any, calls: int | None) -> None:
    chain = _chain(kind, decode, traced=False, num_parallel_calls=calls)

    (image,) = chain.with_options(Options(max_pixels=PIXELS))
    assert image.shape == (30, 40, 3)
    with pytest.raises(DecodeError, match=rf"{PIXELS - 1} pixels \(Options.max_pixels\), got 30x40") as caught:
        list(chain.with_options(Options(max_pixels=PIXELS - 1)))
    assert caught.value.offset == 0


def test_it_holds_in_a_filter_and_in_a_function_with_a_spec() -> None:
    source = Dataset.from_tensors(_encoded("PNG"))

    def tall(data: Any) -> bool:
        return bool(len(ops.decode_png(bytes(data), channels=3)) > 1)

    spec = TensorSpec((None, None, None), "uint8")
    for chain in (source.filter(tall), source.map(lambda data: ops.decode_png(data, channels=3), spec=spec)):
        assert len(list(chain)) == 1
        with pytest.raises(DataError, match="max_pixels"):
            list(chain.with_options(Options(max_pixels=PIXELS - 1)))


def test_it_ends_with_the_element() -> None:
    with pytest.raises(DecodeError):
        list(_chain("PNG", ops.decode_png, traced=False).with_options(Options(max_pixels=1)))

    assert ops.decode_png(_encoded("PNG"), channels=3).shape == (30, 40, 3)


def _inner(data: Any) -> Dataset:
    return Dataset.from_tensors(len(ops.decode_png(bytes(data), channels=3)))


UNUSUAL = {
    "any channels": lambda s: s.map(lambda data: ops.decode_png(data), traced=False),
    "any format": lambda s: s.map(lambda data: ops.decode_image(data), traced=False),
    "traced, any channels": lambda s: s.map(lambda data: ops.decode_png(data)),
    "py_function": lambda s: s.map(
        lambda data: ops.py_function(
            lambda x: ops.decode_png(x, channels=3), (data,), TensorSpec((None, None, None), "uint8")
        )
    ),
    "flat_map": lambda s: s.flat_map(_inner),
    "generator": lambda s: Dataset.from_generator(lambda: (ops.decode_png(bytes(d), channels=3) for d in list(s))),
    "prefetched": lambda s: s.map(lambda data: ops.decode_png(data), traced=False).prefetch(1),
}


@pytest.mark.parametrize("make", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_max_pixels_holds_wherever_something_is_decoded(make: Any) -> None:
    chain = make(Dataset.from_tensors(_encoded("PNG")))

    assert len(list(chain.with_options(Options(max_pixels=PIXELS)))) == 1
    with pytest.raises(DataError, match="30x40"):
        list(chain.with_options(Options(max_pixels=PIXELS - 1, device="cpu", backend="numpy")))
