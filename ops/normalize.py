"""normalize: subtract a mean and divide by a standard deviation, per channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanError, PlanTypeError, ShapeError, SpecError
from gpupipe.graph.op import Array, Case, Op
from gpupipe.graph.symbols import apply
from gpupipe.spec import TensorSpec

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Normalize", "normalize"]

T = TypeVar("T")

IMAGENET_MEAN = (123.675, 116.28, 103.53)
"""Mean of ImageNet's training images per channel (R, G, B), for values 0..255."""

IMAGENET_STD = (58.395, 57.12, 57.375)
"""Standard deviation of ImageNet's training images per channel (R, G, B), for values 0..255."""

DTYPES = ("uint8", "uint16", "int16", "int32", "float16", "float32")
"""The dtypes that DALI's crop_mirror_normalize takes."""

_PLAIN = tuple(dtype for dtype in DTYPES if dtype != "float16")
"""Those that DALI's normalize takes on a CPU."""


@dataclass(frozen=True, slots=True)
class Normalize(Op):
    """``(x - mean) / std`` per channel, in x's own units.

    All executors compute ``(x - mean) * (1 / std)`` in float32, as DALI does: within 1e-7 of the exact quotient,
    relative to the largest result. On the GPU it may be one fused multiply-add, which rounds differently.

    Attributes:
        mean: one number, or one per channel.
        std: one number above 0, or one per channel.
        layout: of the image.

    Shapes: ``T[H,W,C]{HWC} -> float32[H,W,C]{HWC}`` or the same with ``{CHW}``; T of 8 to 32 bits.
    """

    still: ClassVar[bool] = True
    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = "rows"

    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    layout: Literal["HWC", "CHW"] = "HWC"

    def __post_init__(self) -> None:
        if self.layout not in ("HWC", "CHW"):
            raise PlanError(f'normalize needs layout "HWC" or "CHW", got {self.layout!r}')
        object.__setattr__(self, "mean", _numbers("mean", self.mean))
        object.__setattr__(self, "std", _numbers("std", self.std))
        with np.errstate(over="ignore", under="ignore"):
            small = [np.float32(value) <= 0 for value in per_channel(self.std, 1)]
        if any(small):
            raise SpecError(f"normalize needs std above 0, got {self.std}")

    @property
    def takes(self) -> str:
        return self.layout

    @property
    def ignores_layout(self) -> bool:
        return not isinstance(self.mean, tuple) and not isinstance(self.std, tuple)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        (x,) = xs
        x = x.require("normalize", layout=self.layout)
        check_channels("normalize", x, self.layout, self.mean, self.std)
        return TensorSpec(x.shape, np.float32, self.layout)

    def reference(self, x: Array, out: Array | None = None) -> Array:
        out = np.empty(x.shape, np.float32) if out is None else out
        check_count(self.mean, self.std, x.shape[self.layout.index("C")])
        if self.layout == "CHW":
            mean, scale = factors(self.mean, self.std, x.shape[0])
            return scaled(x, mean[:, None, None], scale[:, None, None], out)
        return scaled_hwc(x, self.mean, self.std, out)

    def stacked(self, x: Array, out: Array | None = None) -> Array:
        return scaled_stack(x, self.mean, self.std, self.layout, out)

    def dali(self, d: Any, x: Any) -> Any:
        return normalized_dali(d, x, self.mean, self.std, self.layout, self.layout)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (7, 5, 3), dtype=np.uint8)
        f = (rng.random((6, 4, 3)) * 255).astype(np.float32)
        reason = "on the GPU DALI may use one fused multiply-add: one float32 rounding of values up to 3"
        imagenet = cls(IMAGENET_MEAN, IMAGENET_STD)
        yield Case(imagenet, (x,), ("HWC",), atol=1e-6, reason=reason)
        yield Case(imagenet, (f,), ("HWC",), atol=1e-6, reason=reason)
        chw = cls(IMAGENET_MEAN, IMAGENET_STD, "CHW")
        yield Case(chw, (np.ascontiguousarray(x.transpose(2, 0, 1)),), ("CHW",), atol=1e-6, reason=reason, note="chw")
        yield Case(cls(127.5, 127.5), (x[:, :, :1],), ("HWC",), atol=1e-6, reason=reason, note="numbers")
        yield Case(cls(100.0, IMAGENET_STD), (x.astype(np.uint16),), ("HWC",), atol=1e-6, reason=reason, note="mixed")
        half = (x.astype(np.float16),)
        yield Case(cls(100.0, 50.0), half, ("HWC",), atol=1e-6, reason=reason)
        yield Case(imagenet, half, ("HWC",), atol=1e-6, reason=reason, note="channels")


