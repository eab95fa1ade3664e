"""crop_mirror_normalize: crop, mirror, normalize and transpose in one pass; the optimizer fuses those four into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.flip import Flip, mirrored
from gpupipe.ops._shared.libraries import opencv
from gpupipe.ops.normalize import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Normalize,
    check_count,
    factors,
    normalized_dali,
    scaled,
    scaled_hwc,
    scaled_stack,
)
from gpupipe.ops.transpose import Transpose
from gpupipe.spec import TensorSpec

__all__ = ["CropMirrorNormalize"]


@dataclass(frozen=True, slots=True)
class CropMirrorNormalize(Op):
    """`normalize`, with an optional crop and mirror before and transposition after it, as DALI's operator of this name.

    Equal to its parts on the CPU; on the GPU as exact as `Normalize`. Takes the parameters of its parts in order: start
    and shape of the window if it crops; then, if it mirrors, 1 for the images to mirror.

    Attributes:
        mean: one number, or one per channel.
        std: one number above 0, or one per channel.
        layout: of the result.
        mirrored: whether it takes a parameter that mirrors left-right.
        crop: the crop, without padding; None for the whole image.

    Shapes: ``T[H,W,C]{HWC} -> float32[h,w,C]{HWC}`` or ``float32[C,h,w]{CHW}``
    """

    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    layout: Literal["HWC", "CHW"] = "HWC"
    mirrored: bool = False
    crop: Crop | None = None

    def __post_init__(self) -> None:
        if self.crop is not None and self.crop.pad:
            raise SpecError("crop_mirror_normalize needs a crop inside the image, got one that pads")

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        for op, _ in self.decompose():
            inferred = op.infer(x)
            assert isinstance(inferred, TensorSpec)  # the parts have one result each
            x = inferred
        return x

    def size(self, hw: Array, *params: Array) -> Array:
        return hw if self.crop is None else self.crop.size(hw, *params[:2])

    def reference(self, *args: Any, out: Array | None = None) -> Array:
        """The result for one image.

        Args:
            args: the image T[H,W,C], then the parameters: start and shape of the window, whether to mirror.
            out: a contiguous float32 array to write to, e.g. a row of the batch; None allocates one.
        """
        x, *params = args
        if self.crop is not None:
            x = self.crop.reference(x, *params[:2])
        mirror = self.mirrored and params[-1]
        height, width, channels = x.shape
        check_count(self.mean, self.std, channels)
        if self.layout == "CHW":
            out = np.empty((channels, height, width), np.float32) if out is None else out
            mean, scale = factors(self.mean, self.std, channels)
            planes = (x[:, ::-1] if mirror else x).transpose(2, 0, 1)
            return scaled(planes, mean[:, None, None], scale[:, None, None], out)
        out = np.empty(x.shape, np.float32) if out is None else out
        return scaled_hwc(mirrored(x) if mirror else x, self.mean, self.std, out)

    def stacked(self, *args: Any, out: Array | None = None) -> Array:
        x, *params = args
        if self.crop is not None:
            x = self.crop.stacked(x, *params[:2])
        if self.mirrored:
            x = Flip("left_right").stacked(x, params[-1])
        if self.layout == "CHW":
            x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        return scaled_stack(x, self.mean, self.std, self.layout, out)

    def fast(self, *args: Any, out: Array | None = None) -> Array:
        """As `reference`, with the same result: OpenCV mirrors, and takes planes apart."""
        x, *params = args
        if self.crop is not None:
            x = self.crop.reference(x, *params[:2])
        height, width, channels = x.shape
        check_count(self.mean, self.std, channels)
        if not x.size or channels > 4 or x.dtype.char not in "Bf":
            return replace(self, crop=None).reference(x, *params[-1:] if self.mirrored else (), out=out)
        cv2 = opencv()
        hwc = self.layout == "HWC"
        if out is None:
            out = np.empty(x.shape if hwc else (channels, height, width), np.float32)
        if self.mirrored and params[-1]:
            x = cv2.flip(x, 1, dst=out if hwc and x.dtype == np.float32 else None).reshape(x.shape)
        if hwc:
            return scaled_hwc(x, self.mean, self.std, out)
        planes = cv2.split(x) if x.dtype.char == "B" else x.transpose(2, 0, 1)
        for plane, mean, scale, to in zip(planes, *factors(self.mean, self.std, channels), out, strict=True):
            scaled(plane, mean, scale, to)
        return out

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        more: dict[str, Any] = {} if self.crop is None else _window(d, x, *params[:2])
        if self.mirrored:
            more["mirror"] = params[-1]
        return normalized_dali(d, x, self.mean, self.std, "HWC", self.layout, **more)

    def decompose(self) -> tuple[tuple[Op, tuple[int, ...]], ...]:
        crop = () if self.crop is None else ((self.crop, (0, 1)),)
        flip = ((Flip("left_right"), (2 * len(crop),)),) if self.mirrored else ()
        move = ((Transpose("CHW"), ()),) if self.layout == "CHW" else ()
        return (*crop, *flip, (Normalize(self.mean, self.std), ()), *move)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (7, 5, 3), dtype=np.uint8)
        f = (rng.random((6, 4, 3)) * 255).astype(np.float32)
        reason = "on the GPU DALI may use one fused multiply-add: one float32 rounding of values up to 3"
        for image in (x, f):
            yield Case(cls(IMAGENET_MEAN, IMAGENET_STD), (image,), ("HWC",), atol=1e-6, reason=reason, note="hwc")
            chw = cls(IMAGENET_MEAN, IMAGENET_STD, "CHW")
            yield Case(chw, (image,), ("HWC",), atol=1e-6, reason=reason, note="chw")
        yield Case(cls(10.0, 50.0, "CHW"), (x[:, :, :1],), ("HWC",), atol=1e-6, reason=reason, note="gray")


def _window(d: Any, x: Any, start: Any, shape: Any) -> dict[str, Any]:
    """A window in the arguments of DALI's crop: its size, and its offset as a fraction of the space around it.

    The fraction is off by at most 2**-24, which rounds to the right pixel in images of up to 2**22 pixels a side.
    """
    real = d.dtype(np.float32)
    shape = d.fn.cast(shape, dtype=real)
    room = d.fn.cast(x.shape(), dtype=real)[:2] - shape
    position = start / (room + d.fn.cast(room == 0.0, dtype=real))  # 0 where there is no room
    return {"crop_h": shape[0], "crop_w": shape[1], "crop_pos_y": position[0], "crop_pos_x": position[1]}
