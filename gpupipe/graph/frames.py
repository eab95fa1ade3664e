"""frames: an op on images, applied to every frame of a clip with the same parameters.

A clip is an array [T,H,W,C] with layout {THWC}, or {TCHW} after a transpose. Which frames there are is not an op's
concern: one draw, from the size of a frame, serves them all. DALI gets a clip as one image, in the way that the op says
(`Op.frames`); an op that says nothing runs on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from ..classes import dataclass
from ..errors import ShapeError, SpecError
from ..random import BatchRng
from ..spec import TensorSpec
from .op import Array, Op

__all__ = ["Frames", "over_frames"]

_Parts = tuple[tuple[Op, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Frames(Op):
    """`op` on every frame of each input.

    Shapes: those of `op`, each with a first dimension T.
    """

    op: Op

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def stage(self) -> str:
        return self.op.stage

    @property
    def takes(self) -> str:
        return self.op.takes

    @property
    def ignores_layout(self) -> bool:
        return self.op.ignores_layout

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.op.random

    @property
    def drawn(self) -> Literal["", "window", "flag", "size"]:  # type: ignore[override]
        return self.op.drawn

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.op.parameters

    @property
    def domain(self) -> Literal["image", "host", "any"]:  # type: ignore[override]
        every = [part for image in range(self._images) for part, _ in self._parts(image)]
        return "image" if self.op.domain == "image" and all(map(_has_form, every)) else "host"

    @property
    def _images(self) -> int:
        return int(getattr(self.op, "images", 1))

    def _parts(self, image: int) -> _Parts:
        """The simpler ops for input number `image`, each with the parameters that it takes."""
        row = getattr(self.op, "row", None)
        parts: _Parts = self.op.decompose() if row is None else row(image)
        return parts or ((self.op, tuple(range(len(self.op.parameters)))),)

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        counts = {x.shape[0] for x in xs if x.shape} - {None}
        if 0 in counts or len(counts) > 1:
            raise SpecError(
                f"{self.name} needs clips of equally many frames, at least one, got {', '.join(map(str, xs))}"
            )
        results = self.op.infer(*map(_frame, xs))
        first = counts.pop() if counts else None
        if isinstance(results, tuple):
            return tuple(_clip(result, first) for result in results)
        return _clip(results, first)

    def size(self, hw: Array, *params: Array) -> Array:
        return self.op.size(hw, *params)

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        return self.op.draw(rng, hw)

    def supports(self, method: str) -> bool:
        return self.op.supports(method) if method == "fast" else Op.supports(self, method)

    def reference(self, *args: Any) -> Any:
        return self._each(self.op.reference, args)

    def fast(self, *args: Any) -> Any:
        return self._each(self.op.fast, args)

    def _each(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """The results of a function for every frame, stacked."""
        count = len(args) - len(self.op.parameters)
        clips, params = args[:count], args[count:]
        lengths = {len(clip) for clip in clips}
        if len(lengths) > 1 or not all(clip.size for clip in clips):
            shapes = ", ".join(str(list(clip.shape)) for clip in clips)
            raise ShapeError(f"clips of equally many frames, at least one with pixels, are needed, got {shapes}")
        results = [function(*frames, *params) for frames in zip(*clips, strict=True)]
        if isinstance(results[0], tuple):
            return tuple(map(np.stack, zip(*results, strict=True)))
        return np.stack(results)

    def dali(self, d: Any, *args: Any) -> Any:
        count = len(args) - len(self.op.parameters)
        results = []
        for image, x in enumerate(args[:count]):
            for part, taken in self._parts(image):
                x = _AS_IMAGE[part.frames](d, part, x, [args[count + i] for i in taken])
            results.append(x)
        return results[0] if count == 1 else tuple(results)

    def decompose(self) -> _Parts:
        return tuple((Frames(part), taken) for part, taken in self.op.decompose())

    def is_identity(self, x: TensorSpec) -> bool:
        return self.op.is_identity(_frame(x))

    def merge(self, later: Op) -> Op | None:
        merged = self.op.merge(later.op) if isinstance(later, Frames) else None
        return None if merged is None else Frames(merged)


def over_frames(op: Op, specs: Sequence[TensorSpec]) -> Op:
    """The op for inputs of these specs: itself for images, `Frames` of it for clips."""
    if op.domain == "any" or op.rows == "batch" or op.decodes or op.foreign:
        return op
    clips = all(spec.rank == 4 and spec.layout in (None, "THWC", "TCHW") and spec.dtype is not bytes for spec in specs)
    return Frames(op) if clips and specs and (op.domain == "image" or op.frames) else op


def _has_form(op: Op) -> bool:
    """Whether an op has a DALI form for clips: pixels on their own need their channels in the last axis."""
    return bool(op.frames) and not (op.frames == "rows" and op.takes == "CHW")


def _frame(x: TensorSpec) -> TensorSpec:
    return TensorSpec(x.shape and x.shape[1:], x.dtype, x.layout and x.layout[1:])


def _clip(x: TensorSpec, frames: int | None) -> TensorSpec:
    assert x.shape is not None  # an image has a rank
    return TensorSpec((frames, *x.shape), x.dtype, x.layout and "T" + x.layout)


def _by_planes(d: Any, op: Op, x: Any, params: Sequence[Any]) -> Any:
    """Frames as channels of one image: for ops that move pixels, each channel alike."""
    shape = x.shape()
    wide = d.fn.transpose(x, perm=[1, 2, 0, 3], transpose_layout=False)
    image = d.fn.reshape(wide, shape=d.fn.stack(shape[1], shape[2], shape[0] * shape[3]), layout="HWC")
    moved = op.dali(d, image, *params)
    size = moved.shape()
    apart = d.fn.reshape(moved, shape=d.fn.stack(size[0], size[1], shape[0], shape[3]), layout="HWTC")
    return d.fn.transpose(apart, perm=[2, 0, 1, 3])


def _by_rows(d: Any, op: Op, x: Any, params: Sequence[Any]) -> Any:
    """Frames below one another in one image: for ops that compute each pixel on its own."""
    shape = x.shape()
    tall = d.fn.reshape(x, shape=d.fn.stack(shape[0] * shape[1], shape[2], shape[3]), layout="HWC")
    computed = op.dali(d, tall, *params)
    last = computed.shape()[2]
    return d.fn.reshape(computed, shape=d.fn.stack(shape[0], shape[1], shape[2], last), layout="THWC")


def _by_axes(d: Any, op: Any, x: Any, params: Sequence[Any]) -> Any:
    return d.fn.transpose(x, perm=[0, *(1 + axis for axis in op.axes)], transpose_layout=False)


def _as_sequence(d: Any, op: Op, x: Any, params: Sequence[Any]) -> Any:
    return op.dali(d, d.fn.reshape(x, layout="FHWC"), *params)


_AS_IMAGE = {"sequence": _as_sequence, "planes": _by_planes, "rows": _by_rows, "axes": _by_axes}