def check_channels(who: str, x: TensorSpec, layout: str, *values: float | tuple[float, ...]) -> None:
    """Check an image against per-channel numbers.

    Raises:
        SpecError: the image has another number of channels, or a dtype that DALI does not take here.
    """
    if str(x.dtype) not in DTYPES:
        known = ", ".join(DTYPES)
        raise SpecError(f"{who} needs an image of {known}, got {x}; convert it first with ops.cast(x, 'float32')")
    channels = None if x.shape is None else x.shape[layout.index("C")]
    for value in values:
        if isinstance(value, tuple) and channels is not None and len(value) != channels:
            raise SpecError(
                f"{who} needs an image of {len(value)} channels, as many as mean and std have, got {x}; write a "
                f"number, or {channels} of them, for each"
            )


def check_count(mean: float | tuple[float, ...], std: float | tuple[float, ...], channels: int) -> None:
    """Check an image whose number of channels was not known before run time.

    Raises:
        ShapeError: it has another number of channels than `mean` or `std`.
    """
    for value in (mean, std):
        if isinstance(value, tuple) and len(value) != channels:
            raise ShapeError(
                f"normalize needs an image of {len(value)} channels, as many as mean and std have, got {channels}"
            )


def counted_dali(d: Any, x: Any, layout: str, mean: float | tuple[float, ...], std: float | tuple[float, ...]) -> Any:
    """`check_count` for DALI, which fails then, and without it ignores numbers for further channels."""
    counts = {len(value) for value in (mean, std) if isinstance(value, tuple)} if d.unknown_channels else ()
    for count in counts:
        last = layout == "HWC"
        dims, shape = ([0, 1, -1], [1, 1, count]) if last else ([-1, 1, 2], [count, 1, 1])
        x = d.fn.reshape(x, src_dims=dims, rel_shape=shape)
    # A reshape takes DALI 0.15 ms for a batch of 64, and is for an array of the user's own, whose axes have no names.
    return x if d.device == "cpu" and d.spec.layout == layout else d.fn.reshape(x, layout=layout)


def normalized_dali(
    d: Any,
    x: Any,
    mean: float | tuple[float, ...],
    std: float | tuple[float, ...],
    given: str,
    layout: str,
    **more: Any,
) -> Any:
    """The op by DALI: `fn.normalize` where it can, else `crop_mirror_normalize`, which gives the same bits on a CPU.

    For an image of 224 x 224 x 3 the first takes 0.085 ms, the second 0.10, and 0.15 if it mirrors half of them.

    Args:
        d: what `Op.dali` gets.
        x: the images.
        mean: as in `Normalize`.
        std: as in `Normalize`.
        given: layout of the images.
        layout: of the result.
        more: arguments of `crop_mirror_normalize`, to crop or to mirror as well.
    """
    x = counted_dali(d, x, given, mean, std)
    counts = {len(value) for value in (mean, std) if isinstance(value, tuple)}
    whole = given == layout == "HWC" and not more and str(d.spec.dtype) in _PLAIN
    if d.device == "cpu" and whole and len(counts) == 1:
        (count,) = counts
        centre, spread = (np.array(per_channel(one, count), np.float32).reshape(1, 1, count) for one in (mean, std))
        return d.fn.normalize(x, mean=centre, stddev=spread, axes=[0, 1])
    return d.fn.crop_mirror_normalize(
        x,
        mean=list(per_channel(mean, 1)),
        std=list(per_channel(std, 1)),
        dtype=d.dtype(np.float32),
        output_layout=layout,
        **more,
    )


def per_channel(value: float | tuple[float, ...], channels: int) -> tuple[float, ...]:
    """A number repeated for every channel; a tuple as it is."""
    return value if isinstance(value, tuple) else (value,) * channels


