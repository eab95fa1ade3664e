"""Small ops, programs and pictures for the tests of executors; they need none of the catalogue."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from gpupipe.graph.op import Array, Op
from gpupipe.graph.values import Apply, Draw, Input, Item, Value
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from gpupipe.transform.program import Feed, Program

simplejpeg: Any = pytest.importorskip("simplejpeg")

SIZE = 16


@dataclass(frozen=True, slots=True)
class TinyDecode(Op):
    decodes: ClassVar[bool] = True

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec((None, None, 3), "uint8", "HWC")

    def reference(self, data: Any, scratch: Callable[[int], Array] | None = None) -> Array:
        if scratch is None:
            image: Array = simplejpeg.decode_jpeg(data, strict=False)
        else:
            height, width = (int(n) for n in simplejpeg.decode_jpeg_header(data, strict=False)[:2])
            image = simplejpeg.decode_jpeg(data, strict=False, buffer=scratch(height * width * 3))
        return image

    def dali(self, d: Any, data: Any) -> Any:
        return d.fn.decoders.image(data, device=d.decoder_device, adjust_orientation=False, jpeg_fancy_upsampling=True)


@dataclass(frozen=True, slots=True)
class TinyCrop(Op):
    parameters: ClassVar[tuple[str, ...]] = ("start",)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec((SIZE, SIZE, 3), xs[0].dtype, "HWC")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return (np.zeros((rng.size, 2), np.int32),)

    def reference(self, x: Array, start: Array) -> Array:
        return x[start[0] : start[0] + SIZE, start[1] : start[1] + SIZE]

    def dali(self, d: Any, x: Any, start: Any) -> Any:
        return d.fn.slice(x, start=start, shape=[SIZE, SIZE], axis_names="HW")


@dataclass(frozen=True, slots=True)
class TinyScale(Op):
    """To float32, written into the batch where it can be; `factor` tells programs apart."""

    factor: float = 2.0

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return TensorSpec(xs[0].shape, "float32", "HWC")

    def reference(self, x: Array, out: Array | None = None) -> Array:
        return np.multiply(x, np.float32(self.factor), out=out, dtype=np.float32)

    def dali(self, d: Any, x: Any) -> Any:
        return d.fn.cast(x, dtype=d.dtype(np.float32)) * self.factor


@dataclass(frozen=True, slots=True)
class TinyHalves(Op):
    """Two results: the upper and the lower half."""

    def infer(self, *xs: TensorSpec) -> tuple[TensorSpec, ...]:
        half = TensorSpec((None, None, 3), xs[0].dtype, "HWC")
        return half, half

    def reference(self, x: Array) -> tuple[Array, Array]:
        return x[: len(x) // 2], x[len(x) // 2 :]

    def dali(self, d: Any, x: Any) -> tuple[Any, Any]:
        def half(start: float, end: float) -> Any:
            return d.fn.slice(x, rel_start=[start], rel_end=[end], axis_names="H")

        return half(0.0, 0.5), half(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class TinyHostOnly(Op):
    """The input itself, in NumPy alone."""

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0]

    def reference(self, x: Array) -> Array:
        return x


@dataclass(frozen=True, slots=True)
class TinyDaliOnly(Op):
    """The input itself, in DALI alone."""

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0]

    def dali(self, d: Any, x: Any) -> Any:
        return x


@dataclass(frozen=True, slots=True)
class TinySame(TinyHostOnly):
    """The input itself, on every executor: results must not share memory all the same."""

    def dali(self, d: Any, x: Any) -> Any:
        return x


def jpeg(seed: int, height: int = 40, width: int = 48) -> bytes:
    """A smooth photograph-like JPEG."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=92)
    return file.getvalue()


def damaged(data: bytes) -> bytes:
    """The same JPEG with a broken Huffman table: its header and its end are good, only the decoder notices."""
    at = data.index(b"\xff\xc4")
    return data[: at + 4] + b"\xff" * 16 + data[at + 20 :]


ENCODED = Input(0, TensorSpec((), bytes))
IMAGE = Input(0, TensorSpec((None, None, 3), "uint8", "HWC"))


def decoded() -> Apply:
    return Apply(TinyDecode(), (ENCODED,))


def cropped(image: Value, encoded: Value = ENCODED) -> Apply:
    return Apply(TinyCrop(), (image,), (Item(Draw(TinyCrop(), "", (image,)), 0),))


def chain(factor: float = 2.0) -> Program:
    """decode -> crop -> scale: one dense float32[B, SIZE, SIZE, 3]."""
    return Program((Apply(TinyScale(factor), (cropped(decoded()),)),))


def feed_of(program: Program, files: list[Any], starts: Array | None = None) -> Feed:
    """The feed of `chain`, in the order of the program's inputs."""
    starts = np.zeros((len(files), 2), np.int32) if starts is None else starts
    return Feed(len(files), tuple(starts if isinstance(value, Item) else files for value in program.inputs))


def expected(files: list[bytes], starts: Array | None = None, factor: float = 2.0) -> Array:
    """What `chain` means, computed with Pillow."""
    starts = np.zeros((len(files), 2), np.int32) if starts is None else starts
    images = [np.asarray(Image.open(io.BytesIO(file))) for file in files]
    crops = [x[y : y + SIZE, z : z + SIZE] for x, (y, z) in zip(images, starts, strict=True)]
    return np.stack(crops).astype(np.float32) * np.float32(factor)
