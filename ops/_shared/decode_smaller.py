"""decode_smaller: decode a JPEG at a fraction of its size, where it is resized to much less anyway.

The optimizer makes both ops of a decoder, a crop and a resize if `Options(approximate_decode=True)` allows it. libjpeg
transforms the blocks of a JPEG to 4x4, 2x2 or 1x1 pixels instead of 8x8, so a pixel of the smaller image is about the
mean of ratio x ratio pixels, and lies where they do: pixel i covers [ratio * i, ratio * (i + 1)). The window's edges
therefore lie between pixels of the smaller image. They are kept as fractions; rounding them would shift the result by
up to half a pixel and cost 8 dB.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import DecodeError
from gpupipe.extract.images.decode import Dct, Window
from gpupipe.extract.images.headers import ImageHeader, read_header
from gpupipe.graph.op import Array, Case, Op
from gpupipe.ops._shared.decoding import FusedDecoding
from gpupipe.ops._shared.samples import noise
from gpupipe.ops.resize import Resize
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = ["MARGIN", "DecodeSmaller", "ResizeWindow", "ratio_of"]

MARGIN = 1.25
"""Pixels that a decoded window has on each side for one pixel of the result, at least.

With 1.0 the mean difference from exact decoding is a third larger, with 1.5 a quarter smaller, and a good part of the
windows is decoded at the next larger size (photographs of ImageNet at 96x96, drawn ones of 3 megapixels at 224x224)."""


def ratio_of(window: Sequence[int], size: Sequence[int]) -> int:
    """The largest of 1, 2, 4, 8 by which a window may shrink before it is resized; (height, width) in pixels, both."""
    room = min(side / (MARGIN * wanted) for side, wanted in zip(window, size, strict=True))
    return max(ratio for ratio in (1, 2, 4, 8) if ratio <= max(room, 1))


@dataclass(frozen=True, slots=True)
class DecodeSmaller(FusedDecoding):
    """Decode what is going to be resized: a JPEG smaller by `ratio_of`, anything else, and by 1, as the decoder does.

    Attributes:
        windowed: whether only a window is resized, whose offset and shape then come before the size of the result.

    Shapes: ``bytes, [int32[2], int32[2],] int32[2] -> uint8[h,w,C]{HWC}, float32[4]``: an image that holds the window,
    and the window in it (top, left, bottom, right).
    """

    before_graph: ClassVar[bool] = True

    windowed: bool

    def infer(self, *xs: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
        return self.decoder.infer(*xs), TensorSpec((4,), "float32")

    def size(self, hw: Array, *params: Array) -> Array:
        """The largest sizes that the image may have; only the resize reads it, whose result does not depend on them."""
        return params[1] if self.windowed else hw

    def reference(self, data: Any, *params: Array) -> tuple[Array, Array]:
        return self._decoded(data, params, lambda window: self.decoder.reference(data)[window.rows, window.columns])

    def fast(self, data: Any, *params: Array) -> tuple[Array, Array]:
        return self._decoded(data, params, lambda window: self.decoder.on_host(data, window=window))

    def _decoded(self, data: Any, params: tuple[Array, ...], exact: Callable[[Window], Array]) -> tuple[Array, Array]:
        header = read_header(data, orientation=self.exif_orientation)
        start, shape = (x.tolist() for x in params[:2]) if self.windowed else ([0, 0], list(header.size))
        ratio = ratio_of(shape, params[-1].tolist()) if header.format == "jpeg" else 1
        if ratio > 1:
            with contextlib.suppress(DecodeError):  # whether an image is bad is for the exact decoder to say, below
                return self._smaller(data, header, start, shape, ratio)
        return exact(Window(*start, *shape)), np.array((0, 0, *shape), np.float32)

    def _smaller(
        self, data: Any, header: ImageHeader, start: list[int], shape: list[int], ratio: int
    ) -> tuple[Array, Array]:
        dct = Dct(ratio)
        stored = dct.size(header)
        size = np.array(stored[::-1] if header.orientation > 4 else stored)
        low = (np.array(start) + _before(header, size, ratio)) / ratio
        high = np.minimum(low + np.array(shape) / ratio, size)
        top, left = np.floor(low).astype(int).tolist()
        bottom, right = np.ceil(high).astype(int).tolist()
        box = np.concatenate([low - (top, left), high - (top, left)]).astype(np.float32)
        return self.decoder.on_host(data, dct=dct, window=Window(top, left, bottom - top, right - left)), box


def _before(header: ImageHeader, size: Array, ratio: int) -> Array:
    """The rows and columns that its last block has beyond an image, where rotating it has brought them to the front."""
    turned = np.array([header.orientation in (3, 4, 7, 8), header.orientation in (2, 3, 6, 7)])
    beyond: Array = turned * (ratio * size - np.array(header.size))
    return beyond


@dataclass(frozen=True, slots=True)
class ResizeWindow(Op):
    """Resize a part of an image whose edges may lie between pixels. What lies outside the image is ignored.

    Attributes:
        resize: how; not "nearest".

    Shapes: ``T[H,W,C]{HWC}, float32[4], int32[2] -> U[h,w,C]{HWC}``, U as for `resize`; the part is (top, left, bottom,
    right).
    """

    parameters: ClassVar[tuple[str, ...]] = ("size",)

    resize: Resize

    @property
    def stage(self) -> str:
        """The op that the user wrote."""
        return self.resize.stage

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return self.resize.infer(xs[0])

    def size(self, hw: Array, *params: Array) -> Array:
        return params[0]

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return self.resize.draw(rng, hw)

    def reference(self, image: Array, box: Array, size: Array) -> Array:
        whole = box.tolist() == [0, 0, *image.shape[:2]]
        return self.resize.reference(image, size, None if whole else box)

    def fast(self, image: Array, box: Array, size: Array) -> Array:
        whole = box.tolist() == [0, 0, *image.shape[:2]]
        return self.resize.fast(image, size) if whole else self.reference(image, box, size)

    def dali(self, d: Any, image: Any, box: Any, size: Any) -> Any:
        return self.resize.dali(d, image, size, box)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        ring = "DALI repeats edge pixels, Pillow ignores what lies outside: only the outermost ring differs"
        table = "DALI's kernels are tables of 1024 entries; float32 sums next to n + 0.5 round to either side"
        x, parts = noise(61, 83), {"part": (0.25, 0.5, 60.5, 82.25), "whole": (0, 0, 61, 83)}
        for note, part in parts.items():
            box = np.array(part, np.float32)
            for method in ("bilinear", "bicubic", "lanczos3"):
                how = {"atol": 1, "ring": 18, "reason": ring} if method == "bilinear" else {"atol": 2, "reason": table}
                for antialias, keep in ((True, True), (False, True), (True, False)):
                    op = cls(Resize(24, 31, method, antialias=antialias, keep_dtype=keep))
                    name = f"{note}-{method}" + "-aa" * antialias + "-keep" * keep
                    yield Case(op, (x, box), ("HWC", None), note=name, **how)  # type: ignore[arg-type]