@lru_cache(64)
def factors(
    mean: float | tuple[float, ...], std: float | tuple[float, ...], channels: int, repeat: int = 1
) -> tuple[Array, Array]:
    """The mean to subtract and the scale to multiply by: float32[repeat * channels] each."""
    centre = np.tile(np.array(per_channel(mean, channels), np.float32), repeat)
    scale = np.tile(np.float32(1) / np.array(per_channel(std, channels), np.float32), repeat)
    return centre, scale


def scaled(x: Array, mean: Array, scale: Array, out: Array) -> Array:
    """``(x - mean) * scale`` in float32, into `out`."""
    if x.dtype != np.float32:  # NumPy converts piece by piece, which takes longer than all at once
        np.copyto(out, x, casting="same_kind")
        x = out
    np.subtract(x, mean, out=out)
    np.multiply(out, scale, out=out)
    return out


_BLOCK = 1 << 14
"""Numbers in a block of rows: blocks of one row take twice as long, those beyond the L1 cache a fifth more."""


def _blocks(height: int, row: int) -> int:
    """How many blocks of as many rows an image has, with up to `_BLOCK` numbers in each, or one row."""
    return next(n for n in range(max(1, -(-height * row // _BLOCK)), height + 1) if height % n == 0)


def scaled_hwc(x: Array, mean: float | tuple[float, ...], std: float | tuple[float, ...], out: Array) -> Array:
    """`scaled` for an image {HWC} and a contiguous `out`, with blocks of rows as one long axis: 16 times as fast."""
    if x.size:
        shape, centre, scale = _in_blocks(mean, std, *x.shape)
        scaled(x.reshape(shape), centre, scale, out.reshape(shape))
    return out


@lru_cache(256)
def _in_blocks(
    mean: float | tuple[float, ...], std: float | tuple[float, ...], height: int, width: int, channels: int
) -> tuple[tuple[int, int], Array, Array]:
    """The shape of an image as blocks, and `factors` for one of them."""
    blocks = _blocks(height, width * channels)
    pixels = height * width // blocks
    return (blocks, pixels * channels), *factors(mean, std, channels, pixels)


def scaled_stack(x: Array, mean: Any, std: Any, layout: str, out: Array | None) -> Array:
    """`scaled` for a stack of images, into `out` if there is one, which is contiguous."""
    check_count(mean, std, x.shape[1 + layout.index("C")])
    out = np.empty(x.shape, np.float32) if out is None else out
    if layout == "CHW":
        centre, scale = factors(mean, std, x.shape[1])
        return scaled(x, centre[:, None, None], scale[:, None, None], out)
    scaled_hwc(x.reshape(-1, *x.shape[2:]), mean, std, out.reshape(-1, *x.shape[2:]))
    return out


def _numbers(name: str, value: Any) -> float | tuple[float, ...]:
    """A number as a float, a sequence or array as a tuple of floats, so that equal parameters make equal ops."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise PlanTypeError(f"normalize needs a number for {name}, or one per channel, got {value!r}") from None
    if array.ndim > 1 or array.size == 0 or not np.isfinite(array).all():
        raise SpecError(f"normalize needs a finite number for {name}, or one per channel, got {value!r}")
    return float(array) if array.ndim == 0 else tuple(array.tolist())


def normalize(
    image: T,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    *,
    layout: Literal["HWC", "CHW"] = "HWC",
) -> T:
    """Subtract `mean` and divide by `std`, per channel: ``(image - mean) / std`` as float32.

    Args:
        image: values of any range; mean and std are in the same units.
        mean: one number, or one per channel; `ops.IMAGENET_MEAN` is for values 0..255.
        std: as `mean`, above 0.
        layout: of the image: "HWC" or "CHW".

    Shapes: ``T[H,W,C]{HWC} -> float32[H,W,C]{HWC}``

    Raises:
        SpecError: the image has another layout or number of channels.

    Example:
        >>> normalize(np.full((1, 1, 3), 100, np.uint8), mean=90, std=5)
        array([[[2., 2., 2.]]], dtype=float32)
    """
    return apply(Normalize(mean, std, layout), image)  # type: ignore[arg-type, no-any-return]
